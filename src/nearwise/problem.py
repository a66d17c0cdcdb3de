"""The problem: divergence to a prior plus the cost of the constraints, and what certifies a solution.

`Problem` takes what the user has, checks it, and binds it. `Formulation` is the mathematics that is left,
in the eigenbasis of the prior: minimise D(M, diag(prior)) + sum_i loss_i(<A_i, M>) over M >= 0. Its dual:
for any multipliers y, M^ = (phi')^-1(phi'(prior) - sum_i y_i A_i) minimises the Lagrangian, so

    objective(M) - dual bound(y) = D(M, M^) + sum_i [loss_i(p_i) + conjugate_i(y_i) - y_i p_i]

which is how the gap is computed: a sum of non-negative terms for a feasible M, with no cancellation.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearwise import _binding
from nearwise.constraints import Constraints
from nearwise.divergences import Divergence, LogDet, spectral_value
from nearwise.losses import Losses
from nearwise.measurements import Measurements
from nearwise.result import SATISFIED, Certificate, InfeasibilityCheck, Violation

Array = NDArray[np.float64]

_HALVINGS = 40  # of multipliers that lie outside the dual's domain, until they lie inside
_WORST = 10  # constraints named in a certificate
_PROOF = 1e-7  # what a proof of infeasibility may lack, relative to the bounds that it is about
_SHARES = (0.3, 0.1, 0.03, 0.01, 1e-3, 1e-4, 1e-5, 1e-7, 0.0)  # of the largest; smaller ones are left out


@dataclass(frozen=True, eq=False)
class Iterate:
    """A point of a run: M = factor factor^T with everything that was measured at it.

    Attributes
    ----------
    factor : r x k
    values : <A_i, M>
    dual : multipliers y, of the right sign
    pullback : sum_i y_i A_i
    spectrum : eigenvalues and eigenvectors of M where the solver has them
    distances : to the prior and to the mirror point of `dual`, where the solver has them
    ray : multipliers of hard rows that may prove the problem infeasible, where the solver suspects so
    solver : the name of the solver that found it, where it is not the one that was asked
    note : what the solver has to report of its work, for the message of the result
    final : whether the solver stops here by a rule of its own
    """

    factor: Array
    values: Array
    dual: Array
    pullback: Array
    spectrum: tuple[Array, Array] | None = None
    ray: Array | None = None
    distances: tuple[float, float] | None = None
    solver: str = ""
    note: str = ""
    final: bool = False


@dataclass(frozen=True, eq=False)
class Formulation:
    """minimise D(M, diag(prior)) + sum_i loss_i(<A_i, M>) over M >= 0.

    Attributes
    ----------
    divergence : D
    prior : eigenvalues of the prior, in whose eigenbasis the measurements are expressed
    measurements : M -> <A_i, M>
    losses : what each value costs
    """

    divergence: Divergence
    prior: Array
    measurements: Measurements
    losses: Losses

    def distance_to_prior(self, factor: Array, spectrum: tuple[Array, Array] | None = None) -> float:
        """D(factor factor^T, prior)."""
        if self.divergence.congruence_invariant:
            root = np.linalg.svd(factor / np.sqrt(self.prior)[:, None], compute_uv=False)
            values = np.asarray(root, dtype=np.float64) ** 2
            return float(np.sum(self.divergence.scalar(values, np.ones_like(values))))
        x, V = spectrum or _spectrum_of_factor(factor)
        return spectral_value(self.divergence, x, V, self.prior, np.eye(len(x)))

    def distance_to_mirror(
        self, factor: Array, pullback: Array, spectrum: tuple[Array, Array] | None = None
    ) -> float:
        """D(M, M^) for M = factor factor^T and M^ = (phi')^-1(phi'(prior) - pullback); inf if M^ is."""
        theta = np.diag(self.divergence.gradient(self.prior)) - pullback
        if self.divergence.congruence_invariant:
            inside = np.asarray(np.linalg.eigvalsh(factor.T @ theta @ factor), dtype=np.float64)
            mirror = self.divergence.gradient_inverse(inside)
            return float(np.sum(self.divergence.scalar(np.ones_like(mirror), mirror)))
        t, U = np.linalg.eigh(theta)
        mirror = np.maximum(self.divergence.gradient_inverse(t), 1e-300)
        if not np.isfinite(mirror).all():
            return np.inf
        x, V = spectrum or _spectrum_of_factor(factor)
        # Where M^ stops at 0, theta is not phi'(M^): phi(M) - phi(M^) - <theta, M - M^> has one more term.
        removed = np.minimum(t - self.divergence.gradient(mirror), 0.0)
        return spectral_value(self.divergence, x, V, mirror, U) - float(x @ (V.T @ U) ** 2 @ removed)

    def certificate(self, point: Iterate) -> Certificate:
        """Objective, dual bound, gap and violations at a point; names no constraint."""
        loss = self.losses.total(point.values)
        known = point.distances
        primal = (known[0] if known else self.distance_to_prior(point.factor, point.spectrum)) + loss
        gap, shrink = np.inf, 1.0
        for _ in range(_HALVINGS):
            if known and shrink == 1.0:
                distance = known[1]
            else:
                distance = self.distance_to_mirror(point.factor, shrink * point.pullback, point.spectrum)
            if np.isfinite(distance):
                gap = distance + self.losses.fenchel_residual(point.values, shrink * point.dual, loss)
            if np.isfinite(gap):
                break
            shrink /= 2
        violations = self.losses.violations(point.values)
        return Certificate(
            primal=primal,
            dual=primal - gap,
            gap=self.relative_gap(gap, primal),
            violation=float(np.max(violations, initial=0.0)),
            hard_violation=float(np.max(violations[self.losses.is_hard], initial=0.0)),
            satisfied=float(np.mean(violations <= SATISFIED)) if len(violations) else 1.0,
        )

    def relative_gap(self, gap: float, primal: float) -> float:
        """The gap relative to the larger of objective and bound, or to rounding where both vanish."""
        if not np.isfinite(gap) or not np.isfinite(primal):
            return np.inf
        rounding = 1e-15 * len(self.prior) * self.unit
        return abs(gap) / max(abs(primal), abs(primal - gap), rounding)

    @cached_property
    def unit(self) -> float:
        """The objective's natural unit: how it scales with the prior."""
        degree = self.divergence.degree
        size = float(np.mean(np.abs(self.prior))) if len(self.prior) else 1.0
        return size**degree if degree is not None and size > 0 else 1.0

    def check_infeasibility(self, ray: Array) -> InfeasibilityCheck:
        """Whether multipliers prove that the hard rows contradict each other; soft rows are left out."""
        y = np.where(self.losses.is_hard, self.losses.signed(ray), 0.0)
        share = np.abs(y) * self.losses.references
        total = float(share.sum())
        if not np.isfinite(total) or total == 0:
            return InfeasibilityCheck(False, -np.inf, 0.0, ())
        bound = float(y @ self.losses.bounds)
        magnitude = float(np.abs(y) @ np.abs(self.losses.bounds))
        order = np.argsort(-share, kind="stable")
        rows = tuple(int(i) for i in order[: int(np.sum(share > 1e-6 * total))])
        if not bound < -1e-9 * magnitude:
            return InfeasibilityCheck(False, -np.inf, bound / max(magnitude, 1e-300), rows)
        smallest = _relative_smallest_eigenvalue(
            self.measurements.adjoint(y), self.measurements.magnitudes().adjoint(np.abs(y))
        )
        valid = smallest * magnitude >= _PROOF * bound
        return InfeasibilityCheck(valid, smallest, bound / magnitude, rows)

    def proof(self, ray: Array) -> Array | None:
        """As few of the multipliers as prove the hard rows contradictory, judged by their shares; or None.

        Small multipliers of rows that have no part in the contradiction are errors of the search, and the
        smallest of them may spoil a proof: along what such a row alone measures, nothing outweighs it.
        """
        y = np.where(self.losses.is_hard, ray, 0.0)
        share = np.abs(y) * self.losses.references
        counts = [int(np.sum(share >= level * share.max(initial=0.0))) for level in _SHARES]
        for level in np.array(_SHARES)[np.diff(counts, prepend=-1) > 0]:
            candidate = np.where(share >= level * share.max(initial=0.0), y, 0.0)
            if self.check_infeasibility(candidate).valid:
                return candidate
        return None


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Problem:
    """Find the matrix nearest to a prior that respects the constraints.

        minimise  D(M, M0) + sum_i loss_i(<A_i, M>)   over M >= 0 (r x r)

    The learned kernel of the objects is K = G M G^T, the squared distance d(i, j) = z^T M z, z = g_i - g_j.

    Parameters
    ----------
    features : (n, r) array, one row G_i per object
    constraints : what is known, see `nearwise.constraints`
    divergence : `LogDet()`, `VonNeumann()`, `Frobenius()` or one of your own (`SpectralDivergence`)
    prior : (r, r) symmetric positive semidefinite M0; the identity by default. A singular M0 confines M to
        its range (KSD09 4.2). For Frobenius it may be indefinite.
    penalty : gamma > 0, the cost of violating a constraint; inf makes it hard. One number or one per row.
    sample_ids : the ids by which the constraints name the objects; row numbers by default

    Bounds that were left open (`similar`, `dissimilar`) become the 5th and 95th percentile of the squared
    distances between objects under the prior (KSD09 7.2).
    """

    features: Array
    constraints: Constraints
    divergence: Divergence
    formulation: Formulation
    prior_basis: Array | None = field(default=None)

    def __init__(
        self,
        features: ArrayLike,
        constraints: Constraints,
        divergence: Divergence | None = None,
        prior: ArrayLike | None = None,
        penalty: ArrayLike = 1.0,
        sample_ids: ArrayLike | None = None,
    ) -> None:
        divergence = LogDet() if divergence is None else divergence
        bound = _binding.bind_problem(features, constraints, divergence, prior, penalty, sample_ids)
        for name, value in (
            ("features", bound.features),
            ("constraints", constraints),
            ("divergence", divergence),
            ("formulation", Formulation(divergence, bound.prior, bound.measurements, bound.losses)),
            ("prior_basis", bound.prior_basis),
        ):
            object.__setattr__(self, name, value)

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
        V, values = _binding.kernel_spectrum(K0, divergence, widening)
        return cls(V, constraints, divergence, values, penalty, sample_ids)

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
        V = _binding.random_orthonormal(n, rank, seed)
        return cls(V, constraints, divergence, np.eye(rank) * (n / rank), penalty, sample_ids)

    @property
    def bounds(self) -> Array:
        """The bound of every constraint, the open ones filled."""
        return self.formulation.losses.bounds

    @property
    def relations(self) -> NDArray[np.int8]:
        """-1 for "<=", +1 for ">=", 0 for "=="."""
        return self.formulation.losses.relations

    @property
    def penalties(self) -> Array:
        """The penalty of every constraint."""
        return self.formulation.losses.penalties

    @property
    def prior(self) -> Array:
        """M0, r x r."""
        V = self.lift(np.eye(len(self.formulation.prior)))
        return (V * self.formulation.prior) @ V.T

    def values(self, M: ArrayLike) -> Array:
        """<A_i, M> for every constraint: a squared distance, a difference of two, an inner product."""
        return self.formulation.measurements.values(self._restrict(M))

    def objective(self, M: ArrayLike) -> float:
        """D(M, M0) plus the losses of the soft constraints; inf outside the domain."""
        x, V = self._spectrum(M)
        if x is None:
            return np.inf
        distance = self.formulation.distance_to_prior(V * np.sqrt(x), (x, V))
        return distance + self.formulation.losses.total(self.values(M))

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
        form = self.formulation
        y = form.losses.signed(np.asarray(dual, dtype=np.float64))
        values = form.measurements.values_of_factor(factor)
        bare = form.certificate(Iterate(factor, values, y, form.measurements.adjoint(y)))
        violations = form.losses.violations(values)
        order = np.argsort(-violations, kind="stable")[:_WORST]
        worst = self.violations_of([int(row) for row in order if violations[row] > 0], values)
        return replace(bare, worst=worst)

    def violations_of(self, rows: list[int], values: Array) -> tuple[Violation, ...]:
        """The given rows by name, with their values and bounds."""
        relative = self.formulation.losses.violations(values)
        return tuple(
            Violation(
                row, self.describe(row), float(values[row]), float(self.bounds[row]), float(relative[row])
            )
            for row in rows
        )

    def describe(self, row: int) -> str:
        """One constraint as text, with its bound filled in."""
        text = self.constraints.describe(row)
        return text.replace("a bound filled from the data", f"{self.bounds[row]:.6g}")

    def lift(self, factor: Array) -> Array:
        """A factor in the eigenbasis of the prior's range, back in the coordinates of the features."""
        return factor if self.prior_basis is None else self.prior_basis @ factor

    def lower(self, factor: Array) -> Array:
        """The inverse of `lift`: what lies outside the prior's range is left out."""
        return factor if self.prior_basis is None else self.prior_basis.T @ factor

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


