"""`nearwise evaluate`: the figures of a model on other data, beside those of the distance it started from."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from nearwise.cli import _known
from nearwise.cli._common import (
    DONE,
    STANDARD,
    BadInput,
    add_columns,
    add_model_and_data,
    add_options,
    limit_threads,
    refusing_bad_input,
    tell,
)

if TYPE_CHECKING:
    from nearwise.cli._fitted import Fitted
    from nearwise.cli._known import Known
    from nearwise.evaluation import Figure


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_model_and_data(parser)
    _known.add_options(parser)
    parser.add_argument(
        "--train",
        metavar="FILE",
        help="search the neighbours of the rows of DATA in this file, with the same columns (default: in "
        "DATA, leaving one row out at a time)",
    )
    add_columns(parser)
    add_options(parser.add_argument_group("running"), "seed", "threads", "quiet", "json")


def run(arguments: argparse.Namespace) -> int:
    """Load, measure, and show."""
    _known.check(arguments)
    if arguments.train is not None and arguments.labels is None:
        raise BadInput("--train is where neighbours with labels are searched; give --labels")
    if STANDARD in (arguments.model, arguments.train):
        raise BadInput("MODEL and --train are files; standard input is for DATA and side files")
    with limit_threads(arguments.threads):
        from rich.console import Console

        from nearwise.cli import _fitted

        fitted = _fitted.load(arguments.model)
        known = _known.read(
            arguments, lambda: fitted.read(arguments.data, arguments, labels=arguments.labels, least=2)
        )
        with Console(stderr=True, quiet=arguments.quiet, markup=False).status("measuring"):
            figures = _figures(arguments, fitted, known)
    if arguments.json:
        print(json.dumps(_as_json(arguments, known, figures), indent=2, allow_nan=False))
    elif not arguments.quiet:
        print(*_lines(arguments, known, figures), sep="\n")
    tell(known.notices, arguments.quiet)
    return DONE


def _figures(arguments: argparse.Namespace, fitted: Fitted, known: Known) -> list[Figure]:
    import numpy as np

    from nearwise import evaluation
    from nearwise._before_after import measures

    table, codes, n = known.table, known.codes, len(known.table.X)
    X, among = table.X, None
    if arguments.train is not None:
        train = fitted.read(arguments.train, arguments, labels=arguments.labels, ids_optional=True)
        X = np.concatenate([table.X, train.X])
        labels = np.concatenate([table.labels, train.labels])
        codes, _ = _known.class_codes(labels)
        among = n + np.flatnonzero(codes[n:] >= 0)
        if len(among) < 2:
            raise BadInput(f"{train.source}: two rows with a label or more are needed")
    with refusing_bad_input():
        before, after = measures(fitted.learner, fitted.entered(X))
    if before is None:
        raise BadInput(f"{arguments.model}: the model does not tell from which distance it started")
    found: list[Figure] = []
    if codes is not None:
        queries = np.flatnonzero(codes[:n] >= 0)
        found += evaluation.from_labels(before, after, codes, queries, among, arguments.seed)
    return found + evaluation.from_constraints(before, after, known.constraints, n, arguments.seed)


def _measured_on(known: Known) -> str:
    """What there is to measure on, as text."""
    from nearwise.cli._holding_out import counts, numbered

    parts = []
    if known.codes is not None:
        parts.append(f"{int((known.codes >= 0).sum()):,} labelled rows in {len(known.classes)} classes")
    parts += [numbered(count, kind) for kind, count in counts(known.constraints).items()]
    return " and ".join(parts)


def _as_json(arguments: argparse.Namespace, known: Known, figures: list[Figure]) -> dict[str, Any]:
    from nearwise.cli._outcome import figure_json

    return {
        "model": arguments.model,
        "data": known.table.source,
        "fingerprint": known.table.fingerprint(),
        "measured_on": _measured_on(known),
        "train": arguments.train,
        "seed": arguments.seed,
        "figures": [figure_json(figure) for figure in figures],
        "notices": list(known.notices),
    }


def _lines(arguments: argparse.Namespace, known: Known, figures: list[Figure]) -> list[str]:
    from nearwise.cli._outcome import figure_lines

    among = f", neighbours in {arguments.train}" if arguments.train is not None else ""
    return [
        f"{arguments.model} on {known.table.source}: {_measured_on(known)}{among}",
        "before: the distance that the model started from; after: the learned one; 95 % intervals",
        "",
        *figure_lines(figures),
    ]
