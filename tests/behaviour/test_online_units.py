"""The unit of the data is no matter to an online learner, from 1e-150 to 1e150."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import nearwise as nw
from crossing import crossed
from nearwise import constraints as c

UPDATES = ("logdet", "exponentiated_gradient", "pola")
SCALES = (1e-150, 1e-80, 1e-61, 1e-60, 1e60, 1e61, 1e77, 1e80, 1e150)
CALLS = ("fit", "labels", "pairs", "triplets", "squared_distances", "constraints", "sparse")


def table(n: int = 60, d: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    y = np.arange(n) % 3
    return rng.normal(size=(n, d)) + 2.0 * np.eye(3, d)[y], y


def learned(call: str, scale: float, **settings: object) -> nw.OnlineLearner:
    """A learner that has got the same feedback on data of another unit."""
    X, y = table()
    X, learner = X * scale, nw.OnlineLearner(random_state=0, **settings)
    if call == "fit":
        return learner.fit(X, y, constraints=c.at_most([(0, 3), (1, 4)], 2.0 * scale**2))
    if call == "labels":
        return learner.partial_fit(X[:20], y[:20]).partial_fit(X[20:], y[20:])
    if call == "sparse":
        return learner.partial_fit(sparse.csr_array(X), y)
    if call == "pairs":
        answers = np.where(y[::2] == y[1::2], 1, -1)
        answers[::3] = 1
        return learner.partial_fit(X.reshape(-1, 2, 4), answers)
    if call == "triplets":
        return learner.partial_fit(X.reshape(-1, 3, 4))
    if call == "squared_distances":
        return learner.partial_fit(X.reshape(-1, 2, 4), squared_distances=3.0 * scale**2)
    side = c.at_most([(0, 3), (1, 4)], 2.0 * scale**2) + c.closer([(0, 3, 4), (1, 2, 5)], margin=scale**2)
    return learner.partial_fit(X, constraints=side + c.similar([(5, 8)]))


@crossed(update=UPDATES, scale=SCALES, call=CALLS)
def test_the_unit_of_the_data_is_no_matter(update: str, scale: float, call: str) -> None:
    X, _ = table()
    expected, found = learned(call, 1.0, update=update), learned(call, scale, update=update)
    assert_allclose(found.get_mahalanobis_matrix(), expected.get_mahalanobis_matrix(), rtol=1e-9, atol=1e-12)
    assert_allclose(found.distances(scale * X) / scale, expected.distances(X), rtol=1e-8, atol=1e-7)
    assert found.n_violated_ == expected.n_violated_
    if update == "pola" and call not in ("triplets", "squared_distances"):  # which need no threshold
        assert_allclose(found.pola_threshold_, expected.pola_threshold_ * scale**2, rtol=1e-9)


@crossed(update=UPDATES, scale=(1e-150, 1e-80, 1e80, 1e150))
def test_bounds_and_subspaces_have_the_unit_of_the_data(update: str, scale: float) -> None:
    found = [
        learned("fit", unit, update=update, bounds=(0.5 * unit**2, 8.0 * unit**2), rank=2, basis="svd")
        for unit in (1.0, scale)
    ]
    assert_allclose(*(learner.get_mahalanobis_matrix() for learner in found), rtol=1e-9, atol=1e-12)


@crossed(update=UPDATES, scale=(2.0**-300, 1.0, 2.0**300))
def test_it_does_not_matter_how_a_stream_is_cut(update: str, scale: float) -> None:
    X, y = table()
    X = X * np.geomspace(1.0, 30.0, len(X))[:, None] * scale
    whole = nw.OnlineLearner(update=update).partial_fit(X, y)
    cut = nw.OnlineLearner(update=update)
    for low in range(0, len(X), 7):
        cut.partial_fit(X[low : low + 7], y[low : low + 7])
    assert_array_equal(cut.get_mahalanobis_matrix(), whole.get_mahalanobis_matrix())
    plain = nw.OnlineLearner(update=update).partial_fit(X / scale, y)
    assert_array_equal(plain.get_mahalanobis_matrix(), whole.get_mahalanobis_matrix())


@crossed(update=UPDATES, scale=(1e-80, 1.0, 1e80))
def test_a_saved_stream_goes_on_with_the_same_bits(update: str, scale: float, tmp_path) -> None:
    X, y = table()
    learner = nw.OnlineLearner(update=update).partial_fit(scale * X[:30], y[:30])
    nw.save(learner, tmp_path / "half")
    loaded = nw.load(tmp_path / "half")
    matrices = [m.partial_fit(scale * X[30:], y[30:]).get_mahalanobis_matrix() for m in (learner, loaded)]
    assert_array_equal(*matrices)


@pytest.mark.parametrize("update", UPDATES)
def test_rows_of_zeros_choose_no_unit(update: str) -> None:
    X, y = table()
    learner = nw.OnlineLearner(update=update).partial_fit(np.zeros((2, 4)), [0, 1])
    plain = nw.OnlineLearner(update=update).partial_fit(np.zeros((2, 4)), [0, 1])
    found = learner.partial_fit(1e100 * X, y).get_mahalanobis_matrix()
    assert_allclose(found, plain.partial_fit(X, y).get_mahalanobis_matrix(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("update", UPDATES)
def test_a_refused_batch_chooses_no_unit(update: str) -> None:
    X, y = table()
    learner = nw.OnlineLearner(update=update)
    with pytest.raises(ValueError, match="row 2"):
        learner.partial_fit(1e100 * X[:8].reshape(4, 2, 4), [1, -1, 5, 1])
    plain = nw.OnlineLearner(update=update).partial_fit(X, y)
    assert_array_equal(learner.partial_fit(X, y).get_mahalanobis_matrix(), plain.get_mahalanobis_matrix())


@pytest.mark.parametrize("update", ["logdet", "pola"])
def test_a_vector_that_is_far_too_large_is_named(update: str) -> None:
    X, _ = table()
    X[14] = 1e200
    with pytest.raises(ValueError, match="row 7"):
        nw.OnlineLearner(update=update).partial_fit(X.reshape(-1, 2, 4), np.resize([1, -1], 30))
