"""Newton's method on a thin factor, for matrices of low rank that are nearest in the Frobenius norm.

    minimise  f(M) = |M - diag(prior)|^2 + sum_i loss_i(<A_i, M>)   over M = B B^T

With multipliers y and S = diag(prior) - sum_i y_i A_i / 2, the optimum is the positive part of S (JKDD12
algorithm 2: the eigenvalues above a threshold, less the threshold). Where the prior is a negative multiple of
the identity, as for the trace norm, few eigenvalues of S are positive, so B has few columns. Newton's method
finds the best B with its number of columns; its Hessian needs the other eigenvalues of S only in products
with S. Then the positive eigenpairs of S, and no others, are computed: they give the bound of the dual
exactly, and those outside the range of B become new columns, along which f falls. LAPACK counts the
eigenvalues above zero by Sturm sequences, so that none is missed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from nearwise._common.checks import whole_number
from nearwise._common.threads import one_blas_thread
from nearwise._common.types import Array
from nearwise.linalg.conjugate import conjugate_gradients
from nearwise.model.divergences import Frobenius
from nearwise.model.formulation import Formulation, Iterate
from nearwise.model.measurements import in_memory
from nearwise.solving.newton import Newton

_COLUMNS = 32  # at first; at most so many, or as many as there are, are added at once
_WIDEST = 0.5  # share of the order of M: with more columns, all of M is the smaller problem
_DENSE = 0.25  # share of the eigenvalues from which on computing all of them is as fast
_NEGLIGIBLE = 1e-12  # relative size of columns of B, squared, that are left out
_NEWTON_STEPS = 30  # between two eigendecompositions
_CG_STEPS = 200
_FLAT = 1e-14  # curvature, relative to the largest seen, that counts as none
_SUFFICIENT = 1e-4
_HALVINGS = 30


@dataclass(frozen=True)
class ThinFactor:
    """Newton's method on a factor whose number of columns follows the rank; Frobenius and soft rows only.

    Where the rank comes out at more than half of the order, or after `rounds` eigendecompositions (rows of
    very large penalties), `Newton` goes on from there; hard rows are left to it from the start.

    Parameters
    ----------
    rounds : the largest number of eigendecompositions
    """

    rounds: int = 25

    def __post_init__(self) -> None:
        whole_number(self.rounds, "rounds")

    def iterates(self, form: Formulation) -> Iterator[Iterate]:
        """One point for every computation of leading eigenpairs, the matrix 0 first."""
        if not isinstance(form.divergence, Frobenius):
            raise TypeError(f"ThinFactor is for the Frobenius divergence, got {form.divergence!r}")
        r = len(form.prior)
        start: Array | None = None
        if not form.losses.any_hard:
            rows = _Rows(form)
            point = _Point(form, rows, np.zeros((r, 0)))
            for _ in range(self.rounds):
                with one_blas_thread():
                    lead = _Leading(form, point)
                distances = point.distance, lead.gap
                yield Iterate(point.B, point.values, point.dual, lead.pullback, distances=distances)
                if lead.count > _WIDEST * r and point.B.shape[1] > 0:
                    break
                with one_blas_thread():
                    point = _improved(lead, point)
            start = point.B
        for follower in Newton().iterates(form, start):
            yield replace(follower, solver=Newton.__name__)


def _improved(lead: _Leading, point: _Point) -> _Point:
    """More columns, then Newton's method until what it promises is small beside what the columns lack."""
    point = lead.widened(point)
    for _ in range(_NEWTON_STEPS):
        point, promised = point.improved()
        if promised <= 0.01 * min(lead.gap, point.merit):
            break
    return point


