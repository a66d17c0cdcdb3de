"""Newton's direction for the cost of fixed-rank regression, by linear conjugate gradients.

With residuals r_i = <X_i, G G^T> - y_i, half the Hessian of the cost along D is
(1/n) sum_i (2 <X_i, sym(G D^T)> X_i G + r_i X_i D), the first term over the samples that pull. A product with
it costs as much as a gradient, so that an iteration here costs as much as one step of the search of planes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from nearwise.fixed_rank.regression import Regression

Array = NDArray[np.float64]

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

    def hessian(E: Array) -> Array:
        return forms.pull(forms.weigh(share * forms.cross(Z, E), Z) + forms.weigh(pull_weights, E))

    left = -SG
    P = preconditioned(left)
    square = float(np.vdot(left, P))
    first = P, forms.image(P)
    if not square > 0:
        return [first], False
    total, total_image = np.zeros_like(P), np.zeros_like(first[1])
    image, goal, curved = first[1], _FORCED**2 * square, 0.0
    for count in range(min(_ITERATIONS, SG.size)):
        HP = hessian(image)
        curvature = float(np.vdot(P, HP))
        curved = max(curved, curvature / float(np.vdot(P, P)))
        if not curvature > _FLAT * curved * float(np.vdot(P, P)):
            return ([] if count == 0 else [(total, total_image), first]) + [(P, image)], False
        length = square / curvature
        total, total_image = total + length * P, total_image + length * image
        left = left - length * HP
        Q = preconditioned(left)
        new_square = float(np.vdot(left, Q))
        if not new_square > goal:
            return [(total, total_image), first], True
        P = Q + (new_square / square) * P
        image = forms.image(P)
        square = new_square
    return [(total, total_image), first], False
