"""Hostile weights of rows, pairs and constraints, and hostile pairs to calibrate on, one row a case."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from outcomes import LABELS, LEARNERS, ROWS, Learned, N, Outcome, Refused, check_case, crossed
from sklearn.exceptions import NotFittedError

import nearwise as nw
from nearwise import constraints as c
from nearwise.learners.calibration import Calibration

RANGE = r"expected 0 or a number from 1e-50 to 1e\+50"
# weights of the rows, and what is made of them
WEIGHTS: dict[str, tuple[Any, Outcome]] = {
    "one class counts": (
        np.where(LABELS == 1, 1.0, 0.0),
        Learned(r"returns (the prior|its start|kernel PCA): all 5 labels are 1, and one class does not tell"),
    ),
    "a class does not count": (np.where(LABELS == 0, 0.0, 2.0), Learned()),
    "the last class does not count": (np.where(LABELS == 2, 0.0, 2.0), Learned()),
    "one row counts": (
        np.eye(N)[4],
        Learned(r"returns (the prior|its start|kernel PCA): all 1 labels are 1, and one class does not tell"),
    ),
    "one row of each class counts": (
        np.where(np.arange(N) < 3, 1.0, 0.0),
        Learned(r"returns (the prior|its start|kernel PCA): all 3 labels differ, so no two rows are of one"),
    ),
    "yes and no": (LABELS > 0, Learned()),
    "none counts": (np.zeros(N), Refused("Sample weights must contain at least one non-zero number")),
    "negative": (
        np.where(LABELS == 0, -1.0, 1.0),
        Refused("Negative values in data passed to `sample_weight`"),
    ),
    "not a number": (np.full(N, np.nan), Refused("Input sample_weight contains NaN")),
    "infinite": (np.full(N, np.inf), Refused("Input sample_weight contains infinity")),
    "1e300": (np.full(N, 1e300), Refused(rf"row 0: sample_weight is 1e\+300, {RANGE}")),
    "1e-300": (
        np.where(np.arange(N) == 2, 1e-300, 1.0),
        Refused(rf"row 2: sample_weight is 1e-300, {RANGE}"),
    ),
    "too few": (np.ones(N - 1), Refused(r"sample_weight\.shape == \(14,\), expected \(15,\)")),
    "words": (np.full(N, "a"), Refused("could not convert string to float")),
}
WEIGHED = [name for name in LEARNERS if name not in ("regressor", "neighbors")]


@pytest.mark.parametrize(
    ("learner", "case"),
    crossed(WEIGHTS, ["the last class does not count", "one class counts", "1e300"], WEIGHED),
)
def test_weights_of_rows(learner: str, case: str) -> None:
    given, expected = WEIGHTS[case]

    class Weighed:
        """The learner with these weights, as `check_case` fits one."""

        def __init__(self) -> None:
            self.model = LEARNERS[learner]()

        def fit(self, X: Any, y: Any) -> None:
            self.model.fit(X, y, sample_weight=given)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.model, name)

    check_case(Weighed, ROWS, LABELS, expected)


@pytest.mark.parametrize("weight", [0.0, -1.0, math.nan, math.inf, 1e300, 1e-300])
def test_weights_of_constraints(weight: float) -> None:
    text = r"^row 1: weight is .*, expected a number from 1e-50 to 1e\+50"
    for make in (
        lambda: c.similar([(0, 1), (2, 3)], [1.0, weight]),
        lambda: c.at_most([(0, 1), (2, 3)], 1.0, [1.0, weight]),
        lambda: c.closer([(0, 1, 2), (0, 2, 3)], weights=[1.0, weight]),
    ):
        with pytest.raises(ValueError, match=text):
            make()


PAIRS = np.array([(i, j) for i in range(8) for j in range(i)])
SIGNS = np.where(LABELS[PAIRS[:, 0]] == LABELS[PAIRS[:, 1]], 1, -1)
FITTED = nw.MetricLearner(penalty=1.0, random_state=0).fit(ROWS, LABELS)

NOT_KNOWN: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "no pairs": (
        lambda m: m.calibrate_threshold(PAIRS[:0], [], ROWS),
        ValueError,
        "y must have pairs that are",
    ),
    "one kind": (
        lambda m: m.calibrate_threshold(PAIRS, np.ones(len(PAIRS)), ROWS),
        ValueError,
        "y must have pairs that are the same and others, got .1.0. alone",
    ),
    "0 and -1": (
        lambda m: m.calibrate_threshold(PAIRS, np.where(SIGNS > 0, 0, -1), ROWS),
        ValueError,
        r"pair \d+: y is 0\.0, expected \+1 or -1",
    ),
    "no number": (
        lambda m: m.calibrate_threshold(PAIRS, np.where(np.arange(len(SIGNS)) == 3, np.nan, SIGNS), ROWS),
        ValueError,
        r"pair 3: y is nan, expected \+1 or -1",
    ),
    "words": (
        lambda m: m.calibrate_threshold(PAIRS, np.where(SIGNS > 0, "a", "b"), ROWS),
        ValueError,
        "y must be .* or words as same, .* got '[ab]'",
    ),
    "too few answers": (
        lambda m: m.calibrate_threshold(PAIRS, SIGNS[1:], ROWS),
        ValueError,
        r"y must be one number or one per pair, 28 in all, got shape \(27,\)",
    ),
    "an unknown row": (
        lambda m: m.calibrate_threshold(PAIRS + 50, SIGNS, ROWS),
        ValueError,
        "pair 0: X has 15 rows, and no row 51",
    ),
    "a negative row": (
        lambda m: m.calibrate_threshold(PAIRS - 1, SIGNS, ROWS),
        ValueError,
        "pair 0: X has 15 rows, and no row -1",
    ),
    "half a row": (
        lambda m: m.calibrate_threshold(PAIRS + 0.5, SIGNS, ROWS),
        ValueError,
        "with X, pairs must be",
    ),
    "row numbers without rows": (
        lambda m: m.calibrate_threshold(PAIRS, SIGNS),
        ValueError,
        "pairs must be an array",
    ),
    "rows with a gap": (
        lambda m: m.calibrate_threshold(PAIRS, SIGNS, np.where(ROWS > 2, np.nan, ROWS)),
        ValueError,
        "Input X contains NaN",
    ),
    "rows of 1e200": (
        lambda m: m.calibrate_threshold(PAIRS, SIGNS, ROWS * 1e200),
        ValueError,
        "X has an entry of",
    ),
    "weights of zero": (
        lambda m: m.calibrate_threshold(PAIRS, SIGNS, ROWS, sample_weight=0 * SIGNS),
        ValueError,
        "pair 0: sample_weight is 0.0, expected a number from 1e-50",
    ),
    "weights of 1e300": (
        lambda m: m.calibrate_probability(PAIRS, SIGNS, ROWS, sample_weight=1e300 * np.ones(len(SIGNS))),
        ValueError,
        r"pair 0: sample_weight is 1e\+300, expected a number from 1e-50",
    ),
    "an unknown strategy": (
        lambda m: m.calibrate_threshold(PAIRS, SIGNS, ROWS, strategy="best"),
        ValueError,
        "strategy must be one of 'accuracy', 'f_beta', 'max_tpr', 'max_tnr', got 'best'",
    ),
    "beta of zero": (
        lambda m: m.calibrate_threshold(PAIRS, SIGNS, ROWS, strategy="f_beta", beta=0),
        ValueError,
        "beta must be a finite number > 0, got 0",
    ),
    "a rate of two": (
        lambda m: m.calibrate_threshold(PAIRS, SIGNS, ROWS, strategy="max_tpr", min_rate=2),
        ValueError,
        "min_rate must be a number from 0 to 1, got 2",
    ),
    "no rate": (
        lambda m: m.calibrate_threshold(PAIRS, SIGNS, ROWS, strategy="max_tpr"),
        ValueError,
        "min_rate must be a number from 0 to 1 with strategy='max_tpr', got None",
    ),
    "a negative threshold": (
        lambda m: m.set_threshold(-1),
        ValueError,
        "threshold must be a finite number >= 0",
    ),
    "no threshold": (
        lambda m: m.set_threshold(math.nan),
        ValueError,
        "threshold must be a finite number >= 0",
    ),
    "an unknown method": (
        lambda m: m.calibrate_probability(PAIRS, SIGNS, ROWS, method="x"),
        ValueError,
        "method must be one of 'isotonic', 'platt', got 'x'",
    ),
}


@pytest.mark.parametrize("case", NOT_KNOWN)
def test_pairs_that_nothing_can_be_calibrated_on(case: str) -> None:
    attempt, kind, text = NOT_KNOWN[case]
    with pytest.raises(kind, match="^" + text):
        attempt(FITTED)
    assert not hasattr(FITTED, "threshold_")
    assert not hasattr(FITTED, "probability_")


def test_what_is_not_fitted_or_not_calibrated_says_so() -> None:
    for attempt in (
        lambda: nw.MetricLearner().set_threshold(1.0),
        lambda: nw.MetricLearner().calibrate_threshold(PAIRS, SIGNS, ROWS),
    ):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            attempt()
    for name, advice in (("predict", "calibrate_threshold"), ("predict_proba", "calibrate_probability")):
        with pytest.raises(AttributeError, match=f"has no {name} yet: call {advice}"):
            getattr(FITTED, name)(PAIRS, ROWS)


@pytest.mark.parametrize("unit", [1e-150, 1.0, 1e150])
@pytest.mark.parametrize("method", ["isotonic", "platt"])
@pytest.mark.parametrize("which", ["some", "two", "equal rows"])
def test_probabilities_are_finite_and_do_not_depend_on_the_unit(which: str, method: str, unit: float) -> None:
    pairs = {"some": PAIRS, "two": PAIRS[[0, 5]], "equal rows": PAIRS[:, [0, 0]]}[which]
    signs = {"some": SIGNS, "two": [1, -1], "equal rows": SIGNS}[which]
    found = []
    for scale in (1.0, unit):
        model = nw.MetricLearner(penalty=1.0, random_state=0).fit(ROWS, LABELS)
        model.calibrate_probability(pairs, signs, ROWS * scale, method=method)
        found.append(model.predict_proba(PAIRS, ROWS * scale))
    assert np.isfinite(found[1]).all()
    np.testing.assert_allclose(found[1], found[0], atol=1e-6)


@pytest.mark.parametrize("weight", [1e-50, 1e50])
def test_pairs_of_extreme_weight_are_calibrated_by_their_ratios(weight: float) -> None:
    """Platt's targets tend to 0 and 1 for many pairs, and to a half for few: both in finite numbers."""
    distances, same = np.array([0.5, 1.0, 1.5, 2.0, 2.5]), np.array([True, True, False, True, False])
    extreme, plain = Calibration(distances, same, np.full(5, weight)), Calibration(distances, same)
    assert extreme.threshold() == plain.threshold()
    assert extreme.rates(1.2).tpr == pytest.approx(plain.rates(1.2).tpr)
    assert extreme.rates(1.2).fpr_interval == pytest.approx(plain.rates(1.2).fpr_interval)
    for method in ("isotonic", "platt"):
        found = extreme.probability(method).of(distances)
        assert np.isfinite(found).all()
        assert (np.diff(found) <= 1e-12).all()


def test_beta_of_any_size_weighs_recall() -> None:
    distances = np.array([0.5, 1.0, 1.5, 2.0, 2.5])
    known = Calibration(distances, np.array([True, False, False, True, False]))
    assert known.threshold("f_beta", beta=1e-200) == 0.75  # precision alone: no wrong one
    assert known.threshold("f_beta", beta=1e200) == 2.25  # recall alone: none is missed
