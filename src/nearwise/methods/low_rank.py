"""Newton's method on a thin factor, for matrices of low rank that are nearest in the Frobenius norm.

    minimise  f(M) = |M - diag(prior)|^2 + sum_i loss_i(<A_i, M>)   over M = B B^T

With multipliers y and S = diag(prior) - sum_i y_i A_i / 2, the minimiser of the Lagrangian is the positive
part of S (JKDD12 algorithm 2: the eigenvalues above a threshold, less the threshold). Where the prior is a
negative multiple of the identity, as for the trace norm, few eigenvalues of S are positive, so B has few
columns. A round:

1. Compute the positive eigenpairs of S, and no others: they give the bound of the dual exactly.
2. Widen B by those outside its range, along which f falls.
3. Newton's steps find the best B with its number of columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from nearwise._common.checks import whole_number
from nearwise._common.threads import one_blas_thread
from nearwise._common.types import Array
from nearwise.core.formulation import Formulation
from nearwise.core.iterates import Iterate
from nearwise.core.rows import Rows
from nearwise.linalg.conjugate import conjugate_gradients
from nearwise.methods.newton import Newton

COLUMNS = 32  # at first; at most so many, or as many as there are, are added at once
WIDEST = 0.5  # share of the order of M: with more columns, all of M is the smaller problem
DENSE = 0.25  # share of the eigenvalues from which on computing all of them is as fast
NEGLIGIBLE = 1e-12  # relative size of columns of B, squared, that are left out
STEPS = 30  # of Newton's method in a round
CG_STEPS = 200
FLAT = 1e-14  # curvature, relative to the largest seen, that counts as none
SUFFICIENT, HALVINGS = 1e-4, 30  # of the line search


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
        """One point a round, the matrix 0 first."""
        divergence = form.divergence
        if divergence.degree != 2 or not divergence.indefinite_prior:
            raise TypeError(f"ThinFactor is for the Frobenius divergence, got {divergence!r}")
        start: Array | None = None
        if not form.loss.any_hard:
            point = _Point(form, _Images.of(form.rows), np.zeros((form.order, 0)))
            for _ in range(self.rounds):
                with one_blas_thread():
                    lead = _Leading(form, point)
                yield Iterate(point.B, point.dual, values=point.values, adjoint=lead.adjoint)
                if len(lead.values) > WIDEST * form.order and point.B.shape[1] > 0:
                    break
                with one_blas_thread():
                    point = _best_of_its_width(lead, lead.widened(point))
            start = point.B
        for later in Newton().iterates(form, start):
            yield replace(later, solver=Newton.__name__)


def _best_of_its_width(lead: _Leading, point: _Point) -> _Point:
    """3. Newton's steps, until what one promises is small beside what the columns lack."""
    for _ in range(STEPS):
        point, promised = point.improved()
        if promised <= 0.01 * min(lead.gap, point.objective):
            break
    return point


class _Sides(NamedTuple):
    """x_t^T B and y_t^T B of every atom; one object where all atoms are squares."""

    x: Array
    y: Array


