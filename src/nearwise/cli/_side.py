"""The options for what is known about the data, and what they mean to the library."""

from __future__ import annotations

import argparse
from typing import Any

from nearwise.cli._common import STANDARD, BadInput, number

KINDS = ("labels", "pairs", "triplets", "distances")
_OBJECTS = ("first", "second", "third", "fourth")
ROLES = (*_OBJECTS, "similar", "rating", "distance", "relation", "weight", "annotator")


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
    side.add_argument(
        "--similar-above",
        type=number,
        metavar="T",
        help="pairs with a rating above T are similar, those below T are not, and T itself says nothing",
    )
    side.add_argument(
        "--conflicts",
        choices=("keep", "majority", "drop"),
        help="where answers about the same objects differ: keep all, those of the majority, or none "
        "(default: refuse pairs and distances, keep triplets)",
    )
    side.add_argument(
        "--role",
        type=_role,
        metavar="ROLE=COL",
        action="append",
        default=[],
        help=f"what a column of these files is, where its name does not say it: {', '.join(ROLES)} "
        "(again for more)",
    )


def check(arguments: argparse.Namespace) -> None:
    """Refuse, before anything is read, what cannot be meant."""
    given = [kind for kind in KINDS if getattr(arguments, kind) is not None]
    if not given:
        raise BadInput("nothing is known: give --labels, --pairs, --triplets or --distances")
    if arguments.squared and "distances" not in given:
        raise BadInput("--squared says what the numbers in --distances are; give --distances")
    files = [kind for kind in given if kind != "labels"]
    for option, chosen in (("--conflicts", arguments.conflicts), ("--role", arguments.role)):
        if chosen and not files:
            raise BadInput(f"{option} is about files of feedback; give --pairs, --triplets or --distances")
    if arguments.similar_above is not None and "pairs" not in given:
        raise BadInput("--similar-above says which ratings in --pairs are similar; give --pairs")
    sources = [arguments.data, *(getattr(arguments, kind) for kind in given if kind != "labels")]
    if sources.count(STANDARD) > 1:
        raise BadInput("only one file can come from standard input")


def files(arguments: argparse.Namespace) -> dict[str, Any]:
    """The files of side information, as parameters of `study.with_files`."""
    names = ("pairs", "triplets", "distances", "squared", "similar_above", "conflicts")
    found = {name: getattr(arguments, name) for name in (*names, "decimal", "thousands")}
    return found | {"roles": dict(arguments.role)}


def _role(text: str) -> tuple[str, str]:
    role, equals, column = text.partition("=")
    if role not in ROLES or not equals or not column:
        raise argparse.ArgumentTypeError(f"{text!r} is not ROLE=COL, with one of {', '.join(ROLES)}")
    return role, column
