"""In extended precision: linear algebra of small symmetric matrices, and the losses of docs/problem.md.

Matrices are numpy arrays of mpmath numbers. `ExactLosses` has what a row costs, and the conjugate of that.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import nearwise as nw
from benchmarks.baselines import require
from nearwise._common.types import Array

Exact = NDArray[Any]


class Arithmetic:
    """Numbers of a given number of decimal digits, whose exponents have no limit.

    In a product of an array and a number the array comes first: a number on the left looks at it as text.
    """

    def __init__(self, digits: int) -> None:
        require("mpmath", "mpmath")
        self.mp: Any = importlib.import_module("mpmath").MPContext()
        self.mp.dps = digits
        self.epsilon = self.mp.mpf(10) ** (8 - digits)  # what is left of a zero after a few operations

    def number(self, x: float | int) -> Any:
        return self.mp.mpf(x)

    def array(self, A: ArrayLike) -> Exact:
        """The numbers of an array, exactly."""
        values = np.asarray(A, dtype=np.float64)
        out = np.empty(values.size, dtype=object)
        out[:] = [self.mp.mpf(float(x)) for x in values.flat]
        return out.reshape(values.shape)

    def total(self, terms: Any) -> Any:
        return sum(terms, self.mp.mpf(0))

    def largest(self, A: Exact) -> Any:
        """The largest magnitude among the entries."""
        return max((abs(x) for x in A.flat), default=self.mp.mpf(0))

    def scaled(self, A: Exact) -> tuple[Any, Array]:
        """A as scale * C with entries of C of at most one, C in double precision."""
        scale = self.largest(A)
        return scale, np.array([[float(x / scale) if scale else 0.0 for x in row] for row in A])

    def eigen(self, A: Exact) -> tuple[Exact, Exact]:
        """Eigenvalues in ascending order and eigenvectors; of a diagonal matrix without rounding."""
        k = len(A)
        if all(A[i, j] == 0 for i in range(k) for j in range(k) if i != j):
            order = sorted(range(k), key=lambda i: A[i, i])
            return np.array([A[i, i] for i in order], dtype=object), self.array(np.eye(k))[:, order]
        scale = self.largest(A)
        values, vectors = self.mp.eigsy(self.mp.matrix((A / scale).tolist()))
        V = np.array(vectors.tolist(), dtype=object).reshape(k, k)
        return np.array([scale * x for x in values], dtype=object), V

    def eigenvalues(self, A: Exact) -> list[Any]:
        """In ascending order."""
        if len(A) == 0:
            return []
        scale = self.largest(A) or self.mp.mpf(1)
        return [scale * x for x in self.mp.eigsy(self.mp.matrix((A / scale).tolist()), eigvals_only=True)]

    def cholesky(self, A: Exact) -> Exact | None:
        """L with A = L L^T, lower triangular; None where A is not positive definite."""
        k = len(A)
        L = self.array(np.zeros((k, k)))
        for j in range(k):
            pivot = A[j, j] - L[j, :j].dot(L[j, :j]) if j else A[j, j]
            if not pivot > 0:
                return None
            L[j, j] = self.mp.sqrt(pivot)
            for i in range(j + 1, k):
                L[i, j] = (A[i, j] - (L[i, :j].dot(L[j, :j]) if j else 0)) / L[j, j]
        return L

    def lower_inverse(self, L: Exact) -> Exact:
        """The inverse of a lower triangular matrix."""
        k = len(L)
        X = self.array(np.zeros((k, k)))
        for j in range(k):
            X[j, j] = 1 / L[j, j]
            for i in range(j + 1, k):
                X[i, j] = -L[i, j:i].dot(X[j:i, j]) / L[i, i]
        return X

    def log_determinant(self, A: Exact) -> Any | None:
        """log det A; None where A is not positive definite."""
        L = self.cholesky(A)
        return None if L is None else 2 * self.total(self.mp.log(L[i, i]) for i in range(len(L)))

    def left_inverse(self, T: Exact) -> Exact:
        """(T^T T)^-1 T^T for T of full column rank."""
        L = self.cholesky(T.T.dot(T))
        assert L is not None
        X = self.lower_inverse(L)
        return X.T.dot(X).dot(T.T)

    def is_semidefinite(self, A: Exact, parts: Exact | None = None) -> bool:
        """Whether A >= 0, by elimination, largest pivot first; what is below `epsilon` counts as zero.

        `parts` holds, for every diagonal entry, what the magnitudes of the terms add up to that it is a sum
        of; by default the entry itself. Where terms cancel, what is left of them is a zero beside these.
        """
        A = A.copy()
        size = np.array([abs(A[i, i]) for i in range(len(A))], dtype=object)
        if parts is not None:
            size = np.array([max(pair) for pair in zip(size, parts, strict=True)], dtype=object)
        left = list(range(len(A)))
        while left:
            # relative to the entry that was there, so that rows in different units count alike
            zero = [i for i in left if abs(A[i, i]) <= self.epsilon * size[i]]
            for i in zero:
                if any(A[i, j] ** 2 > self.epsilon * size[i] * size[j] for j in left if j != i):
                    return False
                left.remove(i)
            if not left:
                break
            i = max(left, key=lambda i: A[i, i] / size[i])
            if A[i, i] <= 0:
                return False
            left.remove(i)
            for a in left:
                share = A[a, i] / A[i, i]
                for b in left:
                    A[a, b] -= share * A[i, b]
        return True


@dataclass(frozen=True, eq=False)
class Row:
    """One constraint: its objects or its matrix on them, and what its loss needs.

    `is_definite` is None where rounding hides whether A >= 0; `vanishes` if A is zero on the prior's range.
    """

    kind: str
    relation: int
    ids: tuple[int, ...]
    matrix: Exact | None
    bound: Any
    penalty: float
    size: Any
    is_definite: bool | None
    vanishes: bool

    def has_slack(self, positive: bool) -> bool:
        """Whether the loss is the divergence's own slack, not its quadratic expansion."""
        return bool(self.bound > 0 and (positive or self.relation < 0))


