"""`nearwise evaluate`: the figures of a model on other data, beside those of the distance it started from."""

from __future__ import annotations

import argparse
import json

from nearwise.cli import _side
from nearwise.cli._common import (
    DONE,
    STANDARD,
    BadInput,
    add_columns,
    add_model_and_data,
    add_options,
    columns,
    limit_threads,
    refusing_bad_input,
    status,
    tell,
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_model_and_data(parser)
    _side.add_options(parser)
    parser.add_argument(
        "--train",
        metavar="FILE",
        help="search the neighbours of the rows of DATA in this file, with the same columns (default: in "
        "DATA, leaving one row out at a time)",
    )
    parser.add_argument(
        "--unseen-only",
        action="store_true",
        help="leave out the rows of DATA that the model learned from, and what is known about them",
    )
    add_columns(parser)
    add_options(parser.add_argument_group("running"), "seed", "threads", "quiet", "json")


def run(arguments: argparse.Namespace) -> int:
    """Load, measure, and show."""
    _side.check(arguments)
    if arguments.train is not None and arguments.labels is None:
        raise BadInput("--train is where neighbours with labels are searched; give --labels")
    if STANDARD in (arguments.model, arguments.train):
        raise BadInput("MODEL and --train are files; standard input is for DATA and side files")
    with limit_threads(arguments.threads):
        from nearwise import study
        from nearwise.cli._lines import figure_lines

        train, wanted = None, {"labels": arguments.labels, **columns(arguments)}
        with refusing_bad_input():
            fitted = study.load(arguments.model)
            table = fitted.read(arguments.data, least=2, **wanted)
            known = study.with_files(table, **_side.files(arguments))
            if arguments.train is not None:
                train = fitted.read(arguments.train, ids_optional=True, **wanted)
        with status("measuring", arguments.quiet):
            found = study.measure(
                fitted, known, train=train, unseen_only=arguments.unseen_only, seed=arguments.seed
            )
    advice = "; --unseen-only measures on the others"
    notices = [notice + advice * (notice == found.flattery) for notice in found.notices]
    if arguments.json:
        summary = {
            "model": arguments.model,
            "data": table.source,
            "fingerprint": table.fingerprint(),
            "measured_on": found.text,
            "train": arguments.train,
            "seed": arguments.seed,
            "figures": [figure.as_json() for figure in found.figures],
            "rows_learned_from": found.rows_learned_from,
            "notices": notices,
        }
        print(json.dumps(summary, indent=2, allow_nan=False))
    elif not arguments.quiet:
        among = f", neighbours in {arguments.train}" if arguments.train is not None else ""
        print(
            f"{arguments.model} on {table.source}: {found.text}{among}",
            "before: the distance that the model started from; after: the learned one; 95 % intervals",
            "",
            *figure_lines(found.figures),
            sep="\n",
        )
    tell(notices, arguments.quiet)
    return DONE
