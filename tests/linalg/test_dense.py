"""Factorisations without checks, against `numpy.linalg`."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from nearwise.linalg import dense

SHAPES = [(1, 1), (2, 2), (5, 5), (5, 3), (3, 5)]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.mark.parametrize("order", [1, 2, 6])
def test_symmetric_matrices_are_read_from_their_lower_triangles(order: int, rng: np.random.Generator) -> None:
    A = rng.normal(size=(order, order))
    A = A + A.T
    values, V = dense.spectrum(np.tril(A))
    assert_allclose((V * values) @ V.T, A, atol=1e-12)
    assert_allclose(V.T @ V, np.eye(order), atol=1e-12)
    assert_allclose(dense.eigenvalues(np.tril(A)), np.linalg.eigvalsh(A), atol=1e-12)
    definite = A @ A + np.eye(order)
    assert_allclose(dense.cholesky(np.tril(definite)), np.linalg.cholesky(definite), atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_singular_values_and_vectors(shape: tuple[int, int], rng: np.random.Generator) -> None:
    A = rng.normal(size=shape)
    U, s, Vt = dense.singular_spectrum(A)
    assert U.shape == (shape[0], shape[0])
    assert Vt.shape == (shape[1], shape[1])
    assert_allclose((U[:, : len(s)] * s) @ Vt[: len(s)], A, atol=1e-12)
    assert_allclose(dense.singular_values(A), np.linalg.svd(A, compute_uv=False), atol=1e-12)


@pytest.mark.parametrize("entry", [np.nan, np.inf])
@pytest.mark.parametrize(
    "factorise", [dense.spectrum, dense.eigenvalues, dense.singular_spectrum, dense.singular_values]
)
def test_what_is_not_finite_is_refused_without_a_word(factorise, entry, capfd) -> None:
    """LAPACK itself would print."""
    with pytest.raises(np.linalg.LinAlgError):
        factorise(np.full((3, 3), entry))
    assert capfd.readouterr() == ("", "")


def test_indefinite_matrices_have_no_cholesky_factor() -> None:
    with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
        dense.cholesky(np.diag([1.0, -1.0]))
