"""Formulations for tests of projections, and what a projection is by its definition with dense matrices."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import expm
from scipy.optimize import brentq

from nearwise.core.divergences import LogDet, SpectralDivergence
from nearwise.core.edges import Edges
from nearwise.core.formulation import Formulation
from nearwise.core.losses import Loss
from nearwise.core.rows import Rows

Array = NDArray[np.float64]
Atom = tuple[int, int, bool, float]  # first, second, whether a product instead of a difference, coefficient

KINDS: dict[str, list[list[Atom]]] = {
    "distances": [[(0, 1, False, 1.0)], [(2, 3, False, 1.0)], [(4, 1, False, 2.0)], [(5, 7, False, 1.0)]],
    "comparisons": [[(0, 1, False, 1.0), (2, 3, False, -1.0)], [(4, 5, False, -1.0), (4, 6, False, 1.0)]],
    "products": [[(0, 1, True, 1.0)], [(2, 2, True, 1.0)], [(3, 4, True, -0.5)], [(5, 5, True, 1.0)]],
    "four squares": [
        [(0, 1, True, 1.0), (2, 3, True, -1.0)],
        [(0, 4, False, 1.0), (1, 5, False, 1.0), (2, 6, False, -1.0)],
    ],
    "many squares": [
        [(i, i + 1, i % 2 == 0, 1.0 - 0.3 * i) for i in range(7)],
        [(i, i, True, 1.0) for i in range(8)],
    ],
}
KINDS["all"] = [atoms for kind in KINDS.values() for atoms in kind]


def rows_of(kind: str, features: Array, graph: bool) -> Rows:
    """The rows of a kind in one of their two forms."""
    atoms = [(*atom, row) for row, own in enumerate(KINDS[kind]) for atom in own]
    first, second, product, coefficient, row = (np.array(column) for column in zip(*atoms, strict=True))
    edges = Edges.of(first, second, product)
    if graph:
        return Rows(features, features, edges, coefficient, row, len(KINDS[kind]))
    x, y = edges.ends(features)
    return Rows.written(x, y, coefficient, row, len(KINDS[kind]))


def matrices_of(rows: Rows) -> Array:
    """(m, r, r) all A_i, from the vectors of their atoms one by one."""
    A = np.zeros((rows.n_rows, rows.order, rows.order))
    for x, y, c, row in zip(*rows.vectors(), rows.coefficient, rows.row_of_atoms, strict=True):
        A[row] += c * (np.outer(x, y) + np.outer(y, x)) / 2
    return A


def formulation(
    divergence: SpectralDivergence,
    rows: Rows,
    relations: Any,
    bounds: Any,
    penalty: Any = math.inf,
    prior: Array | None = None,
    **others: Any,
) -> Formulation:
    """With sizes of 1, and definite rows found by their eigenvalues."""
    m = rows.n_rows
    e = np.linalg.eigvalsh(matrices_of(rows))
    loss = Loss(
        divergence,
        np.full(m, relations, dtype=np.int8),
        np.full(m, bounds, dtype=np.float64),
        np.full(m, penalty, dtype=np.float64),
        np.ones(m),
        e[:, 0] >= -1e-13 * np.abs(e).max(axis=1),
        **others,
    )
    return Formulation.of(divergence, np.ones(rows.order) if prior is None else prior, rows, loss)


def example(
    kind: str, divergence: SpectralDivergence, penalty: float, graph: bool = False, r: int = 5, seed: int = 0
) -> Formulation:
    """Bounds that another matrix than the prior meets with equality.

    Every third row is an equation; the prior violates the others, except every fifth.
    """
    rng = np.random.default_rng([seed, r])
    rows = rows_of(kind, rng.normal(size=(8, r)) / np.sqrt(r), graph)
    root = rng.normal(size=(r, 2 * r)) / np.sqrt(2 * r)
    prior = rng.uniform(0.5, 2.0, r)
    relations = np.sign(rows.values(root) - rows.of_matrix(np.diag(prior)))
    relations[2::3], relations[4::5] = 0, -relations[4::5]
    return formulation(divergence, rows, relations, rows.values(root), penalty, prior)


@dataclass
class Dense:
    """Projections by their definition: M = (phi')^-1(phi'(M0) - sum_i y_i A_i), one y_i after the other."""

    form: Formulation
    dual: Array = field(init=False)

    def __post_init__(self) -> None:
        self.A, self.dual = matrices_of(self.form.rows), np.zeros(self.form.rows.n_rows)
        self.by_inverse = isinstance(self.form.divergence, LogDet)

    def matrix(self, step: float = 0.0, row: int = 0) -> Array:
        """M, after a step along one row."""
        S = np.tensordot(self.dual, self.A, 1) + step * self.A[row]
        prior = self.form.prior
        return np.linalg.inv(np.diag(1 / prior) + S) if self.by_inverse else expm(np.diag(np.log(prior)) - S)

    def project(self, row: int) -> None:
        """Until the row is met, or its multiplier is the slope of its loss; or else the multiplier is 0."""
        loss, y, A = self.form.loss, float(self.dual[row]), self.A[row]
        low, high = self._domain(A)

        def value(step: float) -> float:
            return float(np.sum(A * self.matrix(step, row)))

        def excess(step: float) -> float:
            p = loss.bounds.copy()
            p[row] = value(step)
            return loss.bounds[row] - p[row] if loss.is_hard[row] else y + step - loss.at(p).slopes[row]

        may_stop = loss.is_hard[row] and loss.relations[row] and low < -y < high
        if may_stop and (value(-y) - loss.bounds[row]) * loss.relations[row] >= 0:
            self.dual[row] = 0.0
            return
        self.dual[row] = y + _root(excess, low, high)

    def _domain(self, A: Array) -> tuple[float, float]:
        """The steps for which M is positive definite."""
        if not self.by_inverse:
            return -math.inf, math.inf
        root = np.linalg.cholesky(self.matrix())
        e = np.linalg.eigvalsh(root.T @ A @ root)
        e = np.where(np.abs(e) > 1e-12 * np.abs(e).max(), e, 0.0)
        return (-1 / e[-1] if e[-1] > 0 else -math.inf), (-1 / e[0] if e[0] < 0 else math.inf)


def _root(rising: Callable[[float], float], low: float, high: float) -> float:
    """Where a rising function between two poles is zero."""

    def towards(end: float) -> float:
        for k in range(1, 60):
            at = end * (1 - 2.0**-k) if math.isfinite(end) else math.copysign(1e-3 * 2.0**k, end)
            if (rising(at) > 0) == (end > 0):
                return at
        raise AssertionError("no zero")

    return float(brentq(rising, towards(low), towards(high), xtol=1e-15, rtol=1e-14))
