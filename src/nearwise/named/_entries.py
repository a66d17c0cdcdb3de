"""The problem of `_correlation_dual`, and its dual objective with gradient and Hessian at a point."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from nearwise._common.types import Array, Index
from nearwise.linalg import spectrum
from nearwise.linalg.conjugate import conjugate_gradients
from nearwise.linalg.spectrum import Spectrum
from nearwise.named._groups import Groups

DENSE = 32  # up to this order the Hessian is formed and factored
_REGULARISATION = 1e-12  # of the Hessian, relative to the largest diagonal entry that it may have
_CG_STEPS = 500
_ROWS = 64  # in one piece of a sum over a matrix
_TINY = 1e-300
_NONE = np.zeros(1)


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

    def shifted(self, y: Array) -> Array:
        """C + A*(y); where no pairs are fixed, in an array that the next call overwrites."""
        if len(self.pairs):
            return np.asarray(self.block + self.adjoint(y).toarray())
        self._workspace.flat[:: len(self.block) + 1] = self._own_diagonal + y
        return self._workspace

    @cached_property
    def _workspace(self) -> Array:
        return self.block.copy()

    @cached_property
    def _own_diagonal(self) -> Array:
        return self.block.diagonal().copy()

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


class Point:
    """theta, its gradient and its Hessian at y, from the smaller side of a spectrum."""

    def __init__(self, problem: Entries, y: Array, near: Spectrum | None = None, exact: bool = False) -> None:
        self.problem, self.y = problem, y
        k = len(problem.block)
        self.has_pairs = len(problem.pairs) > 0
        Z = problem.shifted(y)
        self.spectrum = spectrum.whole(Z) if exact or self.has_pairs else spectrum.smaller_side(Z, near)
        theta = self.spectrum.squared_norm(Z)
        if self.has_pairs:
            self.projection = self.spectrum.positive_part(Z)
            found = self.projection.diagonal()
        else:
            found = self.spectrum.positive_diagonal(Z)
        self.multiplicity = problem.groups.sizes - 1
        self.shift = self.kept = self.bent = _NONE  # where all objects differ, there is nothing inside groups
        if not problem.groups.is_trivial:
            self.shift = problem.difference + y[:k]
            self.kept = np.maximum(self.shift, 0.0)
            self.bent = self.multiplicity * (self.shift > 0)
            theta += float(self.multiplicity @ self.kept**2)
            found = found + self.multiplicity * self.kept
        self.diagonal = found
        if self.has_pairs:
            found = np.concatenate([found, self.projection[tuple(problem.pairs.T)]])
        self.objective = theta / 2 - float(problem.bounds @ y)
        self.gradient = found - problem.bounds
        self.error = math.sqrt(float(self.gradient @ self.gradient))

    @cached_property
    def projection(self) -> Array:
        """The positive part of Z."""
        return self.spectrum.positive_part(self.problem.shifted(self.y))

    def direction(self, accuracy: float) -> Array:
        """Newton's direction, or an approximation to the relative accuracy."""
        k = len(self.problem.block)
        if k > DENSE or self.has_pairs:
            return self._conjugate_gradients(accuracy)
        H, own = self._dense_hessian()
        H.flat[:: k + 1] += own + self.bent + _REGULARISATION  # its entries are at most 1
        return np.asarray(np.linalg.solve(H, -self.gradient), dtype=np.float64)

    def _dense_hessian(self) -> tuple[Array, float]:
        """The Hessian less a multiple of the identity, and that multiple; without what is inside groups."""
        by_positive, P, R, weights = self._sides
        k, p = P.shape
        assert R is not None
        inner = (P[:, None] * P).reshape(k * k, p) @ weights
        inner *= (R[:, None] * R).reshape(k * k, k - p)
        H = (P @ P.T) ** 2 + 2 * inner.sum(axis=1).reshape(k, k)
        return (H, 0.0) if by_positive else (-H, 1.0)

    @cached_property
    def _sides(self) -> tuple[bool, Array, Array | None, Array]:
        """Whether the positive part is the smaller one; its eigenvectors P, the others R, and their weights.

        The weights are the divided differences a / (a + b) of t -> max(t, 0), or one less these, for
        eigenvalues of size a on the smaller side and b on the other. Where the other side was not computed
        there is one weight per column of P: b is then the Rayleigh quotient of Z at what the gradient makes
        of that column. So the Hessian is not exact, but near where there are few columns.
        """
        spectrum = self.spectrum
        P, a = spectrum.vectors, spectrum.sizes
        if spectrum.others is not None:
            sums = np.maximum(a[:, None] + spectrum.others, _TINY)
            return spectrum.by_positive, P, spectrum.other_vectors, a[:, None] / sums
        U = self.gradient[:, None] * P
        U = U - P @ (P.T @ U)
        norms = np.einsum("ia,ia->a", U, U)
        quotient = np.abs(np.einsum("ia,ia->a", U, self.problem.shifted(self.y) @ U)) / np.maximum(
            norms, _TINY
        )
        return spectrum.by_positive, P, None, (a / np.maximum(a + quotient, _TINY))[:, None]

    def hessian_product(self, h: Array) -> Array:
        """V h, where V is the generalised Hessian: A(P (W o (P' A*(h) P)) P')."""
        problem, k = self.problem, len(self.problem.block)
        by_positive, P, R, weights = self._sides
        S = problem.adjoint(h)
        PS = (S @ P if self.has_pairs else S[:, None] * P).T
        inside = PS @ P
        if R is None:
            M = weights * PS + (inside / 2 - weights * inside) @ P.T
        else:
            M = (inside / 2) @ P.T + (weights * (PS @ R)) @ R.T
        image = 2 * np.einsum("ia,ai->i", P, M)
        out = image if by_positive else h[:k] - image
        out = out + self.bent * h[:k]
        if not self.has_pairs:
            return out
        i, j = problem.pairs.T
        N = P @ M
        image = N[i, j] + N[j, i]
        return np.concatenate([out, image if by_positive else h[k:] / 2 - image])

    @cached_property
    def _preconditioner(self) -> Array:
        """The Hessian's diagonal; for a pair, its larger part."""
        by_positive, P, R, weights = self._sides
        P2 = P**2
        sums = P2.sum(axis=1)
        if R is None:
            own = sums**2 + 2 * (P2 @ weights[:, 0]) * (1.0 - sums)
            return np.maximum((own if by_positive else 1.0 - own) + self.bent, 1e-8)
        R2 = R**2
        if not self.has_pairs:
            own = sums**2 + 2 * np.einsum("ia,ia->i", P2 @ weights, R2)
            return np.maximum((own if by_positive else 1.0 - own) + self.bent, 1e-8)
        left = P2 @ weights @ R2.T
        i, j = self.problem.pairs.T
        own = sums**2 + 2 * np.diagonal(left)
        cross = sums[i] * sums[j] + left[i, j] + left[j, i]
        own, cross = (own, cross) if by_positive else (1.0 - own, 1.0 - cross)
        return np.maximum(np.concatenate([own, cross / 2]), 1e-8)

    def _conjugate_gradients(self, accuracy: float) -> Array:
        scale = self._preconditioner
        found = conjugate_gradients(
            lambda p: self.hessian_product(p) + _REGULARISATION * scale * p,
            -self.gradient,
            lambda r: r / scale,
            accuracy=accuracy,
            most_steps=_CG_STEPS,
        )
        return found.x if found.x.any() else -self.gradient / scale

    @cached_property
    def graded(self) -> tuple[Grade, Array, Array]:
        """What X(y), scaled on both sides to the wanted diagonal, proves; it, and its differences.

        gap = |X - X(y)|^2 + 2 <X, negative part> + 2 y'(A X - b), whatever the negative part: that it is
        positive semidefinite is enough.
        """
        problem = self.problem
        scale = np.sqrt(problem.diagonal * problem.groups.sizes / np.maximum(self.diagonal, _TINY))
        block = self.projection * scale
        block *= scale[:, None]
        primal, gap = _squared_distance(block, problem.block), _squared_distance(block, self.projection)
        gap += 2 * self.spectrum.negative_product(block, problem.shifted(self.y))
        difference = self.kept
        if not problem.groups.is_trivial:
            copies, difference = self.multiplicity, scale**2 * self.kept
            primal += float(copies @ (difference - problem.difference) ** 2)
            gap += float(copies @ (difference - self.kept) ** 2)
            gap += 2 * float(copies @ (difference * np.maximum(-self.shift, 0.0)))
        violation = 0.0
        if self.has_pairs:
            i, j = problem.pairs.T
            residual = block[i, j] - problem.pair_values
            gap += 2 * float(self.y[len(block) :] @ residual)
            relative = np.abs(residual) / np.sqrt(problem.diagonal[i] * problem.diagonal[j])
            violation = float(relative.max())
        return Grade(primal, gap, violation), block, difference

    @cached_property
    def is_proved(self) -> bool:
        """Whether no eigenvalue was missed, so that the positive part of Z is positive."""
        if not self.spectrum.is_partial:
            return True
        return spectrum.misses_none(self.problem.shifted(self.y), self.spectrum, self.projection)


def _squared_distance(A: Array, B: Array) -> float:
    """|A - B|^2, some rows at a time: large arrays of intermediate results cost more than the arithmetic."""
    total = 0.0
    for first in range(0, len(A), _ROWS):
        change = (A[first : first + _ROWS] - B[first : first + _ROWS]).ravel()
        total += float(change @ change)
    return total
