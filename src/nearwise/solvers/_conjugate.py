"""Conjugate gradients with an exact search of a plane: the default for fixed-rank regression.

Each step minimises the cost over combinations of the iterate, the preconditioned gradient and the step
before, the last carried along by the geometry's transport. The values of all samples are quadratic in the
coefficients of such a combination, so the cost is a quartic in two or three numbers, whose coefficients are
sums over samples; one product with the data for the gradient and one for its image is all that an iteration
needs. In the flat geometry the quartic is the cost itself. In the polar one the retraction bends the step:
where the cost at its end is much worse than the quartic promised (an exponential cannot pass through a
singular R, a straight line can), the step is taken straight. A step that brings too little is halved.

While steps bring much, products with the data are made in single precision, which halves their time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearwise.solvers._descent import Step
from nearwise.solvers._geometry import MixingGeometry
from nearwise.solvers._regression import Regression

Array = NDArray[np.float64]

_NEWTON_STEPS = 20  # on the small quartic; it needs about five
_SUFFICIENT = 1e-4  # share of the slope that a step must bring
_KEPT = 0.5  # share of what the quartic promises that a bent step must keep
_HALVINGS = 30
_ROUGH = 1e-5  # relative gains, and relative residuals, down to which single precision is used
_REFRESH = 25  # iterations after which images are computed anew, against rounding


@dataclass(frozen=True)
class ConjugateGradients:
    """Preconditioned conjugate gradients; settings are none, because nothing needs to be set."""

    patience = 3  # small steps in a row that end a run: a single one may be followed by large ones

    def iterates(self, problem: Regression, geometry: MixingGeometry, factor: Array) -> Iterator[Step]:
        """Points of decreasing cost, the start first; ends where no step brings anything."""
        forms = problem.forms
        maps = forms.rough()  # enough for directions while steps are long; the cost itself needs no products
        whiten = forms.whitening()
        point = geometry.point(factor)
        of_zero = problem.cost(problem.residual(np.zeros(problem.n_samples)))
        before: tuple[Array, Array] | None = None
        Z, values, residual, cost = _state(problem, forms.image(point.factor))
        yield Step(point.factor, cost, np.inf)
        for count in itertools.count(1):
            G = point.factor
            SG = maps.pull(maps.weigh(residual / len(residual), Z))
            D, K = geometry.preconditioned(point, SG, forms.moment(Z, problem.active(residual)), whiten)
            directions, images = [], []
            if D is not None:
                directions.append(D)
                images.append(maps.image(D))
            if K is not None:
                directions.append(G @ K)
                images.append(Z @ K)
            if before is not None:
                directions.append(before[0])
                images.append(before[1])
            best, promised = _plane_minimum(problem, Z, values, images, keeps_scale=geometry.fixes_scale)
            step, image = _combined(best, G, directions), _combined(best, Z, images)
            slope = min(2 * float(np.vdot(SG, step)), 0.0)
            straight = None
            for attempt in range(_HALVINGS):
                new, mix = geometry.retraction(point, step)
                state = _state(problem, mix(Z, image))
                if attempt == 0 and cost - state.cost < _KEPT * (cost - promised):
                    straight = geometry.straight(point, step)
                    if straight is not None:
                        new, state = straight, _state(problem, Z + image)
                if state.cost < cost and state.cost <= cost + _SUFFICIENT * slope:
                    break
                step, image, slope, straight = step / 2, image / 2, slope / 2, None
            else:
                if before is None and maps is forms:
                    return
                if maps is not forms:
                    maps = forms
                    Z, values, residual, cost = _state(problem, forms.image(G))
                before = None  # once more, without the step before
                continue
            before = step, image
            if straight is None:
                carry = geometry.carried(point, step, new, mix)
                before = carry(G, step), carry(Z, image)
            moved = float(
                np.linalg.norm(new.factor - G) / max(float(np.linalg.norm(G)), np.finfo(float).tiny)
            )
            rough_enough = cost - state.cost > _ROUGH * cost and state.cost > _ROUGH**2 * of_zero
            precise = maps is not forms and not rough_enough
            if precise:
                maps = forms
            if precise or count % _REFRESH == 0:
                state = _state(problem, forms.image(new.factor))
            point, (Z, values, residual, cost) = new, state
            yield Step(point.factor, cost, moved)


class _State(NamedTuple):
    """Image, values, residual and cost of a point."""

    image: Array
    values: Array
    residual: Array
    cost: float


def _state(problem: Regression, Z: Array) -> _State:
    values = problem.forms.cross(Z, Z)
    residual = problem.residual(values)
    return _State(Z, values, residual, problem.cost(residual))


def _combined(a: Array, start: Array, directions: list[Array]) -> Array:
    """(a_0 - 1) start + a_1 D_1 + ..."""
    total: Array = (a[0] - 1) * start
    for weight, direction in zip(a[1:], directions, strict=True):
        total += weight * direction
    return total


def _plane_minimum(
    problem: Regression, Z: Array, values: Array, images: list[Array], keeps_scale: bool
) -> tuple[Array, float]:
    """Coefficients a near (1, 0, ...) of a local minimum of the cost of a_0 G + a_1 D_1 + ..., and that cost.

    The values of the samples are sum_kl a_k a_l V_kl with V_kl = <X, sym(D_k D_l^T)>, D_0 = G, so they change
    by sum_kl u_kl V_kl with u = a a^T - e_0 e_0^T. Newton's method with the eigenvalues of the Hessian made
    positive.
    """
    terms = [Z, *images]
    k = len(terms)
    left, right, place = _pairs(k)
    V = np.empty((len(left), len(values)))
    V[0] = values
    for p in range(1, len(left)):
        V[p] = problem.forms.cross(terms[left[p]], terms[right[p]])
    raw = values - problem.targets
    gram = V @ V.T
    sizes = np.maximum(gram[place.diagonal(), place.diagonal()], 0.0) ** 0.25
    # the unit of each coefficient makes all directions equally long; one that moves nothing is left out
    unit = np.divide(sizes[0], sizes, out=np.zeros(k), where=sizes > 1e-50 * sizes[0])
    weight = (unit[:, None] * unit).ravel()
    flat = place.ravel()
    eye = np.eye(k)
    free = slice(1 if keeps_scale else 0, k)

    def sums(active: NDArray[np.bool_] | None) -> tuple[Array, Array]:
        rows = V if active is None else V[:, active]
        M = gram if active is None else rows @ rows.T
        t = rows @ (raw if active is None else raw[active])
        return M[flat[:, None], flat] * (weight[:, None] * weight), t[flat] * weight

    def change(d: Array) -> Array:
        u = d[:, None] * d
        u[0] += d
        u[:, 0] += d
        return u.ravel()

    def residual(u: Array) -> Array:
        u = (u * weight).reshape(k, k)
        total = np.where(left == right, 1.0, 2.0) * u[left, right]
        return problem.residual(values + total @ V)

    inequalities = problem.relation is not None
    now = problem.residual(values)
    M, t = sums(problem.active(now))
    constant = float(now @ now)
    value, first = constant, constant
    d, u = np.zeros(k), np.zeros(k * k)
    for _ in range(_NEWTON_STEPS):
        N = (M @ u + t).reshape(k, k)
        a = d + eye[0]
        bent = np.matmul(a, (a @ M.reshape(k, -1)).reshape(k, k, k))  # sum_ik a_i a_k M_ijkl
        curvature, Q = np.linalg.eigh((4 * N + 8 * bent)[free, free])
        curvature = np.abs(curvature)
        step = np.zeros(k)
        slope = 4 * (N @ a)[free]
        step[free] = -Q @ ((Q.T @ slope) / np.maximum(curvature, 1e-12 * curvature.max() + 1e-300))
        for _ in range(_HALVINGS):
            u = change(d + step)
            if inequalities:
                now = residual(u)
                new_value = float(now @ now)
            else:
                new_value = constant + float(u @ (M @ u + 2 * t))
            if new_value < value:
                break
            step /= 4
        else:
            break
        gain, value, d = value - new_value, new_value, d + step
        if gain <= 1e-2 * (first - value):
            break
        if inequalities:
            M, t = sums(problem.active(now))
    return d * unit + eye[0], value / (2 * len(values))


@cache
def _pairs(k: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The pairs i <= j below k, and the number of each pair as a k x k table."""
    left, right = np.triu_indices(k)
    place = np.empty((k, k), dtype=np.int64)
    place[left, right] = place[right, left] = np.arange(len(left))
    return left, right, place
