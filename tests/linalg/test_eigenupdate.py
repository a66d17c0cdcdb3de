"""Rank-one updates of eigendecompositions, against LAPACK, exact arithmetic and dense eigendecompositions."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy.linalg import cython_lapack

from nearwise.linalg import eigenupdate
from nearwise.linalg.eigenupdate import RankOneUpdate, rank_one_update
from nearwise.linalg.loops import secular
from nearwise.linalg.loops.roots import inner_root, last_root

Array = NDArray[np.float64]
EPS = np.finfo(float).eps

# --- roots -------------------------------------------------------------------------------------------------


def poles(kind: str, n: int = 24) -> tuple[Array, Array]:
    """Poles and unit weights of problems that need no deflation."""
    rng = np.random.default_rng(7)
    d, z = np.sort(rng.normal(size=n)), rng.normal(size=n)
    if kind == "geometric":
        d = np.sort(10.0 ** rng.uniform(-12, 0, n))
    elif kind == "clusters":
        d = np.sort(np.repeat([-1.0, 0.0, 2.0], n // 3) + 1e-9 * rng.normal(size=n))
    elif kind == "graded weights":
        z *= 10.0 ** rng.uniform(-7, 0, n)
    elif kind == "far from zero":
        d += 1e6
    return d, z / np.linalg.norm(z)


KINDS = ("random", "geometric", "clusters", "graded weights", "far from zero")


def our_differences(d: Array, z: Array, rho: float) -> Array:
    """d_k - mu_j in row j."""
    gap, rows = np.empty_like(d), []
    for j in range(len(d)):
        if j < len(d) - 1:
            origin, offset, _ = inner_root(d, z * z, 1 / rho, j, gap)
        else:
            origin, offset, _ = last_root(d, z * z, 1 / rho, gap)
        rows.append((d - d[origin]) - offset)
    return np.array(rows)


def lapack_differences(d: Array, z: Array, rho: float) -> Array:
    """The same by dlaed4, which returns them as DELTA."""
    dlaed4, n = lapack_function("dlaed4"), len(d)
    pointer = ctypes.POINTER(ctypes.c_double)
    out = np.empty((n, n))
    for j in range(n):
        root, info = ctypes.c_double(), ctypes.c_int()
        dlaed4(
            ctypes.byref(ctypes.c_int(n)),
            ctypes.byref(ctypes.c_int(j + 1)),
            d.ctypes.data_as(pointer),
            z.ctypes.data_as(pointer),
            out[j].ctypes.data_as(pointer),
            ctypes.byref(ctypes.c_double(rho)),
            ctypes.byref(root),
            ctypes.byref(info),
        )
        assert info.value == 0
    return out


def lapack_function(name: str) -> Callable[..., None]:
    capsule, api = cython_lapack.__pyx_capi__[name], ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 8)(address)


def exact_differences(d: Array, z: Array, rho: float) -> Array:
    """The same by bisection with 60 digits, rounded at the end."""
    out = np.empty((len(d), len(d)))
    with localcontext() as context:
        context.prec = 60
        pole, square = [Decimal(x) for x in d], [Decimal(x) ** 2 for x in z]
        for j in range(len(d)):
            low = pole[j]
            high = pole[j + 1] if j + 1 < len(d) else pole[j] + Decimal(rho) * sum(square)
            for _ in range(130):
                middle = (low + high) / 2
                f = 1 / Decimal(rho) + sum(s / (p - middle) for s, p in zip(square, pole, strict=True))
                low, high = (middle, high) if f < 0 else (low, middle)
            out[j] = [float(p - low) for p in pole]
    return out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rho", [1.3, 1e-4])
def test_differences_of_roots_and_poles_are_as_exact_as_those_of_lapack(kind: str, rho: float) -> None:
    d, z = poles(kind)
    exact = exact_differences(d, z, rho)
    ours = np.abs(our_differences(d, z, rho) / exact - 1).max(axis=1)
    lapack = np.abs(lapack_differences(d, z, rho) / exact - 1).max(axis=1)
    assert np.all(ours <= 4 * lapack + 16 * EPS)


@pytest.mark.parametrize("kind", KINDS)
def test_roots_interlace(kind: str) -> None:
    d, z = poles(kind)
    differences = our_differences(d, z, 0.8)
    assert np.all(differences[np.tril_indices(len(d))] < 0)
    assert np.all(differences[np.triu_indices(len(d), 1)] > 0)


def test_a_single_pole_moves_by_the_whole_update() -> None:
    assert last_root(np.array([2.0]), np.array([0.25]), 1 / 3.0, np.empty(1)) == (0, 0.75, 0.25 / 0.75**2)


# --- eigenvectors ------------------------------------------------------------------------------------------


def check(theta: Array, v: Array, rho: float) -> RankOneUpdate:
    """The update is an eigendecomposition to rounding, and all its parts agree."""
    r = len(theta)
    update = rank_one_update(theta, v, rho)
    matrix = np.diag(theta) + rho * np.outer(v, v)
    scale = np.abs(theta).max() + abs(rho) * float(v @ v)
    new = update.applied(np.eye(r))  # rows are the eigenvectors
    tol = 50 * r * EPS
    assert np.all(np.diff(update.values) >= 0)
    assert_allclose(new @ new.T, np.eye(r), atol=tol)
    assert np.abs(matrix @ new.T - new.T * update.values).max() <= tol * scale
    assert np.abs(update.values - np.linalg.eigvalsh(matrix)).max() <= tol * scale
    x = np.random.default_rng(0).normal(size=r)
    assert_allclose(update.transposed(x), new @ x, atol=tol * np.linalg.norm(x))
    ws = update.workspace
    shares = ws.share[ws.order]
    assert_allclose(shares, (new @ v) ** 2, atol=tol * max(float(v @ v), 1e-300))
    return update


def active(update: RankOneUpdate) -> int:
    return int(update.workspace.counts[secular.ACTIVE])


@pytest.mark.parametrize("rho", [1.7, -1.7, 1e-9, -1e6, 0.0])
@pytest.mark.parametrize("kind", KINDS)
def test_updates_are_eigendecompositions(kind: str, rho: float) -> None:
    theta, v = poles(kind, 60)
    check(theta, v, rho)


@pytest.mark.parametrize("rho", [0.9, -0.9])
def test_equal_eigenvalues_are_turned_until_one_moves(rho: float) -> None:
    update = check(np.full(30, 2.5), np.random.default_rng(1).normal(size=30), rho)
    assert active(update) == 1
    assert np.sum(np.abs(update.values - 2.5) < 1e-12) == 29


@pytest.mark.parametrize("rho", [0.9, -0.9])
def test_close_eigenvalues_are_turned(rho: float) -> None:
    rng = np.random.default_rng(2)
    theta = np.sort(np.repeat(rng.normal(size=6), 5) + 1e-16 * rng.normal(size=30))
    assert active(check(theta, rng.normal(size=30), rho)) == 6


@pytest.mark.parametrize("rho", [0.9, -0.9])
def test_components_that_vanish_leave_their_eigenvalues_alone(rho: float) -> None:
    rng = np.random.default_rng(3)
    theta, v = np.sort(rng.normal(size=20)), rng.normal(size=20)
    v[[0, 7, 19]] = 0.0
    v[[3, 8]] = 1e-17
    update = check(theta, v, rho)
    assert active(update) == 15
    assert set(theta[[0, 3, 7, 8, 19]]) <= set(update.values)


@pytest.mark.parametrize(("v", "rho"), [(np.zeros(5), 1.0), (np.ones(5), 0.0)])
def test_nothing_moves_without_an_update(v: Array, rho: float) -> None:
    theta = np.arange(5.0)
    update = check(theta, v, rho)
    assert_allclose(update.values, theta, rtol=0)
    assert_allclose(update.applied(np.eye(5)), np.eye(5), rtol=0)


@pytest.mark.parametrize("scale", [2.0**-450, 2.0**450])
@pytest.mark.parametrize("vector_scale", [2.0**-250, 1.0, 2.0**250])
@pytest.mark.parametrize("rho", [1.3, -1e-3])
def test_the_unit_does_not_matter(scale: float, vector_scale: float, rho: float) -> None:
    theta, v = poles("clusters")
    plain = check(theta, v, rho)
    scaled = rank_one_update(scale * theta, vector_scale * v, rho * (scale / vector_scale**2))
    assert_allclose(scaled.values, scale * plain.values, rtol=0)
    assert_allclose(scaled.applied(np.eye(len(v))), plain.applied(np.eye(len(v))), rtol=0)
    assert_allclose(scaled.workspace.share, vector_scale**2 * plain.workspace.share, rtol=0)


close = st.sampled_from([0.0, 1e-17, 1e-15, 1e-12, 1e-8, 1e-3, 1.0])


@pytest.mark.long
@given(
    st.lists(close, min_size=1, max_size=12),
    st.lists(close, min_size=12, max_size=12),
    st.sampled_from([1.0, -1.0]),
    st.sampled_from([1e-12, 1e-3, 1.0, 1e4]),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=150)
def test_gaps_and_components_of_all_sizes(
    gaps: list[float], sizes: list[float], sign: float, strength: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    theta = rng.normal() + np.cumsum(gaps)
    check(theta, np.array(sizes[: len(gaps)]) * rng.normal(size=len(gaps)), sign * strength)


def test_many_updates_keep_a_decomposition() -> None:
    rng = np.random.default_rng(4)
    r = 25
    theta, vectors, matrix = np.zeros(r), np.eye(r), np.zeros((r, r))
    for _ in range(200):
        x, rho = rng.normal(size=r), float(rng.normal())
        update = rank_one_update(theta, vectors @ x, rho)
        theta, vectors = update.values, update.applied(vectors)
        matrix += rho * np.outer(x, x)
    assert_allclose(vectors @ vectors.T, np.eye(r), atol=1e-13)
    assert_allclose((vectors.T * theta) @ vectors, matrix, atol=1e-13 * np.linalg.norm(matrix, 2))


def test_the_fast_product_gives_the_same_eigenvectors(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    theta, v = np.sort(rng.normal(size=150)), rng.normal(size=150)
    v[::9] = 0.0  # deflation too
    update = rank_one_update(theta, v, -0.5)
    start = np.linalg.qr(rng.normal(size=(150, 150)))[0]
    dense = update.applied(start)
    monkeypatch.setattr(eigenupdate, "FAST_FROM", 2)
    assert_allclose(update.applied(start), dense, atol=1e-13)


def test_new_vectors_are_written_where_the_caller_wants_them() -> None:
    rng = np.random.default_rng(6)
    update = rank_one_update(np.repeat([0.0, 1.0, 2.0], 4), rng.normal(size=12), 0.5)
    start = np.linalg.qr(rng.normal(size=(12, 12)))[0]
    kept, out = start.copy(), np.empty((12, 12))
    expected = update.applied(start)
    assert_allclose(start, kept, rtol=0)
    assert update.applied(start, out) is out
    assert_allclose(out, expected, rtol=0)
