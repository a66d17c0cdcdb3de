"""The optimality conditions of a problem, written from their definitions with dense matrices.

Nothing here calls the formulas of nearwise: constraint matrices are built entry by entry from the
constraints, phi' of a matrix comes from `inv`, `logm` or `eigh`, and the losses are those that the
documentation of `nearwise.losses` defines. `assert_optimal` checks what any solver hands back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, inv, logm

import nearwise as nw
from nearwise.constraints import Block, Constraints, Linear

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Phi:
    """A convex function of numbers: value, first and second derivative, and whether M must have full rank."""

    value: Callable[[Array], Array]
    gradient: Callable[[Array], Array]
    curvature: Callable[[Array], Array]
    confines: bool  # M stays in the range of the prior


def _entropy(x: Array) -> Array:
    return np.where(x > 0, x * np.log(np.where(x > 0, x, 1.0)), 0.0) - x


PHI = {
    "LogDet": Phi(lambda x: -np.log(x), lambda x: -1 / x, lambda x: 1 / x**2, True),
    "VonNeumann": Phi(_entropy, np.log, lambda x: 1 / x, True),
    "Frobenius": Phi(np.square, lambda x: 2 * x, lambda x: 2 * np.ones_like(x), False),
    "ThreeHalves": Phi(lambda x: x**1.5, lambda x: 1.5 * np.sqrt(x), lambda x: 0.75 / np.sqrt(x), False),
}


def phi_of(divergence: nw.Divergence) -> Phi:
    """The table entry of a divergence."""
    return PHI[type(divergence).__name__]


def spectral(function: Callable[[Array], Array], X: Array) -> Array:
    """V diag(function(lambda)) V^T."""
    values, vectors = eigh(X)
    return (vectors * function(values)) @ vectors.T


def gradient_of(divergence: nw.Divergence, X: Array) -> Array:
    """phi'(X) of a symmetric matrix."""
    name = type(divergence).__name__
    if name == "LogDet":
        return -inv(X)
    if name == "VonNeumann":
        return np.real(logm(X))
    if name == "Frobenius":
        return 2 * X
    return spectral(lambda x: phi_of(divergence).gradient(np.maximum(x, 0)), X)


def range_basis(prior: Array, divergence: nw.Divergence) -> Array:
    """An orthonormal basis of the space in which M lives: the prior's range, or everything."""
    values, vectors = eigh(prior)
    if not phi_of(divergence).confines:
        return np.eye(len(prior))
    return vectors[:, values > 1e-10 * values.max()]


def divergence_value(divergence: nw.Divergence, X: Array, Y: Array) -> float:
    """phi(X) - phi(Y) - <phi'(Y), X - Y> on the range of Y."""
    P = range_basis(Y, divergence)
    X, Y = P.T @ X @ P, P.T @ Y @ P
    phi = phi_of(divergence)
    x, y = np.linalg.eigvalsh(X), np.linalg.eigvalsh(Y)
    if type(divergence).__name__ != "Frobenius":
        x = np.maximum(x, 0)
    return float(phi.value(x).sum() - phi.value(y).sum() - np.sum(gradient_of(divergence, Y) * (X - Y)))


@dataclass(frozen=True)
class Row:
    """One constraint: its kind, the objects it names, and A with <A, K> for the kernel K of all objects."""

    kind: str
    objects: tuple[int, ...]
    matrix: Array  # n x n


def rows_of(constraints: Constraints, n: int, sample_ids: list | None = None) -> list[Row]:
    """Every constraint on n objects, written out."""
    place = {name: k for k, name in enumerate(range(n) if sample_ids is None else sample_ids)}
    return [row for block in constraints.blocks for row in _block_rows(block, n, place)]


def _block_rows(block: Block, n: int, place: dict) -> list[Row]:
    unit = np.eye(n)
    if block.kind == "linear":
        objects = [place[i] for i in (range(n) if block.ids is None else block.ids.tolist())]
        embed = unit[:, objects]
        return [Row("linear", tuple(objects), embed @ _dense(item) @ embed.T) for item in block.matrices]
    rows = []
    for ids in block.ids.tolist():
        objects = tuple(place[i] for i in ids)
        e = unit[list(objects)]
        if block.kind == "similarity":
            A = (np.outer(e[0], e[1]) + np.outer(e[1], e[0])) / 2
        else:
            A = np.outer(e[0] - e[1], e[0] - e[1])
            if block.kind == "comparison":
                A = A - np.outer(e[2] - e[3], e[2] - e[3])
        rows.append(Row(block.kind, objects, A))
    return rows


