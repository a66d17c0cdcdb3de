"""Every kind of constraint is graded by its definition, and a new one is a class and a line."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

import nearwise as nw
from nearwise import constraints as c
from nearwise.side.kinds import KINDS, Grade, Kind, Part
from nearwise.study import figures
from nearwise.study.before_after import Measured, Missing, measures
from nearwise.study.figures import Figure

if TYPE_CHECKING:
    from nearwise.side.blocks import Block

Array = NDArray[np.float64]

rng = np.random.default_rng(3)
X = rng.normal(size=(30, 3)) + 1.0
M = np.diag([4.0, 1.0, 0.25])
K_BEFORE, K_AFTER = X @ X.T, X @ M @ X.T
PAIRS = np.array([(i, (7 * i + 3) % 30) for i in range(30) if i != (7 * i + 3) % 30])
LEFT, RIGHT = PAIRS.T
OLD, NEW = K_BEFORE[LEFT, RIGHT], K_AFTER[LEFT, RIGHT]  # inner products of the pairs


def graded(side: c.Constraints) -> dict[str, Figure]:
    before, after = (Measured(nw.Metric(root), X) for root in (np.eye(3), np.sqrt(M)))
    return {figure.name: figure for figure in figures.from_constraints(before, after, side, len(X))}


def test_true_bounds_on_inner_products_hold() -> None:
    """As bounds on distances, none of these would."""
    found = graded(c.similarity(PAIRS, NEW - 1e-9, ">=") + c.similarity(PAIRS, NEW + 1e-9, "<="))
    assert list(found) == ["inner products in bounds"]
    figure = found["inner products in bounds"]
    assert figure.n == 2 * len(PAIRS)
    assert figure.after.value == 1.0
    below, above = (
        OLD >= NEW - 1e-9,
        OLD <= NEW + 1e-9,
    )
    assert figure.before.value == pytest.approx(np.mean([*below, *above]))
    assert figure.before.value < 0.6


def test_equal_inner_products_are_graded_by_their_error_in_the_best_unit() -> None:
    target = NEW + 0.1
    figure = graded(c.similarity(PAIRS, target, "=="))["error of inner products"]
    size = np.abs(target).mean()
    assert figure.after.value == pytest.approx(0.1 / size, rel=1e-9)
    tried = [np.abs(unit * OLD - target).mean() / size for unit in np.linspace(0.0, 10.0, 20_001)]
    assert figure.before.value <= min(tried) + 1e-12
    assert figure.before.value == pytest.approx(min(tried), rel=1e-3)
    assert figure.lower_is_better


def test_linear_functions_are_graded_by_the_trace() -> None:
    matrices = [np.outer(a, a) - np.diag(b) for a, b in rng.normal(size=(12, 2, 30))]
    traces = np.array([np.sum(A * K_AFTER) for A in matrices])
    bounds = traces + rng.choice([-1.0, 1.0], len(traces))
    found = graded(c.linear(matrices, bounds, "<="))["linear constraints that hold"]
    assert found.after.value == pytest.approx(np.mean(traces <= bounds))
    before = np.array([np.sum(A * K_BEFORE) for A in matrices])
    assert found.before.value == pytest.approx(np.mean(before <= bounds))
    some = c.linear([A[:5, :5] for A in matrices], 0.0, ">=", ids=[9, 3, 4, 20, 1])
    rows = np.ix_([9, 3, 4, 20, 1], [9, 3, 4, 20, 1])
    parts = np.array([np.sum(A[:5, :5] * K_AFTER[rows]) for A in matrices])
    assert graded(some)["linear constraints that hold"].after.value == pytest.approx(np.mean(parts >= 0))
    error = graded(c.linear(matrices, traces, "=="))["error of linear constraints"]
    assert error.after.value == pytest.approx(0.0, abs=1e-12)


def test_distances_and_comparisons_are_graded_as_before() -> None:
    d = K_AFTER[LEFT, LEFT] + K_AFTER[RIGHT, RIGHT] - 2 * NEW
    found = graded(
        c.at_most(PAIRS, d * 1.001)
        + c.equal(PAIRS, d)
        + c.closer([(0, 1, 2), (0, 2, 1)])
        + c.similar(PAIRS[:9])
        + c.dissimilar(PAIRS[9:])
    )
    assert {name: figure.after.value for name, figure in found.items() if "ROC" not in name} == {
        "bounds that hold": 1.0,
        "triplets in order": 0.5,
        "relative error of distances": pytest.approx(0.0, abs=1e-12),
    }
    assert "given pairs' ROC-AUC" in found


def test_distances_alone_cannot_grade_inner_products() -> None:
    squares = K_AFTER.diagonal()[:, None] + K_AFTER.diagonal() - 2 * K_AFTER
    model = nw.FixedRankEmbedding(rank=3, random_state=0).fit(squares)
    before, after = measures(model, squares)
    assert before is not None
    with pytest.raises(Missing, match="Distances alone"):
        figures.from_constraints(before, after, c.similarity(PAIRS, 1.0, "<="), 30)


class MeanLength(Kind):
    """(K_ii + K_jj) / 2: no kind of the package, only here."""

    name: ClassVar[str] = "mean length"
    plural: ClassVar[str] = "mean lengths"

    def atoms(self, block: Block, features: Array, sizes: Array | None) -> Part:
        rows = np.asarray(block.object_ids)
        ends = np.concatenate([rows[:, 0], rows[:, 1]])
        return Part(ends, ends, np.full(len(ends), 0.5), np.tile(np.arange(len(rows)), 2), False)

    def text(self, block: Block, row: int, symbol: str, bound: float, names: object) -> str:
        return f"mean length of {block.object_ids[row].tolist()} {symbol} {bound:g}"

    def grades(self, block: Block) -> list[tuple[Grade, NDArray[np.bool_]]]:
        return [(Grade("mean lengths", "mean lengths that hold", "share"), np.ones(len(block), bool))]


def test_a_new_kind_is_a_class_and_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, MeanLength.name, MeanLength())
    values = (K_AFTER[LEFT, LEFT] + K_AFTER[RIGHT, RIGHT]) / 2
    side = c.Constraints((c.Block(MeanLength.name, -1, PAIRS, values * 1.001),))
    assert repr(side) == f"<Constraints: {len(PAIRS)} mean lengths <=>"
    assert side.describe(0).startswith("row 0: mean length of [0, 3] <= ")
    np.testing.assert_allclose(nw.Problem(X, side).values(M), values)
    assert graded(side)["mean lengths that hold"].after.value == 1.0
    learner = nw.MetricLearner(penalty=np.inf).fit(X, constraints=side)
    learned = np.einsum("ij,jk,ik->i", X, learner.get_mahalanobis_matrix(), X)
    assert np.all((learned[LEFT] + learned[RIGHT]) / 2 <= values * 1.002)
    with pytest.raises(ValueError, match=r"mean length of \[0, 3\] .* is no bound on distances"):
        nw.OnlineLearner().fit(X, constraints=side)
