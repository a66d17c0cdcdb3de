"""Roots of the secular equation 1/rho + sum_k s_k / (d_k - x) = 0, for rho and all s_k > 0 and ascending d_k.

There is one root between each two neighbouring poles and one beyond the last. Each is found, and returned, as
its offset from the nearer of its poles, so that its differences from all poles have full relative precision:
rounding errors are those of LAPACK's dlaed4.
"""

from __future__ import annotations

import numpy as np

from nearwise._common.types import Array
from nearwise.linalg.loops.compiling import compiled

_EPS = float(np.finfo(np.float64).eps)
_CUBIC = 1e-7  # a step of a cubic iteration this short, relatively, leaves nothing to do
_MOST = 80  # iterations for one root; 3 are usual


@compiled()
def inner_root(
    pole: Array, squares: Array, inverse_rho: float, j: int, gap: Array
) -> tuple[int, float, float]:
    """The root between poles j and j + 1 as origin and offset, and the secular function's slope there.

    Gragg's iteration: the next point is the root of c + a / (d_j - x) + b / (d_{j+1} - x), which has the
    value and two derivatives of the secular function at the last one. It converges cubically from anywhere.
    It ends after a step from where the function is only rounding errors, LAPACK's criterion, or a short step.
    """
    width = pole[j + 1] - pole[j]
    origin = j
    for k in range(pole.shape[0]):
        gap[k] = pole[k] - pole[j]
    total, _, _, _ = _sums(gap, squares, width / 2)
    middle = inverse_rho + total
    rest = middle + (squares[j] - squares[j + 1]) / (width / 2)  # without the two neighbours
    if middle >= 0.0:
        low, high = 0.0, width / 2
        A = rest * width + squares[j] + squares[j + 1]
        x = _smaller_root(rest, A, squares[j] * width)
    else:
        origin = j + 1
        for k in range(pole.shape[0]):
            gap[k] = pole[k] - pole[j + 1]
        low, high = -width / 2, 0.0
        A = -rest * width + squares[j] + squares[j + 1]
        x = -_smaller_root(-rest, A, squares[j + 1] * width)
    slope = 0.0
    for _ in range(_MOST):
        if not low < x < high:
            x = _inside(low, high)
        total, size, slope, bend = _sums(gap, squares, x)
        f = inverse_rho + total
        if f < 0.0:
            low = x
        else:
            high = x
        left, right = gap[j] - x, gap[j + 1] - x
        a = max(left**3 * (slope - right * bend) / (left - right), 0.0)
        b = max(right**3 * (slope - left * bend) / (right - left), 0.0)
        c = f - a / left - b / right
        step = _smaller_root(c, c * (left + right) + a + b, left * right * f)
        is_rounding = abs(f) <= _EPS * (inverse_rho + 2.0 * size + abs(x) * slope)
        if low < x + step < high:
            x += step
            if is_rounding or abs(step) <= _CUBIC * abs(x):
                slope = a / (left - step) ** 2 + b / (right - step) ** 2
                break
        elif is_rounding or high - low <= 4.0 * _EPS * abs(x):
            break
        else:
            x = _inside(low, high)
    return origin, x, slope


@compiled()
def last_root(pole: Array, squares: Array, inverse_rho: float, gap: Array) -> tuple[int, float, float]:
    """The root beyond the last pole, likewise.

    The last pole's term is kept as it is, and the others are replaced by c + a / (d_{n-2} - x) with their
    value and slope.
    """
    n = pole.shape[0]
    last = squares[n - 1]
    if n == 1:
        x = last / inverse_rho
        return 0, x, last / (x * x)
    for k in range(n):
        gap[k] = pole[k] - pole[n - 1]
    low, high = 0.0, float(np.sum(squares)) / inverse_rho * (1.0 + 4.0 * _EPS)
    total, _, _, _ = _sums(gap, squares, high / 2)
    width, before = -gap[n - 2], squares[n - 2]
    rest = inverse_rho + total + before / (width + high / 2) + last / (high / 2)
    x = _larger_root(rest, before + last - rest * width, -last * width)
    slope = 0.0
    for _ in range(_MOST):
        if not low < x <= high:
            x = _inside(low, high)
        total, size, slope, bend = _sums(gap, squares, x)
        f = inverse_rho + total
        if f < 0.0:
            low = x
        else:
            high = x
        left, right = gap[n - 2] - x, -x
        others = max(slope - last / (x * x), 0.0)
        a = left * left * others
        c = f + last / x - left * others
        step = _larger_root(c, c * (left + right) + a + last, left * right * f)
        is_rounding = abs(f) <= _EPS * (inverse_rho + 2.0 * size + abs(x) * slope)
        if low < x + step < high:
            x += step
            if is_rounding or abs(step) <= 4.0 * _EPS * abs(x):
                slope += 2.0 * bend * step
                break
        elif is_rounding or high - low <= 4.0 * _EPS * abs(x):
            break
        else:
            x = _inside(low, high)
    return n - 1, x, slope


@compiled(reassociate=True)
def _sums(gap: Array, squares: Array, x: float) -> tuple[float, float, float, float]:
    """The sums of s t, |s t|, s t^2 and s t^3 over the poles, t = 1 / (gap - x).

    Nothing here could be reassociated into a different difference: `gap` is read from memory.
    """
    total = size = slope = bend = 0.0
    for k in range(gap.shape[0]):
        t = 1.0 / (gap[k] - x)
        term = squares[k] * t
        total += term
        size += abs(term)
        slope += term * t
        bend += term * t * t
    return total, size, slope, bend


@compiled()
def _smaller_root(c: float, A: float, B: float) -> float:
    """x with c x^2 - A x + B = 0, the root that tends to B / A as c tends to 0."""
    root = np.sqrt(max(A * A - 4.0 * B * c, 0.0))
    if A > 0.0:
        return 2.0 * B / (A + root)
    return (A - root) / (2.0 * c)


@compiled()
def _larger_root(c: float, A: float, B: float) -> float:
    """The other one."""
    root = np.sqrt(max(A * A - 4.0 * B * c, 0.0))
    if A >= 0.0:
        return (A + root) / (2.0 * c)
    return 2.0 * B / (A - root)


@compiled()
def _inside(low: float, high: float) -> float:
    """A point of the interval to go on from; near a pole, which is at 0, offsets of any size are possible."""
    if low == 0.0:
        return 0.1 * high
    return 0.1 * low if high == 0.0 else 0.5 * (low + high)
