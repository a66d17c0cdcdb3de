"""Newton's linear system: D + omega * A^T(w A(omega * D)) = -omega * gradient, for symmetric D.

A holds the constraint rows that bend the objective, w their second derivatives. Few rows or few unknowns
are solved directly; otherwise by conjugate gradients. Their preconditioner takes each row's vector as
Gaussian: then, in the eigenbasis of sum_i w_i |u_i|^2 u_i u_i^T, off-diagonal entries of A^T(w A(D)) do not
interact and the diagonal is multiplied by one r x r matrix. Without omega, this model of the Hessian is
inverted entry by entry. With it, conjugate gradients solve the model too: its products cost O(r^3), whatever
the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearwise._common.types import Array
from nearwise.linalg.conjugate import conjugate_gradients
from nearwise.model.local import LocalAtoms

Linear = Callable[[Array], Array]

# The largest systems solved directly: rows times unknowns, which are written out, and the smaller of the two.
_DIRECT = (1_000_000, 500)
_DIRECT_IF_STIFF = (4_000_000, 1_500)  # conjugate gradients take long where hard rows are stiff
_GRAM_ROWS = 4_000  # up to so many, the Gram matrix of the rows is solved where omega does not enter it
_MAX_CG = 200
# Of the Gaussian model: how many rows per column its moments are from. Where omega enters, it is solved to an
# accuracy, in about so many of its products, unless they cost more than one with all rows; they are in double
# precision, which costs twice as much.
_MODEL_ROWS = 30
_MODEL_ACCURACY = 0.1
_MODEL_STEPS = 20
# A step takes conjugate gradients about so many products with the Hessian, rough or not, each so many
# operations more than its arithmetic; a direct solution that takes more does not pay.
_ROUGH = 0.03
_ROUGH_STEPS = 12
_CLOSE_STEPS = 60
_OVERHEAD = 3e5


def newton_step(
    rows: LocalAtoms, weights: Array, gradient: Array, omega: Array | None, tol: float, stiff: bool
) -> tuple[Array, Array]:
    """D and A^T(w A(omega * D)).

    Parameters
    ----------
    rows : the constraint rows in local coordinates
    weights : w > 0, one per row
    gradient : before omega is applied
    omega : None for ones
    tol : relative accuracy of conjugate gradients
    stiff : whether some weights are much larger than others
    """
    r = len(gradient)
    unknowns = r * (r + 1) // 2
    target = -gradient if omega is None else -omega * gradient
    if rows.n_rows == 0:
        return target, np.zeros_like(gradient)
    m, smaller = rows.n_rows, min(rows.n_rows, unknowns)
    atoms = len(rows.x)
    affordable = np.inf if stiff else _steps(rows, weights, omega, tol) * (4 * m * r**2 + _OVERHEAD)
    few = omega is None and max(atoms, m) <= min(unknowns, _GRAM_ROWS)
    if few and 2 * atoms**2 * r + 2 * m**3 / 3 <= affordable:
        return _in_row_space(rows, weights, target)
    entries, order = _DIRECT_IF_STIFF if stiff else _DIRECT
    small = m * unknowns <= entries and smaller <= order
    if small and m * unknowns * smaller + 2 * smaller**3 / 3 <= affordable:
        return _direct(rows, weights, target, omega)
    return _Gaussian(rows, weights, omega, stiff).solve(target, tol)


def _steps(rows: LocalAtoms, weights: Array, omega: Array | None, tol: float) -> float:
    """About how many conjugate gradients take: few where the rows bend little beside the divergence.

    The largest eigenvalue of the rows' part is taken as its trace over r, as of Gaussian vectors.
    """
    squares = np.einsum("ij,ij->i", rows.x, rows.x) * np.einsum("ij,ij->i", rows.y, rows.y)
    bent = (weights if rows.row is None else weights[rows.row]) @ (rows.coefficient**2 * squares)
    condition = 1 + float(bent) * (1.0 if omega is None else float(omega.max()) ** 2) / rows.x.shape[1]
    most = _ROUGH_STEPS if tol > _ROUGH else _CLOSE_STEPS
    return float(min(most, 1 + np.sqrt(condition) * np.log(2 / tol) / 2))


def _in_row_space(rows: LocalAtoms, weights: Array, target: Array) -> tuple[Array, Array]:
    """By the Gram matrix of the rows, which are not written out: O(m^2 r + m^3) for m rows."""
    x = rows.x.astype(np.float64, copy=False)
    rows = replace(rows, x=x, y=x if rows.y is rows.x else rows.y.astype(np.float64, copy=False))
    root = np.sqrt(weights)
    gram = rows.gram()
    gram *= root[:, None]
    gram *= root
    pulled = _solved(gram, root * rows.values(target))
    curved = rows.adjoint(root * pulled)
    return target - curved, curved


def _direct(rows: LocalAtoms, weights: Array, target: Array, omega: Array | None) -> tuple[Array, Array]:
    """Write the rows out as vectors of unknowns; solve in the smaller of the two spaces."""
    r = len(target)
    a, b = np.triu_indices(r)
    root_two = np.where(a == b, 1.0, np.sqrt(2.0))
    bare = _times(rows, weights**0.25).written_out()
    R = bare if omega is None else bare * omega[a, b]
    t = target[a, b] * root_two
    if len(R) <= R.shape[1]:
        pulled = _solved(R @ R.T, R @ t)
        d = t - R.T @ pulled
        curved = bare.T @ pulled
    else:
        d = _solved(R.T @ R, t)
        curved = bare.T @ (R @ d)
    return _unpacked(d / root_two, r), _unpacked(curved / root_two, r)


def _solved(gram: Array, right: Array) -> Array:
    """(I + gram)^-1 right; overwrites gram.

    By NumPy: SciPy brings a BLAS of its own, whose threads and NumPy's would fight for the cores.
    """
    gram.flat[:: len(gram) + 1] += 1.0
    return np.asarray(np.linalg.solve(gram, right), dtype=np.float64)


def _unpacked(upper: Array, r: int) -> Array:
    full = np.zeros((r, r))
    full[np.triu_indices(r)] = upper
    return full + np.triu(full, 1).T


class _Gaussian:
    """Conjugate gradients with the Gaussian preconditioner, in the precision of the rows."""

    def __init__(self, rows: LocalAtoms, weights: Array, omega: Array | None, stiff: bool) -> None:
        r = rows.x.shape[1]
        self.rows = _times(rows, (weights**0.25).astype(rows.x.dtype))
        some = self.rows if stiff else _drawn(self.rows, _MODEL_ROWS * r)
        if omega is None:
            self.omega = np.ones((r, r))
            self.preconditioned = self._by_turned_entries
            self._make_model(some)
            off_diagonal, block = self.model
        else:
            self.omega = omega
            self.preconditioned = self._by_entries
            off_diagonal, block = _moments(some)
            if _MODEL_STEPS * (16 * r**3 + _OVERHEAD) <= 4 * rows.n_rows * r**2:
                self.preconditioned = self._by_model
                self._make_model(some)
        weight = np.diag(self.omega)
        self.inverse = 1.0 / (1.0 + off_diagonal * self.omega**2)
        self.diagonal_inverse = np.linalg.inv(np.eye(r) + block * np.outer(weight, weight))

    def _make_model(self, some: LocalAtoms) -> None:
        """The basis from all rows, since all depends on it, and the moments from some of them."""
        x, y = self.rows.x, self.rows.y
        squared_norm = np.einsum("ij,ij->i", y, y)
        covariance = x.T @ (x * (squared_norm * self.rows.coefficient**2)[:, None])
        self.basis = np.linalg.eigh(_symmetric(covariance.astype(np.float64)))[1]
        turn = self.basis.astype(x.dtype)
        turned = some.x @ turn
        self.model = _moments(replace(some, x=turned, y=turned if some.x is some.y else some.y @ turn))

    def solve(self, target: Array, tol: float) -> tuple[Array, Array]:
        step = _solution(self._product, target, self.preconditioned, tol)
        return step, self._bent(self.omega * step)

    def _product(self, D: Array) -> Array:
        return D + self.omega * self._bent(self.omega * D)

    def _bent(self, D: Array) -> Array:
        """The rows' part of the Hessian, before omega."""
        dtype: Any = self.rows.x.dtype
        normal = np.where(np.abs(D) < 1e-30, 0.0, D).astype(dtype)  # denormal numbers would slow the products
        return _symmetric(self.rows.adjoint(self.rows.values(normal)).astype(np.float64))

    def _by_entries(self, residual: Array) -> Array:
        z = residual * self.inverse
        np.fill_diagonal(z, self.diagonal_inverse @ np.diag(residual))
        return z

    def _by_turned_entries(self, residual: Array) -> Array:
        Q = self.basis
        return _symmetric(Q @ self._by_entries(Q.T @ residual @ Q) @ Q.T)

    def _by_model(self, residual: Array) -> Array:
        return _solution(self._modelled, residual, self._by_entries, _MODEL_ACCURACY)

    def _modelled(self, D: Array) -> Array:
        """The product with the Hessian, were the rows' vectors Gaussian."""
        (off_diagonal, block), Q = self.model, self.basis
        turned = Q.T @ (self.omega * D) @ Q
        bent = off_diagonal * turned
        np.fill_diagonal(bent, block @ np.diag(turned))
        return D + self.omega * _symmetric(Q @ bent @ Q.T)


