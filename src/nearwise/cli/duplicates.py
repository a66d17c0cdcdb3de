"""`nearwise duplicates`: all rows that are nearer to each other than a threshold, and how precise that is."""

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
    _rule.add_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Load, calibrate, search, write."""
    if arguments.json and arguments.output is not None:
        raise BadInput("--json prints the pairs on standard output; leave out -o, or write -o FILE.json")
    _rule.check(arguments, {}, arguments.output)
    with limit_threads(arguments.threads):
        from rich.console import Console

        from nearwise import study
        from nearwise.data import tables

        with refusing_bad_input():
            if arguments.output is not None:
                tables.check_target(arguments.output, FORMATS)
            fitted = study.load(arguments.model)
            table = fitted.read(arguments.data, least=2, **columns(arguments))
            rule, notes = _rule.chosen(arguments, fitted, table)
        console = Console(stderr=True, quiet=arguments.quiet or arguments.json, markup=False)
        with console.status("searching") as line:
            found = study.near_duplicates(
                fitted, table, rule, lambda share: line.update(f"searching: {share:.0%}")
            )
    named = table.ids[found.pairs] if table.ids is not None else found.pairs
    written = {"first": named[:, 0], "second": named[:, 1], "distance": found.distances}
    if found.probability is not None:
        written["probability"] = found.probability
    summary = f"{len(found.pairs):,} of {found.n_pairs:,} pairs are at most {rule.threshold:.6g} apart"
    if found.precision is not None:
        estimate, low, high = found.precision
        summary += (
            f"; about {estimate:.0%} of them are the same ({low:.0%} to {high:.0%}), if the pairs of the "
            "calibration are like all others but for how many are the same"
        )
    elif rule.calibration is None:
        summary += "; how many of them are the same is not known without --calibrate"
    precision = found.precision and dict(zip(("estimate", "low", "high"), found.precision, strict=True))
    facts = {**_rule.summary(rule), "n_pairs": found.n_pairs, "precision": precision}
    _rule.write(arguments, written, facts, "pairs", [*table.notices, *notes], summary)
    return DONE