def _dense(item: Linear) -> Array:
    if item.factor is not None:
        return item.factor @ np.diag(item.weights) @ item.factor.T
    return item.matrix if isinstance(item.matrix, np.ndarray) else item.matrix.toarray()


@dataclass(frozen=True)
class Dense:
    """A problem written out: r x r constraint matrices, bounds, and the loss of each row."""

    divergence: nw.Divergence
    prior: Array
    A: Array  # (m, r, r)
    bounds: Array
    relations: Array
    penalties: Array
    sizes: Array
    is_bregman: NDArray[np.bool_]  # soft, with the slack of the papers; other soft rows are quadratic

    def values(self, M: Array) -> Array:
        return np.einsum("kij,ij->k", self.A, M)

    def wrong_side(self, p: Array) -> Array:
        """How far p is beyond its bound, signed: positive above the bound."""
        difference = p - self.bounds
        allowed = np.where(self.relations == 0, False, difference * self.relations >= 0)
        return np.where(allowed, 0.0, difference)

    def losses(self, p: Array) -> Array:
        """The cost of every row; zero for hard ones."""
        phi, out = phi_of(self.divergence), np.zeros(len(p))
        over = self.wrong_side(p)
        for k in np.flatnonzero((over != 0) & np.isfinite(self.penalties)):
            b, gamma = self.bounds[k], self.penalties[k]
            if self.is_bregman[k]:
                both = phi.value(np.array([p[k], b]))
                out[k] = gamma * (both[0] - both[1] - phi.gradient(np.array([b]))[0] * (p[k] - b))
            else:
                out[k] = gamma / 2 * phi.curvature(self.sizes[k : k + 1])[0] * over[k] ** 2
        return out

    def loss_slopes(self, p: Array) -> Array:
        """Their derivatives; zero for hard rows."""
        phi, out = phi_of(self.divergence), np.zeros(len(p))
        over = self.wrong_side(p)
        for k in np.flatnonzero((over != 0) & np.isfinite(self.penalties)):
            ends = np.array([p[k], self.bounds[k]])
            if self.is_bregman[k]:
                out[k] = self.penalties[k] * np.subtract(*phi.gradient(ends))
            else:
                out[k] = self.penalties[k] * phi.curvature(self.sizes[k : k + 1])[0] * over[k]
        return out

    def objective(self, M: Array) -> float:
        return divergence_value(self.divergence, M, self.prior) + float(self.losses(self.values(M)).sum())


def written_out(problem: nw.Problem, prior: Array | None = None, sample_ids: list | None = None) -> Dense:
    """The dense form of a problem; `prior` is what the caller gave to it (None: the identity)."""
    G = np.asarray(problem.features)
    n, r = G.shape
    M0 = np.eye(r) if prior is None else np.asarray(prior, dtype=float)
    rows = rows_of(problem.constraints, n, sample_ids)
    A = np.array([G.T @ row.matrix @ G for row in rows]).reshape(-1, r, r)
    bounds, relations = problem.bounds, problem.constraints.relations
    penalties = problem.penalties
    # Rows are sized under the prior; where that is indefinite or a divergence reaches beyond its range, under
    # its scale times the identity.
    eigenvalues = np.linalg.eigvalsh(M0)
    singular = eigenvalues.min() <= 1e-10 * np.abs(eigenvalues).max()
    mean = np.mean(np.abs(eigenvalues)) or 1.0
    beyond = singular and not phi_of(problem.divergence).confines
    reference = np.eye(r) * mean if beyond else M0
    K0 = G @ reference @ G.T
    root = spectral(lambda x: np.sqrt(np.maximum(x, 0)), reference)
    sizes = np.array([_size(row, K0, root @ Ar @ root) for row, Ar in zip(rows, A, strict=True)])
    definite = np.array([np.linalg.eigvalsh(Ar)[0] >= -1e-12 * np.abs(Ar).max() for Ar in A], dtype=bool)
    bregman = np.isfinite(penalties) & (bounds > 0) & ((relations < 0) | definite)
    return Dense(problem.divergence, M0, A, bounds, relations, penalties, sizes, bregman)


