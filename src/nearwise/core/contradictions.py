"""Sums S = sum_i y_i A_i >= 0 of few rows, which Farkas certificates consist of.

All of it happens in coordinates in which W = sum_i |y_i| |A_i| is I (`whitened`), for multipliers u >= 0
relative to y: with A'_i the rows in these coordinates times y_i, S = sum_i u_i A'_i, and u = 1 is known.

`Whitened.towards_singular` makes eigenvalues of S zero that almost are. `of_one_or_two` finds rows that are
semidefinite by themselves, and pairs that cancel. `sparsest` solves the semidefinite program

    minimise w^T u   over u >= 0 with sum_i u_i A'_i >= 0 and c^T u = -1,

whose solutions have few rows, as those of linear programs do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from nearwise._common.types import Array, Index, Mask
from nearwise.core.rows import Rows

EPS, TINY = float(np.finfo(np.float64).eps), float(np.finfo(np.float64).tiny)

# Relative change of multipliers that makes S singular: with more, they are those of another sum.
LARGEST_CHANGE = 0.5

# A negative eigenvalue, relative to |A_i|, of a row that may be semidefinite: each is judged later.
DEFINITE = 1e-6

# Cosine of two rows that cancel: equal rows differ by rounding alone. Each pair is judged afterwards.
OPPOSITE = -1.0 + 1e-12

# Numbers in the normal equations' products: the search for fewer rows takes about two seconds with so many.
MOST_NUMBERS = 500_000_000

# Of that search: complementarity, relative, at which shares of rows without a part are far below the others;
# and steps, of which 10 to 20 are taken.
CONVERGED, MOST_STEPS = 1e-10, 30


class Whitened(NamedTuple):
    """Signed atoms of rows times their multipliers, in coordinates in which W is I.

    Attributes
    ----------
    rows : their numbers
    row : that of every atom among these
    sign, x, y : of every atom, and its vectors; the same object where all are squares
    total : S
    noise : what rounding may have added to the eigenvalues of S
    """

    rows: Index
    row: Index
    sign: Array
    x: Array
    y: Array
    total: Array
    noise: float

    @property
    def smallest(self) -> float:
        """The smallest eigenvalue of S, less what rounding may have added to it; at most 0."""
        return min(float(np.linalg.eigvalsh(self.total)[0]) - self.noise, 0.0)

    @property
    def magnitudes(self) -> Array:
        """The size of every row as a part of W."""
        lengths = np.sqrt(np.einsum("ij,ij->i", self.x, self.x) * np.einsum("ij,ij->i", self.y, self.y))
        return np.bincount(self.row, lengths, len(self.rows)).astype(np.float64)

    @property
    def is_small(self) -> bool:
        """Whether equations between all its rows take little time and memory."""
        return (len(self.rows) * len(self.total)) ** 2 <= MOST_NUMBERS

    def towards_singular(self, zero: float) -> Array | None:
        """By how much multipliers are to change, relatively, so that eigenvalues up to `zero` become zero.

        A Newton step for N^T S N = 0, where N spans these eigenvectors; it converges quadratically, since N
        changes what is left of S by its square. None where there are none, or the step is too long.
        """
        values, V = np.linalg.eigh(self.total)
        N = V[:, np.abs(values) <= zero]
        if not (N.size and self.is_small):
            return None
        of_rows = self.matrices(N).reshape(len(self.rows), -1)
        change: Array = np.linalg.lstsq(of_rows.T, -of_rows.sum(axis=0), rcond=1e-10)[0]
        return change if np.abs(change).max() < LARGEST_CHANGE else None

    def matrices(self, basis: Array | None = None) -> Array:
        """A'_i of every row, or N^T A'_i N in a basis N of some space."""
        x, y = (self.x, self.y) if basis is None else (self.x @ basis, self.y @ basis)
        x, ends = self.sign[:, None] * x, np.searchsorted(self.row, np.arange(len(self.rows) + 1))
        found = np.stack([x[first:end].T @ y[first:end] for first, end in pairwise(ends)])
        return np.asarray((found + found.swapaxes(1, 2)) / 2)


def whitened(rows: Rows, y: Array) -> Whitened | None:
    """The coordinates of W, from the singular values of its vectors: eigenvalues would lose the small ones.

    Columns in different units are brought to one before, so that none is lost beside the others. None where
    the rows measure nothing.
    """
    numbers = np.flatnonzero(y)
    few = rows.subset(numbers)
    x, z = few.vectors()
    square = z is x
    largest = np.maximum(np.abs(x).max(axis=0, initial=0.0), np.abs(z).max(axis=0, initial=0.0))
    even = np.exp2(-np.frexp(np.where(largest > 0, largest, 1.0))[1])
    weight = few.coefficient * y[numbers][few.row_of_atoms]
    root = np.sqrt(np.abs(weight))[:, None]
    x = root * (x * even)
    z = x if square else root * (z * even)
    vectors = x if square else np.sqrt(0.5) * np.vstack([x, z])
    _, s, Vt = np.linalg.svd(np.linalg.qr(vectors, mode="r"), full_matrices=False)
    kept = s > 4 * len(s) * EPS * s.max(initial=0.0)
    if not kept.any():
        return None
    white = Vt[kept].T / s[kept]
    x = x @ white
    z = x if square else z @ white
    total = x.T @ (np.sign(weight)[:, None] * z)
    noise = 4 * EPS * float(s[0] / s[kept][-1])  # of vectors that are nearly parallel
    return Whitened(numbers, few.row_of_atoms, np.sign(weight), x, z, (total + total.T) / 2, noise)


def of_one_or_two(matrices: Array, magnitudes: Array, c: Array, free: Mask) -> Iterator[Array]:
    """Relative multipliers of rows with c_i < 0 that may be >= 0 alone, then of pairs with a sum of zero.

    They may be: whether they are is for others to judge. The clearest pairs come first. Multipliers of `free`
    rows, which are equalities, may have the other sign.
    """
    m, r = matrices.shape[:2]
    unit = np.vstack([np.eye(m), -np.eye(m)[free]])
    matrices = np.concatenate([matrices, -matrices[free]])
    allowed = -DEFINITE * np.concatenate([magnitudes, magnitudes[free]])
    c = unit @ c
    alone = np.flatnonzero((c <= 0) & (np.trace(matrices, axis1=1, axis2=2) >= allowed))
    yield from unit[alone[np.linalg.eigvalsh(matrices[alone])[:, 0] >= allowed[alone]]]
    flat = matrices.reshape(-1, r * r)
    sizes = np.maximum(np.linalg.norm(flat, axis=1), TINY)[:, None]
    flat, unit, c = flat / sizes, unit / sizes, c / sizes[:, 0]
    first, second = np.nonzero(np.triu(flat @ flat.T < OPPOSITE, 1))
    lacking = (c[first] + c[second]) / np.maximum(np.abs(c[first]) + np.abs(c[second]), TINY)
    for k in np.argsort(lacking, kind="stable")[: np.count_nonzero(lacking < 0)]:
        yield unit[first[k]] + unit[second[k]]


def sparsest(matrices: Array, c: Array, w: Array) -> Array:
    """Solve the program above by a primal-dual interior-point method; u = 1 is a point with c^T u < 0.

    1. Take the HKM direction for a share of the complementarity mu of (u, s) and (S, Z). It solves
       (diag(s / u) + <A'_i, Z A'_j S^-1>) du + c dt = right-hand side, c^T du = -1 - c^T u.
    2. Go nine tenths of the way to the boundary, in (u, S) and in (s, Z, t) each.
    3. The share is a tenth after long steps, and nearly 1 after short ones, which come back to the path.
    """
    m, r = matrices.shape[:2]
    flat = matrices.reshape(m, r * r)
    c = c / np.abs(c.sum())
    u, s, t = np.ones(m), np.ones(m), 0.0
    Z = np.eye(r)
    S = np.asarray(matrices.sum(axis=0)) + 0.1 * Z
    centring = 0.1
    with suppress(np.linalg.LinAlgError):
        for _ in range(MOST_STEPS):
            mu = (u @ s + np.vdot(Z, S)) / (m + r)
            if not mu > CONVERGED:
                break
            target = centring * mu
            inverse = np.linalg.inv(S)
            lack = np.tensordot(u, matrices, 1) - S
            dual = s + flat @ Z.ravel() - w - t * c
            H = flat @ (Z @ matrices @ inverse).reshape(m, r * r).T
            H.flat[:: m + 1] += s / u
            ahead = _symmetric(target * inverse - Z - Z @ lack @ inverse)
            right = np.column_stack([dual + flat @ ahead.ravel() + target / u - s, c])
            solved = np.linalg.solve(H, right)
            dt = float((c @ solved[:, 0] + 1.0 + c @ u) / (c @ solved[:, 1]))
            du = solved[:, 0] - dt * solved[:, 1]
            dS = np.tensordot(du, matrices, 1) + lack
            dZ = _symmetric(target * inverse - Z - Z @ dS @ inverse)
            ds = target / u - s - s / u * du
            near, far = min(_room(u, du), _room(S, dS)), min(_room(s, ds), _room(Z, dZ))
            centring = min(max((1 - min(near, far)) ** 2, 0.1), 0.9)
            u, S = u + near * du, S + near * dS
            s, Z, t = s + far * ds, Z + far * dZ, t + far * dt
    return u


def _symmetric(A: Array) -> Array:
    return np.asarray((A + A.T) / 2)


def _room(X: Array, dX: Array) -> float:
    """Nine tenths of the step to where a positive vector or matrix stops being one, at most 1."""
    if X.ndim == 1:
        least = float((dX / X).min())
    else:
        inverse = np.linalg.inv(np.linalg.cholesky(X))
        least = float(np.linalg.eigvalsh(inverse @ dX @ inverse.T)[0])
    return min(1.0, 0.9 / -least) if least < -0.9 else 1.0