def check_infeasibility(problem: Problem, dual: ArrayLike) -> InfeasibilityCheck:
    """Check, on the problem's own data, that multipliers prove its hard constraints contradictory.

    Parameters
    ----------
    problem : the problem
    dual : one multiplier per constraint, as in `Result.dual` when the status is INFEASIBLE
    """
    y = np.asarray(dual, dtype=np.float64)
    if y.shape != problem.bounds.shape or not np.isfinite(y).all():
        raise ValueError(f"dual must be {len(problem.bounds)} finite numbers, one per constraint")
    return problem.formulation.check_infeasibility(y)


def _relative_smallest_eigenvalue(S: Array, size: Array) -> float:
    """The largest c <= 0 with S >= c * size, where -size <= S <= size; the same in every basis and unit."""
    root = np.sqrt(np.maximum(np.diagonal(size), 0.0))
    scale = np.divide(1.0, root, out=np.zeros_like(root), where=root > 0)
    values, V = np.linalg.eigh(scale[:, None] * size * scale)
    kept = values > 1e-9  # below, S is smaller still, and rounding larger
    whitened = (scale[:, None] * V[:, kept]) / np.sqrt(values[kept])
    return min(float(np.linalg.eigvalsh(whitened.T @ S @ whitened)[0]), 0.0) if kept.any() else 0.0


def _spectrum_of_factor(factor: Array) -> tuple[Array, Array]:
    U, s, _ = np.linalg.svd(factor)
    return np.pad(s**2, (0, len(U) - len(s))), U