def _size(row: Row, K0: Array, inside: Array) -> float:
    """The size of a row's parts under the prior: d + d' of a comparison, sqrt(K_ii K_jj) of a similarity.

    Of a linear row it is the sum of the magnitudes of its eigenvalues there, in `inside`.
    """
    if row.kind == "linear":
        return float(np.abs(np.linalg.eigvalsh(inside)).sum())
    if row.kind == "similarity":
        i, j = row.objects
        return float(np.sqrt(K0[i, i] * K0[j, j]))
    pairs = (row.objects[:2], row.objects[2:]) if row.kind == "comparison" else (row.objects,)
    return float(sum(K0[i, i] + K0[j, j] - 2 * K0[i, j] for i, j in pairs))


def assert_optimal(
    problem: nw.Problem,
    result: nw.Result,
    prior: Array | None = None,
    sample_ids: list | None = None,
    tol: float = 1e-10,
) -> None:
    """Feasibility, dual signs, complementarity and stationarity of a result that claims a gap of `tol`.

    Values are held to about `tol`. Conditions of first order are held to about its root, because a gap of
    tol allows an error of that size in M and in the multipliers.
    """
    dense = written_out(problem, prior, sample_ids)
    M, y = result.matrix, result.dual
    first_order = 10 * np.sqrt(tol)
    unit = max(1.0, result.certificate.primal)
    assert result.status is nw.Status.SOLVED, result.message
    _assert_certified(dense, result, unit, tol)

    # M is symmetric, positive semidefinite, and its factor belongs to it
    largest = max(float(np.linalg.eigvalsh(M)[-1]), 1e-300)
    np.testing.assert_allclose(M, M.T, rtol=0, atol=1e-14 * largest)
    assert np.linalg.eigvalsh(M)[0] >= -1e-12 * largest
    np.testing.assert_allclose(result.factor @ result.factor.T, M, rtol=0, atol=1e-12 * largest)

    # hard rows are met
    p = dense.values(M)
    hard = np.isinf(dense.penalties)
    reference = np.maximum(np.abs(dense.bounds), dense.sizes)
    assert np.max(np.abs(dense.wrong_side(p)[hard]) / reference[hard], initial=0.0) <= 10 * tol

    # multipliers have their sign, vanish where a hard row is slack, and are the slopes of soft losses
    assert np.all(y[dense.relations < 0] >= 0)
    assert np.all(y[dense.relations > 0] <= 0)
    assert np.max(np.abs(y * (p - dense.bounds))[hard], initial=0.0) <= first_order * unit
    slopes = dense.loss_slopes(p)
    error = np.abs(y - slopes) * reference
    # A gap of tol leaves p off by sqrt(tol / penalty), and the slope there by sqrt(tol * penalty).
    steepness = np.sqrt(np.maximum(dense.penalties, 1.0))
    assert (
        np.max(
            ((error - first_order * np.abs(slopes) * reference) / steepness)[~hard],
            initial=0.0,
        )
        <= first_order * unit
    )

    assert stationarity_error(dense, M, y) <= first_order * unit


def _assert_certified(dense: Dense, result: nw.Result, unit: float, tol: float) -> None:
    certificate = result.certificate
    assert certificate.gap <= tol
    assert certificate.hard_violation <= tol
    np.testing.assert_allclose(
        certificate.primal, dense.objective(result.matrix), rtol=1e-7, atol=1e-9 * unit
    )
    rounding = 1e-13 * unit * len(result.matrix)
    assert abs(certificate.primal - certificate.dual) <= tol * unit + rounding


def stationarity_error(dense: Dense, M: Array, y: Array) -> float:
    """How far phi'(M) - phi'(M0) + sum y_i A_i is from a multiplier of the cone, weighted by M."""
    P = range_basis(dense.prior, dense.divergence)
    inside, M0 = P.T @ M @ P, P.T @ dense.prior @ P
    np.testing.assert_allclose(P @ inside @ P.T, M, rtol=0, atol=1e-9 * np.abs(M).max())
    gradient = gradient_of(dense.divergence, inside)
    prior_gradient = gradient_of(dense.divergence, M0)
    residual = gradient - prior_gradient + P.T @ np.einsum("k,kij->ij", y, dense.A) @ P
    residual = (residual + residual.T) / 2
    values, V = eigh(inside)
    B = V * np.sqrt(np.maximum(values, 0))
    along = float(np.abs(B.T @ residual @ B).max())
    if type(dense.divergence).__name__ == "LogDet":
        return along  # M^1/2 (M^-1) M^1/2 = I sets the scale
    along /= values[-1]
    if phi_of(dense.divergence).confines:
        return along
    size = max(1.0, float(np.abs(prior_gradient).max()))
    return max(along, -float(np.linalg.eigvalsh(residual)[0])) / size
