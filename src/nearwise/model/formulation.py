"""The mathematics of a problem: its objective, its dual, and what certifies a solution.

`Formulation` is what is left of a problem once it is bound, in the eigenbasis of the prior: minimise
D(M, diag(prior)) + sum_i loss_i(<A_i, M>) over M >= 0. Its dual: for any multipliers y,
M^ = (phi')^-1(phi'(prior) - sum_i y_i A_i) minimises the Lagrangian, so

    objective(M) - dual bound(y) = D(M, M^) + sum_i [loss_i(p_i) + conjugate_i(y_i) - y_i p_i]

which is how the gap is computed: a sum of non-negative terms for a feasible M, with no cancellation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from nearwise._common.types import Array, Index
from nearwise.linalg import dense
from nearwise.model.certificate import Certificate, InfeasibilityCheck, certified, relative_gap
from nearwise.model.divergences import Divergence, Frobenius, spectral_value
from nearwise.model.losses import Losses
from nearwise.model.measurements import Measurements

_EPS = float(np.finfo(np.float64).eps)
_SMALLEST = 1e-300  # eigenvalue of a mirror point
_FEW = 100  # rows of a proof, up to which each is tried to be left out
_NEAR = 0.1  # divergence up to which eigenvalues of M^-1 in the coordinates of M are all above one half
PROOF = 1e-7  # what a proof of infeasibility may lack, relative to the bounds that it is about
_ALMOST_ZERO = 1e-3  # of a proof: what a search may leave of a sum that has to be zero
_LARGEST_CHANGE = 0.5  # of a multiplier, by which it makes it so
_RANK = 1e-10  # relative size of a singular value that counts as zero there
_MOST_BALANCED = 5_000_000  # numbers in the equations
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
    is_relaxed : whether hard rows are met within the tolerance and no better, so that the multipliers may
        bound the optimum above the objective; then a share of them counts
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
    is_relaxed: bool = False


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
            values = dense.singular_values(factor / np.sqrt(self.prior)[:, None]) ** 2
            return float(self.divergence.scalar(values, np.ones(len(values))).sum())
        if isinstance(self.divergence, Frobenius):
            apart = factor @ factor.T
            apart.flat[:: len(apart) + 1] -= self.prior
            return float(np.vdot(apart, apart))
        return spectral_value(self.divergence, *(spectrum or spectrum_of_factor(factor)), self.prior)

    def distance_to_mirror(
        self, factor: Array, pullback: Array, spectrum: tuple[Array, Array] | None = None
    ) -> float:
        """D(M, M^) for M = factor factor^T and M^ = (phi')^-1(phi'(prior) - pullback); inf if M^ is."""
        theta = self.prior_gradient - pullback
        if self.divergence.congruence_invariant:
            mirror = self.divergence.gradient_inverse(dense.eigenvalues(factor.T @ theta @ factor))
            return float(self.divergence.scalar(np.ones(len(mirror)), mirror).sum())
        t, U = dense.spectrum(theta)
        if isinstance(self.divergence, Frobenius):  # no eigenvectors of M are needed
            inside = U.T @ factor
            apart = inside @ inside.T
            beyond = np.minimum(t, 0.0) @ apart.diagonal()
            apart.reshape(-1)[:: len(t) + 1] -= self.divergence.gradient_inverse(t)
            return float(np.vdot(apart, apart) - beyond)
        return self.distance_to_gradient(t, U, spectrum or spectrum_of_factor(factor))

    def distance_to_gradient(self, t: Array, U: Array, spectrum: tuple[Array, Array]) -> float:
        """D(M, M^) for the spectrum of M and that of theta = phi'(M^); inf if M^ is."""
        mirror = np.maximum(self.divergence.gradient_inverse(t), _SMALLEST)
        if not mirror.max(initial=0.0) < np.inf:
            return np.inf
        x, V = spectrum
        found, stopped = spectral_value(self.divergence, x, V, mirror, U), mirror == _SMALLEST
        if not np.count_nonzero(stopped):
            return found
        # Where M^ stops at 0, theta is not phi'(M^): phi(M) - phi(M^) - <theta, M - M^> has one more term.
        removed = np.where(stopped, np.minimum(t - self.divergence.gradient(mirror), 0.0), 0.0)
        return found - float(x @ (V.T @ U) ** 2 @ removed)

    def certificate(self, point: Iterate) -> Certificate:
        """Objective, dual bound, gap and violations at a point; names no constraint."""
        known, spectrum = point.distances, point.spectrum
        by_entries = self.divergence.congruence_invariant or isinstance(self.divergence, Frobenius)
        if not (known or spectrum or by_entries):
            spectrum = spectrum_of_factor(point.factor)

        def distance_to_mirror(share: float) -> float:
            if known and share == 1.0:
                return known[1]
            pullback = point.pullback if share == 1.0 else share * point.pullback
            return self.distance_to_mirror(point.factor, pullback, spectrum)

        distance = known[0] if known else self.distance_to_prior(point.factor, spectrum)
        return certified(self.losses, point.values, point.dual, distance, distance_to_mirror, self._rounding)

    def relative_gap(self, gap: float, primal: float) -> float:
        """The gap relative to the larger of objective and bound, or to rounding where both vanish."""
        return relative_gap(gap, primal, self._rounding)

    @property
    def _rounding(self) -> float:
        """Of objectives."""
        return 1e-15 * len(self.prior) * self.unit

    def is_lost_to_rounding(self, point: Iterate, dual: Array, primal: float, tol: float) -> bool:
        """Whether rounding can be what closes the gap to `tol`: of values, or of sum_i y_i A_i.

        Stiff rows with large bounds cost much for the last digit of a value. The terms of the sum may cancel:
        its error is delta = eps * sum_i |y_i| |A_i|. LogDet feels it relative to M^-1, and the others
        relative to the unit of theta; the gap changes by about its square. Where an objective is so large
        that M may be far from M^, it may also decide whether there is an M^.
        """
        if not self.losses.cost_of_rounding <= tol * max(abs(primal), self.unit):
            return True
        factor, invariant = point.factor, self.divergence.congruence_invariant
        whole = factor if invariant else np.eye(len(factor))
        weight = self.measurements.weight(dual, whole, point.values if invariant else None)
        delta = _EPS * weight
        if not invariant:
            size = float(np.vdot(factor, factor))
            slope = self.divergence.curvature(np.array([max(size, _SMALLEST)]))[0]
            return not delta * delta / max(slope, _SMALLEST) <= tol * abs(primal) + self.unit * tol
        allowed = tol * max(abs(primal), 1.0)
        if not (delta < 0.5 and len(factor) * delta * delta <= allowed):
            return True
        if allowed < _NEAR:  # then M is so near to M^ that the eigenvalues below are near 1
            return False
        theta = self.prior_gradient - point.pullback
        return not dense.eigenvalues(-(factor.T @ theta @ factor))[0] > 2 * self._blur(point)

    def is_blurred(self, point: Iterate) -> bool:
        """Whether rounding of sum_i y_i A_i, as it is summed up, may open a gap that is not there."""
        return self.divergence.congruence_invariant and not self._blur(point) < 0.1

    def _blur(self, point: Iterate) -> float:
        """What rounding of sum_i y_i A_i may change in the coordinates of M."""
        delta = _EPS * self.measurements.weight(point.dual, np.eye(len(self.prior)))
        return delta * float(np.vdot(point.factor, point.factor))

    @cached_property
    def prior_gradient(self) -> Array:
        """phi'(prior), as a matrix."""
        return np.diag(self.divergence.gradient(self.prior))

    @cached_property
    def is_strict(self) -> bool:
        """Whether the divergence is infinite at singular matrices, as LogDet is."""
        return bool(np.isinf(self.divergence.scalar(np.zeros(1), np.ones(1)))[0])

    @cached_property
    def unit(self) -> float:
        """The objective's natural unit: how it scales with the prior."""
        degree = self.divergence.degree
        return self.prior_size**degree if degree and self.prior_size > 0 else 1.0

    @cached_property
    def prior_size(self) -> float:
        """The mean of its eigenvalues' magnitudes."""
        return float(np.abs(self.prior).sum() / len(self.prior)) if len(self.prior) else 1.0

    @property
    def _bounds(self) -> Array:
        """On the part of every value that depends on M."""
        offsets = self.measurements.offsets
        return self.losses.bounds if offsets is None else self.losses.bounds - offsets

    def check_infeasibility(self, ray: Array) -> InfeasibilityCheck:
        """Whether multipliers prove that the hard rows contradict each other; soft rows are left out.

        Where M has to be definite, y^T b = 0 is enough: <S, M> > 0 for every S >= 0 other than zero.
        """
        y = np.where(self.losses.is_hard, self.losses.signed(ray), 0.0)
        share = np.abs(y) * self.losses.references
        total = float(share.sum())
        if not np.isfinite(total) or total == 0:
            return InfeasibilityCheck(False, -np.inf, 0.0, ())
        bound = float(y @ self._bounds)
        magnitude = float(np.abs(y) @ np.abs(self._bounds))
        order = np.argsort(-share, kind="stable")
        rows = tuple(int(i) for i in order[: int(np.sum(share > 1e-6 * total))])
        if magnitude == 0 and self.is_strict:
            smallest, _ = _relative_smallest_eigenvalue(self.measurements, y)
            proven = smallest == 0 and bool(np.any(self.measurements.adjoint(y)))
            return InfeasibilityCheck(proven, smallest, 0.0, rows)
        if not bound < -1e-9 * magnitude:
            return InfeasibilityCheck(False, -np.inf, bound / max(magnitude, 1e-300), rows)
        smallest, noise = _relative_smallest_eigenvalue(self.measurements, y)
        # bounds may be small beside what they limit, as margins are: then 1e7 times them is not much
        valid = smallest * magnitude >= PROOF * bound and smallest >= -2 * noise - self.proof_rounding
        return InfeasibilityCheck(valid, smallest, bound / magnitude, rows)

    @property
    def proof_rounding(self) -> float:
        """What the last digits of features may change in sum_i y_i A_i, relative to sum_i |y_i| |A_i|."""
        return 8 * len(self.prior) * float(np.finfo(float).eps)

    def proof(self, ray: Array) -> Array | None:
        """As few of the multipliers as prove the hard rows contradictory, judged by their shares; or None.

        Small multipliers of rows that have no part in the contradiction are errors of the search, and the
        smallest of them may spoil a proof: along what such a row alone measures, nothing outweighs it.
        """
        y = np.where(self.losses.is_hard, ray, 0.0)
        if not y @ self._bounds < 0:
            y = np.where(self._bounds == 0, y, 0.0)
            if not (self.is_strict and y.any()):
                return None
        share = np.abs(y) * self.losses.references
        counts = [int(np.sum(share >= level * share.max(initial=0.0))) for level in _SHARES]
        for level in np.array(_SHARES)[np.diff(counts, prepend=-1) > 0]:
            candidate = np.where(share >= level * share.max(initial=0.0), y, 0.0)
            check = self.check_infeasibility(candidate)
            if not check.valid and -_ALMOST_ZERO < check.smallest_eigenvalue < 0:
                candidate = self._balanced(candidate)
                check = self.check_infeasibility(candidate)
            if check.valid:
                return self._fewer(candidate, share)
        return None

    def _balanced(self, y: Array) -> Array:
        """The multipliers next to these whose rows add up to zero where they almost do, if there are any."""
        found = _Whitened.of(self.measurements, y)
        change = None if found is None else found.balanced()
        if found is None or change is None:
            return y
        balanced = y.copy()
        balanced[found.rows] *= 1 + change
        return balanced

    def _fewer(self, proof: Array, share: Array) -> Array:
        """The same without the rows that it holds without, tried one by one, those of small share first."""
        rows = np.flatnonzero(proof)
        for row in rows[np.argsort(share[rows], kind="stable")] if len(rows) <= _FEW else ():
            without = proof.copy()
            without[row] = 0.0
            if self.check_infeasibility(without).valid:
                proof = without
        return proof


