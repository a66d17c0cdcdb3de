"""Binds constraints to vectors in pieces: cuts them, surveys their rows once, and says what nothing can meet.

How rows are cut depends on their number alone, so that sums over them are the same however many workers there
are and however the data are stored.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearwise._common.errors import RowsError
from nearwise._common.types import Array, Index
from nearwise._common.warning import warn
from nearwise.distributed.running import Runner
from nearwise.distributed.vectors import Vectors, finite_rows
from nearwise.linalg.magnitudes import median
from nearwise.model import binding
from nearwise.model.binding import Weighed
from nearwise.model.divergences import Divergence
from nearwise.model.in_blocks import InBlocks, LossesInBlocks
from nearwise.model.pieces import Piece, Terms, slices
from nearwise.side.blocks import Block, Constraints
from nearwise.side.bounds import sampled_pairs
from nearwise.side.left_out import LeftOutWarning

_PIECES = 256  # about as many are cut, within these limits of their rows
_FEWEST, _MOST = 1 << 13, 1 << 20
_ALL_SIZES = 1 << 22  # rows up to which the median of all sizes is taken; beyond, that of every k-th row
_SIZES = 1 << 20


@dataclass(frozen=True, eq=False)
class BoundInBlocks:
    """The checked parts of a problem whose vectors are in pieces, as `BoundProblem` has them.

    Attributes
    ----------
    features, constraints, divergence : as given
    prior, prior_basis : eigenvalues of the prior, and their vectors; None for the columns of the features
    measurements : the constraints, in pieces
    filled : the constraints by row number, the open bounds filled
    sample_ids : by which the constraints name the objects
    survey : what was found about the rows
    """

    features: Vectors
    constraints: Constraints
    divergence: Divergence
    prior: Array
    prior_basis: Array | None
    measurements: InBlocks
    filled: Constraints
    sample_ids: ArrayLike | None
    survey: Survey
    of_kernel = False

    @property
    def bounds(self) -> Array:
        """The open ones filled."""
        return self.filled.bounds

    def bound_of(self, row: int) -> float:
        """The bound of one row."""
        stated = self.filled.stated(row)
        return float(stated.block.bounds[stated.place])

    def losses(self, penalty: ArrayLike) -> LossesInBlocks:
        """What the rows cost, for one finite penalty."""
        gamma = np.asarray(penalty, dtype=np.float64)
        if gamma.ndim:
            raise ValueError(
                f"constraints in pieces have one penalty in common, got an array of shape {gamma.shape}"
            )
        if not np.isfinite(gamma):
            raise ValueError(
                "hard constraints (penalty inf) need data in memory, because each has a state of its own: "
                "give a finite penalty, or the features as one array"
            )
        survey, reference = self.survey, binding.reference_of(self.prior, self.divergence)
        extreme = survey.extreme
        penalties = float(gamma) * extreme.weights
        rows = Weighed(extreme.relations, extreme.definite, extreme.sizes, extreme.bounds, penalties)

        def stated(place: int) -> Any:
            return self.constraints.stated(int(extreme.rows[place]))

        binding.refuse_incomparable(rows, self.divergence, reference, stated)
        basis, size = self.prior_basis, survey.median_size
        terms = Terms(self.divergence, float(gamma), 1.0, basis, reference, size, survey.lost)
        return LossesInBlocks(terms, self.measurements.n_rows, survey.weight, size)

    def tell_of_lost(self) -> None:
        """Warn of rows that nothing can meet."""
        tell_of_lost(self.constraints, self.survey.lost)


def bind_in_blocks(
    vectors: Vectors,
    constraints: Constraints,
    divergence: Divergence,
    prior: ArrayLike | None,
    sample_ids: ArrayLike | None,
    fixed: ArrayLike | None = None,
) -> BoundInBlocks:
    """Check and bind constraints to vectors in pieces."""
    if fixed is not None:
        raise ValueError("a fixed part of the values needs data in memory: give the features as one array")
    if 0 in vectors.shape:
        raise ValueError(f"features must be a non-empty (n, r) array, got shape {vectors.shape}")
    constraints.refuse_linear()
    values, basis = binding.checked_prior(prior, vectors.shape[1], divergence)
    reference = binding.reference_of(values, divergence)
    names = vectors.ids if sample_ids is None else sample_ids
    filled = Constraints(constraints.resolve(len(vectors), names))
    if any(block.has_open_bounds for block in filled.blocks):
        i, j = sampled_pairs(len(vectors)).T
        rows, place = np.unique(np.concatenate([i, j]), return_inverse=True)
        found = finite_rows(vectors, rows)
        z = found[place[: len(i)]] - found[place[len(i) :]]
        filled = binding.open_bounds(z, basis, reference).filled(filled)
    pieces, starts = cut(filled.blocks, vectors)
    runner = vectors.runner(pieces)
    r = vectors.shape[1] if basis is None else basis.shape[1]
    coordinates = np.eye(r) if basis is None else basis
    most = max(3 * r * (r + 1) // 2, 4096)
    measurements = InBlocks(runner, starts[:-1], np.diff(starts), coordinates, basis, most)
    survey = surveyed(runner, constraints, Terms(divergence, 1.0, 1.0, basis, reference, 1.0), pieces)
    return BoundInBlocks(vectors, constraints, divergence, values, basis, measurements, filled, names, survey)


class Extreme(NamedTuple):
    """Rows that are extreme in some respect, with what they are weighed by."""

    rows: Index
    relations: NDArray[np.int8]
    definite: NDArray[np.bool_]
    sizes: Array
    bounds: Array
    weights: Array


class Survey(NamedTuple):
    """What one pass finds about the rows of a piece, or of all.

    Attributes
    ----------
    sizes : of every k-th row
    counts : how often each of these counts; none where each counts once
    median_size : of those that are not zero
    weighed_size : the median of all that counts rows as often as their weights say
    weight : of all rows together
    lost : rows whose value is always zero, and that do not allow it
    extreme : rows whose bounds and sizes are the most out of proportion
    wrong : a row whose vectors are not finite numbers, or whose squares overflow; -1 for none
    """

    sizes: Array
    counts: Array
    median_size: float
    weighed_size: float
    weight: float
    lost: Index
    extreme: Extreme
    wrong: int


def tell_of_lost(constraints: Constraints, lost: Index) -> None:
    """Warn of rows that nothing can meet, as a survey finds them."""
    if len(lost):
        reason = f" ({constraints.stated(int(lost[0]))}: its value is always 0)"
        warn(LeftOutWarning.of(constraints, lost, reason))


def surveyed(runner: Runner, constraints: Constraints, terms: Terms, pieces: list[Piece]) -> Survey:
    """Look at all rows once; an error names one whose vectors are no numbers to work with."""
    m = len(constraints)
    stride = 1 if m <= _ALL_SIZES else -(-m // _SIZES)
    parts = runner.run(survey_of, terms, stride)
    wrong = next((part.wrong for part in parts if part.wrong >= 0), -1)
    if wrong >= 0:
        reason = "its vectors have entries that are not finite, or whose squares overflow"
        raise RowsError([constraints.stated(wrong)], after=f": {reason}{_place(wrong, pieces)}")
    return _joined(parts)


@np.errstate(all="ignore")
def survey_of(piece: Piece, terms: Terms, stride: int) -> Survey:
    """Look at all rows of a piece once."""
    sizes_found, lost, wrong, total = [np.empty(0)], [np.empty(0, np.int64)], -1, 0.0
    counts, is_weighed = [np.empty(0)], any(block.weights is not None for block in piece.blocks)
    extremes = [_no_extreme()]
    for rows, block, parts in slices(piece, terms.basis):
        weights = np.ones(len(block)) if block.weights is None else block.weights
        total += float(weights.sum())
        sizes, relations = terms.sizes(parts), np.full(len(block), block.relation, np.int8)
        bad = ~np.isfinite(sizes)
        if bad.any() and wrong < 0:
            wrong = int(rows[np.flatnonzero(bad)[0]])
        sizes_found.append(sizes[rows % stride == 0])
        if is_weighed:
            counts.append(weights[rows % stride == 0])
        is_lost = binding.lost_rows(relations, block.bounds, sizes)
        lost.append(rows[is_lost])
        kept = np.flatnonzero((sizes > 0) & ~is_lost)
        if not len(kept):
            continue
        own, b = sizes[kept], np.abs(block.bounds[kept])
        ratio = b / own
        small = np.where(b > 0, ratio, np.inf)
        cost = weights[kept] * np.maximum(own, b) ** (terms.divergence.degree or 0.0)
        extreme_in = ((np.argmax, ratio), (np.argmin, small), (np.argmax, cost), (np.argmin, cost))
        at = kept[sorted({int(find(of)) for find, of in extreme_in})]
        definite = block.of_kind.is_definite(block)[at]
        extremes.append(Extreme(rows[at], relations[at], definite, sizes[at], block.bounds[at], weights[at]))
    extreme = Extreme(*(np.concatenate(column) for column in zip(*extremes, strict=True)))
    found, often = np.concatenate(sizes_found), np.concatenate(counts)
    return Survey(found, often, np.nan, np.nan, total, np.concatenate(lost), extreme, wrong)


def cut(blocks: tuple[Block, ...], vectors: Vectors) -> tuple[list[Piece], Index]:
    """Pieces of resolved constraints without open bounds, and where they begin."""
    m = sum(map(len, blocks))
    size = int(np.clip(-(-m // _PIECES), _FEWEST, _MOST))
    ends = np.cumsum([0, *map(len, blocks)])
    starts = np.append(np.arange(0, m, size), m)
    found = []
    for low, high in itertools.pairwise(starts):
        own = []
        for block, (begin, end) in zip(blocks, itertools.pairwise(ends), strict=True):
            a, b = max(low, begin), min(high, end)
            if a < b:
                own.append(block.between(int(a - begin), int(b - begin)))
        found.append(Piece(int(low), tuple(own), vectors))
    return found, starts


def _place(row: int, pieces: list[Piece]) -> str:
    """Where the first vector is that is not finite, of those that a row names; nothing if all are."""
    piece = [piece for piece in pieces if piece.start <= row][-1]
    place = row - piece.start
    for block in piece.blocks:
        if place < len(block):
            objects = np.asarray(block.object_ids[np.array([place])][0], dtype=np.int64)
            bad = ~np.isfinite(piece.vectors.take(objects)).all(axis=1)
            return f" ({piece.vectors.place(int(objects[bad][0]))})" if bad.any() else ""
        place -= len(block)
    return ""


def _joined(parts: list[Survey]) -> Survey:
    sizes = np.concatenate([np.empty(0), *(part.sizes for part in parts)])
    lost = np.concatenate([np.empty(0, np.int64), *(part.lost for part in parts)])
    seen = sizes > 0
    typical = float(np.median(sizes[seen])) if seen.any() else 1.0
    weighed = typical
    if any(len(part.counts) for part in parts):
        counts = [part.counts if len(part.counts) else np.ones(len(part.sizes)) for part in parts]
        weighed = median(np.where(seen, sizes, typical), np.concatenate(counts))
    columns = zip(_no_extreme(), *(part.extreme for part in parts), strict=True)
    extreme = Extreme(*(np.concatenate(column) for column in columns))
    none, weight = np.empty(0), sum(part.weight for part in parts)
    return Survey(none, none, typical, weighed, weight, lost, extreme, -1)


def _no_extreme() -> Extreme:
    none = np.empty(0, np.int64)
    return Extreme(none, none.astype(np.int8), none != 0, np.empty(0), np.empty(0), np.empty(0))
