"""From what the user gives to what is solved: checks arguments, binds constraints to features, fills bounds.

`bind` and its siblings check features and prior and return a `Binding`: all of a problem that does not depend
on the penalty. `Binding.measured` adds the penalty, refuses what double precision cannot weigh, and gives the
rows with their losses.
"""

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
from nearwise.core.atoms import BoundRows, bind_rows, is_rounding, lengths, row_sizes
from nearwise.core.divergence_check import check_own
from nearwise.core.divergences import SpectralDivergence
from nearwise.core.losses import Loss
from nearwise.core.measured import InMemory
from nearwise.core.rows import Rows
from nearwise.linalg.dense import RANK_TOLERANCE, spectrum
from nearwise.linalg.eigenpairs import eigenpairs
from nearwise.linalg.magnitudes import median
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

NEGATIVE = 1e-8  # relative size of a negative eigenvalue that is an error of the user's, and not rounding
WEIGHABLE = 1e30  # times the divergence: costs beyond lose it to rounding, in every sum of the two
SMALLEST = 1e-300  # of costs: smaller ones underflow
SIZES = (1e-305, 1e305)  # of rows: outside, multipliers or sums of values are not finite


@dataclass(frozen=True, eq=False)
class Binding:
    """The checked parts of a problem that do not depend on the penalty.

    Attributes
    ----------
    features, constraints, divergence, sample_ids : as given
    prior, prior_basis : eigenvalues of the prior and their vectors; None for the columns of the features
    rows, sizes : the constraints in that basis, and their sizes under the prior
    is_definite : rows whose value is never negative
    reference : the eigenvalues under which rows are sized
    relations, bounds : of the rows, open bounds filled
    is_lost : rows whose value is zero for every matrix, and that do not allow it
    of_kernel : whether the features are eigenvectors of a kernel and `prior` its eigenvalues
    groups : of the columns, where M is in blocks
    """

    features: Array
    constraints: Constraints
    divergence: SpectralDivergence
    sample_ids: ArrayLike | None
    prior: Array
    prior_basis: Array | None
    rows: Rows
    is_definite: Mask
    sizes: Array
    reference: Array
    relations: NDArray[np.int8]
    bounds: Array
    is_lost: Mask
    of_kernel: bool = False
    groups: Index | None = None

    def measured(self, gamma: Array) -> InMemory:
        """The rows with what they cost; refuses what cannot be weighed, and hard rows that nothing meets.

        `gamma` is what `checked_penalty` returned.
        """
        weights = self.constraints.given_weights
        penalties = np.full(len(self.bounds), gamma) if weights is None else gamma * weights
        relations, bounds, sizes = self.relations, self.bounds, self.sizes
        if self.is_lost.any():
            hard = np.flatnonzero(self.is_lost & np.isinf(penalties))
            if hard.size:
                raise self._always_zero(int(hard[0]))
            # the value is always 0: as an upper bound the row always holds, and costs nothing
            relations = np.where(self.is_lost, np.int8(-1), relations)
            bounds = np.where(self.is_lost, np.abs(bounds), bounds)
        definite = self.is_definite
        weighed = Weighed(relations, definite, sizes, bounds, penalties)
        refuse_incomparable(weighed, self.divergence, self.reference, self.constraints.stated)
        is_idle = sizes <= 0
        if not is_idle.any():
            loss = Loss(self.divergence, relations, bounds, penalties, sizes, definite)
        else:
            typical = 1.0 if is_idle.all() else median(sizes[~is_idle])
            sizes = np.where(is_idle, typical, sizes)
            loss = Loss(self.divergence, relations, bounds, penalties, sizes, definite, is_idle)
        return InMemory(self.rows, loss)

    def warn_of_lost(self) -> None:
        """Warn of soft rows that nothing can meet."""
        if self.is_lost.any():
            lost = np.flatnonzero(self.is_lost)
            warn(LeftOutWarning.of(self.constraints, lost, f" ({self._always_zero(int(lost[0]))})"))

    @property
    def typical_size(self) -> float:
        """The median size of the rows, each as often as its weight says."""
        positive = self.sizes > 0
        if not positive.any():
            return 1.0
        typical = np.where(positive, self.sizes, median(self.sizes[positive]))
        return median(typical, self.constraints.weights)

    def stated(self, row: int) -> Stated:
        """One constraint, with its bound filled in."""
        return self.constraints.stated(row, float(self.bounds[row]))

    def _always_zero(self, row: int) -> RowsError:
        G, stated = self.features, self.constraints.stated(row)
        alone = Constraints((stated.block,)).resolve(len(G), self.sample_ids)
        whole = row_sizes(bind_rows(alone, G), np.ones(G.shape[1]))[stated.place]
        reason = "it lies outside the range of the prior" if whole else "its objects have the same features"
        return RowsError([stated], after=f": {reason}, so its value is always 0")