def prior_point(form: Formulation) -> Iterate:
    """The prior itself, projected on the cone: optimal if it violates nothing."""
    x, r = np.maximum(form.prior, 0.0), len(form.prior)
    factor = np.diag(np.sqrt(x))
    values = form.measurements.values_of_factor(factor)
    dual = form.losses.finite_slopes(values)
    return Iterate(factor, values, dual, form.measurements.adjoint(dual), (x, np.eye(r)))


def bare_prior_point(form: Formulation, values: Array | None = None) -> Iterate:
    """The prior with the bound 0, for which nothing needs to be factorised; its values may be known."""
    x, r = np.maximum(form.prior, 0.0), len(form.prior)
    factor = np.diag(np.sqrt(x))
    values = form.measurements.values_of_factor(factor) if values is None else values
    none = np.zeros(form.measurements.n_rows), np.zeros((r, r))
    if np.count_nonzero(x == form.prior) == r:
        return Iterate(factor, values, *none, distances=(0.0, 0.0))
    return Iterate(factor, values, *none, (x, np.eye(r)))


class _Whitened(NamedTuple):
    """Signed atoms of rows times their multipliers, where sum_i |y_i| |A_i| is the identity.

    |A_i| is the sum of the magnitudes of its parts.

    Attributes
    ----------
    rows : their numbers
    row : that of every atom among these
    sign, x, y : of every atom, and its vectors; the same object where all are squares
    noise : what rounding may have added to eigenvalues of sums
    """

    rows: Index
    row: Index
    sign: Array
    x: Array
    y: Array
    noise: float

    @classmethod
    def of(cls, measurements: Measurements, y: Array) -> _Whitened | None:
        """None where rows measure nothing.

        The sums of rows and of magnitudes are of terms x y^T of the same vectors. The coordinates are found
        by their singular values, since eigenvalues, which are the squares of these, lose the small ones to
        rounding. Columns in different units are brought to one before, so that none of them is lost beside
        the others.
        """
        rows = np.flatnonzero(y)
        atoms = measurements.local(rows, np.eye(measurements.rank), np.float64)
        row = np.arange(len(rows)) if atoms.row is None else atoms.row
        largest = np.maximum(np.abs(atoms.x).max(axis=0), np.abs(atoms.y).max(axis=0))
        atoms = atoms.scaled(np.exp2(-np.frexp(np.where(largest > 0, largest, 1.0))[1]))
        weight = atoms.coefficient * y[rows][row]
        root, square = np.sqrt(np.abs(weight))[:, None], atoms.x is atoms.y
        vectors = root * atoms.x if square else np.sqrt(0.5) * np.vstack([root * atoms.x, root * atoms.y])
        _, s, Vt = np.linalg.svd(np.linalg.qr(vectors, mode="r"), full_matrices=False)
        kept = s > 4 * len(s) * _EPS * s.max(initial=0.0)
        if not kept.any():
            return None
        white = Vt[kept].T / s[kept]
        x = root * atoms.x @ white
        noise = 4 * _EPS * float(s[0] / s[kept][-1])  # of vectors that are nearly parallel
        return cls(rows, row, np.sign(weight), x, x if square else root * atoms.y @ white, noise)

    def total(self) -> Array:
        """sum_i y_i A_i."""
        found = self.x.T @ (self.sign[:, None] * self.y)
        return np.asarray((found + found.T) / 2)

    def balanced(self) -> Array | None:
        """By how much multipliers are to change, relatively, so that the sum is zero where it almost is.

        A search tells them to some digits only: what is left of a sum that has to be zero may be negative.
        None where nothing is almost zero, or only other multipliers make it zero.
        """
        values, V = np.linalg.eigh(self.total())
        N = V[:, np.abs(values) <= _ALMOST_ZERO]
        if not N.size or len(self.x) * N.size > _MOST_BALANCED:
            return None
        first, second = (self.sign[:, None] * self.x) @ N, (self.sign[:, None] * self.y) @ N
        parts = first[:, :, None] * (self.y @ V)[:, None] + second[:, :, None] * (self.x @ V)[:, None]
        of_rows = np.zeros((len(self.rows), N.size))
        np.add.at(of_rows, self.row, parts.reshape(len(parts), -1))
        change: Array = np.linalg.lstsq(of_rows.T, -of_rows.sum(axis=0), rcond=_RANK)[0]
        return change if np.abs(change).max() < _LARGEST_CHANGE else None


def _relative_smallest_eigenvalue(measurements: Measurements, y: Array) -> tuple[float, float]:
    """The largest c <= 0 with sum_i y_i A_i >= c * sum_i |y_i| |A_i|; the same in every basis and unit.

    It is less by what rounding may have added to it, which comes second.
    """
    found = _Whitened.of(measurements, y)
    if found is None:
        return 0.0, 0.0
    return min(float(np.linalg.eigvalsh(found.total())[0]) - found.noise, 0.0), found.noise


def spectrum_of_factor(factor: Array) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors of factor factor^T."""
    U, s, _ = dense.singular_spectrum(factor)
    return s**2 if len(s) == len(U) else np.pad(s**2, (0, len(U) - len(s))), U
