"""`FixedRankLearner` on rows in pieces: what it learns in memory, however the rows are cut and stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nearwise as nw
from nearwise import constraints as c
from nearwise.core import SquaresInPieces, chunks
from nearwise.distributed.vectors import Stacked
from nearwise.fixed_rank.in_pieces import RegressionInPieces, Scale
from nearwise.learners import _in_pieces

RNG = np.random.default_rng(3)
N, D = 1500, 6
Y = RNG.integers(0, 3, N)
X = RNG.normal(size=(N, D)) * [1, 1, 1, 5, 5, 1] + Y[:, None] * np.array([3, 2, 0, 0, 0, 0])
PAIRS = np.array([pair for pair in RNG.integers(0, N, (4000, 2)) if pair[0] != pair[1]])
SAME = Y[PAIRS[:, 0]] == Y[PAIRS[:, 1]]
SIDE = c.similar(PAIRS[SAME]) + c.dissimilar(PAIRS[~SAME])
BOUNDED = c.at_most(PAIRS[SAME], 3.0) + c.at_least(PAIRS[~SAME], 9.0)
FIXED = {"rank": 2, "random_state": 0, "check": False}


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are not taken, however few there are."""
    monkeypatch.setattr(_in_pieces, "_TAKEN", 6 * 1200)
    monkeypatch.setattr(chunks, "FEWEST", 700)


def test_few_rows_are_learned_from_as_in_memory() -> None:
    expected = nw.FixedRankLearner(rank=2, random_state=0).fit(X, Y)
    found = nw.FixedRankLearner(rank=2, random_state=0).fit(Stacked([X[:100], X[100:]]), Y)
    np.testing.assert_array_equal(found.metric_.matrix, expected.metric_.matrix)


def mixed() -> tuple[nw.Constraints, np.ndarray]:
    side = BOUNDED + c.closer(RNG.integers(0, N, (50, 3)) * [1, 1, 0] + [0, 0, 7], margin=2.0)
    side += c.similarity(PAIRS[:40], 1.5, "<=") + c.similarity(PAIRS[40:90], 0.5, "==")
    return side, side.bounds


def test_a_pass_finds_cost_and_slope_of_the_definition() -> None:
    """Against a sum over d x d matrices, one row after the other."""
    side, targets = mixed()
    weighed = c.at_most(PAIRS[:30], 3.0, weights=np.linspace(0.5, 2, 30))
    G, other = RNG.normal(size=(D, 2)), RNG.normal(size=(D, 3))
    for constraints in (side, weighed):
        scale = Scale(3.0, 5.0, float(constraints.weights.mean()))
        filled = nw.constraints.Constraints(constraints.resolve(N))
        rows = SquaresInPieces.of(constraints, filled, Stacked([X]))
        found, along = rows.sums(G, None, *scale), rows.sums(G, other, *scale)
        cost, slope = 0.0, np.zeros((D, D))
        for block in constraints.resolve(N):
            for ids, bound, count in zip(block.object_ids, block.bounds, block.counts, strict=True):
                A = matrix_of(block, ids) / scale.feature**2
                fails = float(np.sum(A * (G @ G.T))) - bound / scale.target
                fails = {-1: max(fails, 0.0), 0: fails, 1: min(fails, 0.0)}[int(block.relation)]
                cost += count / scale.weight * fails**2
                slope += count / scale.weight * fails * A
        assert found.cost == pytest.approx(cost, rel=1e-12)
        size = np.abs(slope).max()
        np.testing.assert_allclose(found.slope, slope @ G, rtol=0, atol=1e-11 * size)
        np.testing.assert_allclose(along.slope, slope @ other, rtol=0, atol=1e-11 * size)
    assert len(targets) == len(side)


def matrix_of(block: Any, ids: np.ndarray) -> np.ndarray:
    """The symmetric d x d matrix of one constraint."""
    rows = X[ids]
    if block.of_kind.n_distances == 0:
        return (np.outer(rows[0], rows[1]) + np.outer(rows[1], rows[0])) / 2
    z = rows[0] - rows[1]
    if block.of_kind.n_distances == 1:
        return np.outer(z, z)
    far = rows[2] - rows[3]
    return np.outer(z, z) - np.outer(far, far)


@pytest.mark.parametrize(
    "settings",
    [{}, {"geometry": "flat"}, {"rank": None, "geometry": "affine_invariant"}, {"subspace_weight": 0.0}],
    ids=["polar", "flat", "affine-invariant", "subspace fixed"],
)
def test_it_ends_where_the_descent_in_memory_ends(settings: dict[str, Any], in_pieces: None) -> None:
    start = np.linalg.qr(np.random.default_rng(0).normal(size=(D, 2 if "rank" not in settings else D)))[0]
    how = {**FIXED, "start": start, "tol": 1e-9, **settings}
    found = nw.FixedRankLearner(**how).fit(Stacked([X]), constraints=BOUNDED)
    assert found.result_.solver == "SampledNewton"
    expected = nw.FixedRankLearner(**how).fit(X, constraints=BOUNDED)
    assert found.result_.cost == pytest.approx(expected.result_.cost, rel=1e-6)
    size = np.abs(expected.metric_.matrix).max()
    np.testing.assert_allclose(found.metric_.matrix, expected.metric_.matrix, rtol=0, atol=1e-3 * size)