class _Images(NamedTuple):
    """The atoms as sparse combinations of the rows of F: x = left F and y = right F.

    Attributes
    ----------
    features : F
    left, right : sparse (atoms, rows of F); one object where all atoms are squares
    rows : for the sums over the atoms of a row
    """

    features: Array
    left: Any
    right: Any
    rows: Rows

    @classmethod
    def of(cls, rows: Rows) -> _Images:
        n, t = rows.n_atoms, np.arange(rows.n_atoms)
        if rows.edges is None:
            if rows.y is rows.x:
                own = sparse.eye_array(n, format="csr")
                return cls(rows.x, own, own, rows)
            left, right = (sparse.csr_array((np.ones(n), (t, t + k)), shape=(n, 2 * n)) for k in (0, n))
            return cls(np.concatenate([rows.x, rows.y]), left, right, rows)
        edges, shape = rows.edges, (n, len(rows.x))
        product = np.zeros(n) if edges.is_product is None else edges.is_product.astype(float)
        first = sparse.csr_array((np.ones(n), (t, edges.first)), shape=shape)
        minus = sparse.csr_array((product - 1, (t, edges.second)), shape=shape)
        left = (first + minus).tocsr()
        if edges.are_squares:
            return cls(rows.x, left, left, rows)
        other = sparse.csr_array((product, (t, edges.second)), shape=shape)
        right = (sparse.diags_array(1 - product) @ left + other).tocsr()
        return cls(rows.x, left, right, rows)

    def sides(self, B: Array) -> _Sides:
        H = self.features @ B
        x = self.left @ H
        return _Sides(x, x if self.right is self.left else self.right @ H)

    def cross(self, a: _Sides, b: _Sides) -> Array:
        """<A_i, B E^T> for the sides of B and E."""
        of_atoms = np.einsum("tk,tk->t", a.x, b.y)
        if a.y is not a.x:
            of_atoms = (of_atoms + np.einsum("tk,tk->t", a.y, b.x)) / 2
        weighted = self.rows.coefficient * of_atoms
        return np.asarray(np.bincount(self.rows.row_of_atoms, weighted, self.rows.n_rows))

    def product(self, *terms: tuple[Array, _Sides]) -> Array:
        """The sum of (sum_i weights_i A_i) B over terms of weights and the sides of B."""
        x: Any = 0.0
        y: Any = 0.0
        for weights, sides in terms:
            scale = (self.rows.coefficient * weights[self.rows.row_of_atoms])[:, None]
            x, y = x + scale * sides.y, y + scale * sides.x
        both = self.left.T @ x
        return np.asarray(
            self.features.T @ (both if self.right is self.left else (both + self.right.T @ y) / 2)
        )

    def diagonal(self, weights: Array, sides: _Sides) -> Array:
        """About sum_i weights_i (A_i B)^2 elementwise, r x k: the curvature of losses along entries of B."""
        scale = (self.rows.coefficient**2 * weights[self.rows.row_of_atoms])[:, None]
        return np.asarray(np.square(self.features).T @ (abs(self.left.T) @ (scale * sides.y**2)))


class _Point:
    """B with f, its derivatives, and Newton's step on B."""

    def __init__(self, form: Formulation, images: _Images, B: Array) -> None:
        self.form, self.images, self.B = form, images, B
        self.sides, self.gram = images.sides(B), B.T @ B
        offsets = form.rows.offsets
        self.values = images.cross(self.sides, self.sides) + (0.0 if offsets is None else offsets)
        found = form.loss.at(self.values)
        self.dual, self.curvatures = found.slopes, found.curvatures
        self.objective = self._distance(B, self.gram) + found.total

    def _distance(self, B: Array, gram: Array) -> float:
        """|B B^T - diag(prior)|^2, by matrices as small as B is thin."""
        prior = self.form.prior
        return float(np.sum(gram**2) - 2 * np.sum(B**2 * prior[:, None]) + prior @ prior)

    def improved(self) -> tuple[_Point, float]:
        """The point after a Newton step, and the decrease that was promised; itself if there is none."""
        if self.B.shape[1] == 0:
            return self, 0.0
        own = self.B @ self.gram - self.form.prior[:, None] * self.B
        gradient = 2 * (2 * own + self.images.product((self.dual, self.sides)))
        E = self._direction(gradient)
        slope = float(np.vdot(gradient, E))
        if not slope < 0:
            return self, 0.0
        sides = self.images.sides(E)
        first, second = 2 * self.images.cross(self.sides, sides), self.images.cross(sides, sides)
        cross, square = self.B.T @ E, E.T @ E
        length = 1.0
        for _ in range(HALVINGS):  # values and Gram matrix are polynomials in the length
            gram = self.gram + length * (cross + cross.T) + length**2 * square
            moved, values = self.B + length * E, self.values + length * first + length**2 * second
            objective = self._distance(moved, gram) + self.form.loss.at(values).total
            if objective <= self.objective + SUFFICIENT * length * slope:
                return _Point(self.form, self.images, _compressed(moved)), -slope
            length /= 2
        return self, 0.0

    def _direction(self, gradient: Array) -> Array:
        """Conjugate gradients on Newton's system, up to a direction of negative curvature."""
        prior = self.form.prior
        flat = max(float(-2 * prior.mean()), 1e-3 * float(np.abs(prior).mean()))
        scale = 2 * flat + 4 * np.diag(self.gram) + 4 * self.images.diagonal(self.curvatures, self.sides)
        found = conjugate_gradients(
            self._hessian_product,
            -gradient,
            lambda residual: residual / scale,
            accuracy=min(0.1, float(np.sqrt(np.linalg.norm(gradient) / (1 + abs(self.objective))))),
            most_steps=CG_STEPS,
            in_its_norm=True,
            flat=FLAT,
        )
        return found.x if found.x.any() else found.direction

    def _hessian_product(self, E: Array) -> Array:
        B, sides = self.B, self.images.sides(E)
        bent = self.curvatures * (2 * self.images.cross(self.sides, sides))
        cross = B.T @ E
        own = B @ (cross + cross.T) + E @ self.gram - self.form.prior[:, None] * E
        return 2 * (2 * own + self.images.product((self.dual, sides), (bent, self.sides)))


