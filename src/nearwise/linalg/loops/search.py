"""The zero finder of a projection: six evaluations or fewer on average, and always inside a bracket.

A row asks for delta with g(p(delta)) = g(b) + compliance * (y + delta), whose two sides differ by a
decreasing function of delta. The next point is the zero of the cubic through the two last points with their
derivatives, taken as a function of the residual (inverse Hermite interpolation, order 1 + sqrt 3). Where
that leaves the bracket it is Newton's step, and where that does too, or progress is slow, the bracket is
halved.
"""

from __future__ import annotations

import numpy as np

from nearwise._common.types import Array
from nearwise.linalg.loops.compiling import compiled

VALUES, LOGARITHMS, EXPONENTIAL = 0, 1, 2  # forms of the equation, see `residual`
STATE = 13  # numbers that a search keeps

_TOL = 1e-13  # relative residual of a zero
_ROUNDING = 4.0 * float(np.finfo(np.float64).eps)
_MOST = 100  # evaluations
_SLOW = 0.25  # a residual that shrank by less than this in each of two steps calls for halving

_LOW, _HIGH, _LEAST, _MOST_DELTA, _REACH, _COUNT, _STALLED = 0, 1, 2, 3, 4, 5, 6
_X, _F, _D = 7, 8, 9  # the last point: delta, residual, slope; the one before follows at + 3


@compiled()
def residual(
    form: int,
    shift: float,
    value: float,
    size: float,
    bound: float,
    compliance: float,
    y: float,
    delta: float,
) -> tuple[float, float, float, float]:
    """The residual at p = exp(shift) * value, its derivatives, and the residual that counts as zero.

    Its derivative in delta is `scale` * value' - `pull`, where value' is that of `value`. `size` is what
    rounding errors of `value` are relative to. The forms: VALUES is p - b - compliance * (y + delta);
    LOGARITHMS is log p - log b - compliance * (y + delta), nearly linear in delta, for p and b > 0;
    EXPONENTIAL is the same equation for p of any sign, p - b exp(compliance * (y + delta)).
    """
    give = compliance * (y + delta)
    if form == LOGARITHMS:
        value = max(value, 1e-300)  # which only rounding can have made smaller
        f = np.log(value) + shift - np.log(bound) - give
        return f, 1.0 / value, compliance, _TOL * max(1.0, abs(give)) + _ROUNDING * abs(shift)
    unit = np.exp(shift)
    target, pull = bound + give, compliance
    if form == EXPONENTIAL:
        target = bound * np.exp(min(give, 690.0))
        pull = compliance * target
    return unit * value - target, unit, pull, _TOL * max(unit * size, abs(bound), abs(target))


@compiled()
def begin(state: Array, least: float, most: float, reach: float) -> None:
    """A new search among least <= delta <= most; the first steps are no longer than a few times `reach`."""
    for k in range(STATE):
        state[k] = 0.0
    state[_LOW], state[_HIGH] = -np.inf, np.inf
    state[_LEAST], state[_MOST_DELTA] = least, most
    state[_REACH] = 4.0 * reach


@compiled()
def advance(state: Array, x: float, f: float, slope: float, careful: bool) -> tuple[float, bool]:
    """The next delta after a residual f with a slope at x, or the same x and True: no better one exists.

    A careful search limits the length of its steps, because p(delta) may grow exponentially.
    """
    if f > 0.0:
        state[_LOW] = x
    else:
        state[_HIGH] = x
    low, high = state[_LOW], state[_HIGH]
    state[_COUNT] += 1.0
    slow = state[_COUNT] > 1.0 and abs(f) > _SLOW * abs(state[_F])
    state[_STALLED] = state[_STALLED] + 1.0 if slow else 0.0
    for k in range(3):
        state[_X + 3 + k] = state[_X + k]
    state[_X], state[_F], state[_D] = x, f, slope
    bracketed = low > -np.inf and high < np.inf
    if state[_COUNT] >= _MOST or (bracketed and high - low <= _ROUNDING * max(abs(low), abs(high))):
        return x, True
    least, most = max(low, state[_LEAST]), min(high, state[_MOST_DELTA])
    if bracketed and state[_STALLED] >= 2.0:
        state[_STALLED] = 0.0
        return 0.5 * (low + high), False
    following = x - f / slope
    if state[_COUNT] > 1.0:
        cubic = _hermite(x, f, 1.0 / slope, state[_X + 3], state[_F + 3], 1.0 / state[_D + 3])
        if low < cubic < high:
            following = cubic
    if careful:
        following = min(max(following, x - state[_REACH]), x + state[_REACH])
        state[_REACH] *= 2.0
    if low < following < high:
        following = min(max(following, least), most)
    else:
        following = 0.5 * (low + high) if bracketed else (most if f > 0.0 else least)
    return following, following == x


@compiled()
def _hermite(x: float, f: float, d: float, x0: float, f0: float, d0: float) -> float:
    """The cubic in the residual with values x, x0 and slopes d, d0 at f, f0, at residual 0."""
    h = f - f0
    s = -f0 / h
    t = 1.0 - s
    return (1.0 + 2.0 * s) * t * t * x0 + s * t * t * h * d0 + s * s * (3.0 - 2.0 * s) * x - s * s * t * h * d
