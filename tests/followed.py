"""Formulations of every kind of row for the tests of solvers, and what a solver makes of them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from nearwise.core.formulation import Formulation
from nearwise.core.losses import Loss
from nearwise.core.rows import Rows

TOL = 1e-8


def formulation(divergence, r=3, m=8, seed=0, hard=0.5, offsets=False, spread=0.5) -> Formulation:
    """Hard and soft rows of all relations, comparisons first; some definite matrix meets the hard ones."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(m + m // 2, r))
    row = np.concatenate([np.arange(m), np.arange(m // 2)])
    coefficient = np.concatenate([np.ones(m), -np.ones(m // 2)])
    order = np.argsort(row, kind="stable")
    rows = Rows.written(
        x[order],
        x[order],
        coefficient[order],
        row[order],
        m,
        rng.normal(size=m) * 0.1 if offsets else None,
    )
    prior = np.exp(rng.normal(size=r) * 0.3)
    values = rows.values(np.diag(np.sqrt(prior)) @ (np.eye(r) + spread * rng.normal(size=(r, r))))
    relations = rng.integers(-1, 2, m).astype(np.int8)
    relations[m // 2 :: 4] = 0
    is_hard = (rng.random(m) < hard) & ((relations != 0) | (np.cumsum(relations == 0) < 3))
    bounds = np.where(is_hard, values, values * rng.uniform(0.5, 1.5, m))
    penalties = np.where(is_hard, np.inf, np.exp(rng.normal(size=m)))
    sizes = rows.magnitudes(np.sqrt(prior))
    is_definite = (np.arange(m) >= m // 2) & (True if rows.offsets is None else rows.offsets >= 0)
    loss = Loss(divergence, relations, bounds, penalties, sizes, is_definite)
    return Formulation.of(divergence, prior, rows, loss)


def solved(form, solver, tol=TOL, most=400):
    """The first certified point of a solver: (M, multipliers, certificate)."""
    for _, iterate in zip(range(most), solver.iterates(form), strict=False):
        with np.errstate(all="ignore"):
            found = form.certify(iterate)
        if found.certificate.holds(tol):
            M = iterate.factor @ iterate.factor.T
            return M, form.multipliers(iterate.factor, found), found.certificate
    raise AssertionError(f"{type(solver).__name__} ended without a certificate")


def refuted(form, solver, most=400):
    """The first proof of infeasibility that a solver leads to."""
    for _, iterate in zip(range(most), solver.iterates(form), strict=False):
        if iterate.farkas is not None and (proof := form.farkas(iterate.farkas)) is not None:
            return proof
    raise AssertionError(f"{type(solver).__name__} ended without a proof")


def dense_rows(form):
    """The A_i, one after the other."""
    return [form.rows.adjoint(e) for e in np.eye(form.rows.n_rows)]


def assert_optimal(form, M, y, atol):
    """The conditions of optimality, each relative to its largest term."""
    loss, divergence = form.loss, form.divergence
    offsets = 0.0 if form.rows.offsets is None else form.rows.offsets
    p = form.rows.of_matrix(M) + offsets
    values, V = np.linalg.eigh(M)
    gradient = (V * divergence.gradient(np.maximum(values, 1e-300))) @ V.T
    Z = gradient - np.diag(divergence.gradient(form.prior)) + form.rows.adjoint(y)
    least = np.linalg.eigvalsh(Z)[0]
    scale = np.abs(gradient).max() + np.abs(form.rows.adjoint(y)).max()
    assert least >= -atol * scale
    assert abs(np.vdot(Z, M)) <= atol * scale * np.trace(M)
    assert (y * loss.relations <= 0).all()
    off = p - loss.bounds
    hard = loss.is_hard
    reference = np.abs(loss.bounds) + loss.references
    assert (loss.violations(p)[hard] <= atol).all()
    assert (
        np.abs(y * off)[hard & (loss.relations != 0)]
        <= atol * (np.abs(y) * reference + scale)[hard & (loss.relations != 0)]
    ).all()
    slopes = loss.at(p).slopes
    assert (
        np.abs(slopes - y)[~hard] <= atol * (1 + np.abs(y) + loss.at(p).curvatures * reference)[~hard]
    ).all()


def oracle(form):
    """The optimum of one of the three divergences by a conic solver: (objective, M)."""
    import cvxpy as cp

    name, loss, prior = type(form.divergence).__name__, form.loss, form.prior
    X = cp.Variable((form.order, form.order), PSD=True)
    if name == "LogDet":
        cost = cp.trace(np.diag(1 / prior) @ X) - cp.log_det(X) + np.log(prior).sum() - len(prior)
    elif name == "VonNeumann":
        cost = -cp.von_neumann_entr(X) - cp.trace(np.diag(np.log(prior) + 1) @ X) + prior.sum()
    else:
        cost = cp.sum_squares(X - np.diag(prior))
    offsets = np.zeros(form.rows.n_rows) if form.rows.offsets is None else form.rows.offsets
    conditions = []
    for i, A in enumerate(dense_rows(form)):
        b, gamma, s = loss.bounds[i], loss.penalties[i], loss.sizes[i]
        p, xi = cp.trace(A @ X) + offsets[i], b if loss.is_hard[i] else cp.Variable()
        conditions += [{-1: p <= xi, 0: p == xi, 1: p >= xi}[int(loss.relations[i])]]
        if loss.is_hard[i]:
            continue
        if not loss.is_positive[i]:
            cost += gamma / 2 * float(form.divergence.curvature(s)) * cp.square(xi - b)
        elif name == "LogDet":
            cost += gamma * (xi / b - cp.log(xi) + np.log(b) - 1)
        else:
            cost += gamma * cp.kl_div(xi, b)
    problem = cp.Problem(cp.Minimize(cost), conditions)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        problem.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    if problem.status != "optimal":
        pytest.skip(f"the oracle calls its own answer {problem.status}, so it is none")
    return problem.value, X.value
