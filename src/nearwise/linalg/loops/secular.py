"""The eigendecomposition of diag(theta) + rho v v^T through its secular equation, in O(r^2).

After deflation the eigenvalues are the roots mu of 1/rho + sum_k v_k^2 / (theta_k - mu) = 0, one between each
two neighbouring poles theta_k. Every root is found, and kept, as an offset from the nearer of its two poles,
so that all differences theta_k - mu_j are known to full relative precision. With the weights that make the
computed roots exact (Gu and Eisenstat 1994, from Loewner's formula) the eigenvectors weight_k / (theta_k -
mu_j) are then orthogonal to working precision, however close the roots are.

`decompose` finds the eigenvalues, `complete` the weights; `transform`, `rotate_rows` and `fill_block` apply
the eigenvectors. Roots for a negative rho are found as those of the same problem for -theta in reverse order.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from nearwise._common.types import Array, Index
from nearwise.linalg.loops.compiling import compiled
from nearwise.linalg.loops.roots import inner_root, last_root

_EPS = float(np.finfo(np.float64).eps)
_DEFLATION = 8.0  # in units of rounding errors, as in LAPACK's dlaed2

ACTIVE, ROTATIONS = 0, 1  # places in Workspace.counts


class Workspace(NamedTuple):
    """Where one decomposition is kept. All arrays have r rows; the first `counts[ACTIVE]` are in use."""

    counts: Index  # number of active poles, number of rotations
    place: Index  # the place in theta of every pole: the active ones, ascending, then the deflated ones
    pole: Array  # theta at the active poles, in units of a power of two in which the largest is about 1
    weight: Array  # v at the active poles; after `complete`, the weights whose roots are exactly these
    origin: Index  # root j is pole[origin_j] + offset_j
    offset: Array
    norm: Array  # after `complete`: of the vector weight_k / (pole_k - root_j)
    share: Array  # (u_j^T v)^2 in the order of `place`
    value: Array  # eigenvalues in the order of `place`
    order: Index  # argsort of `value`
    rotated: Index  # (r, 2): pairs of places in theta, turned before everything else
    rotation: Array  # (r, 2): cosine and sine of the turn
    scratch: Array  # (4, r)


def workspace(r: int) -> Workspace:
    """Room for the decomposition of an r x r matrix."""
    floats = [np.zeros(r) for _ in range(6)]
    pole, weight, offset, norm, share, value = floats
    indices = [np.zeros(r, np.int64) for _ in range(3)]
    return Workspace(
        np.zeros(2, np.int64), indices[0], pole, weight, indices[1], offset, norm, share, value,
        indices[2], np.zeros((r, 2), np.int64), np.zeros((r, 2)), np.zeros((4, r)),
    )  # fmt: skip


@compiled()
def decompose(theta: Array, v: Array, rho: float, ws: Workspace) -> None:
    """The eigenvalues of diag(theta) + rho v v^T, theta ascending, and the shares (u_j^T v)^2."""
    unit, root_unit = _deflate(theta, v, rho, ws)
    n = ws.counts[ACTIVE]
    strength = abs(rho) / unit * root_unit * root_unit
    pole, squares, gap = ws.pole[:n], ws.scratch[1][:n], ws.scratch[2][:n]
    for k in range(n):
        pole[k] /= unit
        squares[k] = (ws.weight[k] / root_unit) ** 2
    for j in range(n):
        if j < n - 1:
            origin, offset, slope = inner_root(pole, squares, 1.0 / strength, j, gap)
        else:
            origin, offset, slope = last_root(pole, squares, 1.0 / strength, gap)
        ws.origin[j] = origin
        ws.offset[j] = offset
        ws.share[j] = root_unit / (strength * strength * slope) * root_unit
    if rho < 0.0:
        _mirror(ws)
    for j in range(n):
        ws.value[j] = unit * (pole[ws.origin[j]] + ws.offset[j])
    _sort(ws, theta.shape[0], rho < 0.0)


@compiled()
def complete(ws: Workspace) -> None:
    """Replace the weights by those whose secular equation has exactly the computed roots.

    weight_k^2 = prod_j (mu_j - d_k) / prod_{j != k} (d_j - d_k) up to a common factor, multiplied up so that
    no partial product leaves the range of numbers.
    """
    n = ws.counts[ACTIVE]
    pole, total = ws.pole, ws.scratch[1]
    for k in range(n):
        total[k] = 1.0
    for j in range(n):
        base, offset, here = pole[ws.origin[j]], ws.offset[j], pole[j]
        for k in range(j):
            total[k] *= ((pole[k] - base) - offset) / (pole[k] - here)
        total[j] *= offset + (base - here)
        for k in range(j + 1, n):
            total[k] *= ((pole[k] - base) - offset) / (pole[k] - here)
    for k in range(n):
        ws.weight[k] = np.copysign(np.sqrt(abs(total[k])), ws.weight[k])
        total[k] = ws.weight[k] * ws.weight[k]
    gap = ws.scratch[2]
    for j in range(n):
        base = pole[ws.origin[j]]
        for k in range(n):
            gap[k] = pole[k] - base
        ws.norm[j] = np.sqrt(_sum_of_squares(gap[:n], total[:n], ws.offset[j]))


@compiled()
def transform(ws: Workspace, x: Array, out: Array) -> None:
    """out = U^T x, in the order of ascending eigenvalues; needs `complete`."""
    n, r = ws.counts[ACTIVE], x.shape[0]
    turned, weighted, gap, image = ws.scratch[0], ws.scratch[1], ws.scratch[2], ws.scratch[3]
    for k in range(r):
        turned[k] = x[k]
    for t in range(ws.counts[ROTATIONS]):
        a, b = ws.rotated[t, 0], ws.rotated[t, 1]
        c, s = ws.rotation[t, 0], ws.rotation[t, 1]
        first, second = turned[a], turned[b]
        turned[a] = c * first + s * second
        turned[b] = c * second - s * first
    for k in range(n):
        weighted[k] = ws.weight[k] * turned[ws.place[k]]
    for j in range(n):
        base = ws.pole[ws.origin[j]]
        for k in range(n):
            gap[k] = ws.pole[k] - base
        image[j] = _weighted_sum(gap[:n], weighted[:n], ws.offset[j]) / ws.norm[j]
    for k in range(n, r):
        image[k] = turned[ws.place[k]]
    for i in range(r):
        out[i] = image[ws.order[i]]


@compiled()
def rotate_rows(ws: Workspace, rows: Array) -> None:
    """Turn pairs of rows of W^T in place, as deflation asks for."""
    for t in range(ws.counts[ROTATIONS]):
        a, b = ws.rotated[t, 0], ws.rotated[t, 1]
        c, s = ws.rotation[t, 0], ws.rotation[t, 1]
        for k in range(rows.shape[1]):
            first, second = rows[a, k], rows[b, k]
            rows[a, k] = c * first + s * second
            rows[b, k] = c * second - s * first


@compiled()
def fill_block(ws: Workspace, j: int, k: int, out: Array) -> None:
    """out[a, b] = component k + b of eigenvector j + a, among the active poles; needs `complete`."""
    for a in range(out.shape[0]):
        base, offset, norm = ws.pole[ws.origin[j + a]], ws.offset[j + a], ws.norm[j + a]
        for b in range(out.shape[1]):
            out[a, b] = ws.weight[k + b] / (((ws.pole[k + b] - base) - offset) * norm)


@compiled()
def _deflate(theta: Array, v: Array, rho: float, ws: Workspace) -> tuple[float, float]:
    """Split off the eigenvalues that rho v v^T does not move: tiny v_k, and all but one of equal theta.

    The poles that are left stay in order; for a negative rho they are those of -theta in reverse. Returns
    the powers of two next to the size of the matrix and of v, in units of which third powers are numbers.
    """
    r = theta.shape[0]
    sign = 1 if rho >= 0.0 else -1
    z = ws.scratch[0]
    square = largest = 0.0
    for k in range(r):
        z[k] = v[k]
        square += v[k] * v[k]
        largest = max(largest, abs(theta[k]))
    norm, strength = np.sqrt(square), abs(rho)
    size = max(largest, strength * square)
    tol = _DEFLATION * _EPS * size
    n = rotations = 0
    end = r  # deflated poles are filed from the end of `place`
    held = -1  # the last pole that is active so far; its value, perhaps turned, is in `value`
    for step in range(r):
        k = step if sign > 0 else r - 1 - step
        ws.value[k] = theta[k]
        if strength * abs(z[k]) * norm <= tol:
            end -= 1
            ws.place[end] = k
            continue
        if held >= 0:
            length = np.hypot(z[held], z[k])
            c, s = z[k] / length, -z[held] / length
            if abs((ws.value[k] - ws.value[held]) * c * s) <= tol:
                z[k], z[held] = length, 0.0
                low, high = ws.value[held], ws.value[k]
                ws.value[held] = low * c * c + high * s * s
                ws.value[k] = low * s * s + high * c * c
                ws.rotated[rotations, 0], ws.rotated[rotations, 1] = held, k
                ws.rotation[rotations, 0], ws.rotation[rotations, 1] = c, s
                rotations += 1
                end -= 1
                ws.place[end] = held
            else:
                ws.place[n] = held
                n += 1
        held = k
    if held >= 0:
        ws.place[n] = held
        n += 1
    for j in range(n):
        k = ws.place[j]
        ws.pole[j] = sign * ws.value[k]
        ws.weight[j] = z[k]
    for j in range(n, r):
        ws.share[j] = z[ws.place[j]] ** 2
        ws.offset[j] = ws.value[ws.place[j]]
    for j in range(n, r):
        ws.value[j] = ws.offset[j]
    ws.counts[ACTIVE], ws.counts[ROTATIONS] = n, rotations
    return math.ldexp(1.0, math.frexp(size)[1]), math.ldexp(1.0, math.frexp(norm)[1])


@compiled()
def _mirror(ws: Workspace) -> None:
    """Back from -theta in reverse order."""
    n = ws.counts[ACTIVE]
    for j in range((n + 1) // 2):
        k = n - 1 - j
        ws.pole[j], ws.pole[k] = -ws.pole[k], -ws.pole[j]
        ws.offset[j], ws.offset[k] = -ws.offset[k], -ws.offset[j]
        ws.origin[j], ws.origin[k] = n - 1 - ws.origin[k], n - 1 - ws.origin[j]
        ws.weight[j], ws.weight[k] = ws.weight[k], ws.weight[j]
        ws.share[j], ws.share[k] = ws.share[k], ws.share[j]
        ws.place[j], ws.place[k] = ws.place[k], ws.place[j]


@compiled()
def _sort(ws: Workspace, r: int, rising: bool) -> None:
    """Merge the roots with the deflated eigenvalues, which rise or fall but for rounding errors."""
    n = ws.counts[ACTIVE]
    j, k, step = 0, n if rising else r - 1, 1 if rising else -1
    for i in range(r):
        if j < n and (not n <= k < r or ws.value[j] <= ws.value[k]):
            ws.order[i] = j
            j += 1
        else:
            ws.order[i] = k
            k += step
    for i in range(1, r):
        here, k = ws.order[i], i
        while k > 0 and ws.value[ws.order[k - 1]] > ws.value[here]:
            ws.order[k] = ws.order[k - 1]
            k -= 1
        ws.order[k] = here


@compiled(reassociate=True)
def _sum_of_squares(gap: Array, squares: Array, x: float) -> float:
    total = 0.0
    for k in range(gap.shape[0]):
        t = 1.0 / (gap[k] - x)
        total += squares[k] * t * t
    return total


@compiled(reassociate=True)
def _weighted_sum(gap: Array, weights: Array, x: float) -> float:
    total = 0.0
    for k in range(gap.shape[0]):
        total += weights[k] / (gap[k] - x)
    return total
