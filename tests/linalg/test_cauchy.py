"""The fast product of eigenvectors, against the same product in extended precision."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from nearwise.linalg.cauchy import cauchy_product, plan
from nearwise.linalg.eigenupdate import rank_one_update
from nearwise.linalg.loops import secular
from nearwise.linalg.loops.secular import Workspace

Array = NDArray[np.float64]

DISTRIBUTIONS = ("uniform", "normal", "geometric", "clusters", "two clusters", "outlier")


def poles(kind: str, n: int, rng: np.random.Generator) -> Array:
    if kind == "uniform":
        return np.sort(rng.uniform(size=n))
    if kind == "geometric":
        return np.sort(10.0 ** rng.uniform(-12, 0, n))
    if kind == "clusters":
        return np.sort(rng.choice(rng.normal(size=8), n) + 1e-9 * rng.normal(size=n))
    if kind == "two clusters":
        return np.sort(rng.choice([0.0, 1.0], n) + 1e-7 * rng.normal(size=n))
    theta = np.sort(rng.normal(size=n))
    if kind == "outlier":
        theta[-1] = 1e6
    return theta


def decomposition(kind: str, n: int, rho: float, seed: int = 0) -> tuple[Workspace, int]:
    rng = np.random.default_rng(seed)
    v = rng.normal(size=n) * 10.0 ** rng.uniform(-4, 0, n)
    ws = rank_one_update(poles(kind, n, rng), v / np.linalg.norm(v), rho).workspace
    return ws, int(ws.counts[secular.ACTIVE])


def extended(ws: Workspace, B: Array) -> NDArray[np.longdouble]:
    n, wide = len(B), np.longdouble
    pole = ws.pole[:n].astype(wide)
    differences = (pole - pole[ws.origin[:n], None]) - ws.offset[:n, None].astype(wide)
    return ws.weight[:n].astype(wide) / (differences * ws.norm[:n, None].astype(wide)) @ B.astype(wide)


def check(kind: str, n: int, rho: float, columns: int = 16, seed: int = 0) -> None:
    ws, n_active = decomposition(kind, n, rho, seed)
    B = np.random.default_rng(1).normal(size=(n_active, columns))
    B /= np.linalg.norm(B, 2)
    out = np.full_like(B, np.nan)
    cauchy_product(ws, B, out)
    error = np.asarray(out - extended(ws, B), dtype=float)
    assert np.linalg.norm(error, 2) <= 3e-13  # U has norm 1 and so has B


@pytest.mark.long
@pytest.mark.parametrize("kind", DISTRIBUTIONS)
@pytest.mark.parametrize("rho", [0.9, -0.9, 1e-6, -1e3])
def test_it_agrees_with_the_dense_product(kind: str, rho: float) -> None:
    check(kind, 700, rho)


@pytest.mark.parametrize("columns", [1, 512, 1279, 1281])
def test_any_number_of_columns(columns: int) -> None:
    check("normal", 160, 0.5, columns)


@pytest.mark.parametrize("threads", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
def test_any_number_of_threads(threads: int) -> None:
    """The same numbers to rounding, and BLAS has its threads back afterwards."""
    pools = ThreadpoolController().select(user_api="blas")
    with pools.limit(limits=threads):
        before = [pool.num_threads for pool in pools.lib_controllers]
        check("normal", 160, 0.5, 900)
        assert [pool.num_threads for pool in pools.lib_controllers] == before


@pytest.mark.long
@given(
    st.integers(1, 300),
    st.sampled_from(DISTRIBUTIONS),
    st.sampled_from([1.0, -1.0]),
    st.floats(-9, 4),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=60)
def test_any_size_and_strength(n: int, kind: str, sign: float, exponent: float, seed: int) -> None:
    check(kind, n, sign * 10.0**exponent, columns=4, seed=seed)


def test_poles_that_halve_their_distance_again_and_again() -> None:
    """Every interval loses one pole when it is halved: the deepest tree there is."""
    theta = -(0.5 ** np.arange(46.0))
    theta = np.sort(np.concatenate([theta, theta + 3.0, theta - 40.0]))
    ws = rank_one_update(theta, np.ones(len(theta)), 0.3).workspace
    n = int(ws.counts[secular.ACTIVE])
    B = np.eye(n)
    out = np.empty_like(B)
    cauchy_product(ws, B, out)
    assert_allclose(out, np.asarray(extended(ws, B), dtype=float), atol=1e-13)


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_the_work_grows_in_proportion_to_the_number_of_poles(kind: str) -> None:
    """Multiplications per row of the product and column of B: at most a fixed number, where dense takes n."""
    for n in (512, 2048):
        ws, n_active = decomposition(kind, n, 0.7)
        operations = plan(ws, n_active)
        assert sum(matrix.size for _, parts in operations for matrix, _ in parts) <= 450 * n_active
