"""The online updates by their definitions in extended precision (long double), and streams to run them on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import nearwise as nw
from nearwise._common.types import Array

Long = NDArray[np.longdouble]

RATE = 0.5
COMPONENTS = 3
_CHUNK = 100_000  # examples in one call


class Case(NamedTuple):
    """An update, how it is fed, its definition, and whether its trace is one."""

    make: Callable[[int], Any]
    feed: Callable[[Any, Array, Array], Any]
    reference: Callable[[Array, Array], Long]
    trace_one: bool


def examples(m: int, d: int) -> tuple[Array, Array]:
    """Vectors, and their squared lengths under a fixed matrix of trace one with a tenth of noise."""
    rng = np.random.default_rng(0)
    G = rng.standard_normal((d, d)) * np.linspace(1.0, 0.2, d)
    U = G @ G.T / np.trace(G @ G.T)
    x = rng.standard_normal((m, d)) / np.sqrt(d)
    return x, np.einsum("ti,ij,tj->t", x, U, x, optimize=True) * rng.uniform(0.9, 1.1, m)


def in_chunks(case: Case, learner: Any, x: Array, y: Array) -> None:
    """Feed a long stream in parts."""
    for first in range(0, len(x), _CHUNK):
        case.feed(learner, x[first : first + _CHUNK], y[first : first + _CHUNK])


def eigen(A: Long) -> tuple[Long, Long]:
    """The eigendecomposition of a symmetric matrix: float64's, refined by Jacobi rotations."""
    d = len(A)
    V = np.linalg.eigh(A.astype(np.float64))[1].astype(np.longdouble)
    V = V @ (3 * np.eye(d, dtype=np.longdouble) - V.T @ V) / 2
    T = V.T @ A @ V
    for _ in range(2):  # convergence is quadratic, and float64's vectors are good to 1e-16 / gap
        for p in range(d - 1):
            for q in range(p + 1, d):
                if T[p, q] == 0:
                    continue
                tau = (T[q, q] - T[p, p]) / (2 * T[p, q])
                t = (1 if tau >= 0 else -1) / (abs(tau) + np.sqrt(1 + tau * tau))
                c = 1 / np.sqrt(1 + t * t)
                turn = np.array([[c, t * c], [-t * c, c]], dtype=np.longdouble)
                T[:, [p, q]] = T[:, [p, q]] @ turn
                T[[p, q]] = turn.T @ T[[p, q]]
                V[:, [p, q]] = V[:, [p, q]] @ turn
    return np.diagonal(T).copy(), V


def exponentiated(x: Array, y: Array, number: Any = np.longdouble, decompose: Any = eigen) -> NDArray[Any]:
    """TRW05 (3.5) with instances x x^T; in another precision, with an eigendecomposition for it."""
    d = x.shape[1]
    exponent, rate = np.zeros((d, d), number), number(RATE)
    W = np.eye(d, dtype=number) / d
    for z, target in zip(x.astype(number), y, strict=True):
        exponent -= 2 * rate * (z @ W @ z - target) * np.outer(z, z)
        values, V = decompose(exponent)
        weights = np.exp(values - values.max())
        W = (V * (weights / weights.sum())) @ V.T
    return W


def logdet(x: Array, y: Array) -> Long:
    """The implicit update in its closed form."""
    M, rate = np.eye(x.shape[1], dtype=np.longdouble), np.longdouble(RATE)
    for z, target in zip(x.astype(np.longdouble), y, strict=True):
        image = M @ z
        p = z @ image
        b = 1 - rate * p * target
        q = (-b + np.sqrt(b * b + 4 * rate * p * p)) / (2 * rate * p)
        M = M + (q - p) / (p * p) * np.outer(image, image)
    return M


def pola(x: Array, y: Array) -> Long:
    """Projections onto half space and cone."""
    d = x.shape[1]
    W, b = np.zeros((d, d), np.longdouble), np.longdouble(1)
    for z, sign in zip(x.astype(np.longdouble), signs(y), strict=True):
        loss = 1 - sign * (b - z @ W @ z)
        if loss > 0:
            step = loss / ((z @ z) ** 2 + 1)
            values, V = eigen(W - sign * step * np.outer(z, z))
            W, b = (V * np.maximum(values, 0)) @ V.T, max(b + sign * step, np.longdouble(1))
    return W


def pca(x: Array, y: Array) -> Long:
    """Online PCA, capped by trying every number of capped weights."""
    d = x.shape[1]
    cap = np.longdouble(1) / (d - COMPONENTS)
    weights, V = np.full(d, np.longdouble(1) / d), np.eye(d, dtype=np.longdouble)
    logarithms = np.log(weights)
    for z in x.astype(np.longdouble):
        values, V = eigen((V * logarithms) @ V.T - np.longdouble(RATE) * np.outer(z, z))
        order = np.argsort(-values)
        sorted_weights = np.exp(values[order] - values.max())
        for capped in range(d):
            scale = (1 - capped * cap) / sorted_weights[capped:].sum()
            if scale * sorted_weights[capped] <= cap * (1 + np.longdouble(1e-17)):
                break
        logarithms = np.empty(d, np.longdouble)
        logarithms[order[:capped]] = np.log(cap)
        logarithms[order[capped:]] = values[order[capped:]] - values.max() + np.log(scale)
    return (V * np.exp(logarithms)) @ V.T


def signs(y: Array) -> Array:
    """Similar where the squared length is small."""
    return np.where(y < 0.1, 1.0, -1.0)


CASES = {
    "ExponentiatedGradient": Case(
        lambda d: nw.online.ExponentiatedGradient(d, RATE, keep_examples=False),
        lambda learner, x, y: learner.update_many(x, y),
        exponentiated,
        True,
    ),
    "LogDetOnline": Case(
        lambda d: nw.online.LogDetOnline(d, RATE), lambda learner, x, y: learner.update(x, y), logdet, False
    ),
    "Pola": Case(lambda d: nw.online.Pola(d), lambda learner, x, y: learner.update(x, signs(y)), pola, False),
    "OnlinePCA": Case(
        lambda d: nw.online.OnlinePCA(d, COMPONENTS, RATE), lambda learner, x, y: learner.update(x), pca, True
    ),
}
