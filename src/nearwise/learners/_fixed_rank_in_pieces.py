"""`FixedRankLearner` on rows in pieces: which of them are taken here, and what is done where they are.

Rows of at most 4 million numbers are taken and learned from as in memory. Of more, the start, its bounds and
the units come from some of the rows, by their numbers, and the check holds some objects out; where the
constraints name few objects these are taken, and else the descent passes over pieces.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_feature_names

from nearwise._common.types import Array, Codes, Index
from nearwise.core import SquaresInPieces
from nearwise.distributed import Stacked, Vectors, is_dask, vectors_of
from nearwise.fixed_rank.cone import LogEuclidean
from nearwise.fixed_rank.descent import Armijo
from nearwise.fixed_rank.driver import FixedRankRecord, FixedRankResult, minimise
from nearwise.fixed_rank.geometry import Flat
from nearwise.fixed_rank.in_pieces import RegressionInPieces, SampledNewton, Scale
from nearwise.fixed_rank.regression import Regression
from nearwise.learners import _in_pieces, _rows, _side, fixed_rank as shared
from nearwise.learners._checkpoint import open_checkpoint
from nearwise.linalg.directions import turned
from nearwise.methods import Status
from nearwise.side import Constraints, bounds, drawing

_LOCAL_PAIRS = 20_000  # drawn between near neighbours, unless n_pairs says how many
_COARSE = 1e-4  # tol of the run on a sample, which tells no more


def opened(
    learner: Any, X: Any, y: Any, ids: Any, weights: Any, constraints: Any, first: bool
) -> tuple[Any, Any, Any, Any]:
    """Rows in pieces, or checked in memory, with labels, ids and weights.

    Rows are in memory where they are an array, or few, unless the constraints are in files. `first` is for a
    fit, or what is like one, which remembers the columns.
    """
    in_files = _side.are_in_files(constraints)
    mapped = isinstance(X, np.memmap) and not in_files and X.size <= _rows.MAPPED_NUMBERS
    vectors = None if mapped else vectors_of(X)
    if learner.kernel is not None and (in_files or vectors is not None):
        raise ValueError(
            "kernel needs data and constraints in memory: what is in pieces teaches a linear metric"
        )
    rows: Any = X if vectors is None else vectors
    if vectors is not None and not in_files and vectors.shape[0] * vectors.shape[1] <= _in_pieces.limit():
        rows = _rows.rows_of(vectors, np.arange(len(vectors)))
    if not isinstance(rows, Vectors):
        rows = learner._training_data(rows) if first else _rows.like_dense(learner._checked(rows))
        if in_files and sparse.issparse(rows):
            raise TypeError("constraints in files need dense data, got a sparse matrix")
        rows = Stacked([rows]) if in_files else rows
    elif first:
        _rows.refuse_too_few(rows)
    if vectors is None:
        return rows, y, ids, weights
    labels, weights = (of.compute() if is_dask(of) else of for of in (y, weights))
    if first:  # a Dask dataframe has the names of its columns in its empty sibling
        _check_feature_names(learner, getattr(X, "_meta", None), reset=True)
        learner.n_features_in_ = rows.shape[1]
    return rows, labels, vectors.ids if ids is None else ids, weights


def pairs_of_classes(
    codes: Codes, near: Any, draw: str, n_pairs: int | None, rng: np.random.RandomState
) -> tuple[Index, Index]:
    """As `drawing` has it; of rows in pieces, some objects alone ask for their neighbours."""
    if not isinstance(near, Vectors):
        return drawing.pairs_of_classes(codes, near, draw, n_pairs, rng)
    limit = _LOCAL_PAIRS if n_pairs is None else n_pairs
    labelled = np.flatnonzero(codes >= 0)
    n_asking = min(len(labelled), -(-limit // (2 * drawing.N_NEIGHBORS)))
    asking = np.sort(labelled[rng.permutation(len(labelled))[:n_asking]])
    return _in_pieces.SpaceInPieces(near, np.eye(near.shape[1])).neighbors(codes, asking)


def some_rows(rows: Any) -> Any:
    """All rows in memory; of those in pieces, as many as are taken here, at equal distances."""
    if not isinstance(rows, Vectors):
        return rows
    n, d = rows.shape
    count = min(n, max(_in_pieces.limit() // d, 1))
    return _rows.rows_of(rows, np.arange(count) * n // count)


def sampled_distances(rows: Any, start: Array) -> Array:
    """Squared, of the pairs of objects that tell open bounds."""
    pairs = bounds.sampled_pairs(rows.shape[0])
    if isinstance(rows, Vectors):
        return _in_pieces.SpaceInPieces(rows, start).distances(pairs)
    H = np.asarray(rows @ start)
    return np.asarray(np.square(H[pairs[:, 0]] - H[pairs[:, 1]]).sum(axis=1))


def regression(
    vectors: Vectors,
    constraints: Constraints,
    filled: Constraints,
    units: shared.Units | None,
    with_digest: bool,
) -> tuple[Regression | RegressionInPieces, shared.Units]:
    """The cost of constraints with all their bounds, in memory where they are there and name few objects.

    `constraints` are the same as they were stated, for messages.
    """
    filled.refuse_linear()
    few, named = _in_pieces.few_rows(vectors, filled)
    if named is not None:
        sample = Constraints(filled.resolve(len(named), named))
        _side.tell_of_equal(constraints, few, sample)
    else:
        few, sample = _in_pieces.sample_of_constraints(vectors, filled, np.random.RandomState(0))
    in_memory, units = shared.of_constraints(sample, few, len(few), units, bounds.sampled_bounds(filled))
    if named is not None:
        return in_memory, units
    rows = SquaresInPieces.of(constraints, filled, vectors)
    scale = Scale(units.feature, units.target, rows.weight / rows.n_rows)
    source = (_in_pieces.fingerprint(vectors), filled.blocks) if with_digest else None
    return RegressionInPieces(rows, scale, in_memory, source), units


def batch(
    problem: RegressionInPieces, start: Array, chosen: shared.Settings, callback: Any, path: Any, seed: Any
) -> FixedRankResult:
    """A run on the sample, then one on all rows from where that ends; problem and start in units.

    Whoever asks to stop while the sample is learned from gets what that has found.
    """
    settings = (chosen.geometry, chosen.solver, chosen.tol)
    memory = open_checkpoint(path, seed, problem.source, problem.scale, start, *settings)
    coarse = replace(chosen, tol=max(chosen.tol, _COARSE))

    def on_sample() -> FixedRankResult:
        found = shared.batch(problem.sample, start, coarse, callback)
        if found.status is Status.INTERRUPTED:
            raise _Interrupted(found)
        return found

    try:
        first = on_sample().factor if memory is None else memory.stage(on_sample)
    except _Interrupted as stop:
        return stop.found
    if memory is not None:
        problem = replace(problem, passes=memory.passes)
    # as in memory, a singular optimum is reached in the flat geometry
    geometry: Any = Flat() if isinstance(chosen.geometry, LogEuclidean) else chosen.geometry
    method = Armijo() if chosen.solver == "armijo" else SampledNewton()
    negligible = problem.cost_of_zero

    def solved(factor: Array | None, max_iter: int | None) -> FixedRankResult:
        begin = first if factor is None else factor
        return minimise(problem, geometry, begin, method, chosen.tol, max_iter, None, callback, negligible)

    if memory is None:
        result = solved(first, chosen.max_iter)
    else:
        result = memory.last(solved, first, chosen.max_iter, FixedRankRecord)
    return replace(result, factor=turned(result.factor, start))


class _Interrupted(Exception):
    """Somebody asked to stop; carries what was found so far."""

    def __init__(self, found: FixedRankResult) -> None:
        self.found = found


def partial_fit(
    learner: Any,
    vectors: Vectors,
    y: ArrayLike | None,
    constraints: Constraints | None,
    sample_ids: ArrayLike | None,
    sample_weight: ArrayLike | None,
) -> None:
    """One pass over the constraints in parts that name few objects, each with its share of every block."""
    given = _side.Side.read(len(vectors), y, constraints, sample_ids, sample_weight, in_files=True)
    side = learner._with_pairs(vectors, given, learner.n_pairs, check_random_state(learner.random_state))
    side.constraints.refuse_linear()
    count = max(-(-4 * len(side.constraints) * vectors.shape[1] // _in_pieces.limit()), 1)
    n_used = 0
    for k in range(count):
        shares = [
            block.between(k * len(block) // count, (k + 1) * len(block) // count).loaded()
            for block in side.constraints.blocks
        ]
        part = Constraints(tuple(block for block in shares if len(block)))
        rows, named = _in_pieces.few_rows(vectors, part) if len(part) else (some_rows(vectors), None)
        own = Constraints(part.resolve(len(named), named)) if named is not None else None
        learner.partial_fit(rows, constraints=own)
        n_used += learner.n_constraints_used_
    learner.n_constraints_used_, learner.n_constraints_dropped_ = n_used, side.n_dropped
