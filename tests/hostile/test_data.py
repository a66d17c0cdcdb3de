"""Hostile data, one row a case, for every learner: a finite result, a warning or an error, word by word."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from outcomes import LABELS, LEARNERS, ROWS, Case, Learned, N, Refused, check_case, crossed

import nearwise as nw

ONLINE = ("online LogDet", "online gradient", "online POLA")


def with_entry(value: float) -> np.ndarray:
    """The rows with another number in one place."""
    rows = ROWS.copy()
    rows[1, 1] = value
    return rows


def nothing_known(text: str) -> Learned:
    return Learned(rf"returns (the prior|its start|kernel PCA): {text}")


SAME = "neither labels nor constraints say anything about these objects"
TOO_LARGE = r"X has an entry of size \S+, and squares of distances between such rows are too large"
TOO_SMALL = r"X has no entry above the size \S+, and squares of distances between such rows are too small"
INFINITE = Refused("Input X contains infinity or a value too large for dtype")
NO_NUMBER = Refused("could not convert string to float: .*'a'")

CASES: dict[str, Case] = {
    "as they should be": Case(lambda: (ROWS, LABELS), Learned()),
    "every point three times": Case(lambda: (np.repeat(ROWS[:5], 3, axis=0), LABELS), Learned()),
    "all rows equal": Case(
        lambda: (np.ones((N, 3)), LABELS),
        nothing_known(SAME),
        {
            "covariance": Refused("prior='covariance': all rows of X are equal, so their covariance is zero"),
            "reducer": Refused("all objects have the same features, so no bound can be filled"),
            "neighbors": nothing_known("all rows of X are equal"),
            "regressor": Learned(),
        }
        | dict.fromkeys(ONLINE, Learned()),
    ),
    "zeros": Case(
        lambda: (np.zeros((N, 3)), LABELS),
        nothing_known(SAME),
        {
            "covariance": Refused("prior='covariance': all rows of X are equal, so their covariance is zero"),
            "reducer": Refused("all objects have the same features, so no bound can be filled"),
            "neighbors": nothing_known("all rows of X are equal"),
            "regressor": Learned(),
        }
        | dict.fromkeys(ONLINE, Learned()),
    ),
    "a constant column": Case(lambda: (np.c_[ROWS, np.full(N, 7.0)], LABELS), Learned()),
    "a column twice": Case(lambda: (np.c_[ROWS, ROWS[:, 0]], LABELS), Learned()),
    "one sample": Case(
        lambda: (ROWS[:1], LABELS[:1]),
        Refused(r"Found array with 1 sample\(s\) \(shape=\(1, 3\)\) while a minimum of 2 is required"),
        {"regressor": Learned()},
    ),
    "one class": Case(
        lambda: (ROWS, np.zeros(N, int)),
        nothing_known("all 15 labels are 0, and one class does not tell what differs"),
        {"regressor": Learned()},
    ),
    "classes of one object": Case(
        lambda: (ROWS, np.array([f"class {k}" for k in range(N)])),
        nothing_known("all 15 labels differ, so no two rows are of one class"),
        {"regressor": Refused("could not convert string to float: .*'class 0'")},
    ),
    "measurements as classes": Case(
        lambda: (np.random.default_rng(2).normal(size=(24, 3)), np.arange(24)),
        Refused("y holds 24 different numbers in 24 rows, most of them once: measurements are not labels"),
        {"regressor": Learned()},
    ),
    "not a number": Case(lambda: (with_entry(np.nan), LABELS), Refused("Input X contains NaN.")),
    "infinity": Case(lambda: (with_entry(np.inf), LABELS), INFINITE),
    "minus infinity": Case(lambda: (with_entry(-np.inf), LABELS), INFINITE),
    "1e-150": Case(lambda: (ROWS * 1e-150, LABELS), Learned()),
    "1e150": Case(lambda: (ROWS * 1e150, LABELS), Learned()),
    "1e-150 beside 1e150": Case(lambda: (ROWS * [1e-150, 1.0, 1e150], LABELS), Learned()),
    "1e200": Case(lambda: (ROWS * 1e200, LABELS), Refused(TOO_LARGE)),
    "the largest number": Case(lambda: (with_entry(1.7e308), LABELS), Refused(TOO_LARGE)),
    "1e-200": Case(lambda: (ROWS * 1e-200, LABELS), Refused(TOO_SMALL)),
    "below the normal numbers": Case(lambda: (ROWS * 1e-310, LABELS), Refused(TOO_SMALL)),
    "yes and no": Case(lambda: (ROWS > 1.0, LABELS), Learned()),
    "complex": Case(lambda: (ROWS + 1j, LABELS), Refused("Complex data not supported")),
    "words": Case(lambda: (np.full((N, 3), "a"), LABELS), NO_NUMBER),
    "objects that are words": Case(lambda: (np.full((N, 3), "a", object), LABELS), NO_NUMBER),
    "no columns": Case(
        lambda: (ROWS[:, :0], LABELS), Refused(r"Found array with 0 feature\(s\) \(shape=\(15, 0\)\)")
    ),
    "no rows": Case(lambda: (ROWS[:0], LABELS[:0]), Refused(r"Found array with 0 sample\(s\)")),
    "one dimension": Case(lambda: (ROWS[:, 0], LABELS), Refused("Expected 2D array, got 1D array instead:")),
    "three dimensions": Case(
        lambda: (ROWS[:, :, np.newaxis], LABELS),
        Refused(r"X must be an array of n rows and d columns, got shape \(15, 3, 1\)"),
        {"regressor": Refused(r"X must have shape \(n, d\) or \(n, d, d\), got \(15, 3, 1\)")},
    ),
    "too few labels": Case(
        lambda: (ROWS, LABELS[:-1]),
        Refused("X has 15 rows, but there are 14 labels"),
        {"regressor": Refused("Found input variables with inconsistent numbers of samples: .15, 14.")},
    ),
    "some labels unknown": Case(
        lambda: (ROWS, np.where(LABELS == 0, np.nan, LABELS)),
        Learned(),
        {"regressor": Refused("Input y contains NaN.")},
    ),
    "no labels": Case(
        lambda: (ROWS, None),
        nothing_known(SAME),
        {
            "neighbors": nothing_known("there is no y"),
            "regressor": Refused("This FixedRankRegressor estimator requires y to be passed"),
        },
    ),
    "many more columns than rows": Case(
        lambda: (np.random.default_rng(1).normal(size=(N, 300)), LABELS), Learned()
    ),
    "two rows of two classes": Case(
        lambda: (ROWS[:2], LABELS[:2]),
        nothing_known("all 2 labels differ, so no two rows are of one class"),
        {"regressor": Learned()},
    ),
}


# nothing is solved where nothing can be learned
BRIEF = [name for name, case in CASES.items() if case.expected != Learned()]


@pytest.mark.parametrize(
    ("learner", "case"), crossed(CASES, [*BRIEF, "every point three times", "1e150", "1e-150 beside 1e150"])
)
def test_hostile_data(learner: str, case: str) -> None:
    X, y = CASES[case].data()
    before = X.copy()
    check_case(LEARNERS[learner], X, y, CASES[case].outcome_of(learner))
    np.testing.assert_array_equal(X, before)  # inputs are never changed


# AutoLearner's kernels take part from 20 labelled rows on
MANY, CLASSES = (
    np.random.default_rng(4).normal(size=(30, 3)) + 2.0 * np.eye(3)[np.arange(30) % 3],
    np.arange(30) % 3,
)
COMPETING: dict[str, Case] = {
    "as they should be": Case(lambda: (MANY, CLASSES), Learned()),
    "every point three times": Case(lambda: (np.repeat(MANY[:10], 3, axis=0), CLASSES), Learned()),
    "all rows equal": Case(lambda: (np.ones((30, 3)), CLASSES), nothing_known(SAME)),
    "a constant column": Case(lambda: (np.c_[MANY, np.full(30, 7.0)], CLASSES), Learned()),
    "more columns than rows": Case(
        lambda: (np.random.default_rng(1).normal(size=(30, 100)), CLASSES), Learned()
    ),
    "far from zero": Case(lambda: (MANY + 1e9, CLASSES), Learned()),
    "an outlier": Case(lambda: (np.where(MANY.max() == MANY, 1e8, MANY), CLASSES), Learned()),
    "1e-150": Case(lambda: (MANY * 1e-150, CLASSES), Learned()),
    "1e150": Case(lambda: (MANY * 1e150, CLASSES), Learned()),
    "1e-150 beside 1e150": Case(lambda: (MANY * [1e-150, 1.0, 1e150], CLASSES), Learned()),
    "1e200": Case(lambda: (MANY * 1e200, CLASSES), Refused(TOO_LARGE)),
    "a class of one object": Case(lambda: (MANY, np.where(np.arange(30) == 5, 9, CLASSES)), Learned()),
    "some labels unknown": Case(lambda: (MANY, np.where(np.arange(30) < 8, np.nan, CLASSES)), Learned()),
    "too few labels known": Case(
        lambda: (MANY, np.where(np.arange(30) < 15, np.nan, CLASSES)),
        Refused(r"kernel='\S+' cannot be learned: scores need 20 labelled rows"),
    ),
    "not a number": Case(
        lambda: (np.where(MANY.max() == MANY, np.nan, MANY), CLASSES), Refused("Input X contains NaN")
    ),
}


@pytest.mark.parametrize("case", COMPETING)
@pytest.mark.parametrize("kernel", ["rbf", "linear+rbf"])
def test_hostile_data_with_scores_of_a_kernel(kernel: str, case: str) -> None:
    X, y = COMPETING[case].data()
    make = lambda: nw.AutoLearner(kernel, penalty=1.0, random_state=0)  # noqa: E731
    check_case(make, X, y, COMPETING[case].expected)


@pytest.mark.parametrize("unit", [1e-150, 1e150])
@pytest.mark.parametrize(
    "learner",
    [
        "metric",
        "covariance",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("kernel", "fixed rank")),
    ],
)
def test_the_unit_of_the_data_does_not_matter(learner: str, unit: float) -> None:
    """Distances in another unit are the same distances."""

    def distances(rows: np.ndarray) -> Any:
        found = LEARNERS[learner]().fit(rows, LABELS).distances(rows)
        return found / found.max()

    np.testing.assert_allclose(distances(ROWS * unit), distances(ROWS), rtol=0, atol=2e-3)


def test_new_rows_that_are_too_large_are_refused() -> None:
    fitted = LEARNERS["metric"]().fit(ROWS, LABELS)
    for ask in (fitted.transform, fitted.distances, lambda X: fitted.pair_distance([(0, 1)], X)):
        with pytest.raises(ValueError, match=TOO_LARGE):
            ask(ROWS * 1e200)
    with pytest.raises(ValueError, match=r"pairs has an entry of size 1e\+200"):
        fitted.pair_distance(np.full((1, 2, 3), 1e200))
