"""From what the user gives to what is solved: checks features, prior and penalties, and fills open bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from nearwise._common.checks import not_negative, whole_number
from nearwise._common.errors import RowsError
from nearwise._common.reading import finite, numbers, symmetric
from nearwise._common.types import Array, Index, Mask
from nearwise._common.warning import warn
from nearwise.linalg.dense import RANK_TOLERANCE, spectrum
from nearwise.linalg.eigenpairs import eigenpairs
from nearwise.linalg.magnitudes import median
from nearwise.model.atoms import is_rounding, lengths
from nearwise.model.divergence_check import check_own
from nearwise.model.divergences import Divergence
from nearwise.model.losses import Losses
from nearwise.model.measurements import InMemory, bind
from nearwise.side.blocks import Constraints, Stated
from nearwise.side.bounds import (
    ALL_EQUAL,
    LARGEST_CHANGE,
    NO_MARGIN,
    OpenBounds,
    of_sample,
    sampled_pairs,
)
from nearwise.side.left_out import LeftOutWarning

_NEGATIVE_TOLERANCE = 1e-8  # relative size of a negative eigenvalue that is an error, not rounding
_COMPARABLE, _SMALLEST = 1e30, 1e-300  # how much larger than the divergence a cost may be, and how small
_SMALLEST_SIZE, _LARGEST_SIZE = 1e-305, 1e305  # of a row: multipliers, and sums of values, are finite
_NEEDED = ("scalar", "gradient", "gradient_inverse", "gradient_inverse_slope", "curvature")


@dataclass(frozen=True, eq=False)
class BoundProblem:
    """The checked parts of a problem that do not depend on the penalty; `losses` adds that.

    Attributes
    ----------
    features, constraints, divergence : as given
    prior, prior_basis : eigenvalues of the prior, and their vectors; None for the columns of the features
    measurements : the constraints, bound to the features in that basis
    sizes : of the rows under the prior
    reference : the eigenvalues under which rows are sized
    relations : -1 for "<=", +1 for ">=", 0 for "=="
    bounds : the open ones filled
    lost : rows whose value is zero for every matrix, and that do not allow it
    sample_ids : by which the constraints name the objects
    of_kernel : whether the features are eigenvectors of a kernel, and `prior` its eigenvalues
    groups : of the columns, for a matrix in blocks (`grouped`)
    """

    features: Array
    constraints: Constraints
    divergence: Divergence
    prior: Array
    prior_basis: Array | None
    measurements: InMemory
    sizes: Array
    reference: Array
    relations: NDArray[np.int8]
    bounds: Array
    lost: Mask
    sample_ids: ArrayLike | None
    of_kernel: bool = False
    groups: Index | None = None

    def losses(self, gamma: Array) -> Losses:
        """What the rows cost; refuses what cannot be weighed, and hard rows that nothing can meet.

        `gamma` is what `checked_penalty` has found.
        """
        weights = self.constraints.given_weights
        relations, bounds, sizes = self.relations, self.bounds, self.sizes
        penalties = np.full(len(bounds), gamma) if weights is None else gamma * weights
        if np.count_nonzero(self.lost):  # on a few rows in a quarter of the time of any()
            hard = np.flatnonzero(self.lost & np.isinf(penalties))
            if hard.size:
                raise self._always_zero(int(hard[0]))
            # the value is always 0: as an upper bound it always holds, and costs nothing
            relations = np.where(self.lost, np.int8(-1), relations)
            bounds = np.where(self.lost, np.abs(bounds), bounds)
        definite = self.measurements.is_definite
        rows = Weighed(relations, definite, sizes, bounds, penalties)
        refuse_incomparable(rows, self.divergence, self.reference, self.constraints.stated)
        is_idle = sizes <= 0
        if not np.count_nonzero(is_idle):
            return Losses(self.divergence, relations, bounds, penalties, sizes, definite)
        middle = 1.0 if is_idle.all() else median(sizes[~is_idle])
        sizes = np.where(is_idle, middle, sizes)
        return Losses(self.divergence, relations, bounds, penalties, sizes, definite, is_idle)

    def tell_of_lost(self) -> None:
        """Warn of soft rows that nothing can meet."""
        if np.count_nonzero(self.lost):
            sentence = self._always_zero(int(np.flatnonzero(self.lost)[0]))
            warn(LeftOutWarning.of(self.constraints, np.flatnonzero(self.lost), f" ({sentence})"))

    def _always_zero(self, row: int) -> RowsError:
        G, stated = self.features, self.constraints.stated(row)
        alone = Constraints((stated.block,)).resolve(len(G), self.sample_ids)
        whole = bind(alone, G).sizes(np.ones(G.shape[1]))[stated.place]
        reason = "it lies outside the range of the prior" if whole else "its objects have the same features"
        return RowsError([stated], after=f": {reason}, so its value is always 0")


def check_arguments(
    constraints: Constraints, divergence: Divergence, penalty: ArrayLike, in_files: bool = False
) -> Array:
    """Check what can be told before anything is computed; the penalty.

    `in_files` says whether constraints may be there.
    """
    if not isinstance(constraints, Constraints):
        raise TypeError(f"constraints must be made by nearwise.constraints, got {type(constraints).__name__}")
    if not in_files:
        constraints.refuse_stored("this problem")
    if isinstance(divergence, type):
        raise TypeError(f"divergence must be an object: write {divergence.__name__}() with parentheses")
    if missing := [name for name in _NEEDED if not hasattr(divergence, name)]:
        raise TypeError(
            f"divergence must be LogDet(), VonNeumann(), Frobenius() or derive from SpectralDivergence; "
            f"{divergence!r} has no {missing[0]}"
        )
    check_own(divergence)
    return checked_penalty(penalty, constraints)


def bind_problem(
    features: ArrayLike,
    constraints: Constraints,
    divergence: Divergence,
    prior: ArrayLike | None,
    sample_ids: ArrayLike | None,
    fixed: ArrayLike | None = None,
) -> BoundProblem:
    """Check features and prior, then bind the constraints to the features in the eigenbasis of the prior."""
    G = checked_features(features)
    values, basis = checked_prior(prior, G.shape[1], divergence)
    offsets = None if fixed is None else _checked_offsets(fixed, constraints)
    return bound(G, constraints, divergence, values, basis, sample_ids, offsets=offsets)


def bind_kernel(
    K0: ArrayLike,
    constraints: Constraints,
    divergence: Divergence,
    sample_ids: ArrayLike | None,
    widening: float,
) -> BoundProblem:
    """The same for the nearest kernel to K0: features V and prior diag(Lambda), where K0 = V Lambda V^T.

    With widening > 0, eigenvalues that count as zero take that value instead of being left out.
    """
    K = symmetric(K0, "K0")
    not_negative(widening, "widening")
    if divergence.indefinite_prior:
        values, basis = spectrum(K)
        return bound(np.eye(len(K)), constraints, divergence, values, basis, sample_ids)
    values, vectors = eigenpairs(K)
    _refuse_negative(values, "K0")
    kept = values > RANK_TOLERANCE * max(float(values.max(initial=0.0)), 0.0)
    if not np.count_nonzero(kept):
        raise ValueError("K0 is zero")
    if widening > 0:
        values = np.where(kept, values, widening)
    else:
        values, vectors = values[kept], vectors[:, kept]
    scale = np.ones(len(K))
    return bound(vectors, constraints, divergence, values, None, sample_ids, scale, of_kernel=True)


def bind_factor(
    G: ArrayLike, constraints: Constraints, divergence: Divergence, sample_ids: ArrayLike | None
) -> BoundProblem:
    """The same for K0 = G G^T, of which only G is ever formed."""
    factor = checked_features(G)
    V, singular, _ = np.linalg.svd(factor, full_matrices=False)
    kept = singular > max(factor.shape) * np.finfo(np.float64).eps * singular.max(initial=0.0)
    if not kept.any():
        raise ValueError("G is zero")
    V, values = V[:, kept], singular[kept] ** 2
    return bound(V, constraints, divergence, values, None, sample_ids, np.ones(len(V)), of_kernel=True)


def bound(
    G: Array,
    constraints: Constraints,
    divergence: Divergence,
    values: Array,
    basis: Array | None,
    sample_ids: ArrayLike | None,
    scale: Array | None = None,
    offsets: Array | None = None,
    of_kernel: bool = False,
) -> BoundProblem:
    """The constraints bound to features in the eigenbasis of a prior, with their sizes and bounds."""
    reference = reference_of(values, divergence)
    with np.errstate(all="ignore"):  # what overflows is refused by row
        measurements = bind(constraints.merged(len(G), sample_ids), G, basis, scale)
        sizes = measurements.sizes(reference)
        if np.abs(G).max() > _LARGEST_SIZE**0.5 / 4:  # a small prior hides no squares that overflow
            sizes[~(measurements.sizes(np.ones(len(reference))) <= _LARGEST_SIZE)] = np.inf
    wrong = ~((sizes >= _SMALLEST_SIZE) & (sizes <= _LARGEST_SIZE))
    if np.count_nonzero(wrong) and np.count_nonzero(wrong := wrong & (sizes != 0)):
        row = int(wrong.argmax())
        how = f"{'under' if sizes[row] < _SMALLEST_SIZE else 'over'}flows; rescale them"
        raise RowsError([constraints.stated(row)], after=f": the squared size of its features {how}")
    bounds, relations = constraints.bounds, constraints.relations
    if np.count_nonzero(np.isnan(bounds)):
        pairs = sampled_pairs(len(G)).T
        whole = None if scale is None else scale[pairs].sum(axis=0)
        bounds = open_bounds(G[pairs[0]] - G[pairs[1]], basis, reference, whole).fill(bounds, relations)
    lost = lost_rows(relations, bounds if offsets is None else bounds - offsets, sizes)
    if offsets is not None:
        offsets = np.where(lost, 0.0, offsets)
        sizes, measurements = sizes + np.abs(offsets), replace(measurements, offsets=offsets)
    found = (values, basis, measurements, sizes, reference, relations, bounds, lost)
    return BoundProblem(G, constraints, divergence, *found, sample_ids, of_kernel)


def unreachable(
    features: Array,
    constraints: Constraints,
    divergence: Divergence,
    prior: Array | None,
    fixed: Array | None = None,
) -> Mask:
    """Which constraints, by row number, have the same value for every matrix, and do not allow it.

    That value is 0, or the fixed part. Open bounds are meant to be > 0, and more than the fixed part.
    """
    values, basis = checked_prior(prior, features.shape[1], divergence)
    scale = np.exp2(-np.frexp(np.abs(features).max(initial=0.0))[1])  # squares neither overflow nor vanish
    measured = bind(constraints.resolve(len(features)), features * scale, basis)
    sizes = measured.sizes(reference_of(values, divergence))
    bounds = constraints.bounds if fixed is None else constraints.bounds - fixed
    return lost_rows(constraints.relations, np.nan_to_num(bounds, nan=1.0), sizes)


def random_orthonormal(n: int, rank: int, seed: int) -> Array:
    """An n x rank matrix of orthonormal columns, uniformly distributed."""
    whole_number(n, "n")
    whole_number(rank, "rank", most=n)
    Q, R = np.linalg.qr(np.random.default_rng(seed).normal(size=(n, rank)))
    return np.asarray(Q * np.sign(np.diag(R)), dtype=np.float64)


def checked_features(features: ArrayLike) -> Array:
    """A dense (n, r) array of finite numbers."""
    if sparse.issparse(features):
        raise TypeError("features must be a dense (n, r) array, got a sparse matrix")
    G = finite(features, "features", ndim=2)
    if 0 in G.shape:
        raise ValueError(f"features must be a non-empty (n, r) array, got shape {G.shape}")
    return G


def checked_penalty(penalty: ArrayLike, constraints: Constraints) -> Array:
    """A penalty, or one per constraint, all positive."""
    gamma = numbers(penalty, "penalty")
    if gamma.ndim and gamma.shape != (len(constraints),):
        raise ValueError(
            f"penalty must be one number or {len(constraints)} (one per constraint), got shape {gamma.shape}"
        )
    if np.count_nonzero(gamma > 0) < gamma.size:
        wrong = np.flatnonzero(~(np.atleast_1d(gamma) > 0))
        place = f"[{wrong[0]}]" if gamma.ndim else ""
        raise ValueError(
            f"penalty{place} must be positive (inf for hard), got {np.atleast_1d(gamma)[wrong[0]]}"
        )
    return gamma


def _checked_offsets(fixed: ArrayLike, constraints: Constraints) -> Array:
    offsets = finite(fixed, "fixed", ndim=1)
    if len(offsets) != len(constraints):
        raise ValueError(f"fixed must be {len(constraints)} numbers, one per constraint, got {len(offsets)}")
    unknown = np.flatnonzero(np.isnan(constraints.bounds))
    if unknown.size:
        raise ValueError(
            f"{constraints.describe(int(unknown[0]))}: beside a fixed part, which the features do not tell, "
            "a bound cannot be filled from them; give it"
        )
    return offsets


def checked_prior(prior: ArrayLike | None, r: int, divergence: Divergence) -> tuple[Array, Array | None]:
    """Eigenvalues and eigenvectors; only those of the range, where the divergence confines M to it."""
    if prior is None:
        return np.ones(r), None
    M0 = symmetric(prior, "prior")
    if M0.shape != (r, r):
        raise ValueError(f"prior must have shape {(r, r)} like the features' columns, got {M0.shape}")
    if divergence.indefinite_prior:
        return spectrum(M0)
    diagonal = M0.diagonal()
    is_diagonal = np.count_nonzero(M0) == np.count_nonzero(diagonal)  # eigenvalues are exact, however small
    values, vectors = (diagonal, np.eye(r)) if is_diagonal else eigenpairs(M0)
    _refuse_negative(values, "prior")
    kept = values > (0.0 if is_diagonal else RANK_TOLERANCE * values.max())
    if np.count_nonzero(kept) == len(kept) or not confines(divergence):
        return np.maximum(values, 0.0), vectors
    if values.max() <= 0:
        raise ValueError("prior is zero, so no other matrix is at a finite divergence from it")
    return values[kept], vectors[:, kept]


def confines(divergence: Divergence) -> bool:
    """Whether D(X, Y) is infinite where range(X) leaves range(Y)."""
    return not np.isfinite(divergence.scalar(np.ones(1), np.zeros(1)))[0]


def reference_of(prior: Array, divergence: Divergence) -> Array:
    """The eigenvalues under which rows are sized: the prior's, or their mean where it is not definite."""
    if divergence.indefinite_prior or np.count_nonzero(prior <= 0):
        return np.full(len(prior), np.abs(prior).sum() / len(prior) or 1.0)
    return prior


