"""Pairs of data by a learned distance: which are the same, and all near duplicates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearwise._common.errors import Refused
from nearwise._common.types import Array, Index, Mask
from nearwise.data import models
from nearwise.data.side_files import Side
from nearwise.data.tables import Table
from nearwise.learners.calibration import Calibration, Probability, Rates
from nearwise.linalg.distances import centre_of
from nearwise.study.before_after import Measured
from nearwise.study.fitted import Fitted, called
from nearwise.study.known import with_files

MOST = 5_000_000  # near duplicates, beyond which a threshold means nothing
_TILE = 1024  # rows whose distances to all others are computed at a time
_ROUNDING = 1e-7  # relative, of squared distances that are computed block by block
_SLACK = 1e-9  # of their median, for kernels, whose products round


@dataclass(frozen=True, eq=False)
class Rule:
    """How pairs are decided: by a threshold, and what is known of its mistakes.

    Attributes
    ----------
    threshold : the largest distance, not squared, of a pair that counts as the same
    calibration : pairs that are known to be the same or not; None where the threshold was just given
    probability : of being the same, by distance; None where it is not known
    """

    threshold: float
    calibration: Calibration | None = None
    probability: Probability | None = None

    @property
    def rates(self) -> Rates | None:
        """What the threshold does to the pairs of the calibration."""
        return None if self.calibration is None else self.calibration.rates(self.threshold)


@dataclass(frozen=True, eq=False)
class Decisions:
    """Pairs in the order of their file, as rows of the data, with their distances and what was decided.

    `known` says what the file calls them, where it does.
    """

    pairs: Index
    distances: Array
    same: Mask
    probability: Array | None
    known: Mask | None


@dataclass(frozen=True, eq=False)
class Duplicates:
    """All pairs of different rows at or below a threshold, nearest first; and how many there are of any.

    They have no probabilities: those of a calibration hold where as many pairs are the same as among its own,
    and of all pairs of rows far fewer are.
    """

    pairs: Index
    distances: Array
    n_pairs: int
    precision: tuple[float, float, float] | None  # the estimate, and its 95 % interval
    no_precision: str = ""  # why there is no estimate, where there is a calibration


def rule_of_model(fitted: Fitted) -> Rule:
    """The threshold and the probabilities that a model was saved with."""
    learner = fitted.learner
    if not hasattr(learner, "predict"):
        advice = "calibrate one, or give a number"
        raise Refused(f"{fitted.path} holds {called(learner)} without a threshold; {advice}")
    found: Any = vars(learner)
    return Rule(learner.threshold_, found.get("calibration_"), found.get("probability_"))


def calibrated(
    fitted: Fitted,
    table: Table,
    pairs: str,
    *,
    strategy: str = "accuracy",
    beta: float = 1.0,
    min_rate: float | None = None,
    probability: str | None = None,
) -> Rule:
    """A rule from a file of pairs of the data that are known to be the same or not.

    Parameters
    ----------
    fitted : the model
    table : the data
    pairs : a file with two objects a line, and 1 or 0
    strategy, beta, min_rate : as in `MetricLearner.calibrate_threshold`
    probability : "isotonic", "platt", or None for no probabilities
    """
    side, rows, same = _read(table, pairs)
    if same.all() or not same.any():
        which = "the same" if same.all() else "different"
        raise Refused(f"{side.source}: all pairs are {which}; both kinds are needed to choose a threshold")
    weights = None if (side.constraints.weights == 1).all() else side.constraints.weights
    if weights is not None:
        weights = weights[np.argsort(side.lines, kind="stable")]
    found = Calibration(_distances(fitted, table, rows), same, weights)
    chance = None if probability is None else found.probability(probability)
    return Rule(found.threshold(strategy, beta, min_rate), found, chance)


def keep(model: str, rule: Rule, target: str) -> None:
    """Write a model file once more, with a rule that `rule_of_model` finds in it."""
    found = models.load(model)
    learner = getattr(found, "steps", [("", found)])[-1][1]
    if not hasattr(learner, "set_threshold"):
        raise Refused(f"{model} holds {called(learner)}, which cannot keep a threshold")
    learner.set_threshold(rule.threshold)
    if rule.calibration is not None:
        learner.calibration_ = rule.calibration
    if rule.probability is not None:
        learner.probability_ = rule.probability
    models.save(found, target)


def decide(fitted: Fitted, table: Table, pairs: str, rule: Rule) -> Decisions:
    """Decide the pairs of a file: two objects a line, and perhaps 1 or 0, which is compared with."""
    _, rows, known = _read(table, pairs)
    distances = _distances(fitted, table, rows)
    chance = None if rule.probability is None else rule.probability.of(distances)
    # a file of two columns calls no pair different, and says nothing
    said = None if known.all() else known
    return Decisions(rows, distances, distances <= rule.threshold, chance, said)


def near_duplicates(
    fitted: Fitted, table: Table, rule: Rule, progress: Callable[[float], object] = lambda share: None
) -> Duplicates:
    """All pairs of rows of the data whose distance is at most the threshold of the rule, exactly."""
    X, metric, limit = fitted.entered(table.X), fitted.metric, rule.threshold
    X = X - centre_of(X) if metric.is_linear else X  # moving all objects keeps digits
    n = len(X)
    tiles, distances, count = [np.empty((0, 2), np.int64)], [np.empty(0)], 0
    for start in range(0, n, _TILE):
        squared = metric.squared_distances(X[start : start + _TILE], X[start:])
        slack = _SLACK * float(np.median(squared)) if squared.size else 0.0
        i, j = np.nonzero(squared <= limit * limit * (1 + _ROUNDING) + slack)
        later = j > i
        near = start + np.stack([i[later], j[later]], axis=1)
        apart = np.sqrt(Measured(metric, X).pairs(*near.T))  # by differences, which the blocks only round
        tiles.append(near[apart <= limit])
        distances.append(apart[apart <= limit])
        count += len(tiles[-1])
        if count > MOST:
            raise Refused(
                f"more than {MOST:,} pairs of {table.source} are at most {limit:g} apart: a smaller "
                "threshold is needed"
            )
        progress(min(start + _TILE, n) / n)
    pairs, apart = np.concatenate(tiles), np.concatenate(distances)
    order = np.lexsort((pairs[:, 1], pairs[:, 0], apart))
    found, total, rates = (pairs[order], apart[order]), n * (n - 1) // 2, rule.rates
    if rates is None:
        return Duplicates(*found, total, None)
    share = len(pairs) / total if total else 0.0
    return Duplicates(*found, total, rates.precision_among(share), rates.no_precision(share))


def _read(table: Table, pairs: str) -> tuple[Side, Index, Mask]:
    """A file of pairs; they in the order of its lines, and which are said to be the same."""
    side = with_files(table, pairs=pairs).sides[0]
    ids = [np.asarray(block.object_ids, dtype=np.int64) for block in side.constraints.blocks]
    order = np.argsort(side.lines, kind="stable")
    return side, np.concatenate(ids)[order], (side.constraints.relations < 0)[order]


def _distances(fitted: Fitted, table: Table, rows: Index) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        found = np.sqrt(fitted.metric.pair_squared_distances(fitted.entered(table.X), *rows.T))
    if not np.isfinite(found).all():
        raise Refused(f"{table.source}: the numbers are so large that distances between them overflow")
    return np.asarray(found)