class ExactLosses:
    """The losses of rows, and what they are under LogDet, von Neumann and Frobenius.

    `positive` says of a row whether its A >= 0, which decides whether it has the divergence's own slack.
    """

    def __init__(self, mp: Any, divergence: Any) -> None:
        self.mp = mp
        self.is_logdet = isinstance(divergence, nw.LogDet)
        self.is_frobenius = isinstance(divergence, nw.Frobenius)

    def is_positive(self, row: Row, p: Any, y: Any) -> bool:
        """Whether A >= 0; where rounding hides it, what suits the value p and the multiplier y better."""
        if row.is_definite is not None:
            return row.is_definite

        def lack(positive: bool) -> Any:
            if np.isinf(row.penalty):
                return self.violation(row, positive, p)
            return self.loss(row, positive, p) + self.conjugate(row, positive, y) - y * p

        return bool(lack(True) <= lack(False))

    def _excess(self, row: Row, p: Any) -> Any:
        """How far p is on the wrong side."""
        return (
            abs(p - row.bound) if row.relation == 0 else max((row.bound - p) * row.relation, self.mp.mpf(0))
        )

    def violation(self, row: Row, positive: bool, p: Any) -> Any:
        return self._excess(row, p) / (row.bound if positive and row.bound > 0 else row.size)

    def _stiffness(self, row: Row) -> Any:
        """penalty * phi''(s) of a row with quadratic loss."""
        curvature = row.size**-2 if self.is_logdet else self.mp.mpf(2) if self.is_frobenius else 1 / row.size
        return self.mp.mpf(row.penalty) * curvature

    def loss(self, row: Row, positive: bool, p: Any) -> Any:
        excess, b = self._excess(row, p), row.bound
        if np.isinf(row.penalty) or excess == 0:
            return self.mp.mpf(0)
        if not row.has_slack(positive):
            return self._stiffness(row) * excess**2 / 2
        if self.is_frobenius:
            return row.penalty * excess**2
        if p <= 0:
            return self.mp.inf if self.is_logdet or p < 0 else row.penalty * b
        log = self.mp.log(p / b)
        return row.penalty * (p / b - log - 1 if self.is_logdet else p * log - p + b)

    def conjugate(self, row: Row, positive: bool, y: Any) -> Any:
        """sup_p y p - loss(p) for y of the right sign."""
        b = row.bound
        if np.isinf(row.penalty) or y == 0:
            return y * b
        gamma = self.mp.mpf(row.penalty)
        if not row.has_slack(positive):
            return y * b + y**2 / (2 * self._stiffness(row))
        if self.is_frobenius:
            stops = positive and b + y / (2 * gamma) < 0
            return -gamma * b**2 if stops else y * b + y**2 / (4 * gamma)
        if self.is_logdet:
            return -gamma * self.mp.log(1 - y * b / gamma) if y * b < gamma else self.mp.inf
        return gamma * b * self.mp.expm1(y / gamma)