@pytest.mark.long
@pytest.mark.parametrize("chunks", [(200, 6), ((1, 0, 899, 600), (4, 2)), (1500, 6)], ids=str)
def test_chunks_change_no_bit(chunks: Any, in_pieces: None) -> None:
    da = pytest.importorskip("dask.array")
    expected = nw.FixedRankLearner(**{**FIXED, "check": True}).fit(Stacked([X]), constraints=SIDE)
    array = da.from_array(X, chunks=chunks)
    found = nw.FixedRankLearner(**{**FIXED, "check": True}).fit(array, constraints=SIDE)
    assert isinstance(found.result_.n_iter, int)
    assert found.result_.solver == "SampledNewton"
    np.testing.assert_array_equal(found.metric_.matrix, expected.metric_.matrix)
    assert found.scores_ == expected.scores_


@pytest.mark.long
@pytest.mark.parametrize("pairs", ["random", "local"])
def test_labels_on_dask(pairs: str, in_pieces: None) -> None:
    da, pd = pytest.importorskip("dask.array"), pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe")
    frame = dd.from_pandas(pd.DataFrame(X, columns=[*"abcdef"]), npartitions=4)
    learner = nw.FixedRankLearner(rank=2, pairs=pairs, n_pairs=3000, random_state=0)
    learner.fit(frame, da.from_array(Y, chunks=400))
    assert list(learner.feature_names_in_) == [*"abcdef"]
    assert not learner.kept_prior_
    assert learner.scores_.learned > learner.scores_.start
    assert learner.transform(frame).compute().shape == (N, 2)
    assert learner.n_constraints_used_ > 2000


def test_weights_count_in_pieces(in_pieces: None) -> None:
    weights = np.random.default_rng(0).choice([0.1, 1.0, 5.0], N)
    start = np.eye(D, 2)
    how = {**FIXED, "start": start, "tol": 1e-9}
    found = nw.FixedRankLearner(**how).fit(Stacked([X]), constraints=BOUNDED, sample_weight=weights)
    assert found.result_.solver == "SampledNewton"
    expected = nw.FixedRankLearner(**how).fit(X, constraints=BOUNDED, sample_weight=weights)
    plain = nw.FixedRankLearner(**how).fit(X, constraints=BOUNDED)
    size = np.abs(expected.metric_.matrix).max()
    np.testing.assert_allclose(found.metric_.matrix, expected.metric_.matrix, rtol=0, atol=1e-3 * size)
    assert np.abs(plain.metric_.matrix - expected.metric_.matrix).max() > 1e-2 * size


@pytest.mark.long
def test_a_fit_goes_on_from_its_checkpoint_without_passing_twice(
    tmp_path: Path, in_pieces: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[int] = []
    found_by = RegressionInPieces._found

    def counted(self: RegressionInPieces, factor: np.ndarray, D: np.ndarray) -> Any:
        before = len(self.passes or ())
        found = found_by(self, factor, D)
        if self.passes is None or len(self.passes) > before:
            passes.append(1)
        return found

    monkeypatch.setattr(RegressionInPieces, "_found", counted)
    path = tmp_path / "fit"
    how = {**FIXED, "checkpoint": path}

    class Ended(BaseException):
        pass

    def end(record: Any) -> None:
        if passes and record.iteration == 2:  # the sample is learned from before the first pass
            raise Ended

    whole = nw.FixedRankLearner(**{**how, "checkpoint": tmp_path / "other"}).fit(
        Stacked([X]), constraints=SIDE
    )
    needed = len(passes)
    passes.clear()
    with pytest.raises(Ended):
        nw.FixedRankLearner(**how, callback=end).fit(Stacked([X]), constraints=SIDE)
    assert path.exists()
    assert 0 < len(passes) < needed
    with pytest.raises(ValueError, match="belongs to another fit"):
        nw.FixedRankLearner(**how).fit(Stacked([X + 1e-9]), constraints=SIDE)
    again = nw.FixedRankLearner(**how).fit(Stacked([X[:10], X[10:]]), constraints=SIDE)
    assert len(passes) == needed
    assert not path.exists()
    np.testing.assert_array_equal(again.metric_.matrix, whole.metric_.matrix)


def test_partial_fit_passes_over_parts(in_pieces: None) -> None:
    learner = nw.FixedRankLearner(rank=2, random_state=0)
    learner.partial_fit(Stacked([X]), constraints=SIDE)
    assert learner.n_seen_ == learner.n_constraints_used_ == len(SIDE)
    before = learner.metric_.matrix
    learner.partial_fit(Stacked([X]), constraints=SIDE)
    assert not np.array_equal(before, learner.metric_.matrix)

    def ratio(L: Any) -> float:
        found = L.pair_distance(PAIRS, X, squared=True)
        return float(np.median(found[SAME]) / np.median(found[~SAME]))

    assert ratio(learner) < 0.8 * ratio(nw.MetricLearner(penalty=1e-9).fit(X, constraints=SIDE))


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"kernel": "rbf"}, "kernel needs data and constraints in memory"),
        ({"solver": "online"}, "solver='online' needs data and constraints in memory"),
    ],
)
def test_what_needs_memory_is_said(how: dict[str, Any], words: str, in_pieces: None) -> None:
    with pytest.raises(ValueError, match=words):
        nw.FixedRankLearner(rank=2, **how).fit(Stacked([X]), Y)


def test_rows_that_are_no_numbers_are_named(in_pieces: None) -> None:
    wrong = X.copy()
    wrong[PAIRS[0, 0], 2] = np.nan
    with pytest.raises(ValueError, match=f"row {PAIRS[0, 0]}: entry 2 is nan"):
        nw.FixedRankLearner(**FIXED, start=np.eye(D, 2)).fit(Stacked([wrong]), constraints=BOUNDED)


def test_linear_constraints_need_memory(in_pieces: None) -> None:
    side = BOUNDED + c.linear(np.eye(N), 3.0, "<=")
    with pytest.raises(ValueError, match="general linear constraints need data in memory"):
        nw.FixedRankLearner(**FIXED).fit(Stacked([X]), constraints=side)