def check_arguments(
    constraints: Constraints, divergence: SpectralDivergence, penalty: ArrayLike, in_files: bool = False
) -> Array:
    """The penalty, after what can be checked before anything is computed.

    `in_files` says whether constraints may be there.
    """
    if not isinstance(constraints, Constraints):
        raise TypeError(f"constraints must be made by nearwise.constraints, got {type(constraints).__name__}")
    if not in_files:
        constraints.refuse_stored("this problem")
    if isinstance(divergence, type):
        raise TypeError(f"divergence must be an object: write {divergence.__name__}() with parentheses")
    if not isinstance(divergence, SpectralDivergence):
        lacking = [name for name in ("scalar", "gradient") if not hasattr(divergence, name)]
        raise TypeError(
            "divergence must be LogDet(), VonNeumann(), Frobenius() or derive from SpectralDivergence; "
            f"{divergence!r} {f'has no {lacking[0]}' if lacking else 'does not'}"
        )
    check_own(divergence)
    return checked_penalty(penalty, constraints)


def bind(
    features: ArrayLike,
    constraints: Constraints,
    divergence: SpectralDivergence,
    prior: ArrayLike | None,
    sample_ids: ArrayLike | None,
    fixed: ArrayLike | None = None,
    groups: Index | None = None,
) -> Binding:
    """Constraints on distances between rows of features, in the eigenbasis of the prior."""
    G = checked_features(features)
    values, basis = checked_prior(prior, G.shape[1], divergence, groups)
    offsets = None if fixed is None else _checked_offsets(fixed, constraints)
    return _bound(G, constraints, divergence, values, basis, sample_ids, offsets=offsets, groups=groups)


def bind_kernel(
    K0: ArrayLike,
    constraints: Constraints,
    divergence: SpectralDivergence,
    sample_ids: ArrayLike | None,
    widening: float,
) -> Binding:
    """The nearest kernel to K0: features V and prior diag(Lambda), where K0 = V Lambda V^T.

    With widening > 0, eigenvalues that count as zero take that value instead of being left out.
    """
    K = symmetric(K0, "K0")
    not_negative(widening, "widening")
    if divergence.indefinite_prior:
        values, basis = spectrum(K)
        return _bound(np.eye(len(K)), constraints, divergence, values, basis, sample_ids)
    values, vectors = eigenpairs(K)
    _refuse_negative(values, "K0")
    kept = values > RANK_TOLERANCE * max(float(values.max(initial=0.0)), 0.0)
    if not kept.any():
        raise ValueError("K0 is zero")
    if widening > 0:
        values = np.where(kept, values, widening)
    else:
        values, vectors = values[kept], vectors[:, kept]
    scale = np.ones(len(K))
    return _bound(vectors, constraints, divergence, values, None, sample_ids, scale, of_kernel=True)


def bind_factor(
    G: ArrayLike, constraints: Constraints, divergence: SpectralDivergence, sample_ids: ArrayLike | None
) -> Binding:
    """The same for K0 = G G^T, of which only G is ever formed."""
    factor = checked_features(G)
    V, singular, _ = np.linalg.svd(factor, full_matrices=False)
    kept = singular > max(factor.shape) * np.finfo(np.float64).eps * singular.max(initial=0.0)
    if not kept.any():
        raise ValueError("G is zero")
    V, values = V[:, kept], singular[kept] ** 2
    return _bound(V, constraints, divergence, values, None, sample_ids, np.ones(len(V)), of_kernel=True)


