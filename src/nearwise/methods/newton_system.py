"""Newton's linear system in local coordinates: D + weights * H(weights * D) = -weights * gradient for symmetric
D.

H(D) = sum_i c_i <A_i, D> A_i is the Hessian of the losses, of rows A_i in local coordinates with curvatures
c_i; weights are the chart's. Three ways lead to D, and the one with the fewest expected operations is taken:
through the Gram matrix of the rows (only without weights), through the rows written out as vectors of
unknowns, or by conjugate gradients (`linalg.gaussian`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from nearwise._common.types import Array
from nearwise.core.rows import Rows
from nearwise.linalg.gaussian import OVERHEAD, GaussianSystem, RowVectors
from nearwise.linalg.packing import packing

WRITTEN = (
    4_000_000  # numbers of a Gram matrix or of rows written out, 32 MB; above, conjugate gradients are taken
)
FEWEST_STEPS, MOST_STEPS = 12, 60  # of conjugate gradients to a rough accuracy, and to a close one
ROUGH = 0.03  # accuracy, up from which it is rough

Solution = tuple[Array, Callable[[Array], Array]]


def newton_step(
    local: Rows, curvatures: Array, weights: Array | None, gradient: Array, accuracy: float
) -> Solution:
    """D, to an accuracy that conjugate gradients are to reach, and the function H.

    Parameters
    ----------
    local, curvatures : rows with a positive curvature, in local coordinates
    weights, gradient : of the chart
    """
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
    vectors = _weighted_vectors(local, curvatures)
    return GaussianSystem(vectors, weights).solve(target, accuracy), vectors.squared


def expected_steps(local: Rows, curvatures: Array, weights: Array | None, accuracy: float) -> float:
    """Of conjugate gradients: few where the losses bend little beside the divergence.

    The largest eigenvalue of the losses' Hessian is taken as its trace over r, as of Gaussian vectors.
    """
    traces = np.square(local.magnitudes(np.ones(local.order)))
    largest = (
        float(curvatures @ traces) / local.order * (1.0 if weights is None else float(weights.max()) ** 2)
    )
    most = FEWEST_STEPS if accuracy > ROUGH else MOST_STEPS
    return min(most, 1 + math.sqrt(1 + largest) * math.log(2 / accuracy) / 2)


def _by_gram(local: Rows, curvatures: Array, target: Array) -> Solution:
    """In the space of rows: D = R - A^T (1/c + A A^T)^-1 A R, without a row written out."""
    root = np.sqrt(curvatures)
    gram = local.gram()
    gram *= root[:, None]
    gram *= root
    gram.flat[:: len(gram) + 1] += 1.0
    replies = np.linalg.solve(gram, root * local.of_matrix(target))
    step: Array = target - local.adjoint(root * replies)
    return step, lambda D: local.adjoint(curvatures * local.of_matrix(D))


def _written_out(local: Rows, curvatures: Array, weights: Array | None, target: Array) -> Solution:
    """In the smaller of the two spaces, of rows and of unknowns."""
    pack = packing(len(target))
    A = local.packed(np.eye(local.order))
    wide = A * np.sqrt(curvatures)
    if weights is not None:
        wide *= weights.take(pack.flat)[:, None]
    t = pack.pack(target)
    q, m = A.shape
    if m <= q:
        d = t - wide @ np.linalg.solve(np.eye(m) + wide.T @ wide, wide.T @ t)
    else:
        d = np.linalg.solve(np.eye(q) + wide @ wide.T, t)
    return pack.unpack(d), lambda D: pack.unpack(A @ (curvatures * (A.T @ pack.pack(D))))


def _weighted_vectors(local: Rows, curvatures: Array) -> RowVectors:
    """The rows times the roots of their curvatures."""
    x, y = local.vectors(dtype=local.x.dtype.type)
    root = np.sqrt(curvatures)
    return RowVectors.of(
        x, y, local.coefficient * (root if local.row is None else root[local.row]), local.row
    )
