"""Linear conjugate gradients: H x = b for a symmetric H that is known by its products.

Newton's methods solve their systems by them, roughly and in few steps, and want more than x: where H bends
down, the direction in which it does so; within a trust region, the step to its edge (Steihaug, SIAM J. Numer.
Anal. 20, 1983). SciPy's `cg` says neither, and takes vectors only, where the unknowns here are also matrices.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nearwise._common.types import Array


class End(enum.Enum):
    """Why the steps ended."""

    SOLVED = "solved"  # the residual is small enough
    CURVED = "curved"  # along `direction` H is not positive
    EDGE = "edge"  # x reached the edge of the trust region
    LIMIT = "limit"  # of the number of steps


@dataclass(frozen=True, eq=False)
class Solution:
    """Where the steps ended.

    Attributes
    ----------
    x : the last point, zero where the first direction is one of negative curvature
    residual : b - H x
    direction : the last one, which is not part of x where the end is CURVED
    end : why there were no more steps
    """

    x: Array
    residual: Array
    direction: Array
    end: End


def conjugate_gradients(
    product: Callable[[Array], Array],
    right: Array,
    preconditioned: Callable[[Array], Array] | None = None,
    *,
    accuracy: float,
    most_steps: int,
    in_its_norm: bool = False,
    flat: float = 0.0,
    radius: float = math.inf,
) -> Solution:
    """x with H x near b, from x = 0.

    Parameters
    ----------
    product : p -> H p, for arrays of the shape of b
    right : b
    preconditioned : r -> P r for a positive definite P near the inverse of H, which may differ a little from
        step to step; none by default
    accuracy : the residual at the end, relative to that of x = 0
    most_steps : products with H at most
    in_its_norm : measure residuals as sqrt(<r, P r>) in place of |r|
    flat : the curvature <p, H p> / <p, p>, relative to the largest so far, that counts as none
    radius : of the trust region: |x| stays at most this, and a direction of negative curvature is followed to
        its edge
    """
    x, r = np.zeros_like(right), right
    z = r if preconditioned is None else preconditioned(r)
    p, rz = z, float(np.vdot(r, z))
    if rz == 0:
        return Solution(x, r, p, End.SOLVED)
    goal = accuracy**2 * rz if in_its_norm else accuracy * _length(r)
    largest = 0.0
    for _ in range(most_steps):
        q = product(p)
        curvature, least = float(np.vdot(p, q)), 0.0
        if flat > 0:
            squared = float(np.vdot(p, p))
            largest = max(largest, curvature / squared)
            least = flat * largest * squared
        curved = not curvature > least
        length = math.inf if curved else rz / curvature
        at_edge = radius < math.inf and (curved or _length(x + length * p) >= radius)
        if at_edge:
            length = _to_edge(x, p, radius)
        elif curved:
            return Solution(x, r, p, End.CURVED)
        x = x + length * p
        last, r = r, r - length * q
        if at_edge:
            return Solution(x, r, p, End.EDGE)
        if not in_its_norm and _length(r) <= goal:
            return Solution(x, r, p, End.SOLVED)
        z = r if preconditioned is None else preconditioned(r)
        rz, before = float(np.vdot(r, z)), rz
        if in_its_norm and not rz > goal:
            return Solution(x, r, p, End.SOLVED)
        # <last, z> vanishes unless P is only nearly the same in every step, as that of an inner solver is
        p = z + ((rz - float(np.vdot(last, z)) if preconditioned else rz) / before) * p
    return Solution(x, r, p, End.LIMIT)


def _length(x: Array) -> float:
    return math.sqrt(float(np.vdot(x, x)))


def _to_edge(x: Array, p: Array, radius: float) -> float:
    """t >= 0 with |x + t p| = radius."""
    pp, xp, xx = float(np.vdot(p, p)), float(np.vdot(x, p)), float(np.vdot(x, x))
    return (-xp + math.sqrt(max(xp * xp + pp * (radius**2 - xx), 0.0))) / pp
