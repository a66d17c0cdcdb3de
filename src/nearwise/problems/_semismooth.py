"""The nearest positive semidefinite matrix with given entries, in the Frobenius norm, by its dual.

    minimise 1/2 |X - C|^2   over X >= 0 with X_ij = b_ij on the diagonal and on chosen pairs

For multipliers y, X(y) = (C + A*(y))_+ is the positive part, and the dual problem is smooth:

    minimise theta(y) = 1/2 |X(y)|^2 - b'y,       gradient: the entries of X(y) less b

Its gradient is semismooth, so Newton's method converges quadratically (Qi and Sun, SIAM J. Matrix Anal. Appl.
28, 2006). One iteration is one eigendecomposition; the generalised Hessian is applied in conjugate gradients
with the eigenvectors of the smaller part of the spectrum only, positive or negative.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nearwise.problems._groups import Groups
from nearwise.result import Status

Array = NDArray[np.float64]
Index = NDArray[np.int64]

_DENSE = 32  # up to this order the Hessian is formed and factored
_REGULARISATION = 1e-12  # of the Hessian, relative to its diagonal
_ARMIJO = 1e-4
_HALVINGS = 30
_CG_STEPS = 500
_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class Entries:
    """The problem, in the basis that `Groups` explains.

    Attributes
    ----------
    block, difference : C, whose own diagonal plays no part: it holds the wanted diagonal
    groups : of interchangeable objects; trivial where pairs are fixed
    diagonal : the wanted diagonal, by group
    pairs : (m, 2) fixed entries above the diagonal
    pair_values : their values
    """

    block: Array
    difference: Array
    groups: Groups
    diagonal: Array
    pairs: Index
    pair_values: Array

    @cached_property
    def bounds(self) -> Array:
        """b, with the diagonal entries of a group added up."""
        return np.concatenate([self.groups.sizes * self.diagonal, self.pair_values])

    @property
    def trace(self) -> float:
        return float(self.groups.sizes @ self.diagonal)

    def adjoint(self, y: Array) -> Any:
        """A*(y), k x k: its diagonal where no pairs are fixed."""
        k = len(self.block)
        if not len(self.pairs):
            return y
        i, j = self.pairs.T
        each, half = np.arange(k), y[k:] / 2
        rows, columns = np.concatenate([each, i, j]), np.concatenate([each, j, i])
        return sparse.csr_array((np.concatenate([y[:k], half, half]), (rows, columns)), shape=(k, k))


@dataclass(frozen=True, eq=False)
class Grade:
    """What a point proves, for the objective |X - C|^2 without 1/2."""

    primal: float
    gap: float
    violation: float


@dataclass(frozen=True, eq=False)
class Solution:
    """X as a block and differences, exactly with the wanted diagonal; y; and how it was reached."""

    block: Array
    difference: Array
    y: Array
    grade: Grade
    status: Status
    n_iter: int
    n_decompositions: int


class Point:
    """theta, its gradient and its Hessian at y; one eigendecomposition."""

    def __init__(self, problem: Entries, y: Array) -> None:
        self.problem, self.y = problem, y
        k = len(problem.block)
        Z = problem.block.copy()
        if len(problem.pairs):
            Z += problem.adjoint(y).toarray()
        else:
            Z.flat[:: k + 1] += y
        self.values, self.vectors = np.linalg.eigh(Z)
        self.shift = problem.difference + y[:k]
        self.n_negative = int(np.searchsorted(self.values, 0.0, side="right"))
        positive = np.maximum(self.values, 0.0)
        self.multiplicity = problem.groups.sizes - 1
        self.kept = np.maximum(self.shift, 0.0)
        theta = positive @ positive + self.multiplicity @ self.kept**2
        self.objective = float(theta / 2 - problem.bounds @ y)
        self.diagonal = self._projected_diagonal(Z, positive)
        found = self.diagonal + self.multiplicity * self.kept
        if len(problem.pairs):
            found = np.concatenate([found, self.projection[tuple(problem.pairs.T)]])
        self.gradient = found - problem.bounds

    def _projected_diagonal(self, Z: Array, positive: Array) -> Array:
        """The diagonal of the positive part, from the smaller half of the spectrum."""
        if len(self.problem.pairs):
            return np.diagonal(self.projection).copy()
        cut = self.n_negative
        if 2 * cut >= len(Z):
            return self.vectors[:, cut:] ** 2 @ positive[cut:]
        return np.diagonal(Z) - self.vectors[:, :cut] ** 2 @ self.values[:cut]

    @cached_property
    def projection(self) -> Array:
        """The positive part of Z."""
        V, values = self.vectors[:, self.n_negative :], self.values[self.n_negative :]
        return (V * values) @ V.T

    def direction(self, accuracy: float) -> Array:
        """Newton's direction, or an approximation to the relative accuracy."""
        k = len(self.values)
        if k <= _DENSE and not len(self.problem.pairs):
            H = self._dense_hessian()
            H.flat[:: k + 1] += _REGULARISATION * max(H.trace() / k, 1.0)
            return np.asarray(np.linalg.solve(H, -self.gradient), dtype=np.float64)
        return self._conjugate_gradients(accuracy)

    def _dense_hessian(self) -> Array:
        k = len(self.values)
        products = (self.vectors[:, None, :] * self.vectors[None, :, :]).reshape(k * k, k)
        H = np.einsum("ij,ij->i", products @ self._weights(slice(None), slice(None)), products).reshape(k, k)
        H.flat[:: k + 1] += self.multiplicity * (self.shift > 0)
        return H

    def _weights(self, rows: slice, columns: slice) -> Array:
        """Divided differences of t -> max(t, 0) at the eigenvalues."""
        a, b = self.values[rows, None], self.values[columns]
        return (np.maximum(a, 0.0) + np.maximum(b, 0.0)) / np.maximum(np.abs(a) + np.abs(b), _TINY)

    @cached_property
    def _sides(self) -> tuple[bool, Array, Array, Array]:
        """Whether the positive part is the smaller one; its eigenvectors, the others, and their weights."""
        cut = self.n_negative
        low, high = slice(0, cut), slice(cut, None)
        by_positive = 2 * cut >= len(self.values)
        small, large = (high, low) if by_positive else (low, high)
        weights = self._weights(small, large)
        weights = weights if by_positive else 1.0 - weights
        return by_positive, self.vectors[:, small], self.vectors[:, large], weights

    def hessian_product(self, h: Array) -> Array:
        """V h, where V is the generalised Hessian: A(P (W o (P' A*(h) P)) P')."""
        problem, k = self.problem, len(self.values)
        by_positive, P, R, weights = self._sides
        S = problem.adjoint(h)
        SP = S @ P if len(problem.pairs) else S[:, None] * P
        M = (SP.T @ P / 2) @ P.T + (weights * (SP.T @ R)) @ R.T
        image = 2 * np.einsum("ia,ai->i", P, M)
        out = image if by_positive else h[:k] - image
        out = out + self.multiplicity * (self.shift > 0) * h[:k]
        if not len(problem.pairs):
            return out
        i, j = problem.pairs.T
        N = P @ M
        image = N[i, j] + N[j, i]
        return np.concatenate([out, image if by_positive else h[k:] / 2 - image])

    @cached_property
    def _preconditioner(self) -> Array:
        """The Hessian's diagonal; for a pair, its larger part."""
        by_positive, P, R, weights = self._sides
        P2, R2 = P**2, R**2
        left = P2 @ weights @ R2.T if len(self.problem.pairs) else None
        sums = P2.sum(axis=1)
        if left is None:
            own = sums**2 + 2 * np.einsum("ia,ia->i", P2 @ weights, R2)
            diagonal = (own if by_positive else 1.0 - own) + self.multiplicity * (self.shift > 0)
        else:
            i, j = self.problem.pairs.T
            own = sums**2 + 2 * np.diagonal(left)
            cross = sums[i] * sums[j] + left[i, j] + left[j, i]
            own, cross = (own, cross) if by_positive else (1.0 - own, 1.0 - cross)
            diagonal = np.concatenate([own, cross / 2])
        return np.maximum(diagonal, 1e-8)

    def _conjugate_gradients(self, accuracy: float) -> Array:
        scale = self._preconditioner
        x = np.zeros_like(self.gradient)
        r = -self.gradient
        z = r / scale
        p, rz = z, float(r @ z)
        target = accuracy * float(np.linalg.norm(r))
        for _ in range(_CG_STEPS):
            q = self.hessian_product(p) + _REGULARISATION * scale * p
            curvature = float(p @ q)
            if curvature <= 0:
                break
            step = rz / curvature
            x = x + step * p
            r = r - step * q
            if float(np.linalg.norm(r)) <= target:
                break
            z = r / scale
            rz, previous = float(r @ z), rz
            p = z + (rz / previous) * p
        return x if x.any() else -self.gradient / scale

    def corrected(self) -> tuple[Array, Array]:
        """X scaled on both sides to the wanted diagonal: block and differences."""
        problem = self.problem
        found = (self.diagonal + self.multiplicity * self.kept) / problem.groups.sizes
        scale = np.sqrt(problem.diagonal / np.maximum(found, _TINY))
        return scale[:, None] * self.projection * scale, scale**2 * self.kept

    @cached_property
    def graded(self) -> tuple[Grade, Array, Array]:
        """What the corrected X and y prove; gap = |X - X(y)|^2 + 2 <X, negative part> + 2 y'(A X - b)."""
        problem = self.problem
        block, difference = self.corrected()
        copies = self.multiplicity
        primal = np.sum((block - problem.block) ** 2) + copies @ (difference - problem.difference) ** 2
        moved = np.sum((block - self.projection) ** 2) + copies @ (difference - self.kept) ** 2
        V = self.vectors[:, : self.n_negative]
        cut = np.einsum("ia,ia->a", V, block @ V) @ -self.values[: self.n_negative]
        cut += copies @ (difference * np.maximum(-self.shift, 0.0))
        residual = block[tuple(problem.pairs.T)] - problem.pair_values
        gap = moved + 2 * cut + 2 * float(self.y[len(block) :] @ residual)
        relative = np.abs(residual)
        if len(residual):
            i, j = problem.pairs.T
            relative = relative / np.sqrt(problem.diagonal[i] * problem.diagonal[j])
        return (
            Grade(float(primal), float(gap), float(relative.max(initial=0.0))),
            block,
            difference,
        )


