"""The options for what is known about the data, and what they mean to the library."""

from __future__ import annotations

import argparse
from typing import Any

from nearwise.cli._common import STANDARD, BadInput

KINDS = ("labels", "pairs", "triplets", "distances")


def add_options(parser: argparse.ArgumentParser) -> None:
    """What is known about the data."""
    side = parser.add_argument_group(
        "what is known",
        "Objects in side files are named by id (with --id), or by row number: the first row of DATA is 0.",
    )
    side.add_argument("--labels", metavar="COL", help="the column of DATA with the class of every row")
    side.add_argument(
        "--pairs", metavar="FILE", help="two objects a line, and 1 or 0 (similar or not); without it: similar"
    )
    side.add_argument(
        "--triplets",
        metavar="FILE",
        help="three objects a line: the first is nearer to the second than to the third",
    )
    side.add_argument("--distances", metavar="FILE", help="two objects a line, and their distance")
    side.add_argument("--squared", action="store_true", help="the distances in FILE are squared ones")


def check(arguments: argparse.Namespace) -> None:
    """Refuse, before anything is read, what cannot be meant."""
    given = [kind for kind in KINDS if getattr(arguments, kind) is not None]
    if not given:
        raise BadInput("nothing is known: give --labels, --pairs, --triplets or --distances")
    if arguments.squared and "distances" not in given:
        raise BadInput("--squared says what the numbers in --distances are; give --distances")
    sources = [arguments.data, *(getattr(arguments, kind) for kind in given if kind != "labels")]
    if sources.count(STANDARD) > 1:
        raise BadInput("only one file can come from standard input")


def files(arguments: argparse.Namespace) -> dict[str, Any]:
    """The files of side information, as parameters of `study.with_files`."""
    names = ("pairs", "triplets", "distances", "squared", "decimal", "thousands")
    return {name: getattr(arguments, name) for name in names}
