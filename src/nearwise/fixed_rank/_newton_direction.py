"""Newton's direction for the cost of fixed-rank regression, by linear conjugate gradients.

With residuals r_i = <X_i, G G^T> - y_i, half the Hessian of the cost along D is
(1/n) sum_i (2 <X_i, sym(G D^T)> X_i G + r_i X_i D), the first term over the samples that pull. A product with
it costs as much as a gradient, so that an iteration here costs as much as one step of the search of planes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nearwise._common.types import Array
from nearwise.fixed_rank.regression import Regression
from nearwise.linalg.conjugate import End, conjugate_gradients

_ITERATIONS = 40
_FORCED = 0.1  # relative residual of the linear system at which it counts as solved
_FLAT = 1e-12  # curvature, relative to the first, that counts as none


def newton_directions(
    problem: Regression,
    Z: Array,
    residual: Array,
    SG: Array,
    inverse: Array,
    whiten: Callable[[Array], Array] | None,
    allowed: Callable[[Array], Array],
) -> tuple[list[tuple[Array, Array]], bool]:
    """Directions with their images: Newton's, the preconditioned gradient, and one of negative curvature.

    And whether the first is what it claims to be: the Hessian is positive as far as one can see, and the
    linear system solved.

    Z and SG are the image and the slope of the factor, `allowed` is the projection on the directions in
    which it may move. The last is there only where the Hessian is not positive.
    """
    forms, n = problem.forms, len(residual)
    active = problem.active(residual)
    pull_weights = residual / n
    share = (1.0 if active is None else active.astype(np.float64)) * (2.0 / n)

    def preconditioned(D: Array) -> Array:
        D = allowed(D)
        return allowed((D if whiten is None else whiten(D)) @ inverse)

    latest: dict[str, Array] = {}  # the images of the first direction and of the last one

    def hessian(P: Array) -> Array:
        E = latest["last"] = forms.image(P)
        latest.setdefault("first", E)
        return forms.pull(forms.weigh(share * forms.cross(Z, E), Z) + forms.weigh(pull_weights, E))

    first = preconditioned(-SG)
    if not float(np.vdot(-SG, first)) > 0:
        return [(first, forms.image(first))], False
    found = conjugate_gradients(
        hessian,
        -SG,
        preconditioned,
        accuracy=_FORCED,
        most_steps=min(_ITERATIONS, SG.size),
        in_its_norm=True,
        flat=_FLAT,
    )
    directions = [(found.x, forms.image(found.x)), (first, latest["first"])] if found.x.any() else []
    if found.end is End.CURVED:
        directions.append((found.direction, latest["last"]))
    return directions, found.end is End.SOLVED
