"""The problem that a user states: divergence to a prior plus the cost of the constraints.

`Problem` takes what the user has, checks it, and binds it; `formulation` has the mathematics that is left.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearwise._common.markup import fact_table
from nearwise._common.reading import finite
from nearwise._common.types import Array, Index, Kept
from nearwise.distributed.vectors import Stacked, vectors_of
from nearwise.linalg.magnitudes import median
from nearwise.model import binding
from nearwise.model.bound_in_blocks import BoundInBlocks, bind_in_blocks
from nearwise.model.certificate import Certificate, Violation, named_violations
from nearwise.model.divergences import Divergence, LogDet
from nearwise.model.formulation import Formulation, Iterate
from nearwise.model.grouped import bind_in_groups, within_groups
from nearwise.model.in_blocks import AtPoint, Multipliers
from nearwise.side.blocks import Block, Constraints, Stated

_WORST = 10  # constraints named in a certificate


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Problem:
    """Find the matrix nearest to a prior that respects the constraints.

        minimise  D(M, M0) + sum_i loss_i(<A_i, M>)   over M >= 0 (r x r)

    The learned kernel of the objects is K = G M G^T, the squared distance d(i, j) = z^T M z, z = g_i - g_j.

    Parameters
    ----------
    features : (n, r) array, one row G_i per object. What is memory-mapped, in files
        (`nearwise.distributed.open_vectors`) or a Dask array or dataframe is used in pieces and never
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
        different groups (`grouped`); none by default. The prior must be so too.

    Bounds that were left open (`similar`, `dissimilar`) become the 5th and 95th percentile of the squared
    distances between objects under the prior (KSD09 7.2).
    """

    features: Array
    constraints: Constraints
    divergence: Divergence
    formulation: Formulation
    prior_basis: Array | None
    _bound: binding.BoundProblem | BoundInBlocks

    def __init__(
        self,
        features: Any,
        constraints: Constraints,
        divergence: Divergence | None = None,
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
        bound: binding.BoundProblem | BoundInBlocks
        if groups is not None:
            if fixed is not None or vectors is not None:
                raise ValueError("groups are for features in memory, without fixed parts")
            bound = bind_in_groups(features, constraints, divergence, prior, sample_ids, groups)
        elif vectors is None:
            bound = binding.bind_problem(features, constraints, divergence, prior, sample_ids, fixed)
        else:
            bound = bind_in_blocks(vectors, constraints, divergence, prior, sample_ids, fixed)
        self._take(bound, gamma)
        bound.tell_of_lost()

    def _take(self, bound: binding.BoundProblem | BoundInBlocks, gamma: Array) -> None:
        # in pieces, both have what the solvers of a formulation in pieces use
        losses: Any = bound.losses(gamma)
        measurements: Any = bound.measurements
        vars(self).update(
            features=bound.features,
            constraints=bound.constraints,
            divergence=bound.divergence,
            formulation=Formulation(bound.divergence, bound.prior, measurements, losses),
            prior_basis=bound.prior_basis,
            _bound=bound,
        )

    def with_penalty(self, penalty: ArrayLike) -> Problem:
        """The same problem at another penalty; nothing is read, checked or bound again."""
        problem = Problem.__new__(Problem)
        problem._take(self._bound, binding.checked_penalty(penalty, self.constraints))
        return problem

    def keeping(self, passes: MutableMapping[str, Kept]) -> Problem:
        """The same problem; where its rows are in pieces, what passes over them find is kept in a mapping.

        A problem of the same data that is given the same mapping takes from it what is there.
        """
        if not isinstance(self._bound, BoundInBlocks):
            return self
        losses: Any = self.formulation.losses
        problem = Problem.__new__(Problem)
        bound = replace(self._bound, measurements=replace(self._bound.measurements, passes=passes))
        problem._take(bound, np.asarray(losses.terms.penalty))
        return problem

    @classmethod
    def from_kernel(
        cls,
        K0: ArrayLike,
        constraints: Constraints,
        divergence: Divergence | None = None,
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
        bound = binding.bind_kernel(K0, constraints, divergence, sample_ids, widening)
        problem = cls.__new__(cls)
        problem._take(bound, gamma)
        bound.tell_of_lost()
        return problem

    @classmethod
    def from_factor(
        cls,
        G: ArrayLike,
        constraints: Constraints,
        divergence: Divergence | None = None,
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
        bound = binding.bind_factor(G, constraints, divergence, sample_ids)
        problem = cls.__new__(cls)
        problem._take(bound, gamma)
        bound.tell_of_lost()
        return problem

    @classmethod
    def from_random_kernel(
        cls,
        n: int,
        rank: int,
        constraints: Constraints,
        divergence: Divergence | None = None,
        penalty: ArrayLike = 1.0,
        sample_ids: ArrayLike | None = None,
        seed: int = 0,
    ) -> Problem:
        """The same for n objects of which nothing is known but the constraints, KSD06 algorithms 1 and 2.

        The kernel to start from is K0 = (n / rank) V V^T with a random V of orthonormal columns, so that an
        object has length 1 on average.
        """
        V = binding.random_orthonormal(n, rank, seed)
        return cls(V, constraints, divergence, np.eye(rank) * (n / rank), penalty, sample_ids)

    def new_features(self, K_new: ArrayLike) -> Array:
        """Features of new objects from their input kernel with the old ones, KSD09 6.1, for both divergences.

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
        return np.asarray(K @ (self.features / self.formulation.prior))

    @property
    def groups(self) -> Index | None:
        """The group of every column of the features as a number, where M is in blocks; else None."""
        return None if isinstance(self._bound, BoundInBlocks) else self._bound.groups

    @property
    def range_groups(self) -> Index | None:
        """The same of every eigenvector of the prior's range: each is of one group."""
        groups, basis = self.groups, self.prior_basis
        return groups if groups is None or basis is None else groups[np.abs(basis).argmax(axis=0)]

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The constraints by row numbers of the features."""
        return self.constraints.resolve(len(self.features), self._bound.sample_ids)

    @property
    def bounds(self) -> Array:
        """The bound of every constraint, the open ones filled."""
        bound = self._bound
        return bound.bounds if isinstance(bound, BoundInBlocks) else self.formulation.losses.bounds

    @property
    def relations(self) -> NDArray[np.int8]:
        """-1 for "<=", +1 for ">=", 0 for "=="."""
        bound = self._bound
        in_pieces = isinstance(bound, BoundInBlocks)
        return bound.constraints.relations if in_pieces else self.formulation.losses.relations

    @property
    def penalties(self) -> Array:
        """The penalty of every constraint."""
        losses: Any = self.formulation.losses
        in_pieces = isinstance(self._bound, BoundInBlocks)
        return losses.terms.penalty * self.constraints.weights if in_pieces else losses.penalties

    @property
    def penalty_unit(self) -> float:
        """A penalty times this means the same for every divergence and unit, as LogDet's does by itself.

        It is the penalty that is 1 where the median constraint and the prior have size 1.
        """
        form, bound = self.formulation, self._bound
        if isinstance(bound, BoundInBlocks):
            size = bound.survey.weighed_size
        else:
            size = median(form.losses.sizes, self.constraints.weights)
        return form.unit / size ** (self.divergence.degree or 0)

    @property
    def prior(self) -> Array:
        """M0, r x r."""
        V = self.lift(np.eye(len(self.formulation.prior)))
        return (V * self.formulation.prior) @ V.T

    def values(self, M: ArrayLike) -> Array:
        """<A_i, M> for every constraint: a squared distance, a difference of two, an inner product.

        Where a part of it is fixed, that is added.
        """
        return self.formulation.measurements.values(self._restrict(M))

    def objective(self, M: ArrayLike) -> float:
        """D(M, M0) plus the losses of the soft constraints; inf outside the domain."""
        x, V = self._spectrum(M)
        if x is None:
            return np.inf
        form, factor = self.formulation, V * np.sqrt(x)
        distance = form.distance_to_prior(factor, (x, V))
        return distance + form.losses.total(form.measurements.values_of_factor(factor))

    def certificate(self, M: ArrayLike, dual: ArrayLike) -> Certificate:
        """What M and the multipliers prove: objective, dual bound, gap, violations and the worst rows."""
        x, V = self._spectrum(M)
        if x is not None:
            return self.certificate_of_factor(V * np.sqrt(x), dual)
        x, V = np.linalg.eigh(self._restrict(M))
        inside = self.certificate_of_factor(V * np.sqrt(np.maximum(x, 0.0)), dual)
        return replace(inside, primal=np.inf, gap=np.inf)  # M is outside the domain

    def certificate_of_factor(self, factor: Array, dual: ArrayLike) -> Certificate:
        """The same for M = factor factor^T, with the factor in the eigenbasis of the prior's range."""
        point = self.point(factor, dual)
        return replace(self.formulation.certificate(point), worst=self.violations_of(point.values))

    def point(self, factor: Array, dual: ArrayLike) -> Iterate:
        """The same with what is measured at it."""
        form = self.formulation
        y = form.losses.signed(dual)
        values = form.measurements.values_of_factor(factor)
        if isinstance(values, AtPoint) and isinstance(y, Multipliers):
            values = replace(values, beside=y)
        return Iterate(factor, values, y, form.measurements.adjoint(y))

    def violations_of(self, values: Array, rows: list[int] | None = None) -> tuple[Violation, ...]:
        """Rows by name, with their values and bounds: by default the most violated ones."""
        losses = self.formulation.losses
        if rows is None:
            return named_violations(losses.most_violated(values, _WORST), self.stated)
        return named_violations(losses.measured(values, np.array(rows, dtype=np.int64)), self.stated)

    def describe(self, row: int) -> str:
        """One constraint as text, with its bound filled in."""
        return str(self.stated(row))

    def stated(self, row: int) -> Stated:
        """One constraint, with its bound filled in."""
        bound, losses = self._bound, self.formulation.losses
        filling = bound.bound_of(row) if isinstance(bound, BoundInBlocks) else float(losses.bounds[row])
        return self.constraints.stated(row, filling)

    def lift(self, factor: Array) -> Array:
        """A factor in the eigenbasis of the prior's range, back in the coordinates of the features."""
        return factor if self.prior_basis is None else self.prior_basis @ factor

    def lower(self, factor: Array) -> Array:
        """The inverse of `lift`: what lies outside the prior's range is left out."""
        return factor if self.prior_basis is None else self.prior_basis.T @ factor

    def within_groups(self, factor: Array) -> Array:
        """A factor in the eigenbasis of the prior's range, less what rounding puts between groups.

        Its columns are in the groups of its rows.
        """
        groups = self.range_groups
        return factor if groups is None else within_groups(factor, groups)

    def _spectrum(self, M: ArrayLike) -> tuple[Array | None, Array]:
        """Eigenvalues and eigenvectors on the prior's range; None where M leaves it or is indefinite."""
        restricted = self._restrict(M)
        x, V = np.linalg.eigh(restricted)
        lifted = self.lift(V)
        full = np.asarray(M, dtype=np.float64)
        size = np.abs(full).max(initial=0.0)
        leaves = np.abs((lifted * x) @ lifted.T - (full + full.T) / 2).max(initial=0.0) > 1e-8 * size
        if leaves or x.min(initial=0.0) < -1e-10 * size:
            return None, V
        return np.maximum(x, 0.0), V

    def _restrict(self, M: ArrayLike) -> Array:
        matrix: Any = np.asarray(M, dtype=np.float64)
        r = self.features.shape[1]
        if matrix.shape != (r, r):
            raise ValueError(f"expected a matrix of shape {(r, r)}, got {matrix.shape}")
        matrix = (matrix + matrix.T) / 2
        return matrix if self.prior_basis is None else self.prior_basis.T @ matrix @ self.prior_basis

    def __repr__(self) -> str:
        n, r = self.features.shape
        return f"<Problem: {n} objects, {r} features, {self.divergence!r}, {self.constraints!r}>"

    def _repr_html_(self) -> str:
        if self.constraints.is_stored:  # nothing is written out only to be shown
            losses: Any = self.formulation.losses
            weighed = any(block.weights is not None for block in self.constraints.blocks)
            low = high = f"{losses.terms.penalty:.3g}{' times weights' if weighed else ''}"
        elif len(self.bounds):
            low, high = (f"{np.quantile(self.penalties, end):.3g}" for end in (0, 1))
        else:
            low = high = ""
        about = {
            "objects": f"{len(self.features):,}",
            "features": f"{self.features.shape[1]:,}",
            "divergence": repr(self.divergence),
            "constraints": self.constraints.counted(),
            "penalty": low if low == high else f"{low} to {high}",
        }
        return fact_table("Problem", about)
