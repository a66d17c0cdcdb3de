"""The problem that a user states: divergence to a prior plus the cost of the constraints.

`Problem` takes what the user has, checks it, and binds it; `formulation` has the mathematics that is left.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearwise._common.markup import fact_table
from nearwise._common.reading import column_groups, finite
from nearwise._common.types import Array, Index, Kept
from nearwise.core import binding
from nearwise.core.certificate import Certificate, Violation, named_violations
from nearwise.core.divergences import LogDet, SpectralDivergence
from nearwise.core.formulation import Formulation
from nearwise.core.in_chunks import BoundInChunks, bind_in_chunks, loaded
from nearwise.core.iterates import Iterate
from nearwise.core.measured import Measured
from nearwise.distributed.vectors import Stacked, vectors_of
from nearwise.side.blocks import Block, Constraints, Stated

LEAVES_RANGE, NEGATIVE = 1e-8, 1e-10  # relative to the largest entry: beyond, M is outside the domain


class Bound(Protocol):
    """What is checked and bound, in memory (`binding.Binding`) or in chunks (`in_chunks.BoundInChunks`)."""

    @property
    def features(self) -> Any: ...
    @property
    def constraints(self) -> Constraints: ...
    @property
    def divergence(self) -> SpectralDivergence: ...
    @property
    def sample_ids(self) -> ArrayLike | None: ...
    @property
    def prior(self) -> Array: ...
    @property
    def prior_basis(self) -> Array | None: ...
    @property
    def relations(self) -> NDArray[np.int8]: ...
    @property
    def bounds(self) -> Array: ...
    @property
    def of_kernel(self) -> bool: ...
    @property
    def groups(self) -> Index | None: ...
    @property
    def typical_size(self) -> float: ...
    def measured(self, gamma: Array) -> Measured: ...
    def stated(self, row: int) -> Stated: ...
    def warn_of_lost(self) -> None: ...


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Problem:
    """Find the matrix nearest to a prior that respects the constraints.

        minimise  D(M, M0) + sum_i loss_i(<A_i, M>)   over M >= 0 (r x r)

    The learned kernel of the objects is K = G M G^T, the squared distance d(i, j) = z^T M z, z = g_i - g_j.

    Parameters
    ----------
    features : (n, r) array, one row G_i per object. A memory map, files
        (`nearwise.distributed.open_vectors`) and Dask arrays or dataframes are read in chunks and never
        copied as a whole; the constraints must be soft then. So are they where the constraints themselves are
        in files (`nearwise.distributed.open_pairs`).
    constraints : what is known, see `nearwise.constraints`
    divergence : `LogDet()`, `VonNeumann()`, `Frobenius()` or one of your own (`SpectralDivergence`)
    prior : (r, r) symmetric positive semidefinite M0; the identity by default. A singular M0 confines M to
        its range (KSD09 4.2). For Frobenius it may be indefinite.
    penalty : gamma > 0, the cost of violating a constraint; inf makes it hard. One number or one per row,
        which the weights of the constraints multiply.
    sample_ids : the ids by which the constraints name the objects; row numbers by default
    fixed : one number per constraint, by default 0: the part of its value that does not depend on M, such as
        a squared distance outside the span of the features (JKDD12 (10)). Bounds must be given then.
    groups : the group of every column of the features, as numbers or texts: M is zero between columns of
        different groups. None by default. The prior must be so too.

    Bounds that were left open (`similar`, `dissimilar`) become the 5th and 95th percentile of the squared
    distances between objects under the prior (KSD09 7.2).
    """

    formulation: Formulation
    penalty: Array
    _bound: Bound

    def __init__(
        self,
        features: Any,
        constraints: Constraints,
        divergence: SpectralDivergence | None = None,
        prior: ArrayLike | None = None,
        penalty: ArrayLike = 1.0,
        sample_ids: ArrayLike | None = None,
        fixed: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> None:
        divergence = LogDet() if divergence is None else divergence
        may_be_in_files = groups is None and fixed is None
        gamma = binding.check_arguments(constraints, divergence, penalty, may_be_in_files)
        vectors = vectors_of(features)
        if vectors is None and constraints.is_stored:
            single = isinstance(features, np.ndarray) and features.dtype == np.float32 and features.ndim == 2
            vectors = Stacked([features if single else binding.checked_features(features)])
        bound: Bound
        if vectors is None:
            G = binding.checked_features(features)
            labels = None if groups is None else column_groups(groups, G.shape[1])
            if labels is not None and fixed is not None:
                raise ValueError("groups and fixed do not go together: a fixed part belongs to no group")
            bound = binding.bind(G, constraints, divergence, prior, sample_ids, fixed, labels)
        elif groups is not None:
            raise ValueError("groups are for features in memory: give them as one array")
        elif fixed is not None:
            raise ValueError("a fixed part of the values needs data in memory: give features as one array")
        else:
            bound = bind_in_chunks(vectors, constraints, divergence, prior, sample_ids)
        self._take(bound, gamma)
        bound.warn_of_lost()

    @classmethod
    def from_kernel(
        cls,
        K0: ArrayLike,
        constraints: Constraints,
        divergence: SpectralDivergence | None = None,
        penalty: ArrayLike = 1.0,
        sample_ids: ArrayLike | None = None,
        widening: float = 0.0,
    ) -> Problem:
        """The nearest kernel to K0, KSD09 (4): features V and prior Lambda, where K0 = V Lambda V^T.

        K0 is n x n and positive semidefinite; the learned kernel is `features @ matrix @ features.T`. Under
        Frobenius, which confines nothing to the range of K0, K0 may be indefinite and the features are the
        identity. `widening` > 0 replaces K0 by K0 + widening * N, where N is the projection onto its null
        space, so that the learned kernel may leave the range of K0 (KSD09 6.5); its unit is K0's.
        """
        divergence = LogDet() if divergence is None else divergence
        gamma = binding.check_arguments(constraints, divergence, penalty)
        return cls._of(binding.bind_kernel(K0, constraints, divergence, sample_ids, widening), gamma)

    @classmethod
    def from_factor(
        cls,
        G: ArrayLike,
        constraints: Constraints,
        divergence: SpectralDivergence | None = None,
        penalty: ArrayLike = 1.0,
        sample_ids: ArrayLike | None = None,
    ) -> Problem:
        """The nearest kernel to K0 = G G^T of low rank, KSD09 (4), without ever forming an n x n matrix.

        G is n x r; time and memory are linear in n. Features and prior are those of `from_kernel`: V and
        Lambda, where K0 = V Lambda V^T. (`Problem(G, ...)` instead measures the divergence of M from the
        identity: for LogDet that is the same, for others it is not.)
        """
        divergence = LogDet() if divergence is None else divergence
        gamma = binding.check_arguments(constraints, divergence, penalty)
        return cls._of(binding.bind_factor(G, constraints, divergence, sample_ids), gamma)

    @classmethod
    def from_random_kernel(
        cls,
        n: int,
        rank: int,
        constraints: Constraints,
        divergence: SpectralDivergence | None = None,
        penalty: ArrayLike = 1.0,
        sample_ids: ArrayLike | None = None,
        seed: int = 0,
    ) -> Problem:
        """For n objects of which nothing is known but the constraints, KSD06 algorithms 1 and 2.

        The kernel to start from is K0 = (n / rank) V V^T with a random V of orthonormal columns, so that an
        object has length 1 on average.
        """
        V = binding.random_orthonormal(n, rank, seed)
        return cls(V, constraints, divergence, np.eye(rank) * (n / rank), penalty, sample_ids)

    def with_penalty(self, penalty: ArrayLike) -> Problem:
        """The same problem at another penalty; nothing is read, checked or bound again."""
        return self._of(self._bound, binding.checked_penalty(penalty, self.constraints), warn=False)

    def keeping(self, passes: MutableMapping[str, Kept]) -> Problem:
        """The same problem; where its rows are in chunks, what passes over them find is kept in a mapping.

        A problem of the same data that is given the same mapping takes from it what is there.
        """
        if not isinstance(self._bound, BoundInChunks):
            return self
        return self._of(self._bound.keeping(passes), self.penalty, warn=False)

    def new_features(self, K_new: ArrayLike) -> Array:
        """Features of new objects from their input kernel with the old ones, KSD09 6.1.

        For problems of `from_kernel` and `from_factor`. K_new holds a row k0(x, x_1), ..., k0(x, x_n) per new
        object x. With g = `new_features(K_new)`, the learned kernel of new and old objects is
        g M features^T, and that of new objects is g M g^T + K_new_new - g M0 g^T, where K_new_new is their
        input kernel: what lies outside the span of the old objects stays as it was.
        """
        if not self._bound.of_kernel:
            raise ValueError(
                "new objects have an input kernel with the old ones only in problems of from_kernel (with a "
                "divergence that keeps the range of K0) and from_factor; here the features of new objects "
                "are what the features of the old ones are"
            )
        K = finite(K_new, "K_new", ndim=2)
        if K.shape[1] != len(self.features):
            raise ValueError(f"K_new must have {len(self.features)} columns, one per object, got {K.shape}")
        return np.asarray(K @ (self.features / self._bound.prior))

    # ---- what was stated ----------------------------------------------------------------------------------

    @property
    def features(self) -> Any:
        """As given, or eigenvectors of the kernel."""
        return self._bound.features

    @property
    def constraints(self) -> Constraints:
        """As given."""
        return self._bound.constraints

    @property
    def divergence(self) -> SpectralDivergence:
        """As given."""
        return self._bound.divergence

    @property
    def order(self) -> int:
        """r, that of M."""
        return int(self.features.shape[1])

    @property
    def prior(self) -> Array:
        """M0, r x r."""
        V = self.lift(np.eye(len(self._bound.prior)))
        return np.asarray((V * self._bound.prior) @ V.T)

    @property
    def prior_basis(self) -> Array | None:
        """The eigenvectors of the prior's range; None where they are the columns of the features."""
        return self._bound.prior_basis

    @property
    def groups(self) -> Index | None:
        """The group of every column of the features as a number, where M is in blocks; else None."""
        return self._bound.groups

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The constraints by row numbers of the features."""
        return self.constraints.resolve(len(self.features), self._bound.sample_ids)

    @property
    def bounds(self) -> Array:
        """The bound of every constraint, the open ones filled."""
        return self.formulation.loss.bounds if self.is_in_memory else self._bound.bounds

    @property
    def relations(self) -> NDArray[np.int8]:
        """-1 for "<=", +1 for ">=", 0 for "=="."""
        return self.formulation.loss.relations if self.is_in_memory else self._bound.relations

    @property
    def penalties(self) -> Array:
        """The penalty of every constraint."""
        if self.is_in_memory:
            return self.formulation.loss.penalties
        return np.asarray(self.penalty * self.constraints.weights)

    @property
    def penalty_unit(self) -> float:
        """A penalty times this means the same for every divergence and unit, as LogDet's does by itself.

        It is the penalty that is 1 where the median constraint and the prior have size 1.
        """
        return self.formulation.unit / self._bound.typical_size ** (self.divergence.degree or 0)

    @property
    def is_in_memory(self) -> bool:
        """Whether features and constraints are."""
        return self.formulation.measured.is_in_memory

    def describe(self, row: int) -> str:
        """One constraint as text, with its bound filled in."""
        return str(self.stated(row))

    def stated(self, row: int) -> Stated:
        """One constraint, with its bound filled in."""
        return self._bound.stated(row)

    # ---- what a matrix gives ------------------------------------------------------------------------------

    def values(self, M: ArrayLike) -> Array:
        """<A_i, M> for every constraint: a squared distance, a difference of two, an inner product.

        Where a part of it is fixed, that is added.
        """
        restricted = self._restricted(M)
        if self.is_in_memory:
            rows = self.formulation.rows
            found = rows.of_matrix(restricted)
            return found if rows.offsets is None else found + rows.offsets
        x, V = np.linalg.eigh(restricted)
        chunks: Any = self.formulation.measured
        found = chunks.values(V * np.sqrt(np.maximum(x, 0.0)))
        if x.min(initial=0.0) < 0:
            found = found - chunks.values(V * np.sqrt(np.maximum(-x, 0.0)))
        return np.asarray(found)

    def objective(self, M: ArrayLike) -> float:
        """D(M, M0) plus the losses of the soft constraints; inf outside the domain."""
        factor = self._factor(M)
        if factor is None:
            return np.inf
        form = self.formulation
        with np.errstate(all="ignore"):
            return form.divergence.distance(factor, form.prior) + form.measured.measure(factor).cost

    def certificate(self, M: ArrayLike, dual: ArrayLike) -> Certificate:
        """What M and the multipliers prove: objective, dual bound, gap, violations and the worst rows."""
        factor = self._factor(M)
        if factor is not None:
            return self.certificate_of_factor(factor, np.asarray(dual, dtype=np.float64))
        x, V = np.linalg.eigh(self._restricted(M))
        inside = self.certificate_of_factor(
            V * np.sqrt(np.maximum(x, 0.0)), np.asarray(dual, dtype=np.float64)
        )
        return replace(inside, primal=np.inf, gap=np.inf)  # M is outside the domain

    def certificate_of_factor(self, factor: Array, dual: Array | None = None) -> Certificate:
        """That of M = factor factor^T, with the factor in the eigenbasis of the prior's range.

        Without multipliers, those of the slopes of the losses.
        """
        form = self.formulation
        if dual is not None and not self.is_in_memory:
            form = loaded(form)
        found = form.certify(Iterate(factor, dual)).certificate
        worst = form.measured.measure(factor).worst
        return replace(found, worst=named_violations(worst, self.stated))

    def violations_of(self, M: ArrayLike, rows: Sequence[int] | Index) -> tuple[Violation, ...]:
        """Some of the constraints by name, with the values and violations that a matrix gives them."""
        numbers = np.asarray(rows, dtype=np.int64)
        values = self.values(M)
        relative = self.formulation.loss.violations(values)
        return named_violations(zip(relative[numbers], numbers, values[numbers], strict=True), self.stated)

    def lift(self, factor: Array) -> Array:
        """A factor in the eigenbasis of the prior's range, back in the coordinates of the features."""
        return factor if self.prior_basis is None else self.prior_basis @ factor

    def lower(self, factor: Array) -> Array:
        """The inverse of `lift`: what lies outside the prior's range is left out."""
        return factor if self.prior_basis is None else self.prior_basis.T @ factor

    def within_groups(self, factor: Array) -> Array:
        """A factor of the blocks of factor factor^T: what rounding puts between groups is left out.

        The factor is in the eigenbasis of the prior's range; the columns of the result are in one group each.
        """
        if self.groups is None:
            return factor
        basis = self.prior_basis
        groups = self.groups if basis is None else binding.groups_of_vectors(basis, self.groups)
        out = np.zeros(2 * (len(factor),))
        for group in np.unique(groups):
            own = np.flatnonzero(groups == group)
            R = np.asarray(np.linalg.qr(factor[own].T, mode="r"))
            out[np.ix_(own, own[: len(R)])] = R.T
        return out

    # ---- helpers ------------------------------------------------------------------------------------------

    @classmethod
    def _of(cls, bound: Bound, gamma: Array, warn: bool = True) -> Problem:
        problem = cls.__new__(cls)
        problem._take(bound, gamma)
        if warn:
            bound.warn_of_lost()
        return problem

    def _take(self, bound: Bound, gamma: Array) -> None:
        form = Formulation(bound.divergence, bound.prior, bound.measured(gamma))
        vars(self).update(formulation=form, penalty=gamma, _bound=bound)

    def _factor(self, M: ArrayLike) -> Array | None:
        """A factor of M in the eigenbasis of the prior's range; None where M leaves it or is indefinite."""
        x, V = np.linalg.eigh(self._restricted(M))
        lifted = self.lift(V)
        full = np.asarray(M, dtype=np.float64)
        size = np.abs(full).max(initial=0.0)
        apart = np.abs((lifted * x) @ lifted.T - (full + full.T) / 2).max(initial=0.0)
        if apart > LEAVES_RANGE * size or x.min(initial=0.0) < -NEGATIVE * size:
            return None
        return np.asarray(V * np.sqrt(np.maximum(x, 0.0)))

    def _restricted(self, M: ArrayLike) -> Array:
        matrix = np.asarray(M, dtype=np.float64)
        if matrix.shape != (self.order, self.order):
            raise ValueError(f"expected a matrix of shape {(self.order, self.order)}, got {matrix.shape}")
        matrix = (matrix + matrix.T) / 2
        basis = self.prior_basis
        return matrix if basis is None else basis.T @ matrix @ basis

    def __repr__(self) -> str:
        n, r = self.features.shape
        return f"<Problem: {n} objects, {r} features, {self.divergence!r}, {self.constraints!r}>"

    def _repr_html_(self) -> str:
        if self.constraints.is_stored:  # nothing is written out only to be shown
            weighed = any(block.weights is not None for block in self.constraints.blocks)
            low = high = f"{float(self.penalty):.3g}{' times weights' if weighed else ''}"
        elif len(self.constraints):
            low, high = (f"{np.quantile(self.penalties, end):.3g}" for end in (0, 1))
        else:
            low = high = ""
        about = {
            "objects": f"{len(self.features):,}",
            "features": f"{self.order:,}",
            "divergence": repr(self.divergence),
            "constraints": self.constraints.counted(),
            "penalty": low if low == high else f"{low} to {high}",
        }
        return fact_table("Problem", about)
