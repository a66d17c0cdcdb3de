"""The exact search of a plane: the cost of fixed-rank regression over combinations of a few factors."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from nearwise._common.types import Array
from nearwise.fixed_rank.regression import Regression

_NEWTON_STEPS = 20  # on the small quartic; it needs about five
_HALVINGS = 30


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
