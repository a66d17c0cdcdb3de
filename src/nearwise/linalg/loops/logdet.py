"""LogDet projections onto one constraint after the other, KSD09 algorithms 1 and 2 and JKDD12 algorithm 1.

The state is M itself, or the transpose of a upper triangular B with M = B B^T. A row is a constraint of one
or two signed squares, A = sum_t c_t x_t x_t^T with x_t = F[first_t] + sign_t F[second_t]; adding step * A to
M^-1 changes M by one rank-one update a square. All scratch arrays come from the caller.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from nearwise._common.types import Array, Index
from nearwise.linalg.loops.compiling import compiled

_SHRINKING = 1e8  # by which one projection may divide a value at most; only unreachable bounds ask for more
_PARALLEL = 4e-15  # squared sine that rounding leaves of parallel vectors: a pole where no step may go
_REFINEMENTS = 100  # of the step, at most: Newton takes a handful, bisection as many as there are bits

_compiled = compiled(reassociate=True, error_model="python")


@_compiled
def sweep(
    F: Array,
    start: Index,
    first: Index,
    second: Index,
    sign: Array,
    coefficient: Array,
    relations: NDArray[np.int8],
    bounds: Array,
    compliance: Array,
    bregman: NDArray[np.bool_],
    definite: NDArray[np.bool_],
    rows: Index,
    state: Array,
    factored: bool,
    dual: Array,
    scratch: Array,
) -> None:
    """Project onto each of `rows` in turn, changing `state` and `dual`; scratch holds 6 vectors."""
    x, image, other = scratch[0], scratch[1], scratch[2]
    diagonal, above, sums = scratch[3], scratch[4], scratch[5]
    eigenvalues = np.empty(2)
    for row in rows:
        low = start[row]
        rank = start[row + 1] - low
        gather(F, first[low], second[low], sign[low], x)
        fill_image(state, factored, x, image)
        a = _product(x, image, image, factored)
        if rank == 1:
            eigenvalues[0] = coefficient[low] * a
        else:
            gather(F, first[low + 1], second[low + 1], sign[low + 1], x)
            fill_image(state, factored, x, other)
            b = _product(x, other, other, factored)
            g = _product(x, other, image, factored)
            pair_eigenvalues(coefficient[low], coefficient[low + 1], a, b, g, eigenvalues)
        step = projection_step(
            eigenvalues,
            rank,
            relations[row],
            bounds[row],
            compliance[row],
            bregman[row],
            definite[row],
            dual[row],
        )
        if step == 0.0:
            continue
        before = dual[row]
        dual[row] += step
        if rank == 1:
            shrinking = 1.0 + step * eigenvalues[0]
            closed = definite[row] and bounds[row] > 0.0 and (bregman[row] or compliance[row] == 0.0)
            if shrinking < 0.5 and closed and dual[row] != 0.0:
                # the same for a value that grows much, without cancellation:
                # (e (1 - c y b) + b c) / (b (1 + c))
                open_part = eigenvalues[0] * (1.0 - compliance[row] * before * bounds[row])
                given = bounds[row] * compliance[row]
                shrinking = (open_part + given) / (bounds[row] * (1.0 + compliance[row]))
            weight = -step * coefficient[low] / shrinking
            _apply(state, factored, image, weight, diagonal, above, sums)
            continue
        apply_squares(F, first, second, sign, coefficient, low, low + rank, step, state, factored, scratch)


@_compiled
def apply_squares(
    F: Array,
    first: Index,
    second: Index,
    sign: Array,
    coefficient: Array,
    low: int,
    high: int,
    step: float,
    state: Array,
    factored: bool,
    scratch: Array,
) -> None:
    """The change of M by a step of the multiplier of one row, square by square, O(r^2) each."""
    x, image = scratch[0], scratch[1]
    diagonal, above, sums = scratch[3], scratch[4], scratch[5]
    # First the squares that shrink M, then those that let it grow: M stays positive definite between.
    for growing in (False, True):
        for square in range(low, high):
            change = step * coefficient[square]
            if (change < 0.0) == growing:
                gather(F, first[square], second[square], sign[square], x)
                fill_image(state, factored, x, image)
                size = _product(x, image, image, factored)
                _apply(state, factored, image, -change / (1.0 + change * size), diagonal, above, sums)


@_compiled
def projection_step(
    eigenvalues: Array,
    rank: int,
    relation: int,
    bound: float,
    compliance: float,
    bregman: bool,
    definite: bool,
    multiplier: float,
) -> float:
    """The change of a row's multiplier y that projects onto it, corrected so that y keeps its sign.

    With the eigenvalues of B^T A B, the value after a step is p(step) = sum_i e_i / (1 + step e_i), which
    decreases. Wanted is g(p) = g(b) + compliance (y + step), g(p) = -1/p for Bregman slack, else g(p) = p.
    """
    if rank == 1 and definite and bound > 0.0 and eigenvalues[0] > 0.0 and (bregman or compliance == 0.0):
        # 1/b - 1/p - compliance y = (1 + compliance) step, with one division: they take longer than all else.
        product = bound * eigenvalues[0]
        step = (eigenvalues[0] - bound - compliance * multiplier * product) / (product * (1.0 + compliance))
        return step if relation * (multiplier + step) <= 0.0 else -multiplier
    largest = 0.0
    smallest = 0.0
    for k in range(rank):
        largest = max(largest, eigenvalues[k])
        smallest = min(smallest, eigenvalues[k])
    if largest == 0.0 and smallest == 0.0:
        return 0.0
    low = -math.inf if largest == 0.0 else -1.0 / largest
    high = math.inf if smallest == 0.0 else -1.0 / smallest
    if relation < 0 and -multiplier > low and _value(eigenvalues, rank, -multiplier) <= bound:
        return -multiplier
    if relation > 0 and -multiplier < high and _value(eigenvalues, rank, -multiplier) >= bound:
        return -multiplier
    if definite and bound > 0.0 and (bregman or compliance == 0.0):
        return _reciprocal_root(
            eigenvalues, rank, bound, compliance, multiplier, low, (_SHRINKING - 1.0) / largest
        )
    if compliance == 0.0 and rank == 2:
        return _two_eigenvalue_root(eigenvalues[0], eigenvalues[1], bound, low, high)
    if relation < 0:
        low = max(low, -multiplier)
    elif relation > 0:
        high = min(high, -multiplier)
    if bregman:  # the bound rises without limit as the multiplier approaches penalty / bound
        high = min(high, 1.0 / (compliance * bound) - multiplier)
    low = max(low, -math.inf if smallest == 0.0 else (_SHRINKING - 1.0) / smallest)
    high = min(high, math.inf if largest == 0.0 else (_SHRINKING - 1.0) / largest)
    return _bracketed_root(eigenvalues, rank, bound, compliance, bregman, multiplier, low, high)


@_compiled
def _value(eigenvalues: Array, rank: int, step: float) -> float:
    total = 0.0
    for k in range(rank):
        total += eigenvalues[k] / (1.0 + step * eigenvalues[k])
    return total


@_compiled
def _reciprocal_root(
    eigenvalues: Array,
    rank: int,
    bound: float,
    compliance: float,
    multiplier: float,
    low: float,
    high: float,
) -> float:
    """Newton on 1/p(step), which is nearly linear for positive eigenvalues, held inside (low, high)."""
    step = 0.0
    for _ in range(_REFINEMENTS):
        p = 0.0
        slope = 0.0
        for k in range(rank):
            part = eigenvalues[k] / (1.0 + step * eigenvalues[k])
            p += part
            slope += part * part
        residual = 1.0 / bound - 1.0 / p - compliance * (multiplier + step)
        if residual > 0.0:
            low = step
        else:
            high = step
        change = residual / (slope / (p * p) + compliance)
        candidate = step + change
        if not low < candidate < high:
            candidate = 0.5 * (low + high)
        if abs(candidate - step) <= 4e-16 * (abs(step) + 1.0 / p):
            return candidate
        step = candidate
    return step


@_compiled
def _two_eigenvalue_root(e: float, f: float, bound: float, low: float, high: float) -> float:
    """The step with e/(1 + step e) + f/(1 + step f) = bound: a quadratic equation."""
    product = e * f
    total = e + f
    if product == 0.0:
        quotient = total * bound
        return _between((total - bound) / quotient if quotient > 0.0 else math.inf, low, high, e, f)
    A = bound * product
    B = bound * total - 2.0 * product
    C = bound - total
    if A == 0.0:
        return _between(-C / B, low, high, e, f)
    root = math.sqrt(max(B * B - 4.0 * A * C, 0.0))
    q = -0.5 * (B + math.copysign(root, B))
    one = q / A
    two = C / q if q != 0.0 else one
    inside = one if low < one < high else two
    return _between(inside, low, high, e, f)


@_compiled
def _between(step: float, low: float, high: float, e: float, f: float) -> float:
    """The step where it lies in (low, high); an unreachable bound lies beyond the end that is infinite."""
    if low < step < high:
        return step
    limit = (_SHRINKING - 1.0) / max(abs(e), abs(f))
    return limit if math.isinf(high) else (-limit if math.isinf(low) else 0.0)


@_compiled
def _bracketed_root(
    eigenvalues: Array,
    rank: int,
    bound: float,
    compliance: float,
    bregman: bool,
    multiplier: float,
    low: float,
    high: float,
) -> float:
    """Newton on p(step) - target(step), which decreases from low to high, with bisection as its safeguard."""
    step = 0.0 if low < 0.0 < high else 0.5 * (low + high)
    width = high - low
    for _ in range(_REFINEMENTS):
        p = 0.0
        slope = 0.0
        for k in range(rank):
            part = eigenvalues[k] / (1.0 + step * eigenvalues[k])
            p += part
            slope -= part * part
        if bregman:
            target = 1.0 / (1.0 / bound - compliance * (multiplier + step))
            slope -= compliance * target * target
        else:
            target = bound + compliance * (multiplier + step)
            slope -= compliance
        if p > target:
            low = step
        else:
            high = step
        candidate = step - (p - target) / slope
        shrunk = high - low < 0.5 * width
        width = high - low
        if not low < candidate < high or (not shrunk and abs(candidate - step) > 0.25 * width):
            candidate = 0.5 * (low + high)
        if abs(candidate - step) <= 4e-16 * abs(candidate) or candidate in (low, high):
            return candidate
        step = candidate
    return step


@_compiled
def pair_eigenvalues(c: float, d: float, a: float, b: float, g: float, out: Array) -> None:
    """The eigenvalues of c w w^T + d v v^T, where a = |w|^2, b = |v|^2 and g = w^T v."""
    half = 0.5 * (c * a + d * b)
    area = a * b - g * g
    product = c * d * area if area > _PARALLEL * (a * b) else 0.0
    root = math.sqrt(max(half * half - product, 0.0))
    out[0] = half + math.copysign(root, half)
    out[1] = product / out[0] if out[0] != 0.0 else 0.0


@_compiled
def gather(F: Array, i: int, j: int, sign: float, out: Array) -> None:
    """out = F[i] + sign F[j]."""
    for k in range(F.shape[1]):
        out[k] = F[i, k] + sign * F[j, k]


@_compiled
def fill_image(state: Array, factored: bool, x: Array, out: Array) -> None:
    """B^T x, or M x."""
    r = x.shape[0]
    for j in range(r):
        total = 0.0
        for i in range(j + 1 if factored else r):
            total += state[j, i] * x[i]
        out[j] = total


@_compiled
def _product(x: Array, own: Array, image: Array, factored: bool) -> float:
    """The inner product under M of x, whose image is `own`, and the vector with the given image."""
    total = 0.0
    if factored:
        for i in range(image.shape[0]):
            total += own[i] * image[i]
    else:
        for i in range(image.shape[0]):
            total += x[i] * image[i]
    return total


@_compiled
def _apply(
    state: Array, factored: bool, image: Array, weight: float, diagonal: Array, above: Array, sums: Array
) -> None:
    """M + weight (M x)(M x)^T; in factored form B U, where U U^T = I + weight w w^T and w = B^T x."""
    r = image.shape[0]
    if factored:
        _update_multiply(state, image, weight, diagonal, above, sums)
        return
    for j in range(r):
        scaled = weight * image[j]
        for i in range(r):
            state[j, i] += scaled * image[i]


@_compiled
def _update_multiply(
    state: Array, w: Array, weight: float, diagonal: Array, above: Array, sums: Array
) -> None:
    """Multiply B by the Cholesky factor of I + weight w w^T without forming it, KSD09 algorithm 1.

    With s_j = 1 + weight (w_j^2 + ... + w_r^2), that factor is U_jj = sqrt(s_j / s_{j+1}) and, above its
    diagonal, U_ij = w_i weight w_j / sqrt(s_j s_{j+1}). The paper's factor is lower triangular; an upper one
    makes every row of the stored transpose begin at 0.
    """
    r = w.shape[0]
    total = 0.0
    after = 1.0
    for j in range(r - 1, -1, -1):
        total += w[j] * w[j]
        current = 1.0 + weight * total
        diagonal[j] = current / after
        above[j] = after
        after = current
    for j in range(r):
        diagonal[j] = math.sqrt(diagonal[j])
        above[j] = weight * w[j] / (above[j] * diagonal[j])
    multiply_columns(state, w, diagonal, above, sums)


@_compiled
def multiply_columns(state: Array, w: Array, diagonal: Array, above: Array, sums: Array) -> None:
    """B U for U_jj = diagonal_j and, above the diagonal, U_ij = w_i above_j; `sums` is scratch."""
    r = w.shape[0]
    for j in range(r):
        sums[j] = 0.0
    # Column j of B U is U_jj B_j plus a multiple of the sum of w_i B_i over i < j. Four columns at a time
    # keep that sum in a register, and what belongs to them in variables, which no store can change.
    whole = r - r % 4
    for j in range(0, whole, 4):
        d0, d1, d2, d3 = diagonal[j], diagonal[j + 1], diagonal[j + 2], diagonal[j + 3]
        a0, a1, a2, a3 = above[j], above[j + 1], above[j + 2], above[j + 3]
        w0, w1, w2, w3 = w[j], w[j + 1], w[j + 2], w[j + 3]
        for i in range(j + 4):
            s = sums[i]
            old = state[j, i]
            state[j, i] = d0 * old + a0 * s
            s += w0 * old
            old = state[j + 1, i]
            state[j + 1, i] = d1 * old + a1 * s
            s += w1 * old
            old = state[j + 2, i]
            state[j + 2, i] = d2 * old + a2 * s
            s += w2 * old
            old = state[j + 3, i]
            state[j + 3, i] = d3 * old + a3 * s
            sums[i] = s + w3 * old
    for j in range(whole, r):
        d0, a0, w0 = diagonal[j], above[j], w[j]
        for i in range(j + 1):
            old = state[j, i]
            state[j, i] = d0 * old + a0 * sums[i]
            sums[i] += w0 * old