class _Rows:
    """The constraint matrices as sums of atoms, A_i = sum_t coefficient_t sym(x_t y_t^T)."""

    def __init__(self, form: Formulation) -> None:
        measurements = in_memory(form.measurements, "ThinFactor")
        atoms, self.features, self.n_rows = measurements.atoms, measurements.features, measurements.n_rows
        n, t = len(self.features), np.arange(len(atoms.first))
        minus = t[atoms.is_difference]
        ones = np.ones(len(t))
        first = sparse.csr_array((ones, (t, atoms.first)), shape=(len(t), n))
        second = sparse.csr_array((ones, (t, atoms.second)), shape=(len(t), n))
        sign = sparse.csr_array((ones[minus], (minus, atoms.second[minus])), shape=(len(t), n))
        self.x: Any = (first - sign).tocsr()
        self.all_squares = bool((atoms.is_difference | (atoms.first == atoms.second)).all())
        if self.all_squares:
            self.y: Any = self.x
        else:
            other = sparse.diags_array((~atoms.is_difference).astype(np.float64)) @ second
            self.y = (other + sparse.diags_array(atoms.is_difference.astype(np.float64)) @ self.x).tocsr()
        self.xt, self.yt = self.x.T.tocsr(), self.y.T.tocsr()
        self.coefficient, self.row = atoms.coefficient, atoms.row

    @cached_property
    def squared_features(self) -> Array:
        return self.features**2

    def sides(self, B: Array) -> tuple[Array, Array]:
        """x_t^T B and y_t^T B."""
        H = self.features @ B
        x = self.x @ H
        return x, (x if self.all_squares else self.y @ H)

    def cross(self, a: tuple[Array, Array], b: tuple[Array, Array]) -> Array:
        """<A_i, B E^T> for the sides of B and E."""
        per_atom = np.einsum("tk,tk->t", a[0], b[1])
        if not self.all_squares:
            per_atom = (per_atom + np.einsum("tk,tk->t", a[1], b[0])) / 2
        return np.asarray(np.bincount(self.row, self.coefficient * per_atom, self.n_rows), np.float64)

    def pulled(self, *terms: tuple[Array, tuple[Array, Array]]) -> Array:
        """The sum of (sum_i weights_i A_i) B over terms of weights and the sides of B."""
        x: Any = 0.0
        y: Any = 0.0
        for weights, (left, right) in terms:
            scale = (self.coefficient * weights[self.row])[:, None]
            x, y = x + scale * right, y + scale * left
        both = self.xt @ x if self.all_squares else (self.xt @ x + self.yt @ y) / 2
        return np.asarray(self.features.T @ both)

    def bent(self, weights: Array, sides: tuple[Array, Array]) -> Array:
        """About sum_i weights_i (A_i B)^2 elementwise, r x k: how much rows bend f along each entry of B."""
        scale = (self.coefficient**2 * weights[self.row])[:, None]
        return np.asarray(self.squared_features.T @ (abs(self.xt) @ (scale * sides[1] ** 2)))


class _Point:
    """B with f, its derivatives, and Newton's step on B."""

    def __init__(self, form: Formulation, rows: _Rows, B: Array) -> None:
        self.form, self.rows, self.B = form, rows, B
        self.sides = rows.sides(B)
        self.values = form.measurements.shifted(rows.cross(self.sides, self.sides))
        self.gram = B.T @ B
        inner = float(np.sum(self.gram**2) - 2 * np.sum(B**2 * form.prior[:, None]))
        self.distance = inner + float(form.prior @ form.prior)
        self.merit = self.distance + form.losses.total(self.values)
        self.dual, self.curvature = form.losses.slopes(self.values), form.losses.curvatures(self.values)

    def slope_product(self, E: Array, sides: tuple[Array, Array]) -> Array:
        """(2 (M - diag(prior)) + sum_i y_i A_i) E: the slope of f in M, times E."""
        own = 2 * (self.B @ (self.B.T @ E) - self.form.prior[:, None] * E)
        return own + self.rows.pulled((self.dual, sides))

    def improved(self) -> tuple[_Point, float]:
        """The point after a Newton step, and the decrease that was promised; itself if there is none."""
        if self.B.shape[1] == 0:
            return self, 0.0
        gradient = 2 * self.slope_product(self.B, self.sides)
        E = self._direction(gradient)
        slope = float(np.vdot(gradient, E))
        if not slope < 0:
            return self, 0.0
        rows, sides = self.rows, self.rows.sides(E)
        first, second = 2 * rows.cross(self.sides, sides), rows.cross(sides, sides)
        W1, W2 = self.B.T @ E, E.T @ E
        prior = self.form.prior[:, None]
        length = 1.0
        for _ in range(_HALVINGS):
            # |B + t E| by k x k matrices, and values as polynomials in t: a trial costs no product
            gram = self.gram + length * (W1 + W1.T) + length**2 * W2
            moved = self.B + length * E
            distance = float(np.sum(gram**2) - 2 * np.sum(moved**2 * prior))
            distance += float(self.form.prior @ self.form.prior)
            merit = distance + self.form.losses.total(self.values + length * first + length**2 * second)
            if merit <= self.merit + _SUFFICIENT * length * slope:
                return _Point(self.form, rows, _compressed(moved)), -slope
            length /= 2
        return self, 0.0

    def _direction(self, gradient: Array) -> Array:
        """Conjugate gradients on Newton's system, up to a direction along which f bends down."""
        scale = self._scale()
        tolerance = min(0.1, float(np.sqrt(np.linalg.norm(gradient) / (1 + abs(self.merit)))))
        found = conjugate_gradients(
            self._hessian_product,
            -gradient,
            lambda residual: residual / scale,
            accuracy=tolerance,
            most_steps=_CG_STEPS,
            in_its_norm=True,
            flat=_FLAT,
        )
        return found.x if found.x.any() else found.direction

    def _hessian_product(self, E: Array) -> Array:
        B, prior = self.B, self.form.prior[:, None]
        sides = self.rows.sides(E)
        bent = self.curvature * (2 * self.rows.cross(self.sides, sides))
        cross = B.T @ E
        own = B @ (cross + cross.T) + E @ self.gram - prior * E
        return 2 * (2 * own + self.rows.pulled((self.dual, sides), (bent, self.sides)))

    def _scale(self) -> Array:
        """About the Hessian's diagonal."""
        flat = max(float(-2 * self.form.prior.mean()), 1e-3 * float(np.abs(self.form.prior).mean()))
        return 2 * flat + 4 * np.diag(self.gram) + 4 * self.rows.bent(self.curvature, self.sides)