def _bound(
    G: Array,
    constraints: Constraints,
    divergence: SpectralDivergence,
    values: Array,
    basis: Array | None,
    sample_ids: ArrayLike | None,
    scale: Array | None = None,
    offsets: Array | None = None,
    of_kernel: bool = False,
    groups: Index | None = None,
) -> Binding:
    """The rows in the eigenbasis of a prior, with their sizes and bounds.

    1. Bind the rows, and refuse those whose squares leave the range of double precision.
    2. Fill open bounds from sampled pairs.
    3. Cut the rows to the blocks of M, where it has blocks.
    4. Find the rows whose value is zero for every matrix.
    """
    reference = reference_of(values, divergence)
    with np.errstate(all="ignore"):  # what overflows is refused by row
        found = bind_rows(constraints.merged(len(G), sample_ids), G, basis, scale)
        rows, is_definite, sizes = found.rows, found.is_definite, row_sizes(found, reference)
        _refuse_extreme(found, G, sizes, constraints)
    bounds, relations = constraints.bounds, constraints.relations
    if np.isnan(bounds).any():
        pairs = sampled_pairs(len(G)).T
        whole = None if scale is None else scale[pairs].sum(axis=0)
        bounds = open_bounds(G[pairs[0]] - G[pairs[1]], basis, reference, whole).fill(bounds, relations)
    if groups is not None:
        of_values = groups if basis is None else groups_of_vectors(basis, groups)
        rows = rows.by_groups(of_values)
        # a row costs what it costs a whole matrix, unless all of it lies between groups
        sizes = np.where(rows.magnitudes(np.sqrt(reference)) > 0, sizes, 0.0)
    lost = lost_rows(relations, bounds if offsets is None else bounds - offsets, sizes)
    if offsets is not None:
        offsets = np.where(lost, 0.0, offsets)
        sizes, rows = sizes + np.abs(offsets), replace(rows, offsets=offsets)
        is_definite = is_definite & (offsets >= 0)
    return Binding(
        features=G,
        constraints=constraints,
        divergence=divergence,
        sample_ids=sample_ids,
        prior=values,
        prior_basis=basis,
        rows=rows,
        is_definite=is_definite,
        sizes=sizes,
        reference=reference,
        relations=relations,
        bounds=bounds,
        is_lost=lost,
        of_kernel=of_kernel,
        groups=groups,
    )


def unreachable(
    features: Array,
    constraints: Constraints,
    divergence: SpectralDivergence,
    prior: Array | None,
    fixed: Array | None = None,
) -> Mask:
    """Which constraints, by row number, have the same value for every matrix, and do not allow it.

    That value is 0, or the fixed part. Open bounds are meant to be > 0, and more than the fixed part.
    """
    values, basis = checked_prior(prior, features.shape[1], divergence)
    scale = np.exp2(-np.frexp(np.abs(features).max(initial=0.0))[1])  # squares neither overflow nor vanish
    found = bind_rows(constraints.resolve(len(features)), features * scale, basis)
    bounds = constraints.bounds if fixed is None else constraints.bounds - fixed
    sizes = row_sizes(found, reference_of(values, divergence))
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
    wrong = np.flatnonzero(~(np.atleast_1d(gamma) > 0))
    if wrong.size:
        place = f"[{wrong[0]}]" if gamma.ndim else ""
        value = np.atleast_1d(gamma)[wrong[0]]
        raise ValueError(f"penalty{place} must be positive (inf for hard), got {value}")
    return gamma


def checked_prior(
    prior: ArrayLike | None, r: int, divergence: SpectralDivergence, groups: Index | None = None
) -> tuple[Array, Array | None]:
    """Eigenvalues and eigenvectors; only those of the range, where the divergence confines M to it.

    With `groups`, the group of every column, every eigenvector lies in one group.
    """
    if prior is None:
        return np.ones(r), None
    M0 = symmetric(prior, "prior")
    if M0.shape != (r, r):
        raise ValueError(f"prior must have shape {(r, r)} like the features' columns, got {M0.shape}")
    if groups is not None:
        return _prior_in_groups(M0, groups, divergence)
    if divergence.indefinite_prior:
        return spectrum(M0)
    diagonal = M0.diagonal()
    is_diagonal = np.count_nonzero(M0) == np.count_nonzero(diagonal)  # eigenvalues are exact, however small
    values, vectors = (diagonal, np.eye(r)) if is_diagonal else eigenpairs(M0)
    _refuse_negative(values, "prior")
    kept = values > (0.0 if is_diagonal else RANK_TOLERANCE * values.max())
    if kept.all() or not divergence.confines:
        return np.maximum(values, 0.0), vectors
    if values.max() <= 0:
        raise ValueError("prior is zero, so no other matrix is at a finite divergence from it")
    return values[kept], vectors[:, kept]


def groups_of_vectors(basis: Array, groups: Index) -> Index:
    """The group of every column of a basis whose columns lie in one group each."""
    return np.asarray(groups[np.abs(basis).argmax(axis=0)])


def reference_of(prior: Array, divergence: SpectralDivergence) -> Array:
    """The eigenvalues under which rows are sized: the prior's, or their mean where it is not definite."""
    if divergence.indefinite_prior or (prior <= 0).any():
        return np.full(len(prior), np.abs(prior).sum() / len(prior) or 1.0)
    return prior


