"""`nearwise decide`: which pairs of rows are the same, by a threshold of the learned distance."""

from __future__ import annotations

import argparse

from nearwise.cli import _rule
from nearwise.cli._common import DONE, add_model_and_data, is_same_file, limit_threads, refusing_bad_input


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_model_and_data(parser)
    parser.add_argument(
        "--pairs",
        metavar="FILE",
        required=True,
        help="the pairs to decide: two objects a line; 1 or 0 in a third column is compared with",
    )
    _rule.add_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Load, calibrate, decide, write."""
    _rule.check(arguments, "decisions", {"--pairs": arguments.pairs})
    with limit_threads(arguments.threads):
        from nearwise import study

        fitted, table, rule, notices = _rule.opened(arguments)
        with refusing_bad_input():
            found = study.decide(fitted, table, arguments.pairs, rule)
    if arguments.calibrate is not None and is_same_file(arguments.calibrate, arguments.pairs):
        notices.append(
            f"{arguments.pairs} is both --pairs and --calibrate: the threshold was chosen on these very "
            "pairs, and agrees with them better than with others; decide other pairs to see how good it is"
        )
    count, n = int(found.same.sum()), len(found.same)
    summary = f"{count} of {n} pairs are at most {rule.threshold:.6g} apart and count as the same"
    agreed = None
    if found.known is not None:
        agreed = int((found.known == found.same).sum())
        summary += f"; {agreed} of {n} decisions are as {arguments.pairs} says"
    facts, same = {"same": count, "agreed": agreed}, {"same": found.same.astype(int)}
    _rule.write(arguments, table, rule, found, same, "decisions", facts, notices, summary)
    return DONE
