"""Nearest correlation matrices: what cannot be a matrix of correlations, and contradictory fixed entries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

import nearwise as nw
from crossing import crossed


def frame(A: Any) -> Any:
    pandas = pytest.importorskip("pandas")
    names = [f"v{k}" for k in range(len(A))]
    return pandas.DataFrame(A, index=names, columns=names)


def covariance(n: int) -> np.ndarray:
    return np.cov(np.random.default_rng(0).normal(size=(n, 5 * n)) * np.linspace(1, 3, n)[:, None])


def correlation(n: int) -> np.ndarray:
    A = np.corrcoef(np.random.default_rng(0).normal(size=(n, 3 * n)))
    np.fill_diagonal(A, 1.0)
    return A


CONTAINERS = {
    "array": np.asarray,
    "float32": lambda A: np.asarray(A, np.float32),
    "list": lambda A: A.tolist(),
    "frame": frame,
    "sparse": sparse.csr_array,
}
WAYS: dict[str, Any] = {
    "plain": lambda n: {},
    "rank": lambda n: {"rank": 2},
    "weights": lambda n: {"weights": np.linspace(1, 2, n)},
    "weights of entries": lambda n: {"weights": 1.0 + np.add.outer(np.arange(n), np.arange(n)) % 3},
}
BY_NUMBER = {name: make for name, make in CONTAINERS.items() if name != "frame"}


@crossed(n=[3, 33], container=CONTAINERS, way=WAYS)
def test_a_covariance_matrix_is_refused_and_sent_to_its_function(n: int, container: Any, way: Any) -> None:
    with pytest.raises(ValueError, match="nearest_covariance"):
        nw.nearest_correlation(container(covariance(n)), **way(n))


@pytest.mark.parametrize("value", [0.0, 0.999, 1.001, 2.0, -1.0])
def test_one_wrong_entry_of_the_diagonal_is_named(value: float) -> None:
    A = correlation(5)
    A[3, 3] = value
    with pytest.raises(ValueError, match=rf"A\[3, 3\] is {value:g}\b.*1 of 5") as refused:
        nw.nearest_correlation(A)
    assert "nearest_covariance" in str(refused.value)
    with pytest.raises(ValueError, match="'v3'"):
        nw.nearest_correlation(frame(A))


@pytest.mark.parametrize("of_the_data", ["NaN", "weights"])
def test_a_diagonal_of_which_nothing_is_said_is_taken(of_the_data: str) -> None:
    A, W = correlation(5), np.ones((5, 5))
    expected = nw.nearest_correlation(A).matrix
    A[2, 2], W[2, 2] = (np.nan, 1.0) if of_the_data == "NaN" else (7.0, 0.0)
    assert nw.nearest_correlation(A, weights=W).matrix == pytest.approx(expected, abs=1e-6)


@crossed(
    dtype={"float64": np.float64, "float32": np.float32, "float16": np.float16},
    container={"array": np.asarray, "frame": frame},
    rank=[None, 2],
)
def test_a_diagonal_that_is_one_up_to_rounding_is_taken(dtype: Any, container: Any, rank: int | None) -> None:
    A = correlation(6)
    A.flat[::7] += np.array([1, -1, 0, 1, -1, 0]) * max(4 * np.finfo(dtype).eps, 1e-6)
    found = nw.nearest_correlation(container(A.astype(dtype)), rank=rank)
    assert (np.diag(found.array) == 1.0).all()


@crossed(container=BY_NUMBER, way=WAYS)
def test_entries_above_one_warn_with_their_number(container: Any, way: Any) -> None:
    A = correlation(6)
    for (i, j), value in {(0, 1): 1.2, (2, 5): -3.0, (3, 4): 1.5}.items():
        A[i, j] = A[j, i] = value
    with pytest.warns(UserWarning, match=r"^3 entries.*A\[2, 5\] = -3") as seen:
        nw.nearest_correlation(container(A), **way(6))
    assert len(seen) == 1
    assert seen[0].filename == __file__


def test_entries_above_one_that_do_not_count_say_nothing() -> None:
    A, W = correlation(5), np.ones((5, 5))
    A[0, 1] = A[1, 0] = 4.0
    W[0, 1] = W[1, 0] = 0.0
    assert nw.nearest_correlation(A, weights=W).status is nw.Status.SOLVED
    A[0, 1] = A[1, 0] = 1.0 + 1e-9
    assert nw.nearest_correlation(A).status is nw.Status.SOLVED


@pytest.mark.parametrize("rank", [None, 2])
def test_a_factor_of_another_diagonal_warns(rank: int | None) -> None:
    U = np.random.default_rng(0).normal(size=(7, 3))
    with pytest.warns(UserWarning, match=r"7 of 7 .*divide row i of U"):
        nw.nearest_correlation((U, np.ones(3)), rank=rank)
    U /= np.linalg.norm(U, axis=1, keepdims=True)
    assert nw.nearest_correlation((U, np.ones(3)), rank=rank).certificate.gap <= 1


def test_other_divergences_and_covariances_take_any_diagonal() -> None:
    S = covariance(5)
    for name in ("logdet", "vonneumann"):
        assert nw.nearest_correlation(S, name).status is nw.Status.SOLVED
    for table in (S, frame(S), sparse.csr_array(S)):
        assert nw.nearest_covariance(table).array == pytest.approx(S, rel=1e-9)
        assert np.diag(nw.nearest_covariance(table, variances=np.ones(5)).array).tolist() == [1] * 5


def contradicting(n: int, share: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three correlations that no three variables have, among others that are fixed too and agree."""
    rng = np.random.default_rng(seed)
    A, fixed = correlation(n), np.triu(rng.random((n, n)) < share, 1)
    for (i, j), value in {(0, 1): 0.9, (0, 2): 0.9, (1, 2): -0.9}.items():
        A[i, j] = A[j, i] = value
        fixed[i, j] = True
    return A, fixed | fixed.T


