"""Conjugate gradients with an exact search of a plane: the default for fixed-rank regression.

Each step minimises the cost over combinations of the iterate, the preconditioned gradient and the step
before, the last carried along by the geometry's transport. The values of all samples are quadratic in the
coefficients of such a combination, so the cost is a quartic in two or three numbers, whose coefficients are
sums over samples; one product with the data for the gradient and one for its image is all that an iteration
needs. In the flat geometry the quartic is the cost itself. In the polar one the retraction bends the step:
where the cost at its end is much worse than the quartic promised (an exponential cannot pass through a
singular R, a straight line can), the step is taken straight. A step that brings too little is halved.

Where steps bring little, because the problem is badly conditioned or the optimum nearly reached, the
direction is that of Newton's method instead (`newton_directions`), and one such step that brings nothing
tells more than many of the others.

The image of the factor under the data moves along with it. Its rounding is kept small: a step whose mix of
columns would magnify it is taken straight or followed by a new product, and images are computed anew from
time to time. A point is yielded only where its cost is below that of the point before.

While steps bring much, products with the data are made in single precision, which halves their time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearwise._common.types import Array
from nearwise.fixed_rank.descent import Step
from nearwise.fixed_rank.forms import Forms
from nearwise.fixed_rank.geometry import Mix, MixingGeometry, inverse_of
from nearwise.fixed_rank.regression import Regression, newton_directions

_SUFFICIENT = 1e-4  # share of the slope that a step must bring
_KEPT = 0.5  # share of what the quartic promises that a bent step must keep
_HALVINGS = 30
_ROUGH = 1e-5  # relative gains, and relative residuals, down to which single precision is used
_SLOW = 0.1  # relative gain below which the next direction is Newton's
_INVISIBLE = 1e-3  # share of the length of a column in its weight
_REFRESH = 25  # iterations after which images are computed anew, against rounding
_MAGNIFIED = 1e4  # how many times rounding may grow before that
_NEWTON_STEPS = 20  # on the small quartic; it needs about five


@dataclass(frozen=True)
class ConjugateGradients:
    """Preconditioned conjugate gradients; settings are none, because nothing needs to be set."""

    patience = 3  # small steps in a row that end a run: a single one may be followed by large ones

    def iterates(self, problem: Regression, geometry: MixingGeometry, factor: Array) -> Iterator[Step]:
        """Points of decreasing cost, the start first; ends where no step brings anything."""
        search = _Search(problem, geometry, factor)
        lowest = search.state.cost
        yield Step(search.point.factor, lowest, np.inf)
        while True:
            old = search.point.factor
            if not search.advance():
                return
            new = search.point.factor
            if search.state.cost < lowest:  # single precision may have promised a little too much before
                lowest = search.state.cost
                length = max(float(np.linalg.norm(old)), np.finfo(float).tiny)
                yield Step(new, lowest, float(np.linalg.norm(new - old)) / length, search.complete)


class _State(NamedTuple):
    """Image, values, residual and cost of a point."""

    image: Array
    values: Array
    residual: Array
    cost: float


class _Moved(NamedTuple):
    """A point that a step leads to, how the step is carried there, and how much rounding grows by that.

    Without a mix, the step itself is what is carried.
    """

    point: Any
    state: _State
    carry: Mix | None
    growth: float


class _Search:
    """Where a run stands."""

    def __init__(self, problem: Regression, geometry: MixingGeometry, factor: Array) -> None:
        self.problem, self.geometry = problem, geometry
        self.point: Any = geometry.point(factor)
        # enough for directions while steps are long; the cost itself needs no products
        self.maps: Forms = problem.forms.rough()
        self.whiten = problem.forms.whitening()
        self.of_zero = problem.cost(problem.residual(np.zeros(problem.n_samples)))
        self.before: tuple[Array, Array] | None = None  # the last step and its image
        self.state = self._exact(self.point)
        self.magnified = 1.0  # how much the rounding of the image may have grown
        self.slow, self.complete = False, False
        self.count = 0

    def advance(self) -> bool:
        """Make one step; False where none makes the cost smaller."""
        while True:
            # Newton's direction is that of straight steps, which keep no scale
            newton, exact = self.slow and not self.geometry.fixes_scale, self.maps is self.problem.forms
            if self._step(*(self._newton() if newton else self._plane()), newton):
                return True
            if exact and self.before is None and (newton or self.geometry.fixes_scale):
                return False
            # once more, with exact products, without the step before, and by Newton's method
            self.maps, self.before, self.slow = self.problem.forms, None, True
            self.state, self.magnified = self._exact(self.point), 1.0

    def _slope(self) -> Array:
        residual, maps = self.state.residual, self.maps
        return maps.pull(maps.weigh(residual / len(residual), self.state.image))

    def _moment(self) -> Array:
        """That of the forms, and a little of G^T G, for combinations of columns that are long but invisible.

        Such a combination, one that shifts all objects, say, would grow without bound and drown the others.
        """
        Z, G = self.state.image, self.point.factor
        moment = self.problem.forms.moment(Z, self.problem.active(self.state.residual))
        length = G.T @ G
        share = float(np.trace(moment)) / max(float(np.trace(length)), np.finfo(float).tiny)
        return moment + _INVISIBLE * share * length

    def _plane(self) -> tuple[Array, list[Array], list[Array]]:
        """The slope, and directions with their images: preconditioned gradients and the step before."""
        SG, Z, self.complete = self._slope(), self.state.image, False
        D, K = self.geometry.preconditioned(self.point, SG, self._moment(), self.whiten)
        directions, images = [D], [self.maps.image(D)]
        if K is not None:
            directions.append(self.point.factor @ K)
            images.append(Z @ K)
        if self.before is not None:
            directions.append(self.before[0])
            images.append(self.before[1])
        return SG, directions, images

    def _newton(self) -> tuple[Array, list[Array], list[Array]]:
        """The same with Newton's direction."""
        self.maps = self.problem.forms
        SG = self._slope()
        found, solved = newton_directions(
            self.problem,
            self.state.image,
            self.state.residual,
            SG,
            inverse_of(self._moment()),
            self.whiten,
            lambda D: self.geometry.allowed(self.point, D),
        )
        # of inequalities, those that pull may change on the way, and then little gain means little
        self.complete = solved and self.problem.relation is None
        if self.before is not None:
            found.append(self.before)
        return SG, [D for D, _ in found], [image for _, image in found]

    def _step(self, SG: Array, directions: list[Array], images: list[Array], straight: bool) -> bool:
        """Go to the best point of the plane, or on the way to it; False where that is no better."""
        problem, geometry, light = self.problem, self.geometry, self.problem.forms.light
        G, (Z, values, _, cost) = self.point.factor, self.state
        best, promised = plane_minimum(problem, Z, values, images, keeps_scale=geometry.fixes_scale)
        step, image = _combined(best, G, directions), _combined(best, Z, images)
        slope = min(2 * float(np.vdot(SG, step)), 0.0)
        for attempt in range(_HALVINGS):
            moved = self._moved(step, image, straight, cost - promised if attempt == 0 else 0.0)
            if moved.state.cost < cost and moved.state.cost <= cost + _SUFFICIENT * slope:
                break
            step, image, slope = step / 2, image / 2, slope / 2
        else:
            return False
        new, state, before = moved.point, moved.state, (step, image)
        if moved.carry is not None:
            before = moved.carry(G, step), moved.carry(Z, image)
        self.count += 1
        self.magnified *= moved.growth
        gain = cost - state.cost
        single = self.maps is not problem.forms
        if single and not (gain > _ROUGH * cost and state.cost > _ROUGH**2 * self.of_zero):
            self.maps = problem.forms
        if (
            light
            or self.magnified > _MAGNIFIED
            or self.count % _REFRESH == 0
            or single != (self.maps is not problem.forms)
        ):
            state, self.magnified = self._exact(new), 1.0
            before = before[0], self.maps.image(before[0])
            if not single and not state.cost < cost:
                return False
        self.point, self.state, self.before = new, state, before
        self.slow = gain < _SLOW * cost
        return True

    def _moved(self, step: Array, image: Array, straight: bool, promised: float) -> _Moved:
        """The point after a step: bent where the geometry bends, unless straight is asked for or better."""
        problem, geometry, point, state = self.problem, self.geometry, self.point, self.state

        def on_the_line() -> _Moved | None:
            end = geometry.straight(point, step)
            return None if end is None else _Moved(end, _state(problem, state.image + image), None, 1.0)

        if straight and (line := on_the_line()) is not None:
            return line
        new: Any  # a point of the geometry
        new, mix = geometry.retraction(point, step)
        if mix.growth > _MAGNIFIED and (line := on_the_line()) is not None:
            return line
        exact = mix.growth > _MAGNIFIED
        found = self._exact(new) if exact else _state(problem, mix(state.image, image))
        if state.cost - found.cost < _KEPT * promised and (line := on_the_line()) is not None:
            return line
        carry = geometry.carried(point, step, new, mix)
        if carry.growth > _MAGNIFIED:
            return _Moved(new, found, None, mix.growth)
        return _Moved(new, found, carry, max(mix.growth, carry.growth))

    def _exact(self, point: Any) -> _State:
        return _state(self.problem, self.problem.forms.image(point.factor))


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


def plane_minimum(
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
