"""Few eigenpairs of a large matrix, and what is noticed where one was missed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import nearwise as nw
from nearwise.linalg import spectrum

large_entries = pytest.mark.filterwarnings("ignore:.* larger than 1 in size:UserWarning")


def assert_is_correlation(X: np.ndarray) -> None:
    assert np.array_equal(X, X.T)
    assert (np.diag(X) == 1.0).all()
    assert np.linalg.eigvalsh(X)[0] >= -1e-13 * len(X)


def few_negative(n: int) -> np.ndarray:
    """Correlations of which three contradict each other strongly: three negative eigenvalues, well apart."""
    rng = np.random.default_rng(0)
    V = np.linalg.qr(rng.normal(size=(n, 8)))[0]
    A = 0.5 * np.eye(n) + (V * [9.0, 7.0, 5.0, 3.0, 2.0, -4.0, -3.0, -2.0]) @ V.T
    np.fill_diagonal(A, 1.0)
    return A


def few_positive(n: int) -> np.ndarray:
    loadings = np.random.default_rng(0).normal(size=(n, 3))
    loadings /= np.linalg.norm(loadings, axis=1, keepdims=True)
    A = 1.5 * loadings @ loadings.T
    np.fill_diagonal(A, 1.0)
    return A


@large_entries
@pytest.mark.long
@pytest.mark.parametrize(("matrix", "by_positive"), [(few_negative, False), (few_positive, True)])
def test_the_smaller_side_of_a_large_spectrum_gives_the_same(
    matrix: Callable[[int], np.ndarray], by_positive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    A = matrix(520)
    found = spectrum.smaller_side(A, None)
    assert found.is_partial
    assert found.by_positive is by_positive
    values = np.linalg.eigvalsh(A)
    assert sorted(found.sizes) == pytest.approx(
        sorted(values[values > 0] if by_positive else -values[values < 0])
    )
    partial = nw.nearest_correlation(A, tol=1e-10)
    monkeypatch.setattr(spectrum, "_LARGE", 1000)
    whole = nw.nearest_correlation(A, tol=1e-10)
    assert partial.status is whole.status is nw.Status.SOLVED
    assert_is_correlation(partial.matrix)
    assert partial.matrix == pytest.approx(whole.matrix, abs=1e-8)
    assert partial.certificate.dual == pytest.approx(whole.certificate.dual, rel=1e-9)


@pytest.mark.long
def test_an_eigenvalue_that_was_missed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    A = few_negative(520)
    expected = nw.nearest_correlation(A)
    find = spectrum.negative_eigenpairs

    def forgetful(Z: np.ndarray, start: np.ndarray | None) -> tuple[np.ndarray, np.ndarray] | None:
        found = find(Z, start)
        return found if found is None else (found[0][:-1], found[1][:, :-1])

    monkeypatch.setattr(spectrum, "negative_eigenpairs", forgetful)
    found = nw.nearest_correlation(A)
    assert found.status is nw.Status.SOLVED
    assert found.matrix == pytest.approx(expected.matrix, abs=1e-6)
    assert_is_correlation(found.matrix)


@pytest.mark.parametrize(("shift", "expected"), [(0.0, True), (1e-6, False)])
def test_a_matrix_is_semidefinite_up_to_rounding(shift: float, expected: bool) -> None:
    B = np.random.default_rng(0).normal(size=(50, 30))
    X = B @ B.T - shift * np.eye(50)
    before = X.copy()
    assert spectrum.is_semidefinite(X) is expected
    assert np.array_equal(X, before)
