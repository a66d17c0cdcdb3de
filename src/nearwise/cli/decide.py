"""`nearwise decide`: which pairs of rows are the same, by a threshold of the learned distance."""

from __future__ import annotations

import argparse

from nearwise.cli import _rule
from nearwise.cli._common import (
    DONE,
    BadInput,
    add_model_and_data,
    columns,
    limit_threads,
    refusing_bad_input,
)
from nearwise.cli.neighbors import FORMATS


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
    if arguments.json and arguments.output is not None:
        raise BadInput("--json prints the decisions on standard output; leave out -o, or write -o FILE.json")
    _rule.check(arguments, {"--pairs": arguments.pairs}, arguments.output)
    with limit_threads(arguments.threads):
        from nearwise import study
        from nearwise.data import tables

        with refusing_bad_input():
            if arguments.output is not None:
                tables.check_target(arguments.output, FORMATS)
            fitted = study.load(arguments.model)
            table = fitted.read(arguments.data, least=2, **columns(arguments))
            rule, notes = _rule.chosen(arguments, fitted, table)
            found = study.decide(fitted, table, arguments.pairs, rule)
    named = table.ids[found.pairs] if table.ids is not None else found.pairs
    written = {
        "first": named[:, 0],
        "second": named[:, 1],
        "distance": found.distances,
        "same": found.same.astype(int),
    }
    if found.probability is not None:
        written["probability"] = found.probability
    count, n = int(found.same.sum()), len(found.same)
    summary = f"{count} of {n} pairs are at most {rule.threshold:.6g} apart and count as the same"
    agreed = None
    if found.known is not None:
        agreed = int((found.known == found.same).sum())
        summary += f"; {agreed} of {n} decisions are as {arguments.pairs} says"
    facts = {**_rule.summary(rule), "same": count, "agreed": agreed}
    _rule.write(arguments, written, facts, "decisions", [*table.notices, *notes], summary)
    return DONE
