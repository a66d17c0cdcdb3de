"""The options by which a command learns when two rows count as the same, and what they come to."""

from __future__ import annotations

import argparse
import json
import math
from typing import TYPE_CHECKING, Any

from nearwise.cli._common import (
    STANDARD,
    BadInput,
    add_columns,
    add_options as add_running,
    as_rows,
    check_distinct,
    check_output,
    columns,
    number_that,
    positive_number,
    refusing_bad_input,
    tell,
)
from nearwise.cli.neighbors import FORMATS

if TYPE_CHECKING:
    from nearwise.data.tables import Table
    from nearwise.study import Decisions, Duplicates, Fitted, Rule

# as in learners.calibration, which imports numerical libraries
_STRATEGIES = ("accuracy", "f_beta", "max_tpr", "max_tnr")
_METHODS = ("isotonic", "platt", "none")


_distance = number_that(lambda value: 0.0 <= value < math.inf, "a distance, a number of 0 or more")
_share = number_that(lambda value: 0.0 <= value <= 1.0, "a number from 0 to 1")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Where to write, when two rows are the same, and how to run."""
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        help="where to write: .csv, .tsv, .json, .parquet, .npz, or - for CSV on standard output (default)",
    )
    rule = parser.add_argument_group(
        "when two rows count as the same (default: by the threshold that MODEL was saved with)"
    )
    how = rule.add_mutually_exclusive_group()
    how.add_argument("--threshold", metavar="T", type=_distance, help="at a distance of at most T")
    how.add_argument(
        "--calibrate",
        metavar="FILE",
        help="choose the threshold on these pairs of DATA, which were not learned from: two objects a line, "
        "and 1 or 0 (the same or not)",
    )
    rule.add_argument(
        "--strategy",
        choices=_STRATEGIES,
        default="accuracy",
        help="what the threshold makes largest: the share of right decisions (the default); the mean of "
        "precision and recall; the share of same pairs that is found where --min-rate of the others is told "
        "apart; or the reverse",
    )
    rule.add_argument(
        "--beta", metavar="B", type=positive_number, default=1.0, help="how much more recall counts in f_beta"
    )
    rule.add_argument("--min-rate", metavar="R", type=_share, help="from 0 to 1, for max_tpr and max_tnr")
    rule.add_argument(
        "--probability",
        choices=_METHODS,
        help="how --calibrate finds the probability of being the same, which decide shows (default isotonic; "
        "few pairs: platt)",
    )
    rule.add_argument("--save", metavar="OUT", help="write the model with the threshold to this file")
    add_columns(parser)
    add_running(parser.add_argument_group("running"), "threads", "force", "quiet", "json")


def check(arguments: argparse.Namespace, rows: str, inputs: dict[str, str | None] | None = None) -> None:
    """Refuse, before anything is read, what cannot be meant; `rows` is what the command finds."""
    if arguments.json and arguments.output is not None:
        raise BadInput(f"--json prints the {rows} on standard output; leave out -o, or write -o FILE.json")
    if (arguments.min_rate is None) == arguments.strategy.startswith("max_"):
        need = "needs --min-rate" if arguments.min_rate is None else "has no --min-rate"
        raise BadInput(f"--strategy {arguments.strategy} {need}")
    if arguments.save is not None and arguments.calibrate is None and arguments.threshold is None:
        raise BadInput("--save keeps a new threshold; give --calibrate or --threshold")
    files = {"DATA": arguments.data, "--calibrate": arguments.calibrate, **(inputs or {})}
    if list(files.values()).count(STANDARD) > 1:
        raise BadInput("only one file can come from standard input")
    if STANDARD in (arguments.model, arguments.save):
        raise BadInput("a model is a file, and neither standard input nor output")
    outputs = {"-o": arguments.output, "--save": arguments.save}
    check_distinct({"MODEL": arguments.model, **files}, outputs)
    for target in outputs.values():
        check_output(target, arguments.force)


def opened(arguments: argparse.Namespace) -> tuple[Fitted, Table, Rule, list[str]]:
    """Model and data, the rule, which is saved if asked, and what the user should know about it."""
    from nearwise import study
    from nearwise.data import tables

    with refusing_bad_input():
        if arguments.output is not None:
            tables.check_target(arguments.output, FORMATS)
        fitted = study.load(arguments.model)
        table = fitted.read(arguments.data, least=2, remembered_ids=True, **columns(arguments))
        if arguments.calibrate is not None:
            rule = study.calibrated(
                fitted,
                table,
                arguments.calibrate,
                strategy=arguments.strategy,
                beta=arguments.beta,
                min_rate=arguments.min_rate,
                probability=None if arguments.probability == "none" else arguments.probability or "isotonic",
            )
        elif arguments.threshold is not None:
            rule = study.Rule(arguments.threshold)
        else:
            rule = study.rule_of_model(fitted)
        if arguments.save is not None:
            study.keep(arguments.model, rule, arguments.save)
    notices = list(table.notices)
    if rule.rates is not None:
        notices.append(
            f"of the pairs of the calibration, {rule.rates.tpr:.1%} of the same and {rule.rates.fpr:.1%} of "
            f"the others are at most {rule.threshold:.6g} apart"
        )
    return fitted, table, rule, notices


def write(
    arguments: argparse.Namespace,
    table: Table,
    rule: Rule,
    found: Decisions | Duplicates,
    more: dict[str, Any],
    rows: str,
    facts: dict[str, Any],
    notices: list[str],
    summary: str,
) -> None:
    """The pairs as a table and a summary, or as JSON: rule, facts, and the pairs by the name `rows`.

    `more` are columns that the command adds to those of all pairs.
    """
    from nearwise.data import tables

    named = table.ids[found.pairs] if table.ids is not None else found.pairs
    columns = {"first": named[:, 0], "second": named[:, 1], "distance": found.distances, **more}
    if (chances := getattr(found, "probability", None)) is not None:
        columns["probability"] = chances
    if arguments.json:
        told: dict[str, Any] = {"threshold": rule.threshold}
        if rule.rates is not None:
            told |= {"true_positive_rate": rule.rates.tpr, "false_positive_rate": rule.rates.fpr}
        print(json.dumps(told | facts | {rows: as_rows(columns), "notices": notices}, indent=2))
        return
    tell([*notices, summary], arguments.quiet)
    with refusing_bad_input():
        written = tables.write_columns(arguments.output or STANDARD, columns, force=arguments.force)
    tell(written, arguments.quiet)
