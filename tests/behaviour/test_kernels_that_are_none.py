"""Distance matrices as kernels, and kernels that are not positive semidefinite, are refused."""

import re

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

import nearwise as nw
from crossing import crossed

KERNEL_LEARNERS = {"metric": nw.KernelLearner, "map": nw.KernelReducer}
LEARNERS = KERNEL_LEARNERS | {
    "fixed rank": nw.FixedRankLearner,
    "regressor": nw.FixedRankRegressor,
}


def distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.sqrt(np.sum((a - b) ** 2)))


DISTANCES = {
    "distance": distance,
    "squared distance": lambda a, b: distance(a, b) ** 2,
    "negative squared distance": lambda a, b: -(distance(a, b) ** 2),
}


def table(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    y = np.arange(n) % 3
    return rng.normal(size=(n, 4)) + 2.0 * np.eye(3, 4)[y], y


def matrix(kernel, X: np.ndarray) -> np.ndarray:
    return np.array([[kernel(a, b) for b in X] for a in X])


@crossed(learner=LEARNERS, function=DISTANCES, n=(20, 130), given=("table", "function"))
def test_a_matrix_or_a_function_of_distances_is_told_by_its_diagonal(
    learner, function, n: int, given
) -> None:
    X, y = table(n)
    kernel, X = (function, X) if given == "function" else ("precomputed", matrix(function, X))
    with pytest.raises(ValueError, match=r"diagonal is 0.*distance"):
        learner(kernel=kernel).fit(X, y.astype(float) if learner is nw.FixedRankRegressor else y)


@pytest.mark.parametrize("n", [20, 130])
def test_a_diagonal_of_rounding_is_as_none(n: int) -> None:
    X, y = table(n)
    D = matrix(distance, X) + 1e-9 * np.eye(n)
    with pytest.raises(ValueError, match="diagonal"):
        nw.KernelLearner("precomputed").fit(D, y)


def named_eigenvalue(refusal: pytest.ExceptionInfo[ValueError]) -> float:
    found = re.search(r"eigenvalue (-\S+)", str(refusal.value))
    assert found, str(refusal.value)
    return float(found[1])


@crossed(
    learner={"metric": nw.KernelLearner, "map": nw.KernelReducer}, n=(20, 130), given=("table", "function")
)
def test_an_indefinite_kernel_is_refused_by_its_smallest_eigenvalue(learner, n: int, given) -> None:
    X, y = table(n)

    def bent(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.tanh(2.0 * a @ b + 1.0))

    K = matrix(bent, X)
    with pytest.raises(ValueError, match="eigenvalue") as refusal:
        learner(kernel="precomputed" if given == "table" else bent).fit(K if given == "table" else X, y)
    smallest = np.linalg.eigvalsh(K)[0]
    assert smallest < -0.1
    assert smallest * (1 + 1e-4) <= named_eigenvalue(refusal) < -1e-3


@crossed(basis=("kmeans", "spectral", "class_means", "random", "given"), n=(60, 130), d=(4, 18))
def test_an_indefinite_function_is_refused_by_the_eigenvalue_of_all_objects(basis: str, n: int, d) -> None:
    """Sums over many objects may have no negative eigenvalue where the objects have."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n, d)), np.arange(n) % 3

    def bent(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.tanh(2.0 * a @ b + 1.0))

    given = np.eye(n)[:, :5] if basis == "given" else basis
    rank = None if basis in ("class_means", "given") else 8
    with pytest.raises(ValueError, match="eigenvalue") as refusal:
        nw.KernelLearner(bent, penalty=1.0, basis=given, rank=rank, random_state=0).fit(X, y)
    assert named_eigenvalue(refusal) == pytest.approx(np.linalg.eigvalsh(matrix(bent, X))[0], rel=1e-4)


@pytest.mark.parametrize(
    ("gamma", "seed"), [(1e-10, 32), (1e-10, 69), (1e-11, 62), (3e-12, 103), (1e-12, 32), (1e-12, 105)]
)
def test_a_kernel_that_is_nearly_the_same_for_all_objects_is_taken(gamma: float, seed: int) -> None:
    """What it leaves is rounding. A column far wider than all others makes such a gamma."""
    data = load_breast_cancer().data
    data = (data - data.mean(axis=0)) / data.std(axis=0)
    X = data[np.random.default_rng(seed).permutation(len(data))[:150]]
    side = nw.constraints.similar([(0, 1)]) + nw.constraints.dissimilar([(2, 3)])
    for basis, rank in (("leverage", 105), ("principal", 35)):
        learner = nw.KernelLearner(gamma=gamma, basis=basis, rank=rank, penalty=1.0, random_state=seed)
        assert learner.fit(X, constraints=side).rank_ > 0


@crossed(basis=("full", "principal", "leverage", "kmeans"), n=(20, 130))
def test_a_kernel_of_differences_only_is_refused_in_every_basis(basis: str, n: int) -> None:
    """Less the mean it is positive semidefinite, but no kernel."""
    X, y = table(n)
    K = 5.0 - np.square(X[:, None] - X).sum(axis=2)
    with pytest.raises(ValueError, match="eigenvalue"):
        nw.KernelLearner("precomputed", basis=basis, rank=None if basis == "full" else 6).fit(K, y)


@crossed(learner=KERNEL_LEARNERS, n=(20, 110), kernel=("sum", "function", "table"))
def test_a_kernel_by_which_all_squared_distances_are_negative_is_refused(learner, n: int, kernel) -> None:
    """Distances beside a kernel: the diagonal is not 0, and from the first object no direction is left."""
    X, y = table(n)

    def both(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.exp(-distance(a, b))) + 3.0 * distance(a, b)

    K = matrix(both, X)
    given = {"sum": ["rbf", both], "function": both, "table": "precomputed"}[kernel]
    with pytest.raises(ValueError, match="eigenvalue") as refusal:
        learner(kernel=given).fit(K if kernel == "table" else X, y)
    if kernel != "sum":
        assert named_eigenvalue(refusal) == pytest.approx(np.linalg.eigvalsh(K)[0], rel=1e-4)


@pytest.mark.parametrize("basis", ["subset", "class_means", "given"])
def test_what_a_part_of_a_kernel_says_of_its_diagonal_is_a_least(basis: str) -> None:
    """Some objects, or sums of them, are no more indefinite than all are."""
    X, y = table(60)
    K = matrix(distance, X) + np.eye(60)
    given = 10.0 * np.eye(60)[:, :8] if basis == "given" else basis
    with pytest.raises(ValueError, match="add at least") as refusal:
        nw.KernelLearner("precomputed", basis=given, rank=8 if basis == "subset" else None).fit(K, y)
    assert np.linalg.eigvalsh(K)[0] * (1 + 1e-5) <= named_eigenvalue(refusal) < 0  # six digits are named
