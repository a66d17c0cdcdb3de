"""`nearwise evaluate`: the figures of a model on other data, beside those of the distance it started from."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any, NamedTuple

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
    import numpy as np
    from numpy.typing import NDArray

    from nearwise.cli._fitted import Fitted
    from nearwise.cli._known import Known
    from nearwise.model.blocks import Constraints
    from nearwise.study.evaluation import Figure


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
    parser.add_argument(
        "--unseen-only",
        action="store_true",
        help="leave out the rows of DATA that the model learned from, and what is known about them",
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
        measured, seen, about = _unseen(arguments, fitted, known)
        given = _given(known, measured)
        with Console(stderr=True, quiet=arguments.quiet, markup=False).status("measuring"):
            figures = _figures(arguments, fitted, known, given)
    notices = [*known.notices, *about, *given.notices]
    if arguments.json:
        found = _as_json(arguments, known, given, figures) | {"rows_learned_from": seen}
        print(json.dumps(found | {"notices": notices}, indent=2, allow_nan=False))
    elif not arguments.quiet:
        print(*_lines(arguments, known, given, figures), sep="\n")
    tell(notices, arguments.quiet)
    return DONE


class _Given(NamedTuple):
    """What there is enough of to measure on: rows with labels, constraints, both as text, and what is not."""

    rows: NDArray[np.int64]
    constraints: Constraints
    text: str
    notices: tuple[str, ...]


def _unseen(
    arguments: argparse.Namespace, fitted: Fitted, known: Known
) -> tuple[NDArray[np.bool_], int | None, tuple[str, ...]]:
    """Which rows to measure on, how many the model learned from (None: it does not tell), and a sentence."""
    import numpy as np

    from nearwise.data.tables import Seen

    n, kept = len(known.table.X), Seen.in_model(fitted.learner)
    everything = np.ones(n, dtype=bool)
    if kept is None:
        if arguments.unseen_only:
            told = "the model does not tell which rows it learned from, as those of nearwise learn do"
            raise BadInput(f"--unseen-only: {arguments.model}: {told}")
        return everything, None, ()
    judged, seen = kept.judge(known.table.X)
    count = int(seen.sum())
    found = f"the model learned from {count:,} of these {n:,} rows"
    if kept.is_sample:
        count = round(n * count / max(int(judged.sum()), 1))
        sample = f"by a sample of {len(kept.fingerprints):,} of its {kept.n_rows:,} rows"
        found = f"{sample}, the model learned from about {count:,} of these {n:,} rows"
    if not arguments.unseen_only:
        sentence = f"{found}, which flatters it; --unseen-only measures on the others"
        return everything, count, (sentence,) if count else ()
    left = judged & ~seen  # of a row that cannot be judged, nobody knows
    return left, count, () if left.all() else (f"{found}; {n - int(left.sum()):,} rows are left out",)


def _given(known: Known, measured: NDArray[np.bool_]) -> _Given:
    import numpy as np

    from nearwise.cli._holding_out import FEWEST, counts, listed, numbered, with_enough

    known_constraints = known.constraints.restricted_to(np.flatnonzero(measured))[0]
    rows, found = np.empty(0, np.int64), []
    if known.codes is not None:
        rows = np.flatnonzero((known.codes >= 0) & measured)
        found = [(len(rows), f"labelled rows in {len(np.unique(known.codes[rows]))} classes")]
    found += [(count, kind) for kind, count in counts(known_constraints).items()]
    enough = [numbered(count, kind) for count, kind in found if count >= FEWEST]
    few = [numbered(count, kind) for count, kind in found if count < FEWEST]
    needed = f"{FEWEST} or more of a kind are needed"
    if not enough:
        raise BadInput(f"too little to measure on: {listed(few or ['nothing is left'])}; {needed}")
    notices = (f"too little to measure on, and left out: {listed(few)}; {needed}",) if few else ()
    rows = rows if len(rows) >= FEWEST else rows[:0]
    return _Given(rows, with_enough(known_constraints), listed(enough), notices)


def _figures(arguments: argparse.Namespace, fitted: Fitted, known: Known, given: _Given) -> list[Figure]:
    import numpy as np

    from nearwise.study import evaluation
    from nearwise.study.before_after import measures

    table, codes, n = known.table, known.codes, len(known.table.X)
    X, among = table.X, None
    if arguments.train is not None:
        train = fitted.read(arguments.train, arguments, labels=arguments.labels, ids_optional=True)
        X = np.concatenate([table.X, train.X])
        labels = np.concatenate([table.labels, train.labels])
        codes, _, _ = _known.class_codes(labels, table.source)
        among = n + np.flatnonzero(codes[n:] >= 0)
        if len(among) < 2:
            raise BadInput(f"{train.source}: two rows with a label or more are needed")
    with refusing_bad_input():
        before, after = measures(fitted.learner, fitted.entered(X))
    if before is None:
        raise BadInput(f"{arguments.model}: the model does not tell from which distance it started")
    found: list[Figure] = []
    if codes is not None and len(given.rows):
        found += evaluation.from_labels(before, after, codes, given.rows, among, arguments.seed)
    return found + evaluation.from_constraints(before, after, given.constraints, n, arguments.seed)


def _as_json(
    arguments: argparse.Namespace, known: Known, given: _Given, figures: list[Figure]
) -> dict[str, Any]:
    from nearwise.cli._outcome import figure_json

    return {
        "model": arguments.model,
        "data": known.table.source,
        "fingerprint": known.table.fingerprint(),
        "measured_on": given.text,
        "train": arguments.train,
        "seed": arguments.seed,
        "figures": [figure_json(figure) for figure in figures],
    }


def _lines(arguments: argparse.Namespace, known: Known, given: _Given, figures: list[Figure]) -> list[str]:
    from nearwise.cli._outcome import figure_lines

    among = f", neighbours in {arguments.train}" if arguments.train is not None else ""
    return [
        f"{arguments.model} on {known.table.source}: {given.text}{among}",
        "before: the distance that the model started from; after: the learned one; 95 % intervals",
        "",
        *figure_lines(figures),
    ]
