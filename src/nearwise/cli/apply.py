"""`nearwise apply`: the coordinates of data under a model, in which Euclidean distance is the learned one."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from nearwise.cli._common import (
    DONE,
    STANDARD,
    BadInput,
    add_columns,
    add_model_and_data,
    add_options,
    check_distinct,
    check_output,
    columns,
    existing_told_last,
    limit_threads,
    refusing_bad_input,
    tell,
)

if TYPE_CHECKING:
    from nearwise.study.fitted import Fitted

_LARGE = 64_000_000  # bytes of a file from which on it is transformed a part at a time


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_model_and_data(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        default=STANDARD,
        help="where to write: .csv, .tsv, .json, .parquet, .npy, .npz, or - for CSV on standard output "
        "(default)",
    )
    parser.add_argument(
        "--whole",
        action="store_true",
        help="for a model that was learned in a subspace: as many coordinates as there are features, whose "
        "distances are the whole learned ones",
    )
    add_columns(parser)
    add_options(parser.add_argument_group("running"), "threads", "force", "quiet", "json")


def _written_in_pieces(arguments: argparse.Namespace, fitted: Fitted) -> tuple[int, list[str]] | None:
    """Write the coordinates of a folder or a large file a part at a time; None for other data.

    Returns how many rows there are, and the names of the coordinates.
    """
    path = Path(arguments.data)
    possible = arguments.output.lower().endswith((".npy", ".parquet")) and not arguments.drop
    if not path.is_dir():
        is_file = path.suffix in (".npy", ".parquet", ".pq") and path.is_file()
        if not possible or not is_file or path.stat().st_size < _LARGE:
            return None
    elif not possible:
        raise BadInput("a folder is transformed in parts, to a .npy or .parquet file and without --drop")
    from nearwise.study import in_pieces

    vectors = in_pieces.open_files(
        [arguments.data], ids=arguments.id, features=arguments.features, known=fitted.columns
    )
    return len(vectors), in_pieces.write_coordinates(fitted, vectors, arguments.output, arguments.whole)


def run(arguments: argparse.Namespace) -> int:
    """Load, read, transform, write."""
    if arguments.json and arguments.output == STANDARD:
        raise BadInput("--json and the coordinates cannot both go to standard output; give -o FILE")
    check_distinct({"MODEL": arguments.model, "DATA": arguments.data}, {"-o": arguments.output})
    with limit_threads(arguments.threads):
        from nearwise import study
        from nearwise.data import tables

        exists = existing_told_last(lambda: check_output(arguments.output, arguments.force))
        with exists, refusing_bad_input():
            tables.check_target(arguments.output)
            if arguments.id is not None and arguments.output.lower().endswith(".npy"):
                raise BadInput(f"{arguments.output} cannot hold ids; write .npz, .parquet or .csv")
            fitted = study.load(arguments.model)
            written, notices = _written_in_pieces(arguments, fitted), []
            if written is None:
                has_ids = not arguments.output.lower().endswith(".npy")
                table = fitted.read(arguments.data, remembered_ids=has_ids, **columns(arguments))
                found = fitted.transform(table.X, arguments.whole)
                written = len(found), fitted.names_of(found)
                said = tables.write(arguments.output, written[1], found, ids=table.ids, force=arguments.force)
                notices += [*table.notices, *said]
            rows, names = written
        if not arguments.whole and getattr(fitted.metric, "basis", None) is not None:
            notices.append(
                "the model was learned in a subspace: the coordinates are those in it, and distances between "
                "them leave out the rest, which nearwise neighbors includes; --whole writes all"
            )
    if arguments.json:
        summary = {"output": arguments.output, "rows": rows, "coordinates": names, "notices": notices}
        print(json.dumps(summary, indent=2))
    else:
        tell(notices, arguments.quiet)
        if arguments.output != STANDARD and not arguments.quiet:
            print(f"wrote {arguments.output}: {rows} rows of {len(names)} coordinates")
    return DONE
