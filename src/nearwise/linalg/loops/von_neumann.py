"""Von Neumann projections onto one constraint after the other, KSD09 algorithm 3.

M = exp(L) with L = sum_j theta_j w_j w_j^T. A projection moves L to L - delta A such that p(delta) =
tr(exp(L - delta A) A) reaches the row's bound, or meets its penalty half-way. For A = sum_t c_t x_t x_t^T
with one or two squares each p(delta) takes O(r^2), see `secular`; so does its derivative, by divided
differences of exp. `solve_row` finds delta, `sweep` also applies it to the eigenvectors.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearwise._common.types import Array, Index
from nearwise.linalg.loops.compiling import compiled
from nearwise.linalg.loops.search import advance, begin, residual
from nearwise.linalg.loops.secular import (
    ACTIVE,
    Workspace,
    complete,
    decompose,
    fill_block,
    rotate_rows,
    transform,
)

_CEILING = 690.0  # eigenvalues of L stay below: their exponentials are finite numbers
_FLOOR = -1e5  # and above; rows that cannot be reached would push them ever further
_CLOSE = 1e-3  # divided differences of closer numbers come from a series

PROJECTIONS, EVALUATIONS = 0, 1  # places in State.counts


class Rows(NamedTuple):
    """The constraints: signed squares (see `atoms.SignedSquares`) and what each row must reach."""

    start: Index
    first: Index
    second: Index
    sign: Array
    coefficient: Array
    features: Array
    relation: NDArray[np.int8]
    bound: Array
    compliance: Array
    form: NDArray[np.int8]  # which equation, see `search.residual`


class State(NamedTuple):
    """The matrix and the multipliers, updated in place."""

    theta: Array  # eigenvalues of L, ascending
    vectors: Array  # eigenvectors of L, one per row
    dual: Array
    counts: Index  # projections that moved M, and evaluations of p(delta) for them, delta = 0 included


class Room(NamedTuple):
    """Memory that a projection uses."""

    first: Workspace
    second: Workspace
    pair: Array  # (6, r): the row's squares in the eigenbasis, and images of them
    exponent: Array  # (4, r)
    search: Array
    squares: Array  # (2, r)


@compiled()
def sweep(
    chosen: Index, rows: Rows, state: State, room: Room, factors: Array, gathered: Array, product: Array
) -> None:
    """Project onto rows of at most two squares, in the given order; the last arrays hold r^2 numbers each."""
    for t in range(chosen.shape[0]):
        delta = solve_row(chosen[t], rows, state, room)
        if delta != 0.0:
            rotate_vectors(room.first, state.vectors, factors, gathered, product)
            if rows.start[chosen[t] + 1] - rows.start[chosen[t]] == 2:
                rotate_vectors(room.second, state.vectors, factors, gathered, product)


@compiled()
def solve_row(row: int, rows: Rows, state: State, room: Room) -> float:
    """Find delta for a row of at most two squares; update theta and the multiplier, but not the vectors.

    Where delta is not 0, the eigenvectors of diag(theta) - delta A are left in room.first, and for a second
    square, in the basis of those, in room.second.
    """
    begins, n = rows.start[row], rows.start[row + 1] - rows.start[row]
    if n == 0:
        return 0.0
    a, b = room.pair[0], room.pair[1]
    c, d = rows.coefficient[begins], 0.0
    if n == 2:
        d = rows.coefficient[begins + 1]
    else:
        for k in range(b.shape[0]):
            b[k] = 0.0
    for t in range(n):
        i, j, sign = rows.first[begins + t], rows.second[begins + t], rows.sign[begins + t]
        x = room.squares[t]
        for k in range(x.shape[0]):
            x[k] = rows.features[i, k] + sign * rows.features[j, k]
        for k in range(x.shape[0]):
            room.pair[t, k] = _dot(state.vectors[k], x)
    delta, evaluations = _find(row, rows, state, room, a, b, c, d)
    if delta == 0.0:
        return 0.0
    state.counts[PROJECTIONS] += 1
    state.counts[EVALUATIONS] += evaluations
    y = state.dual[row]
    state.dual[row] = 0.0 if delta == -y else y + delta
    last = room.second if n == 2 else room.first
    if n == 1:
        complete(last)
    for i in range(state.theta.shape[0]):
        state.theta[i] = last.value[last.order[i]]
    return delta


@compiled()
def _find(
    row: int, rows: Rows, state: State, room: Room, a: Array, b: Array, c: float, d: float
) -> tuple[float, int]:
    """delta, and how many evaluations it took; 0 where the row is as it should be."""
    theta, y, relation = state.theta, state.dual[row], rows.relation[row]
    two = rows.start[row + 1] - rows.start[row] == 2
    first, second = c * _dot(a, a), d * _dot(b, b)
    growth, decay = max(first, 0.0) + max(second, 0.0), max(-first, 0.0) + max(-second, 0.0)
    low, high = step_limits(theta[0], theta[-1], growth, decay, relation, y)
    search, delta, evaluations = room.search, 0.0, 0
    begin(search, low, high, 1.0 / max(growth + decay, 1e-300))
    m, p, q = theta, a, b
    while growth + decay > 0.0:
        if delta != 0.0:
            if two:
                m, p, q = _two_updates(theta, a, b, -delta * c, -delta * d, room)
            else:
                decompose(theta, a, -delta * c, room.first)
                m, p = room.first.value, room.pair[2]
                for k in range(m.shape[0]):
                    p[k] = np.sqrt(room.first.share[k])
        evaluations += 1
        n, shift, value, size = _value(m, p, q, c, d, room.exponent)
        f, scale, pull, tol = residual(
            rows.form[row], shift, value, size, rows.bound[row], rows.compliance[row], y, delta
        )
        if abs(f) <= tol or (f > 0.0 and delta >= high) or (f < 0.0 and delta <= low):
            break
        slope = -scale * _slope(room.exponent, n, c, d) - pull
        delta, done = advance(search, delta, f, slope, rows.form[row] != 1)
        if done:
            break
    return delta, evaluations


@compiled()
def step_limits(
    bottom: float, top: float, growth: float, decay: float, relation: int, y: float
) -> tuple[float, float]:
    """The least and the largest delta: the multiplier keeps its sign, and exponentials stay numbers.

    `growth` and `decay` bound the positive and the negative eigenvalues of A, `bottom` and `top` are those
    of L.
    """
    up, down = max(_CEILING - top, 0.0), max(bottom - _FLOOR, 0.0)
    low = -min(up / max(growth, 1e-300), down / max(decay, 1e-300))
    high = min(up / max(decay, 1e-300), down / max(growth, 1e-300))
    if relation < 0:
        low = max(low, -y)
    if relation > 0:
        high = min(high, -y)
    return low, high


@compiled()
def _two_updates(
    theta: Array, a: Array, b: Array, alpha: float, beta: float, room: Room
) -> tuple[Array, Array, Array]:
    """diag(theta) + alpha a a^T + beta b b^T: eigenvalues, and a and b in the eigenbasis."""
    first, second = room.first, room.second
    between, p, q = room.pair[2], room.pair[3], room.pair[4]
    decompose(theta, a, alpha, first)
    complete(first)
    for i in range(theta.shape[0]):
        between[i] = first.value[first.order[i]]
    transform(first, a, p)
    transform(first, b, q)
    decompose(between, q, beta, second)
    complete(second)
    m, image = room.pair[5], room.pair[2]
    for i in range(theta.shape[0]):
        m[i] = second.value[second.order[i]]
    transform(second, p, image)
    transform(second, q, p)
    return m, image, p


@compiled()
def _value(m: Array, p: Array, q: Array, c: float, d: float, out: Array) -> tuple[int, float, float, float]:
    """sum_j exp(m_j) (c p_j^2 + d q_j^2) as exp(shift) * value, and the same with |c|, |d|.

    Terms that are not 0 are gathered in `out`: m, exp(m - shift), p, q; their number comes first.
    """
    n = 0
    shift = -np.inf
    for j in range(m.shape[0]):
        if p[j] != 0.0 or q[j] != 0.0:
            out[0, n], out[2, n], out[3, n] = m[j], p[j], q[j]
            shift = max(shift, m[j])
            n += 1
    value = size = 0.0
    for j in range(n):
        out[1, j] = np.exp(out[0, j] - shift)
        first, second = c * out[2, j] ** 2, d * out[3, j] ** 2
        value += out[1, j] * (first + second)
        size += out[1, j] * (abs(first) + abs(second))
    return n, shift, value, size


@compiled(reassociate=True)
def _slope(terms: Array, n: int, c: float, d: float) -> float:
    """sum_jk exp[m_j, m_k] (c p_j p_k + d q_j q_k)^2, divided differences of exp, scaled like `_value`."""
    m, e, p, q = terms[0], terms[1], terms[2], terms[3]
    total = diagonal = 0.0
    for j in range(n):
        here, height, left, right = m[j], e[j], c * p[j], d * q[j]
        diagonal += height * (left * p[j] + right * q[j]) ** 2
        for k in range(j):
            gap = here - m[k]
            mean = 0.5 * (height + e[k]) * (1.0 - gap * gap / 12.0)
            ratio = (height - e[k]) / gap
            weight = left * p[k] + right * q[k]
            total += weight * weight * (mean if abs(gap) < _CLOSE else ratio)
    return 2.0 * total + diagonal


@compiled(reassociate=True)
def _dot(x: Array, y: Array) -> float:
    total = 0.0
    for k in range(x.shape[0]):
        total += x[k] * y[k]
    return total


@compiled()
def rotate_vectors(ws: Workspace, vectors: Array, factors: Array, gathered: Array, product: Array) -> None:
    """vectors <- U^T vectors, for rows that are eigenvectors; the last two arrays have the shape of it."""
    n, r = ws.counts[ACTIVE], vectors.shape[0]
    rotate_rows(ws, vectors)
    U = factors[: n * n].reshape((n, n))
    fill_block(ws, 0, 0, U)
    for i in range(r):
        for k in range(vectors.shape[1]):
            gathered[i, k] = vectors[ws.place[i], k]
    np.dot(U, gathered[:n], out=product[:n])
    for i in range(r):
        place = ws.order[i]
        source = product if place < n else gathered
        for k in range(vectors.shape[1]):
            vectors[i, k] = source[place, k]