def minimise(problem: Entries, constant: float, tol: float, max_iter: int) -> Solution:
    """Newton's method from y = 0, until the certificate holds; `constant` is added to the objective."""
    point = Point(problem, np.zeros(len(problem.bounds)))
    size = float(np.linalg.norm(problem.bounds))
    decompositions, status = 1, Status.LIMIT
    unit = 1e-15 * float(np.sum(problem.block**2) + problem.groups.sizes @ problem.diagonal**2)
    solved, iteration = False, 0
    while True:
        error = float(np.linalg.norm(point.gradient)) / size
        if error <= tol:
            grade = point.graded[0]
            primal = grade.primal + constant
            reference = max(primal, primal - grade.gap, unit)
            solved = abs(grade.gap) <= tol * reference and grade.violation <= tol
        if solved or iteration >= max_iter:
            status = Status.SOLVED if solved else Status.LIMIT
            break
        if iteration >= 10 and _proves_infeasible(problem, point.y):
            status = Status.INFEASIBLE
            break
        following, tried = _step(point, min(0.1, error))
        decompositions += tried
        if following is None:
            status = Status.INFEASIBLE if _proves_infeasible(problem, point.y) else Status.STALLED
            break
        point, iteration = following, iteration + 1
    grade, block, difference = point.graded
    grade = Grade(grade.primal + constant, grade.gap, grade.violation)
    return Solution(block, difference, point.y, grade, status, iteration, decompositions)


def _step(point: Point, accuracy: float) -> tuple[Point | None, int]:
    """The next point, and how many were tried; None where rounding leaves no descent."""
    direction = point.direction(max(accuracy, 1e-12))
    slope = float(point.gradient @ direction)
    if slope >= 0:
        direction = -point.gradient
        slope = float(point.gradient @ direction)
    length = 1.0
    error = float(np.linalg.norm(point.gradient))
    for tried in range(1, _HALVINGS):
        trial = Point(point.problem, point.y + length * direction)
        # theta is flat to rounding near the optimum, where only the gradient still tells points apart
        if trial.objective <= point.objective + _ARMIJO * length * slope or (
            float(np.linalg.norm(trial.gradient)) <= 0.5 * error
        ):
            return trial, tried
        length /= 2
    return None, _HALVINGS - 1


def _proves_infeasible(problem: Entries, y: Array) -> bool:
    """Whether <A*(y), X> <= largest eigenvalue * trace < b'y for every X >= 0 with the wanted diagonal."""
    if not len(problem.pairs):
        return False
    largest = float(np.linalg.eigvalsh(problem.adjoint(y).toarray())[-1])
    value = float(problem.bounds @ y)
    return value > 0 and max(largest, 0.0) * problem.trace < value
