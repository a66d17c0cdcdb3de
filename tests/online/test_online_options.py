"""Options of online updates by their definitions, and numbers that leave the range of floats."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from nearwise.online import ExponentiatedGradient, LogDetOnline, OnlinePCA, Pola

U = np.diag([0.4, 0.3, 0.2, 0.1])
X = np.random.default_rng(0).normal(size=(30, 4))
Y = np.einsum("ti,ij,tj->t", X, U, X) + 0.1 * np.random.default_rng(1).normal(size=30)
LOSS = float(np.square(np.einsum("ti,ij,tj->t", X, U, X) - Y).sum())
LIMIT = 2.0 / float(np.square(X).sum(axis=1).max()) ** 2  # the largest rate that lemma 3.2 covers


def followed(rate: float | None, keep: bool) -> ExponentiatedGradient:
    learner = ExponentiatedGradient(4, rate, keep_examples=keep)
    learner.update_many(X, Y)
    return learner


@pytest.mark.parametrize("share", [0.3, 0.9, 1 - 1e-15, 1.0, 1 + 1e-15, 1.1])
def test_a_comparators_loss_that_is_given_is_as_good_as_examples_that_are_kept(share: float) -> None:
    """At the limit, where rounding decides on which side it is, there is no bound unless the loss is zero."""
    without = followed(share * LIMIT, keep=False)
    bound = without.loss_bound(U, comparator_loss=LOSS)
    assert type(bound) is float
    assert bound == pytest.approx(followed(share * LIMIT, keep=True).loss_bound(U), rel=1e-12)
    assert without.total_loss <= bound
    divergence = float(np.diag(U) @ np.log(4 * np.diag(U)))
    exact = math.inf if share > 1 + 1e-12 else divergence / (share * LIMIT)
    assert without.loss_bound(U, comparator_loss=0) == pytest.approx(exact, rel=1e-12)
    if share < 0.95:
        c = 2 * share / (1 - share)
        r_squared = 2.0 / LIMIT
        assert bound == pytest.approx((1 + c / 2) * LOSS + (0.5 + 1 / c) * r_squared * divergence, rel=1e-9)
    else:
        assert bound == math.inf


@pytest.mark.parametrize("loss", [math.nan, math.inf, -1.0, "a", True, [1.0]])
def test_a_comparators_loss_is_a_number(loss: Any) -> None:
    with pytest.raises(ValueError, match="comparator_loss must be a finite number >= 0, got"):
        followed(0.5 * LIMIT, keep=False).loss_bound(U, comparator_loss=loss)


@pytest.mark.parametrize("keep", [True, False])
def test_a_comparators_loss_is_not_left_aside(keep: bool) -> None:
    with pytest.raises(ValueError, match="comparator_loss goes with a learning_rate that was given"):
        followed(None, keep).loss_bound(U, comparator_loss=LOSS)


def pola(W: np.ndarray, b: float, signs: np.ndarray) -> tuple[np.ndarray, float, float]:
    """The definition: projections onto half spaces and onto the cone."""
    total = 0.0
    for z, y in zip(X, signs, strict=True):
        loss = max(0.0, 1 - y * (b - z @ W @ z))
        total += loss**2
        a = loss / ((z @ z) ** 2 + 1)
        values, V = np.linalg.eigh(W - y * a * np.outer(z, z))
        W, b = (V * np.maximum(values, 0.0)) @ V.T, max(b + y * a, 1.0)
    return W, b, total


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("rank", [1, 4])
def test_pola_goes_on_from_its_start(rank: int, dtype: Any) -> None:
    factor = np.random.default_rng(2).normal(size=(4, rank))
    start = (factor @ factor.T).astype(dtype)
    start.flags.writeable = False
    signs = np.where(np.arange(30) % 3 == 0, -1.0, 1.0)
    learner = Pola(4, start=start, threshold=2.0)
    np.testing.assert_allclose(learner.matrix, start, atol=1e-6 if dtype is np.float32 else 1e-14)
    W, b, total = pola(learner.matrix, 2.0, signs)
    learner.update(X, signs)
    np.testing.assert_allclose(learner.matrix, W, atol=1e-12)
    assert (learner.threshold, learner.total_loss) == pytest.approx((b, total), rel=1e-12)


@pytest.mark.parametrize(
    ("start", "error"),
    [
        (np.eye(3), r"start must have shape \(4, 4\), got \(3, 3\)"),
        (np.diag([1.0, 1.0, 1.0, -0.1]), "start must be positive semidefinite, but has the eigenvalue -0.1"),
        (np.triu(np.ones((4, 4))), "start must be symmetric"),
        (np.diag([1.0, np.nan, 1.0, 1.0]), r"start\[1, 1\] is nan"),
        (np.eye(4) + 0.1j * np.subtract.outer(np.arange(4), np.arange(4)), "start must be real"),
        (np.full((4, 4), 1e308), r"start has an entry of size 1e\+308, too large"),
        ("abcd", "start must be an array of numbers"),
    ],
)
def test_a_start_is_checked(start: Any, error: str) -> None:
    with pytest.raises((ValueError, TypeError), match=error):
        Pola(4, start=start)


@pytest.mark.parametrize(
    "learner", [Pola(4), LogDetOnline(4), OnlinePCA(4, 2)], ids=["pola", "logdet", "pca"]
)
def test_what_is_too_large_to_be_predicted_is_named(learner: Any) -> None:
    """0 times a square that overflows would be nan."""
    with pytest.raises(ValueError, match=r"row 1: the squared length of [xz] is not a finite number"):
        learner.predict([[1.0, 2.0, 3.0, 4.0], [1e200, 0.0, 0.0, 0.0]])


@pytest.mark.parametrize(
    "instance", [np.full(4, 1e200), np.diag([1e308, 1e308, -1e308, 0.0]), np.full(4, 1e-90)]
)
def test_instances_out_of_range_change_nothing(instance: np.ndarray) -> None:
    """The default rate is 2 over the square of the range: inf or 0 would be no rate."""
    learner = ExponentiatedGradient(4)
    with pytest.raises(ValueError, match="the instance: the update would leave the range"):
        learner.update(instance, 1.0)
    assert learner.n_updates == 0
    np.testing.assert_array_equal(learner.matrix, np.eye(4) / 4)
    with pytest.raises(ValueError, match="the value of the instance is inf, not a finite number"):
        learner.predict(np.full(4, 1e200))


def test_losses_too_large_for_a_float_are_infinite() -> None:
    logdet, similar = LogDetOnline(4), Pola(4, start=1e200 * np.eye(4))
    logdet.update(X[:1], 1e200)
    with pytest.raises(ValueError, match="row 0: the squared length of z is not a finite number"):
        logdet.update(X[1:], 1e200)  # the change would not be one
    similar.update(X[:2], 1.0)
    assert logdet.total_loss == similar.total_loss == math.inf
    assert np.isfinite(logdet.matrix).all()
    assert np.isfinite(similar.matrix).all()
    steps = ExponentiatedGradient(4, 1e-310)
    steps.update_many(1e80 * X, np.zeros(30))
    assert steps.total_loss == steps.loss_bound(U) == steps.loss_bound(U, comparator_loss=1.0) == math.inf
