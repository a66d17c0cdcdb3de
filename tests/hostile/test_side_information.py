"""Hostile constraints, one row a case: refused where they are made, learned from, or proved contradictory."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from outcomes import LEARNERS, ROWS, N

import nearwise as nw
from nearwise import constraints as c

POSITIVE = "expected a finite number > 0"

REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a bound of zero": (lambda: c.at_most([(0, 1)], 0.0), ValueError, f"bound is 0.0, {POSITIVE}"),
    "a lower bound of zero": (lambda: c.at_least([(0, 1)], 0.0), ValueError, f"bound is 0.0, {POSITIVE}"),
    "a negative bound": (lambda: c.at_most([(0, 1)], -1.0), ValueError, f"bound is -1.0, {POSITIVE}"),
    "an infinite bound": (lambda: c.at_most([(0, 1)], math.inf), ValueError, f"bound is inf, {POSITIVE}"),
    "no number as a bound": (lambda: c.equal([(0, 1)], math.nan), ValueError, f"bound is nan, {POSITIVE}"),
    "one negative bound of two": (
        lambda: c.at_most([(0, 1), (1, 2)], [1.0, -2.0]),
        ValueError,
        f"row 1: bound is -2.0, {POSITIVE}",
    ),
    "too many bounds": (
        lambda: c.at_most([(0, 1), (1, 2)], [1.0, 2.0, 3.0]),
        ValueError,
        "bound must be one number or one per row, 2 in all, got shape (3,)",
    ),
    "a text as a bound": (lambda: c.at_most([(0, 1)], "1"), TypeError, "bound must be real numbers"),
    "a negative margin": (
        lambda: c.closer([(0, 1, 2)], margin=-1.0),
        ValueError,
        "margin is -1.0, expected a finite number >= 0",
    ),
    "an object and itself": (
        lambda: c.similar([(1, 1)]),
        ValueError,
        "row 0: the object 1 is paired with itself",
    ),
    "a distance and itself": (
        lambda: c.closer([(0, 1, 1)]),
        ValueError,
        "row 0: d(0, 1) is compared with itself",
    ),
    "rows of different length": (
        lambda: c.similar([(0, 1), (2,)]),
        ValueError,
        "row 1 has 1 entries, expected 2 ids: (2,)",
    ),
    "triplets as pairs": (
        lambda: c.similar([(0, 1, 2)]),
        ValueError,
        "expected a list of rows of 2 ids, got an array of shape (1, 3)",
    ),
    "half an id": (lambda: c.similar([(0.5, 1)]), ValueError, "row 0: the id 0.5 is not a whole number"),
    "no number as an id": (
        lambda: c.similar([(math.nan, 1)]),
        ValueError,
        "row 0: the id nan is not a whole number",
    ),
    "texts and numbers as ids": (
        lambda: c.similar([("a", 1)]),
        TypeError,
        "row 0: the id 1 is of type int; ids must be all integers or all strings",
    ),
    "a matrix that is not symmetric": (
        lambda: c.linear([[0, 1], [0, 0]], 1.0, "<="),
        ValueError,
        "matrix 0 must be symmetric, or symmetrise=True be given: A[0, 1] is 1.0, but A[1, 0] is 0.0",
    ),
    "a negative squared length": (
        lambda: c.similarity([(0, 0)], -1.0, "<="),
        ValueError,
        "row 0: K(0, 0) <= -1.0 is impossible, because a diagonal entry is > 0",
    ),
    "an unknown relation": (
        lambda: c.similarity([(0, 1)], 1.0, "<"),
        ValueError,
        "relation must be '<=', '>=' or '==', got '<'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_meant_is_refused_where_it_is_made(case: str) -> None:
    make, kind, text = REFUSED[case]
    with pytest.raises(kind) as refusal:
        make()
    assert str(refusal.value).startswith(text)


SOFT: dict[str, Callable[[float], Any]] = {
    "metric": lambda penalty: nw.MetricLearner(penalty=penalty, random_state=0),
    "von Neumann": lambda penalty: nw.MetricLearner("vonneumann", penalty=penalty, random_state=0),
    "Frobenius": lambda penalty: nw.MetricLearner("frobenius", penalty=penalty, random_state=0),
    "kernel": lambda penalty: nw.KernelLearner(penalty=penalty, random_state=0),
    "reducer": lambda penalty: nw.KernelReducer(penalty=penalty, random_state=0),
}
GIVES_WAY = {
    **{name: (lambda make=make: make(1.0)) for name, make in SOFT.items()},
    **{name: LEARNERS[name] for name in ("fixed rank", "fixed-rank kernel", "online LogDet", "online POLA")},
}

# what contradicts itself, and the rows that do, by which a hard learner names them
CONTRADICTIONS: dict[str, tuple[c.Constraints, set[int]]] = {
    "two bounds": (
        c.at_most([(0, 1)], 0.5) + c.at_least([(0, 1)], 4.0) + c.at_most([(4, 5)], 9.0),
        {0, 1},
    ),
    "similar and dissimilar": (c.similar([(0, 1), (2, 3)]) + c.dissimilar([(0, 1)]), {0, 2}),
    "a triangle": (
        c.equal([(0, 1), (1, 2)], 0.01) + c.equal([(0, 2)], 9.0) + c.at_least([(3, 5)], 0.1),
        {0, 1, 2},
    ),
    "a cycle": (
        c.closer([(0, 1, 2), (0, 2, 3), (0, 3, 1)], margin=1.0) + c.at_most([(4, 5)], 9.0),
        {0, 1, 2},
    ),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
@pytest.mark.parametrize("learner", SOFT)
def test_hard_contradictions_are_named_by_those_rows_alone(learner: str, case: str) -> None:
    side, rows = CONTRADICTIONS[case]
    with pytest.raises(
        ValueError, match=r"^No matrix meets these hard constraints together: row "
    ) as refusal:
        SOFT[learner](math.inf).fit(ROWS, constraints=side)
    assert str(refusal.value).endswith("; a finite penalty lets them give way")
    named = [line.split(":")[0] for line in str(refusal.value).split("row ")[1:]]
    assert {int(row) for row in named} == rows


@pytest.mark.parametrize("case", CONTRADICTIONS)
@pytest.mark.parametrize("divergence", [nw.LogDet(), nw.VonNeumann(), nw.Frobenius()], ids=str)
def test_hard_contradictions_are_infeasible_with_a_proof(divergence: nw.Divergence, case: str) -> None:
    side, rows = CONTRADICTIONS[case]
    problem = nw.Problem(ROWS, side, divergence, penalty=math.inf)
    result = nw.solve(problem)
    assert result.status is nw.Status.INFEASIBLE
    proof = nw.check_infeasibility(problem, result.dual)
    assert proof.valid
    assert set(proof.rows) == rows


@pytest.mark.parametrize("case", CONTRADICTIONS)
@pytest.mark.parametrize("learner", GIVES_WAY)
def test_soft_contradictions_give_way(learner: str, case: str) -> None:
    with warnings.catch_warnings():
        # a reducer that learns zero returns kernel PCA, and says so
        warnings.filterwarnings("ignore", "KernelReducer returns kernel PCA: W = 0", nw.PriorKeptWarning)
        fitted = GIVES_WAY[learner]().fit(ROWS, constraints=CONTRADICTIONS[case][0])
    assert np.isfinite(fitted.distances(ROWS)).all()
    assert getattr(fitted, "status_", nw.Status.SOLVED) in (
        nw.Status.SOLVED,
        nw.Status.STATIONARY,
    )


OF_OBJECTS: dict[str, tuple[c.Constraints, str]] = {
    "an unknown row": (
        c.similar([(0, 99)]),
        "row 0: d(0, 99) <= a bound filled from the data: the id 99 is not a row number below 15",
    ),
    "a negative row": (
        c.similar([(0, -1)]),
        "row 0: d(0, -1) <= a bound filled from the data: the id -1 is not a row number below 15",
    ),
    "a name without names": (
        c.similar([("a", "b")]),
        "row 0: d('a', 'b') <= a bound filled from the data: the id 'a' is not a row number below 15",
    ),
    "a huge bound": (c.at_least([(0, 1)], 1e300), r"row 0: d(0, 1) >= 1e+300: its bound is "),
    "a tiny bound": (c.at_most([(0, 1)], 1e-300), r"row 0: d(0, 1) <= 1e-300: its bound is "),
}


@pytest.mark.parametrize("case", OF_OBJECTS)
@pytest.mark.parametrize("learner", GIVES_WAY)
def test_constraints_that_do_not_fit_the_data_are_named(learner: str, case: str) -> None:
    side, text = OF_OBJECTS[case]
    if learner.startswith("online") and "bound" in case:
        if case == "a tiny bound" or learner == "online POLA":  # an update goes there in one finite step
            assert np.isfinite(GIVES_WAY[learner]().fit(ROWS, constraints=side).distances(ROWS)).all()
            return
        text = "row 0 of the feedback: a squared distance, or its ratio to its bound, is too large"
    with pytest.raises(ValueError) as refusal:  # noqa: PT011
        GIVES_WAY[learner]().fit(ROWS, constraints=side)
    assert str(refusal.value).startswith(text)


@pytest.mark.parametrize("learner", ["metric", "kernel", "reducer", "fixed rank", "online LogDet"])
def test_ids_that_occur_twice_and_ids_that_nobody_has(learner: str) -> None:
    make = GIVES_WAY[learner]
    names = [f"object {k}" for k in range(N)]
    pair = c.similar([(names[0], names[1])]) + c.dissimilar([(names[2], names[4])])
    with pytest.raises(ValueError, match="'object 3'"):
        make().fit(ROWS, constraints=pair, sample_ids=[*names[:-1], "object 3"])
    with pytest.raises(ValueError, match=r"^no object that the constraints name is in sample_ids: 'x', 'z'"):
        make().fit(ROWS, constraints=c.similar([("x", "z")]), sample_ids=names)
    with pytest.warns(nw.UnknownIdsWarning, match=r"^1 of 3 constraints are left out.*: 'x', 'z'"):
        fitted = make().fit(ROWS, constraints=pair + c.similar([("x", "z")]), sample_ids=names)
    np.testing.assert_array_equal(
        fitted.distances(ROWS), make().fit(ROWS, constraints=pair, sample_ids=names).distances(ROWS)
    )


TWICE = np.vstack([ROWS[:1], ROWS[:1], ROWS[2:]])  # objects 0 and 1 are equal
# constraints on them, and whether these can be met
ON_EQUAL: dict[str, tuple[c.Constraints, bool]] = {
    "similar": (c.similar([(0, 1), (2, 3)]) + c.dissimilar([(2, 4)]), True),
    "at most": (c.at_most([(0, 1)], 1.0) + c.dissimilar([(2, 4)]), True),
    "dissimilar": (c.dissimilar([(0, 1), (2, 4)]) + c.similar([(2, 3)]), False),
    "at least": (c.at_least([(0, 1)], 1.0) + c.similar([(2, 3)]), False),
    "at a distance": (c.equal([(0, 1)], 1.0) + c.similar([(2, 3)]), False),
}
ON_EQUAL_BY = {**GIVES_WAY, **{name: LEARNERS[name] for name in ("automatic", "diagonal", "blocks")}}


@pytest.mark.parametrize("case", ON_EQUAL)
@pytest.mark.parametrize("learner", ON_EQUAL_BY)
def test_constraints_on_equal_objects(learner: str, case: str) -> None:
    """What is near is met already; what shall be apart is left out in words, or refused where it is hard."""
    side, reachable = ON_EQUAL[case]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        fitted = ON_EQUAL_BY[learner]().fit(TWICE, constraints=side)
    told = [str(warning.message) for warning in seen if warning.category is nw.LeftOutWarning]
    assert len(told) == (not reachable)
    assert all(
        text.startswith("1 constraint is left out, because no matrix can meet it, as in row ")
        for text in told
    )
    distances = fitted.distances(TWICE)
    assert np.isfinite(distances).all()
    assert distances[0, 1] == pytest.approx(0.0, abs=1e-6 * distances.max())
    if learner in SOFT and learner != "reducer" and not reachable:
        with pytest.raises(ValueError, match=r"^row \d: d\(0, 1\) .* its objects have the same features"):
            SOFT[learner](math.inf).fit(TWICE, constraints=side)


EMPTY: dict[str, Callable[[], c.Constraints]] = {
    "none": lambda: c.Constraints(),
    "empty lists": lambda: c.similar([]) + c.dissimilar([]),
}


@pytest.mark.parametrize("case", EMPTY)
@pytest.mark.parametrize("learner", GIVES_WAY)
def test_no_constraints_at_all(learner: str, case: str) -> None:
    text = r"returns (the prior|its start|kernel PCA): neither labels nor constraints say anything"
    with pytest.warns(nw.PriorKeptWarning, match=text):
        fitted = GIVES_WAY[learner]().fit(ROWS, constraints=EMPTY[case]())
    assert np.isfinite(fitted.distances(ROWS)).all()


@pytest.mark.long
@pytest.mark.parametrize("count", [10_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("divergence", [nw.LogDet(), nw.VonNeumann(), nw.Frobenius()], ids=str)
def test_a_million_copies_of_one_constraint_are_that_constraint(
    divergence: nw.Divergence, count: int
) -> None:
    """With a millionth of the penalty each; hard, they are the same as one."""
    one, many = c.at_most([(0, 1)], 0.5), c.at_most(np.tile([(0, 1)], (count, 1)), 0.5)
    other = c.at_least([(2, 3)], 4.0)
    for penalty in (1.0, math.inf):
        each = np.append(np.full(count, penalty / count), penalty)
        expected = nw.solve(nw.Problem(ROWS, one + other, divergence, penalty=penalty), tol=1e-9)
        found = nw.solve(nw.Problem(ROWS, many + other, divergence, penalty=each), tol=1e-9)
        assert found.status is expected.status is nw.Status.SOLVED
        np.testing.assert_allclose(found.matrix, expected.matrix, rtol=0, atol=1e-4)


PENALTIES: dict[str, tuple[Any, str]] = {
    "zero": (0.0, "penalty"),
    "negative": (-1.0, "penalty"),
    "no number": (math.nan, "penalty"),
    "a word": ("hard", "penalty|could not convert"),
    "too few": ([1.0, 2.0, 3.0], "penalty"),
    "one negative": ([1.0, -1.0], "penalty"),
}


@pytest.mark.parametrize("case", PENALTIES)
def test_weights_that_are_none(case: str) -> None:
    given, text = PENALTIES[case]
    side = c.at_most([(0, 1)], 0.5) + c.at_least([(2, 3)], 4.0)
    with pytest.raises((TypeError, ValueError), match=text):
        nw.Problem(ROWS, side, penalty=given)


@pytest.mark.parametrize("exponent", range(-12, 13, 6))
@pytest.mark.parametrize("divergence", [nw.LogDet(), nw.VonNeumann(), nw.Frobenius()], ids=str)
def test_penalties_of_every_size_are_solved(divergence: nw.Divergence, exponent: int) -> None:
    side = c.at_most([(0, 1), (2, 3)], 0.5) + c.at_least([(0, 4)], 12.0) + c.closer([(5, 6, 7)], margin=0.5)
    result = nw.solve(nw.Problem(ROWS, side, divergence, penalty=10.0**exponent))
    assert result.status is nw.Status.SOLVED
    assert result.certificate.gap <= 1e-6
    assert np.linalg.eigvalsh(result.matrix)[0] >= -1e-12 * np.linalg.eigvalsh(result.matrix)[-1]


@pytest.mark.parametrize("divergence", [nw.LogDet(), nw.VonNeumann(), nw.Frobenius()], ids=str)
def test_constraints_outside_the_range_of_a_kernel(divergence: nw.Divergence) -> None:
    """Objects 0 and 1 are the same to this kernel: no matrix in its range tells them apart."""
    B = np.vstack([ROWS[:1, :2], ROWS[:5, :2]])
    side = c.at_least([(0, 1)], 1.0)
    if isinstance(divergence, nw.Frobenius):
        result = nw.solve(nw.Problem.from_kernel(B @ B.T, side, divergence, penalty=math.inf))
        assert result.status is nw.Status.SOLVED  # whose matrices are not confined to that range
        return
    with pytest.raises(ValueError, match=r"^row 0: d\(0, 1\) >= 1"):
        nw.Problem.from_kernel(B @ B.T, side, divergence, penalty=math.inf)
