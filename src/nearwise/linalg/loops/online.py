"""Streams of feedback under the LogDet divergence: one implicit update after the other, M = B B^T.

A piece of feedback is a row (i, j, k, l) whose value is d(i, j) - d(k, l), or d(i, j) alone where k is
negative; d are squared distances under M of rows of `features`. The state is the transpose of an upper
triangular B, so that M is positive semidefinite and symmetric whatever rounding does. `project_rows` and
`squared_lengths` do the little that streams need beside updates, row by row: their results do not depend on
how many rows come at once, as those of a BLAS would.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearwise._common.types import Array, Index
from nearwise.linalg.loops.compiling import compiled
from nearwise.linalg.loops.logdet import (
    fill_image,
    gather,
    multiply_columns,
    pair_eigenvalues,
    projection_step,
)

_SMALLEST = 1e-290  # squared distances below are zero: a change along them would leave the range of numbers

_compiled = compiled(reassociate=True)


class Feedback(NamedTuple):
    """A stream, in its order. `relation` is -1 for value <= target, +1 for >=, 0 for ==."""

    features: Array
    rows: Index  # (m, 4)
    relation: NDArray[np.int8]
    target: Array
    rate: Array
    relative: bool  # whether errors count relative to the distances compared, see `unit_of`


@_compiled
def is_met(relation: int, value: float, target: float) -> bool:
    """Whether there is nothing to learn from a row."""
    return value == target or (relation < 0 and value <= target) or (relation > 0 and value >= target)


@_compiled
def unit_of(relative: bool, first: float, second: float, target: float) -> float:
    """The unit in which an error is measured: 1, or the distances compared and the target, summed."""
    return first + second + abs(target) if relative else 1.0


@_compiled
def implicit_ratio(p: float, y: float, eta: float) -> float:
    """q / p where q > 0 solves q = p / (1 + eta p (q - y)), without cancellation."""
    b = 1.0 - eta * p * y
    root = math.hypot(b, 2.0 * math.sqrt(eta) * p)
    return 2.0 / (b + root) if b >= 0.0 else 0.5 * (root - b) / (eta * p) / p


@_compiled
def follow_logdet(feedback: Feedback, state: Array, values: Array, scratch: Array) -> int:
    """Update `state` row by row and note each row's value before; scratch holds 6 vectors.

    Returns the number of rows done: fewer than all where a value or a change is not a finite number, with the
    rows before that one applied.
    """
    x, image, other = scratch[0], scratch[1], scratch[2]
    diagonal, above, sums = scratch[3], scratch[4], scratch[5]
    eigenvalues = np.empty(2)
    F, rows = feedback.features, feedback.rows
    for t in range(rows.shape[0]):
        y, relation = feedback.target[t], feedback.relation[t]
        gather(F, rows[t, 0], rows[t, 1], -1.0, x)
        fill_image(state, True, x, image)
        first, second = _dot(image, image), 0.0
        compares = rows[t, 2] >= 0
        if compares:
            gather(F, rows[t, 2], rows[t, 3], -1.0, x)
            fill_image(state, True, x, other)
            second = _dot(other, other)
        value = first - second
        unit = unit_of(feedback.relative, first, second, y)
        if not math.isfinite(value) or not math.isfinite(unit * unit):
            return t
        values[t] = value
        if is_met(relation, value, y) or first + second < _SMALLEST:
            continue
        eta = feedback.rate[t] / unit / unit
        if not compares:
            ratio = implicit_ratio(first, y, eta)
            weight = (ratio - 1.0) / first
            if not math.isfinite(weight) or ratio <= 0.0:
                return t
            _multiply(state, image, weight, ratio, diagonal, above, sums)
            continue
        pair_eigenvalues(1.0, -1.0, first, second, _dot(image, other), eigenvalues)
        step = projection_step(eigenvalues, 2, relation, y, 1.0 / eta, False, False, 0.0)
        if step == 0.0:
            continue
        # First the square that shrinks M, then the one that lets it grow: M stays positive definite between.
        for turn in range(2):
            column = 2 * turn if step > 0.0 else 2 - 2 * turn
            change = step if column == 0 else -step
            gather(F, rows[t, column], rows[t, column + 1], -1.0, x)
            fill_image(state, True, x, image)
            size = _dot(image, image)
            if size >= _SMALLEST:
                ratio = 1.0 / (1.0 + change * size)
                _multiply(state, image, -change * ratio, ratio, diagonal, above, sums)
    return rows.shape[0]


@_compiled
def _multiply(
    state: Array, w: Array, weight: float, ratio: float, diagonal: Array, above: Array, sums: Array
) -> None:
    """Multiply B by the triangular factor of I + weight w w^T, where ratio = 1 + weight |w|^2 > 0.

    The factor needs s_j = 1 + weight (w_j^2 + ... + w_r^2). For a negative weight it is summed from the other
    end, s_j = ratio - weight (w_1^2 + ... + w_{j-1}^2), so that all terms are positive and no s_j vanishes.
    """
    r = w.shape[0]
    if weight < 0.0:
        total = ratio
        for j in range(r):
            above[j] = total
            total -= weight * w[j] * w[j]
    else:
        total = 1.0
        for step in range(r):
            j = r - 1 - step
            total += weight * w[j] * w[j]
            above[j] = total
    for j in range(r):
        sums[j] = math.sqrt(above[j])
    for j in range(r - 1):
        diagonal[j] = sums[j] / sums[j + 1]
        above[j] = weight * w[j] / (sums[j] * sums[j + 1])
    diagonal[r - 1] = sums[r - 1]
    above[r - 1] = weight * w[r - 1] / sums[r - 1]
    multiply_columns(state, w, diagonal, above, sums)


@_compiled
def project_rows(X: Array, basis: Array, out: Array) -> None:
    """out = X @ basis."""
    for i in range(X.shape[0]):
        for c in range(basis.shape[1]):
            out[i, c] = 0.0
        for k in range(X.shape[1]):
            for c in range(basis.shape[1]):
                out[i, c] += X[i, k] * basis[k, c]


@_compiled
def project_sparse_rows(data: Array, indices: Index, indptr: Index, basis: Array, out: Array) -> None:
    """out = X @ basis for compressed sparse rows X."""
    for i in range(out.shape[0]):
        for c in range(basis.shape[1]):
            out[i, c] = 0.0
        for t in range(indptr[i], indptr[i + 1]):
            for c in range(basis.shape[1]):
                out[i, c] += data[t] * basis[indices[t], c]


@_compiled
def squared_lengths(X: Array, first: Index, second: Index, out: Array) -> None:
    """out = |X[first] - X[second]|^2."""
    for t in range(first.shape[0]):
        total = 0.0
        for k in range(X.shape[1]):
            z = X[first[t], k] - X[second[t], k]
            total += z * z
        out[t] = total


@_compiled
def _dot(x: Array, y: Array) -> float:
    total = 0.0
    for k in range(x.shape[0]):
        total += x[k] * y[k]
    return total
