"""Newton's linear system in local coordinates: D + weights * H(weights * D) = -weights * gradient.

H(D) = sum_i c_i <A_i, D> A_i is the Hessian of the losses, of rows A_i in local coordinates with curvatures
c_i; weights are the chart's. `HessianSample` chooses the rows. Three ways lead to the symmetric D, and the
one with the fewest expected operations is taken: through the Gram matrix of the rows (only without weights),
through the rows written out as vectors of unknowns, or by conjugate gradients (`linalg.gaussian`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from nearwise._common.types import Array, Index
from nearwise.core.charts import Chart
from nearwise.core.measured import Measured
from nearwise.core.rows import Rows
from nearwise.linalg.gaussian import OVERHEAD, RowVectors, gaussian_solution
from nearwise.linalg.packing import packing

WRITTEN = 4_000_000  # numbers of a Gram matrix or of rows written out, 32 MB; of more, none is formed

SINGLE = 200_000  # numbers in vectors, from which on products in single precision take half the time

# What is a rough accuracy, and about how many conjugate gradients it and a closer one take at most. They only
# choose between ways to the same step.
ROUGH, ROUGH_STEPS, CLOSE_STEPS = 0.03, 12, 60

# Rows of the Hessian, for each unknown and at least. With 2 per unknown MNIST takes 1.1 to 1.3 times the
# iterations, with 4 as many; all in about the same time.
PER_UNKNOWN, FEWEST = 3, 4096

# Rows drawn for each of these, since not all have a curvature (half of those of MNIST have), and at most; and
# the share of the rows wanted at which no more are drawn.
SPARE, MOST_SPARE, ENOUGH = 2, 16, 0.8

Solution = tuple[Array, Callable[[Array], Array]]


class Curved(NamedTuple):
    """Rows with a curvature, in local coordinates.

    Attributes
    ----------
    local, curvatures : rows, and what is positive of each
    is_part : whether they stand for others as well
    may_be_single : whether single precision is exact enough for them
    """

    local: Rows
    curvatures: Array
    is_part: bool
    may_be_single: bool


class HessianSample:
    """Rows for the Hessian, drawn once by number, and once more where few of them have a curvature.

    In single precision where they are many, unless a row is hard.
    """

    def __init__(self, measured: Measured, order: int, most: int | None, seed: int) -> None:
        self.most = most or max(PER_UNKNOWN * order * (order + 1) // 2, FEWEST)
        self.seed, self.rng = seed, np.random.default_rng(seed)
        self.may_be_single = not measured.any_hard
        self.measured = measured
        self._draw(SPARE * self.most)

    def bind(self, measured: Measured) -> None:
        """Take the same rows with other losses."""
        self.measured = measured
        self.sample = measured.sample(self.numbers)
        single = self.sample.rows.in_single() if self.may_be_single else None
        self.rows = single or self.sample.rows

    def curved(self, chart: Chart, n_curved: int) -> Curved:
        """Rows with a curvature at a point; there are `n_curved` in all."""
        rows, curvatures, local = self._curved(chart)
        wanted, drawn = min(self.most, n_curved), len(self.numbers)
        if len(rows) < ENOUGH * wanted and drawn < min(MOST_SPARE * self.most, self.measured.n_rows):
            self._draw(min(SPARE * drawn * self.most // max(len(rows), 1), MOST_SPARE * self.most))
            rows, curvatures, local = self._curved(chart)
        is_part = len(self.numbers) < self.measured.n_rows or len(rows) > self.most
        if len(rows) > self.most:
            rows = rows[np.sort(self.rng.choice(len(rows), self.most, replace=False))]
        stand_for = n_curved / max(len(rows), 1) if is_part else 1.0
        return Curved(local.subset(rows), stand_for * curvatures[rows], is_part, self.may_be_single)

    def _curved(self, chart: Chart) -> tuple[Index, Array, Rows]:
        local = self.rows.transformed(chart.basis)
        curvatures = self.sample.loss.at(local.values(chart.stretch)).curvatures
        return np.flatnonzero(curvatures), curvatures, local

    def _draw(self, count: int) -> None:
        m = self.measured.n_rows
        self.numbers = np.arange(m) if count >= m else np.sort(self.rng.choice(m, count, replace=False))
        self.bind(self.measured)


def newton_step(
    rows: Curved, share: float, weights: Array | None, gradient: Array, accuracy: float
) -> Solution:
    """D, to an accuracy that conjugate gradients are to reach, and the function H.

    Parameters
    ----------
    rows, share : H is the share of what their curvatures say
    weights, gradient : of the chart
    """
    local, curvatures = rows.local, share * rows.curvatures
    target = -gradient if weights is None else -weights * gradient
    m, r = local.n_rows, len(gradient)
    if m == 0:
        return target, np.zeros_like
    q, atoms = r * (r + 1) // 2, local.n_atoms
    smaller = min(m, q)
    by_vectors = expected_steps(local, curvatures, weights, accuracy) * (4 * atoms * r**2 + OVERHEAD)
    by_gram = 2 * atoms**2 * r + m**3 if weights is None and atoms**2 <= WRITTEN else math.inf
    written_out = m * q * (1 + smaller) + smaller**3 if m * q <= WRITTEN else math.inf
    if by_gram <= min(written_out, by_vectors):
        return _by_gram(local, curvatures, target)
    if written_out <= by_vectors:
        return _written_out(local, curvatures, weights, target)
    may_be_single = rows.may_be_single and atoms * r > SINGLE
    vectors = _weighted_vectors(local, curvatures, np.float32 if may_be_single else np.float64)
    return gaussian_solution(vectors, weights, target, accuracy), vectors.squared


def expected_steps(local: Rows, curvatures: Array, weights: Array | None, accuracy: float) -> float:
    """Of conjugate gradients: few where the losses bend little beside the divergence.

    The largest eigenvalue of the losses' Hessian is taken as its trace over r, as of Gaussian vectors.
    """
    traces = np.square(local.magnitudes(np.ones(local.order)))
    largest = (
        float(curvatures @ traces) / local.order * (1.0 if weights is None else float(weights.max()) ** 2)
    )
    most = ROUGH_STEPS if accuracy > ROUGH else CLOSE_STEPS
    return min(most, 1 + math.sqrt(1 + largest) * math.log(2 / accuracy) / 2)


def _by_gram(local: Rows, curvatures: Array, target: Array) -> Solution:
    """In the space of rows: D = R - A^T (1/c + A A^T)^-1 A R, without a row written out."""
    root = np.sqrt(curvatures)
    gram = local.gram()
    gram *= root[:, None]
    gram *= root
    gram.flat[:: len(gram) + 1] += 1.0
    replies = np.linalg.solve(gram, root * local.of_matrix(target))
    step = target - local.adjoint(root * replies)
    return step, lambda D: local.adjoint(curvatures * local.of_matrix(D))


def _written_out(local: Rows, curvatures: Array, weights: Array | None, target: Array) -> Solution:
    """In the smaller of the two spaces, of rows and of unknowns."""
    pack = packing(local.order)
    A = local.packed(np.eye(local.order))
    wide = A * np.sqrt(curvatures)
    if weights is not None:
        wide *= weights.take(pack.flat)[:, None]
    t = pack.pack(target)
    q, m = A.shape
    if m <= q:
        d = t - wide @ np.linalg.solve(np.eye(m) + wide.T @ wide, wide.T @ t)
    else:
        d = np.asarray(np.linalg.solve(np.eye(q) + wide @ wide.T, t), dtype=np.float64)
    return pack.unpack(d), lambda D: pack.unpack(A @ (curvatures * (A.T @ pack.pack(D))))


def _weighted_vectors(local: Rows, curvatures: Array, dtype: type[np.floating[Any]]) -> RowVectors:
    """The rows times the roots of their curvatures."""
    x, y = local.vectors(dtype=dtype)
    root = np.sqrt(curvatures)
    scale = local.coefficient * (root if local.row is None else root[local.row])
    return RowVectors.of(x, y, scale, local.row)