def open_bounds(z: Array, basis: Array | None, reference: Array, whole: Array | None = None) -> OpenBounds:
    """What fills open bounds, from differences z of sampled pairs; `whole` are the sizes they come from."""
    inside = z if basis is None else z @ basis
    distances = np.square(inside) @ reference
    if basis is not None or whole is not None:
        distances = distances[~is_rounding(inside, lengths(z) if whole is None else whole, z.shape[1])]
    if (found := of_sample(distances, NO_MARGIN)) is None:
        raise ValueError(ALL_EQUAL)
    return found


def lost_rows(relations: NDArray[np.int8], bounds: Array, sizes: Array) -> Mask:
    """Rows whose value is zero for every M in the range of the prior, and that do not allow it."""
    forbids_zero = np.where(relations < 0, bounds < 0, bounds > 0) | ((relations == 0) & (bounds != 0))
    return np.asarray((sizes == 0) & forbids_zero)


class Weighed(NamedTuple):
    """Rows with what they are weighed by."""

    relations: NDArray[np.int8]
    is_definite: Mask
    sizes: Array
    bounds: Array
    penalties: Array


@np.errstate(all="ignore")
def refuse_incomparable(
    given: Weighed, divergence: SpectralDivergence, reference: Array, stated: Callable[[int], Stated]
) -> None:
    """Refuse rows beside which, in double precision, prior and divergence are nothing."""
    relations, definite, sizes, bounds, penalties = given
    live, magnitudes = sizes > 0, np.abs(bounds)
    ratio = magnitudes / sizes
    # a small bound asks for much only where it limits a square
    limits_square = definite & (bounds > 0) & (relations <= 0)
    far = live & ((ratio > LARGEST_CHANGE) | ((ratio < 1 / LARGEST_CHANGE) & limits_square))
    if far.any():
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
    unit = float(np.abs(reference).mean())
    objective = len(reference) * np.float64(unit) ** degree
    if not (SMALLEST < objective < 1 / SMALLEST):
        raise ValueError(
            f"the eigenvalues of the prior are about {unit:.0e}, so that {type(divergence).__name__} is "
            "out of the range of double precision; rescale prior and bounds"
        )
    cost = penalties * np.maximum(sizes, magnitudes) ** degree
    wrong = live & np.isfinite(penalties) & ~((cost > SMALLEST) & (cost < WEIGHABLE * objective))
    if wrong.any():
        row = int(wrong.argmax())
        raise RowsError(
            [stated(row)],
            after=f": with the penalty {penalties[row]:.3g} its slack costs about {cost[row]:.0e}, where the "
            f"divergence is about {objective:.0e}, more than double precision can weigh against each other; "
            f"divide the penalty by the scale of the features to the power of {2 * degree:g}",
        )


def _refuse_extreme(found: BoundRows, G: Array, sizes: Array, constraints: Constraints) -> None:
    """Refuse rows whose squared sizes leave the range of double precision; a small prior hides none."""
    least, most = SIZES
    wrong = ~((sizes >= least) & (sizes <= most)) & (sizes != 0)
    if np.abs(G).max() > most**0.5 / 4:
        wrong |= ~(row_sizes(found, np.ones(found.rows.order)) <= most)
    if wrong.any():
        row = int(wrong.argmax())
        how = "underflows" if sizes[row] < least else "overflows"
        raise RowsError(
            [constraints.stated(row)], after=f": the squared size of its features {how}; rescale them"
        )


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


def _prior_in_groups(M0: Array, groups: Index, divergence: SpectralDivergence) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors of a prior in blocks, block by block."""
    between = np.argwhere((groups[:, None] != groups) & (M0 != 0))
    if len(between):
        i, j = (int(k) for k in between[0])
        raise ValueError(
            f"prior must be zero between groups of columns, got {M0[i, j]:.6g} in row {i}, column {j}"
        )
    values, vectors = [], []
    for group in np.unique(groups):
        columns = np.flatnonzero(groups == group)
        block = M0[np.ix_(columns, columns)]
        if not block.any() and M0.any() and divergence.confines:
            continue  # M is zero there too
        found, inside = checked_prior(block, len(columns), divergence)
        assert inside is not None
        whole = np.zeros((len(M0), len(found)))
        whole[columns] = inside
        values.append(found)
        vectors.append(whole)
    return np.concatenate(values), np.hstack(vectors)


def _refuse_negative(values: Array, name: str) -> None:
    lowest = values.min(initial=0.0)
    if lowest < -NEGATIVE * np.abs(values).max(initial=0.0):
        raise ValueError(f"{name} must be positive semidefinite, but has the eigenvalue {values.min():.6g}")
