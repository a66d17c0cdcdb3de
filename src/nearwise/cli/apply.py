"""`nearwise apply`: the coordinates of data under a model, in which Euclidean distance is the learned one."""

from __future__ import annotations

import argparse
import json

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
    add_columns(parser)
    add_options(parser.add_argument_group("running"), "threads", "force", "quiet", "json")


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
            has_ids = not arguments.output.lower().endswith(".npy")
            table = fitted.read(arguments.data, remembered_ids=has_ids, **columns(arguments))
        coordinates = fitted.transform(table.X)
        names = [f"{type(fitted.learner).__name__.lower()}{k}" for k in range(coordinates.shape[1])]
        notices = list(table.notices)
        if getattr(fitted.metric, "basis", None) is not None:
            notices.append(
                "the model was learned in a subspace: the coordinates are those in it, and distances between "
                "them leave out the rest, which nearwise neighbors includes"
            )
        with refusing_bad_input():
            notices += tables.write(
                arguments.output, names, coordinates, ids=table.ids, force=arguments.force
            )
    rows, width = coordinates.shape
    if arguments.json:
        summary = {"output": arguments.output, "rows": rows, "coordinates": names, "notices": notices}
        print(json.dumps(summary, indent=2))
    else:
        tell(notices, arguments.quiet)
        if arguments.output != STANDARD and not arguments.quiet:
            print(f"wrote {arguments.output}: {rows} rows of {width} coordinates")
    return DONE
