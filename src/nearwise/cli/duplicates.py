"""`nearwise duplicates`: all rows that are nearer to each other than a threshold, and how precise that is."""

from __future__ import annotations

import argparse
from typing import Any

from nearwise.cli import _rule
from nearwise.cli._common import DONE, add_model_and_data, limit_threads, status


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_model_and_data(parser)
    _rule.add_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Load, calibrate, search, write."""
    _rule.check(arguments, "pairs")
    with limit_threads(arguments.threads):
        from nearwise import study

        fitted, table, rule, notices = _rule.opened(arguments)
        with status("searching", arguments.quiet or arguments.json) as line:
            found = study.near_duplicates(
                fitted, table, rule, lambda share: line.update(f"searching: {share:.0%}")
            )
    summary = f"{len(found.pairs):,} of {found.n_pairs:,} pairs are at most {rule.threshold:.6g} apart"
    if found.precision is not None:
        estimate, low, high = found.precision
        summary += (
            f"; about {estimate:.0%} of them are the same ({low:.0%} to {high:.0%}), if the pairs of the "
            "calibration are like all others but for how many are the same"
        )
    elif found.no_precision:
        summary += f"; how many of them are the same cannot be estimated: {found.no_precision}"
    elif rule.calibration is None:
        summary += "; how many of them are the same is not known without --calibrate"
    if arguments.probability not in (None, "none") and arguments.save is None:
        notices.append(
            "--probability: duplicates has no such column. Probabilities hold where as many pairs are the "
            "same as in the calibration, and of all pairs of rows far fewer are; --save keeps them for decide"
        )
    precision = found.precision and dict(zip(("estimate", "low", "high"), found.precision, strict=True))
    facts: dict[str, Any] = {"n_pairs": found.n_pairs, "precision": precision}
    if found.no_precision:
        facts["no_precision"] = found.no_precision
    _rule.write(arguments, table, rule, found, {}, "pairs", facts, notices, summary)
    return DONE