class _Leading:
    """The positive eigenpairs of S at a point, what they prove, and where they lead."""

    def __init__(self, form: Formulation, point: _Point) -> None:
        self.pullback = form.measurements.adjoint(point.dual)
        S = np.diag(form.prior) - self.pullback / 2
        self.values, self.vectors = positive_eigenpairs(S, max(2 * point.B.shape[1], _COLUMNS))
        self.count = len(self.values)
        B, P = point.B, self.vectors
        # D(M, M^) with the term for the negative part of S: |M - S_+|^2 + 2 <M, S_->
        overlap = P.T @ B
        SB = S @ B
        removed = float(np.sum(overlap**2 * self.values[:, None]) - np.vdot(B, SB))
        outside = B - P @ overlap
        inside = overlap @ overlap.T - np.diag(self.values)
        square = np.sum(inside**2) + 2 * np.sum((overlap @ outside.T) ** 2)
        square += np.sum((outside.T @ outside) ** 2)
        self.gap = float(square) + 2 * max(removed, 0.0)
        self._S = S

    def widened(self, point: _Point) -> _Point:
        """The point with new columns outside the range of B, of the lengths that lower f most."""
        B = point.B
        new = self.vectors
        if B.shape[1]:
            Q = np.linalg.qr(B)[0]
            new = new - Q @ (Q.T @ new)
        U, s, _ = np.linalg.svd(new * np.sqrt(self.values), full_matrices=False)
        U = U[:, s > 1e-8 * max(s.max(initial=0.0), 1e-300)][:, : max(_COLUMNS, B.shape[1])]
        quotient = np.einsum("ij,ij->j", U, self._S @ U)
        kept = quotient > 1e-12 * max(float(self.values.max(initial=0.0)), 1e-300)
        if not kept.any():
            return point
        N = U[:, kept] * np.sqrt(quotient[kept])
        share = _best_share(point, N)
        return _Point(point.form, point.rows, np.hstack([B, np.sqrt(share) * N]))


def positive_eigenpairs(S: Array, expected: int) -> tuple[Array, Array]:
    """All eigenvalues above zero, rising, with their vectors; `expected` says how many there may be."""
    if expected >= _DENSE * len(S):
        values, vectors = np.linalg.eigh(S)
        kept = values > 0
        return values[kept], vectors[:, kept]
    from scipy.linalg import eigh  # bisection finds the eigenvalues of a range, which NumPy has not

    values, vectors = eigh(S, subset_by_value=(0.0, np.inf), driver="evx", check_finite=False)
    return np.asarray(values, dtype=np.float64), np.asarray(vectors, dtype=np.float64)


def _best_share(point: _Point, N: Array) -> float:
    """t > 0 that minimises f(M + t N N^T), for N orthogonal to B, by bisection of its slope."""
    sides = point.rows.sides(N)
    change = point.rows.cross(sides, sides)
    constant = -2 * float(np.sum(N**2 * point.form.prior[:, None]))
    growth = 2 * float(np.sum((N.T @ N) ** 2))

    def slope(t: float) -> float:
        return constant + growth * t + float(point.form.losses.slopes(point.values + t * change) @ change)

    high = 1.0
    while slope(high) < 0:
        high *= 2
    low = 0.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return high


def _compressed(B: Array) -> Array:
    """B with orthogonal columns, without the negligible ones."""
    values, V = np.linalg.eigh(B.T @ B)
    return np.asarray(B @ V[:, values > _NEGLIGIBLE * values[-1]])
