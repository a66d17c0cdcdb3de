"""How good a point has to seem before it is certified, which takes as long as a step or two."""

from __future__ import annotations

import math

# A smaller tolerance may be more than rounding allows: the points before it are certified too. A larger one
# is often met by points that only seem good: each that is not asks for more.
_USUAL = 1e-6
_SHARPER = 0.1


def first_look(tol: float) -> float:
    """The tolerance that the first point has to seem to meet."""
    return max(tol, _USUAL)


def next_look(worth: float, tol: float) -> float:
    """The same for the next point, after one that met it was not the end of the run."""
    return max(_SHARPER * worth, last_look(tol))


def last_look(tol: float) -> float:
    """The same for points from which on nothing more is asked."""
    return min(tol, _USUAL)


def more_looks(tol: float) -> int:
    """How many more points than usual are certified where the tolerance is loose and none of them is good."""
    return math.ceil(math.log(max(tol, _USUAL) / _USUAL, 1 / _SHARPER))
