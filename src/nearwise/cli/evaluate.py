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
    add_options,
    limit_threads,
    refusing_bad_input,
)

if TYPE_CHECKING:
    from nearwise.cli._known import Known
    from nearwise.evaluation import Figure
    from nearwise.tables import Table


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("model", metavar="MODEL", help="a model that nearwise learn or nw.save wrote")
    _known.add_options(parser)
    parser.add_argument(
        "--train",
        metavar="FILE",
        help="search the neighbours of the rows of DATA in this file, with the same columns (default: in "
        "DATA, leaving one row out at a time)",
    )
    add_options(parser, "seed", "threads", "quiet", "json")


def run(arguments: argparse.Namespace) -> int:
    """Load, measure, and show."""
    _known.check(arguments)
    if arguments.train is not None and arguments.labels is None:
        raise BadInput("--train is where neighbours with labels are searched; give --labels")
    if STANDARD in (arguments.model, arguments.train):
        raise BadInput("MODEL and --train are files; standard input is for DATA and side files")
    from nearwise.cli._outcome import print_notices

    with limit_threads(arguments.threads):
        from rich.console import Console

        import nearwise as nw

        with refusing_bad_input():
            model = nw.load(arguments.model)
        known = _known.read(arguments, names_of(model))
        with Console(stderr=True, quiet=arguments.quiet, markup=False).status("measuring"):
            figures = _figures(arguments, model, known)
    if arguments.json:
        print(json.dumps(_as_json(arguments, known, figures), indent=2, allow_nan=False))
    elif not arguments.quiet:
        _tell(arguments, known, figures)
    if not arguments.quiet:
        print_notices(known.notices)
    return DONE


def names_of(model: Any) -> tuple[str, ...]:
    """The names of the features that a model was learned on; none where it knows none."""
    return tuple(map(str, getattr(model, "feature_names_in_", ())))


def _figures(arguments: argparse.Namespace, model: Any, known: Known) -> list[Figure]:
    import warnings

    import numpy as np

    from nearwise import evaluation
    from nearwise._before_after import measures

    X, codes = known.table.X, known.codes
    train = None
    if arguments.train is not None:
        train = _read_train(arguments, names_of(model))
        if train.X.shape[1] != X.shape[1]:
            raise BadInput(
                f"{train.source} has {train.X.shape[1]} features, but {known.table.source} has {X.shape[1]}"
            )
        X = np.concatenate([X, train.X])
        labels = np.concatenate([known.table.labels, train.labels])
        there = labels != None  # noqa: E711  # element by element
        codes = np.full(len(labels), -1, np.int64)
        codes[there] = np.unique(labels[there].astype(str), return_inverse=True)[1]
    with refusing_bad_input(), warnings.catch_warnings():
        # names were compared when the columns were chosen; arrays carry none
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        before, after = measures(model, X)
    if before is None:
        raise BadInput(f"{arguments.model}: the model does not say from which distance it started")
    found: list[Figure] = []
    n = len(known.table.X)
    if codes is not None:
        queries = np.flatnonzero(codes[:n] >= 0)
        among = None if train is None else n + np.flatnonzero(codes[n:] >= 0)
        found += evaluation.from_labels(before, after, codes, queries, among, arguments.seed)
    found += evaluation.from_constraints(before, after, known.constraints, n, arguments.seed)
    return found


def _read_train(arguments: argparse.Namespace, names: tuple[str, ...]) -> Table:
    from nearwise import tables

    with refusing_bad_input():
        return tables.read(
            arguments.train,
            labels=arguments.labels,
            ids=arguments.id,
            drop=arguments.drop,
            features=arguments.features,
            known=names,
        )


def _known_text(known: Known) -> str:
    """What is measured on, as text."""
    from nearwise.cli._holding_out import counts

    parts = []
    if known.codes is not None:
        parts.append(f"{int((known.codes >= 0).sum()):,} labelled rows in {len(known.classes)} classes")
    parts += [f"{count:,} {kind}" for kind, count in counts(known.constraints).items()]
    return ", ".join(parts)


def _as_json(arguments: argparse.Namespace, known: Known, figures: list[Figure]) -> dict[str, Any]:
    from nearwise.cli._outcome import figure_json

    return {
        "model": arguments.model,
        "data": known.table.source,
        "fingerprint": known.table.fingerprint(),
        "measured_on": _known_text(known),
        "neighbors_in": arguments.train or "the other rows",
        "seed": arguments.seed,
        "figures": [figure_json(figure) for figure in figures],
        "notices": list(known.notices),
    }


def _tell(arguments: argparse.Namespace, known: Known, figures: list[Figure]) -> None:
    from nearwise.cli._outcome import figure_lines

    among = f", neighbours in {arguments.train}" if arguments.train is not None else ""
    print(f"{arguments.model} on {known.table.source}: {_known_text(known)}{among}")
    print("before: the distance that the model started from; after: the learned one; 95 % intervals\n")
    print(*figure_lines(figures), sep="\n")