class _Leading:
    """1. The positive eigenpairs of S at a point, the gap that they prove, and where they lead."""

    def __init__(self, form: Formulation, point: _Point) -> None:
        self.adjoint = form.rows.adjoint(point.dual)
        self.S = form.theta(self.adjoint) / 2
        self.values, self.vectors = positive_eigenpairs(self.S, max(2 * point.B.shape[1], COLUMNS))
        # |M - S_+|^2 + 2 <M, S_->
        B, P = point.B, self.vectors
        inside = P.T @ B
        negative = float(np.sum(inside**2 * self.values[:, None]) - np.vdot(B, self.S @ B))
        outside = B - P @ inside
        square = np.sum((inside @ inside.T - np.diag(self.values)) ** 2)
        square += 2 * np.sum((inside @ outside.T) ** 2) + np.sum((outside.T @ outside) ** 2)
        self.gap = float(square) + 2 * max(negative, 0.0)

    def widened(self, point: _Point) -> _Point:
        """2. New columns outside the range of B, of the lengths that lower f most."""
        B, new = point.B, self.vectors
        if B.shape[1]:
            Q = np.linalg.qr(B)[0]
            new = new - Q @ (Q.T @ new)
        U, s, _ = np.linalg.svd(new * np.sqrt(self.values), full_matrices=False)
        U = U[:, s > 1e-8 * max(s.max(initial=0.0), 1e-300)][:, : max(COLUMNS, B.shape[1])]
        quotient = np.einsum("ij,ij->j", U, self.S @ U)
        kept = quotient > 1e-12 * max(float(self.values.max(initial=0.0)), 1e-300)
        if not kept.any():
            return point
        N = U[:, kept] * np.sqrt(quotient[kept])
        return _Point(point.form, point.images, np.hstack([B, np.sqrt(_best_share(point, N)) * N]))


def positive_eigenpairs(S: Array, expected: int) -> tuple[Array, Array]:
    """All eigenvalues above zero, rising, with their vectors; `expected` says how many there may be."""
    if expected >= DENSE * len(S):
        values, vectors = np.linalg.eigh(S)
        kept = values > 0
        return values[kept], vectors[:, kept]
    from scipy.linalg import eigh  # counts eigenvalues above zero by Sturm sequences, so that none is missed

    values, vectors = eigh(S, subset_by_value=(0.0, np.inf), driver="evx", check_finite=False)
    return np.asarray(values, dtype=np.float64), np.asarray(vectors, dtype=np.float64)


def _best_share(point: _Point, N: Array) -> float:
    """The t > 0 that minimises f(M + t N N^T), for N orthogonal to B, by bisection of its slope."""
    sides = point.images.sides(N)
    change = point.images.cross(sides, sides)
    constant = -2 * float(np.sum(N**2 * point.form.prior[:, None]))
    growth = 2 * float(np.sum((N.T @ N) ** 2))

    def slope(t: float) -> float:
        return constant + growth * t + float(point.form.loss.at(point.values + t * change).slopes @ change)

    low, high = 0.0, 1.0
    while slope(high) < 0:
        high *= 2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return high


def _compressed(B: Array) -> Array:
    """B with orthogonal columns, without the negligible ones."""
    values, V = np.linalg.eigh(B.T @ B)
    return np.asarray(B @ V[:, values > NEGLIGIBLE * values[-1]])