def _solution(product: Linear, right: Array, preconditioned: Linear, accuracy: float) -> Array:
    return conjugate_gradients(
        product, right, preconditioned, accuracy=accuracy, most_steps=_MAX_CG, in_its_norm=True
    ).x


def _symmetric(D: Array) -> Array:
    """Without what rounding leaves beside: the preconditioners take it for far stiffer than it is."""
    return (D + D.T) / 2


def _moments(rows: LocalAtoms) -> tuple[Array, Array]:
    """What the rows' part of the Hessian multiplies off-diagonal entries with, and its diagonal block."""
    diagonals = rows.diagonals()
    block = (diagonals.T @ diagonals).astype(np.float64)
    if rows.x is rows.y and rows.row is None:
        return 2 * block, block
    squares = (rows.x**2 * (rows.coefficient**2)[:, None]).T @ rows.y**2
    return (squares + squares.T).astype(np.float64), block


def _times(rows: LocalAtoms, factors: NDArray[Any]) -> LocalAtoms:
    """The same with both vectors of every atom times the factor of its row."""
    scale = (factors if rows.row is None else factors[rows.row])[:, None]
    x = rows.x * scale
    return replace(rows, x=x, y=x if rows.x is rows.y else rows.y * scale)


def _drawn(rows: LocalAtoms, count: int) -> LocalAtoms:
    """About so many of the rows, the larger ones more likely, times factors that make up for the others."""
    if rows.n_rows <= count:
        return rows
    size = np.abs(rows.coefficient) * np.sqrt(
        np.einsum("ij,ij->i", rows.x, rows.x) * np.einsum("ij,ij->i", rows.y, rows.y)
    )
    if rows.row is not None:
        size = np.bincount(rows.row, size, rows.n_rows)
    share = size / max(float(np.sum(size, dtype=np.float64)), 1e-300)
    chance = np.minimum(count / 2 * (share + 1 / rows.n_rows), 1.0)
    kept = np.random.default_rng(0).random(rows.n_rows) < chance
    atoms, row = kept, None
    if rows.row is not None:
        atoms, row = kept[rows.row], (np.cumsum(kept) - 1)[rows.row[kept[rows.row]]]
    x = rows.x[atoms]
    y = x if rows.x is rows.y else rows.y[atoms]
    some = LocalAtoms(x, y, rows.coefficient[atoms], row, int(np.sum(kept)))
    return _times(some, (chance[kept] ** -0.25).astype(rows.x.dtype))