def open_bounds(z: Array, basis: Array | None, reference: Array, whole: Array | None = None) -> OpenBounds:
    """What fills open bounds, from differences z of sampled pairs."""
    inside = z if basis is None else z @ basis
    distances = np.square(inside) @ reference
    if basis is not None or whole is not None:
        whole = lengths(z) if whole is None else whole
        distances = distances[~is_rounding(inside, whole, z.shape[1])]
    if (found := of_sample(distances, NO_MARGIN)) is None:
        raise ValueError(ALL_EQUAL)
    return found


def lost_rows(relations: NDArray[np.int8], bounds: Array, sizes: Array) -> Mask:
    """Rows whose value is zero for every M in the range of the prior, and that do not allow it."""
    lost: Mask = sizes == 0
    if np.count_nonzero(lost):
        forbids_zero = np.where(relations < 0, bounds < 0, bounds > 0)
        forbids_zero |= (relations == 0) & (bounds != 0)
        lost &= forbids_zero
    return lost


class Weighed(NamedTuple):
    """Rows with what they are weighed by."""

    relations: NDArray[np.int8]
    definite: Mask
    sizes: Array
    bounds: Array
    penalties: Array


@np.errstate(all="ignore")
def refuse_incomparable(
    given: Weighed, divergence: Divergence, reference: Array, stated: Callable[[int], Stated]
) -> None:
    """Refuse rows beside which, in double precision, prior and divergence are nothing."""
    relations, definite, sizes, bounds, penalties = given
    magnitudes = np.abs(bounds)
    ratio = magnitudes / sizes
    is_large, is_small = ratio > LARGEST_CHANGE, ratio < 1 / LARGEST_CHANGE
    far = is_large
    if np.count_nonzero(is_small):  # which asks for much only where it limits a square
        far = is_large | (is_small & definite & (bounds > 0) & (relations <= 0))
    if np.count_nonzero(far) and np.count_nonzero(far := far & (sizes > 0)):
        row = int(far.argmax())
        raise RowsError(
            [stated(row)],
            after=f": its bound is {ratio[row]:.0e} times its size under the prior, and double precision "
            f"bears a factor of {LARGEST_CHANGE:.0e}; is the unit of the bounds that of the features "
            "squared?",
        )
    degree = divergence.degree
    if degree is None:
        return
    unit = float(np.add.reduce(np.abs(reference)) / len(reference))
    objective = len(reference) * np.float64(unit) ** degree
    cost = penalties * np.maximum(sizes, magnitudes) ** degree
    wrong = ~((cost > _SMALLEST) & (cost < _COMPARABLE * objective))
    if not (_SMALLEST < objective < 1 / _SMALLEST):
        raise ValueError(
            f"the eigenvalues of the prior are about {unit:.0e}, so that {type(divergence).__name__} is "
            f"out of the range of double precision; rescale prior and bounds"
        )
    if np.count_nonzero(wrong) and np.count_nonzero(wrong := wrong & (sizes > 0) & np.isfinite(penalties)):
        row = int(wrong.argmax())
        raise RowsError(
            [stated(row)],
            after=f": with the penalty {penalties[row]:.3g} its slack costs about {cost[row]:.0e}, where the "
            f"divergence is about {objective:.0e}, more than double precision can weigh against each other; "
            f"divide the penalty by the scale of the features to the power of {2 * degree:g}",
        )


def _refuse_negative(values: Array, name: str) -> None:
    lowest = values.min(initial=0.0)
    if lowest < 0 and lowest < -_NEGATIVE_TOLERANCE * np.abs(values).max():
        raise ValueError(f"{name} must be positive semidefinite, but has the eigenvalue {values.min():.6g}")
