"""Streams of feedback on a matrix kept as its eigendecomposition: exponentiated gradients, POLA, online PCA.

A piece of feedback is what it is in `online`. Every update adds one or two multiples of squares x x^T to the
matrix (or to its logarithm), each through the secular equation: O(r^2), and a product of eigenvectors. Rows
of `vectors` are eigenvectors. Rounding slowly takes their orthogonality away; how far is measured every r
updates, and repaired where it is more than rounding leaves.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from nearwise._common.types import Array, Index
from nearwise.linalg.loops.compiling import compiled
from nearwise.linalg.loops.logdet import gather
from nearwise.linalg.loops.online import Feedback, is_met, unit_of
from nearwise.linalg.loops.secular import Workspace, complete, decompose, transform
from nearwise.linalg.loops.von_neumann import rotate_vectors

CEILING = 690.0  # exponents stay below: their exponentials are finite numbers
DRIFT = 1e-13  # largest entry of V V^T - I that is left alone

_EXCESS = 1e-13  # relative, of a weight over the cap: what rounding of the sum of r weights can make

UPDATES, REPAIRS = 0, 1  # places in Spectrum.counts

_compiled = compiled(reassociate=True)


class Spectrum(NamedTuple):
    """The matrix V^T diag(values) V, values ascending; updated in place."""

    values: Array
    vectors: Array
    counts: Index  # changes of the vectors since orthogonality was measured, and repairs in all


class Room(NamedTuple):
    """Memory that updates use.

    Without `factors` the eigenvectors stay as they are: the caller, who wants one row at a time then, applies
    `first` and for a second square `second` to them.
    """

    first: Workspace
    second: Workspace
    vector: Array  # (5, r)
    factors: Array  # (r * r,) or empty
    gathered: Array  # (r, r)
    product: Array  # (r, r)


@_compiled
def follow_exponentiated(
    feedback: Feedback, spectrum: Spectrum, normalised: bool, predictions: Array, room: Room
) -> int:
    """Explicit gradient steps on the exponent, TRW05 (3.4) and, normalised, (3.5); notes each row's value.

    The step on the exponent is -2 rate (value - target) A; relative, it is rate (value - target) / unit over
    the largest eigenvalue of A, so that no step changes the exponent by more than the rate. Returns the
    number of rows done: fewer than all where the next one would overflow, which is not applied.
    """
    values, vectors = spectrum.values, spectrum.vectors
    r = values.shape[0]
    x, a, b, weights, moved = room.vector[0], room.vector[1], room.vector[2], room.vector[3], room.vector[4]
    for t in range(feedback.rows.shape[0]):
        size, other = _in_eigenbasis(feedback, t, vectors, x, a, b)
        compares = feedback.rows[t, 2] >= 0
        fill_weights(values, normalised, weights)
        first = second = 0.0
        for k in range(r):
            first += weights[k] * a[k] * a[k]
        if compares:
            for k in range(r):
                second += weights[k] * b[k] * b[k]
        value, y = first - second, feedback.target[t]
        largest = max(size, other)
        unit = unit_of(feedback.relative, first, second, y)
        delta = 2.0 * feedback.rate[t] * (value - y)
        if feedback.relative:
            delta = feedback.rate[t] * (value - y) / unit / largest if unit * largest > 0.0 else 0.0
        if not math.isfinite(value) or not math.isfinite(delta * largest):
            return t
        if not normalised and values[r - 1] + abs(delta) * largest > CEILING:
            return t
        predictions[t] = value
        if is_met(feedback.relation[t], value, y) or delta == 0.0:
            continue
        _add_square(a, -delta, spectrum, room.first, room)
        if compares:
            transform(room.first, b, moved)
            _add_square(moved, delta, spectrum, room.second, room)
        if normalised:
            shift = values[r - 1]
            for k in range(r):
                values[k] -= shift
    return feedback.rows.shape[0]


@_compiled
def follow_pola(
    feedback: Feedback,
    spectrum: Spectrum,
    slopes: Array,
    threshold: Array,
    values: Array,
    errors: Array,
    room: Room,
) -> int:
    """Projections onto each row's half space or hyperplane, then onto the cone: POLA.

    A row asks for <A, W> - slope * threshold[0] to be on the allowed side of its target. <A, W> before its
    projection is noted, and by how much it missed, 0 where it did not. The threshold stays >= 1. Where a
    square is taken from W, one eigenvalue at most becomes negative, and is set to zero. Returns the number of
    rows done: fewer than all where a number would not be finite.
    """
    eigenvalues, vectors = spectrum.values, spectrum.vectors
    r = eigenvalues.shape[0]
    x, a, b, moved = room.vector[0], room.vector[1], room.vector[2], room.vector[3]
    for t in range(feedback.rows.shape[0]):
        size, other = _in_eigenbasis(feedback, t, vectors, x, a, b)
        compares = feedback.rows[t, 2] >= 0
        value = cross = 0.0
        for k in range(r):
            value += eigenvalues[k] * a[k] * a[k]
        if compares:
            for k in range(r):
                value -= eigenvalues[k] * b[k] * b[k]
                cross += a[k] * b[k]
        squared_norm = size * size + max(other * other - 2.0 * cross * cross, -size * size)
        squared_norm += slopes[t] * slopes[t]
        if not math.isfinite(value) or not math.isfinite(squared_norm):
            return t
        values[t], errors[t] = value, 0.0
        value -= slopes[t] * threshold[0]
        if is_met(feedback.relation[t], value, feedback.target[t]):
            continue
        errors[t] = value - feedback.target[t]
        if squared_norm == 0.0:
            continue
        step = feedback.rate[t] * errors[t] / squared_norm
        threshold[0] = max(threshold[0] + step * slopes[t], 1.0)
        # The square that lets W grow first: one that shrinks it meets the larger matrix.
        if compares and step > 0.0:
            _add_square(b, step, spectrum, room.first, room)
            transform(room.first, a, moved)
            _add_square(moved, -step, spectrum, room.second, room)
        else:
            _add_square(a, -step, spectrum, room.first, room)
            if compares:
                transform(room.first, b, moved)
                _add_square(moved, step, spectrum, room.second, room)
        for k in range(r):
            eigenvalues[k] = max(eigenvalues[k], 0.0)
    return feedback.rows.shape[0]


@_compiled
def follow_capped(X: Array, rate: float, cap: float, spectrum: Spectrum, losses: Array, room: Room) -> int:
    """Online PCA: W <- exp(log W - rate x x^T), then capped; notes x^T W x / cap before each update.

    Returns the number of rows done: fewer than all where a number would not be finite.
    """
    values, vectors = spectrum.values, spectrum.vectors
    a, weights = room.vector[1], room.vector[3]
    for t in range(X.shape[0]):
        for k in range(vectors.shape[0]):
            a[k] = _dot(vectors[k], X[t])
        fill_weights(values, True, weights)
        loss = square = 0.0
        for k in range(values.shape[0]):
            loss += weights[k] * a[k] * a[k]
            square += a[k] * a[k]
        if not math.isfinite(rate * square * square):
            return t
        losses[t] = loss / cap
        if square > 0.0:
            _add_square(a, -rate, spectrum, room.first, room)
            cap_weights(values, cap)
    return X.shape[0]


@_compiled
def cap_weights(values: Array, cap: float) -> None:
    """The projection, in relative entropy, of weights exp(values) onto those of sum 1 that are at most `cap`.

    The largest are set to the cap and the rest scaled to what is left, for the least number for which that is
    possible. Values ascend before and after.
    """
    r = values.shape[0]
    capped = 0
    while True:
        top = values[r - 1 - capped]
        total = 0.0
        for k in range(r - capped):
            total += math.exp(values[k] - top)
        share = (1.0 - capped * cap) / total  # of the largest that is not capped
        if share <= cap * (1.0 + _EXCESS) or capped == r - 1:
            break
        capped += 1
    shift = top - math.log(share)
    for k in range(r - capped):
        values[k] -= shift
    for k in range(r - capped, r):
        values[k] = math.log(cap)


@_compiled
def fill_weights(values: Array, normalised: bool, weights: Array) -> None:
    """exp(values), scaled to sum 1 if asked for."""
    r = values.shape[0]
    shift = values[r - 1] if normalised else 0.0
    total = 0.0
    for k in range(r):
        weights[k] = math.exp(values[k] - shift)
        total += weights[k]
    if normalised:
        for k in range(r):
            weights[k] /= total


@_compiled
def repair(spectrum: Spectrum, gathered: Array, product: Array) -> None:
    """Measure how far the vectors are from orthonormal, and where it is too far, take a step of Newton's
    method towards the nearest orthonormal ones, V <- V - (V V^T - I) V / 2."""
    vectors = spectrum.vectors
    r = vectors.shape[0]
    spectrum.counts[UPDATES] = 0
    np.dot(vectors, vectors.T, out=gathered)
    worst = 0.0
    for i in range(r):
        gathered[i, i] -= 1.0
        for k in range(r):
            worst = max(worst, abs(gathered[i, k]))
    if worst <= DRIFT:
        return
    spectrum.counts[REPAIRS] += 1
    np.dot(gathered, vectors, out=product)
    for i in range(r):
        for k in range(r):
            vectors[i, k] -= 0.5 * product[i, k]


@_compiled
def _add_square(v: Array, rho: float, spectrum: Spectrum, workspace: Workspace, room: Room) -> None:
    """From V^T diag(values) V to that plus rho x x^T, where v = V x."""
    values = spectrum.values
    decompose(values, v, rho, workspace)
    complete(workspace)
    for k in range(values.shape[0]):
        values[k] = workspace.value[workspace.order[k]]
    spectrum.counts[UPDATES] += 1
    if room.factors.shape[0] == 0:
        return
    rotate_vectors(workspace, spectrum.vectors, room.factors, room.gathered, room.product)
    if spectrum.counts[UPDATES] >= values.shape[0]:
        repair(spectrum, room.gathered, room.product)


@_compiled
def _in_eigenbasis(
    feedback: Feedback, t: int, vectors: Array, x: Array, a: Array, b: Array
) -> tuple[float, float]:
    """V x of the row's one or two squares, and the squared lengths of the x; 0 for a square that is not."""
    rows = feedback.rows
    gather(feedback.features, rows[t, 0], rows[t, 1], -1.0, x)
    for k in range(vectors.shape[0]):
        a[k] = _dot(vectors[k], x)
    size, other = _dot(x, x), 0.0
    if rows[t, 2] >= 0:
        gather(feedback.features, rows[t, 2], rows[t, 3], -1.0, x)
        for k in range(vectors.shape[0]):
            b[k] = _dot(vectors[k], x)
        other = _dot(x, x)
    return size, other


@_compiled
def _dot(x: Array, y: Array) -> float:
    total = 0.0
    for k in range(x.shape[0]):
        total += x[k] * y[k]
    return total