def warned_of(call: Any) -> tuple[Any, str]:
    with pytest.warns(UserWarning, match="fixed") as seen:
        found = call()
    assert found.status is nw.Status.INFEASIBLE
    assert seen[-1].filename == __file__
    text = str(seen[-1].message)
    assert text == found.message
    return found, text


@crossed(
    n=[3, 6, 40],
    share=[0.0, 0.3],
    way={
        "plain": {},
        "min_eigenvalue": {"min_eigenvalue": 0.01},
        "weights of entries": {"weights": "entries"},
    },
)
def test_a_small_contradiction_of_fixed_entries_is_named(n: int, share: float, way: dict[str, Any]) -> None:
    A, fixed = contradicting(n, share)
    if "weights" in way:
        way = {"weights": WAYS["weights of entries"](n)["weights"]}
    _, text = warned_of(lambda: nw.nearest_correlation(A, fixed=fixed, **way))
    assert all(name in text for name in ("(0, 1) = 0.9", "(0, 2) = 0.9", "(1, 2) = -0.9"))
    assert text.count(" = ") == 3


def test_a_contradiction_is_named_by_the_labels_of_a_frame_and_for_covariances() -> None:
    A, fixed = contradicting(5, 0.0)
    for call in (
        lambda: nw.nearest_correlation(frame(A), fixed=fixed),
        lambda: nw.nearest_covariance(frame(4.0 * A), fixed=fixed),
    ):
        _, text = warned_of(call)
        assert "('v1', 'v2') = -0.9" in text


def test_one_fixed_entry_above_one_is_named_alone() -> None:
    A = correlation(4)
    A[1, 3] = A[3, 1] = 1.5
    fixed = np.zeros((4, 4), bool)
    fixed[[1, 3, 0, 2], [3, 1, 2, 0]] = True
    with pytest.warns(UserWarning, match=r"^1 entry.*A\[1, 3\] = 1.5"):
        _, text = warned_of(lambda: nw.nearest_correlation(A, fixed=fixed))
    assert "The entry (1, 3) = 1.5" in text
    assert text.count(" = ") == 1
    assert "each other" not in text


@pytest.mark.parametrize("excess", [1e-3, 1e-6, 1e-8])
def test_entries_that_contradict_each_other_by_little_are_named(excess: float) -> None:
    A = np.array([[1, 0.6, 0.6], [0.6, 1, -0.28 - excess], [0.6, -0.28 - excess, 1]])
    _, text = warned_of(lambda: nw.nearest_correlation(A, fixed=np.ones((3, 3))))
    assert text.count(" = ") == 3


def test_fixed_entries_that_fit_say_nothing() -> None:
    A = correlation(10)
    assert nw.nearest_correlation(A, fixed=np.ones((10, 10))).status is nw.Status.SOLVED


FIXED = np.zeros((4, 4), bool)
FIXED[0, 1] = FIXED[1, 0] = True


@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="a rank with fixed entries or weights of entries is refused, and no page says so",
)
@pytest.mark.parametrize(
    "settings",
    [{"fixed": FIXED}, {"weights": 1.0 + np.add.outer(np.arange(4), np.arange(4)) % 3}],
    ids=["fixed", "weights"],
)
def test_a_rank_goes_together_with_fixed_entries_and_weights_or_the_docstring_says_not(
    settings: dict[str, Any],
) -> None:
    A = correlation(4)
    A[0, 2] = A[2, 0] = -0.95
    try:
        found = nw.nearest_correlation(A, rank=3, **settings)
    except ValueError:
        about_rank = (nw.nearest_correlation.__doc__ or "").partition("    rank : ")[2].partition(" : ")[0]
        assert {"fixed", "weights"} <= {word.strip("`,.;:()") for word in about_rank.split()[:-1]}
        return
    assert found.factor.shape == (4, 3)
    if "fixed" in settings:
        assert found.matrix[0, 1] == pytest.approx(A[0, 1], abs=1e-6)
    W = settings.get("weights", np.ones((4, 4)))
    assert found.certificate.primal == pytest.approx(np.sum(W * (found.matrix - A) ** 2), rel=1e-6)


@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="a list of index pairs as `fixed` is refused by its shape alone",
)
def test_a_list_of_index_pairs_as_fixed_says_what_a_pattern_is() -> None:
    with pytest.raises(ValueError, match=r"4.*4") as refused:
        nw.nearest_correlation(correlation(4), fixed=[(0, 1)])
    words = str(refused.value).lower()
    assert "pattern" in words
    assert "true" in words or "bool" in words
