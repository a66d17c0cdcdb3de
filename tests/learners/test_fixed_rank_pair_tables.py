"""`FixedRankLearner` on tables of pairs in files: what the same pairs in memory teach, whatever the cut."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import nearwise as nw
from nearwise import constraints as c
from nearwise._common import columns
from nearwise.core import chunks
from nearwise.distributed import open_pairs, pair_sources
from nearwise.distributed.vectors import Stacked
from nearwise.fixed_rank.in_pieces import RegressionInPieces
from nearwise.learners import _in_pieces
from nearwise.side import rows

RNG = np.random.default_rng(3)
N, D = 400, 5
Y = RNG.integers(0, 3, N)
X = RNG.normal(size=(N, D)) * [1, 1, 4, 4, 1] + Y[:, None] * np.array([3, 2, 0, 0, 0])
PAIRS = np.array([pair for pair in RNG.integers(0, N, (1200, 2)) if pair[0] != pair[1]])
SAME = Y[PAIRS[:, 0]] == Y[PAIRS[:, 1]]
TRIPLETS = np.array(
    [t for t in RNG.integers(0, N, (1500, 3)) if Y[t[0]] == Y[t[1]] != Y[t[2]] and t[0] != t[1]]
)
SIDE = c.similar(PAIRS[SAME]) + c.dissimilar(PAIRS[~SAME])


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many parts and pieces of few rows, which are not taken."""
    for module in (columns, rows, pair_sources):
        monkeypatch.setattr(module, "ROWS_AT_A_TIME", 150)
    monkeypatch.setattr(chunks, "FEWEST", 200)
    monkeypatch.setattr(_in_pieces, "_TAKEN", 5 * 350)


def stored(folder: Path, array: np.ndarray, *cuts: int) -> Any:
    folder.mkdir(parents=True)
    for k, (low, high) in enumerate(itertools.pairwise([0, *cuts, len(array)])):
        np.save(folder / f"{k}.npy", array[low:high])
    return open_pairs(folder)


def similar_and_not(folder: Path, *cuts: int) -> nw.Constraints:
    near, far = stored(folder / "near", PAIRS[SAME], *cuts), stored(folder / "far", PAIRS[~SAME], *cuts)
    return c.similar(near) + c.dissimilar(far)


def learner(**settings: Any) -> nw.FixedRankLearner:
    return nw.FixedRankLearner(**{"rank": 2, "random_state": 0, **settings})


def on_dask() -> Any:
    return pytest.importorskip("dask.array").from_array(X, chunks=((1, 0, 199, 200), (3, 2)))


@pytest.mark.parametrize(
    "data",
    [lambda: X, lambda: Stacked([X[:10], X[10:10], X[10:]]), on_dask],
    ids=["in memory", "in parts", "on Dask"],
)
def test_tables_and_arrays_teach_the_same(tmp_path: Path, data: Callable[[], Any]) -> None:
    expected = learner().fit(Stacked([X]), constraints=SIDE)
    side = similar_and_not(tmp_path, 5, 5, 300)
    assert side.is_stored
    found = learner().fit(data(), constraints=side)
    assert found.result_.solver == "SampledNewton"
    assert found.scores_ == expected.scores_
    assert not found.kept_prior_
    assert found.n_constraints_used_ == len(PAIRS)
    np.testing.assert_array_equal(found.metric_.matrix, expected.metric_.matrix)


def test_it_is_what_is_learned_in_memory(tmp_path: Path) -> None:
    how = {"check": False, "tol": 1e-9, "start": np.eye(D, 2)}
    found = learner(**how).fit(X, constraints=similar_and_not(tmp_path))
    expected = learner(**how).fit(X, constraints=SIDE)
    assert found.bounds_ == expected.bounds_
    assert found.result_.cost == pytest.approx(expected.result_.cost, rel=1e-6)
    size = np.abs(expected.metric_.matrix).max()
    np.testing.assert_allclose(found.metric_.matrix, expected.metric_.matrix, rtol=0, atol=1e-3 * size)


@pytest.mark.long
@pytest.mark.parametrize("margins", ["none", "one", "a column"])
def test_comparisons(tmp_path: Path, margins: str) -> None:
    """Those without a margin get one, also where only some rows of a file have none."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    own = np.where(np.arange(len(TRIPLETS)) % 3 == 0, 0.0, 2.0)
    table = dict(zip("apn", TRIPLETS.T, strict=True)) | {"margin": own}
    parquet.write_table(pa.table(table), tmp_path / "t.parquet", row_group_size=70)
    opened = open_pairs(tmp_path / "t.parquet", [*"apn"])
    margin: Any = {"none": 0.0, "one": 3.0, "a column": "margin"}[margins]
    side, given = c.closer(opened, margin), c.closer(TRIPLETS, own if margins == "a column" else margin)
    found = learner(check=False).fit(X, constraints=side)
    expected = learner(check=False).fit(Stacked([X]), constraints=given)
    assert found.result_.solver == "SampledNewton"
    np.testing.assert_array_equal(found.metric_.matrix, expected.metric_.matrix)
    assert found.metric_.matrix.max() > 1e-3


@pytest.mark.long
def test_weights_ids_and_labels_count_too(tmp_path: Path) -> None:
    names = np.array([f"object {k}" for k in RNG.permutation(N)])
    weights = np.where(np.arange(N) % 20 == 0, 0.0, np.random.default_rng(0).choice([1.0, 5.0], N))
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    counts = np.linspace(0.5, 2.0, len(PAIRS))
    table = dict(zip(("i", "j"), names[PAIRS].T, strict=True)) | {"same": SAME, "count": counts}
    parquet.write_table(pa.table(table), tmp_path / "p.parquet", row_group_size=500)
    opened = open_pairs(tmp_path / "p.parquet", ["i", "j"])
    near, far = opened.where("same", True), opened.where("same", False)
    side = c.at_most(near, 3.0, "count") + c.at_least(far, 9.0, "count")
    given = c.at_most(PAIRS[SAME], 3.0, counts[SAME]) + c.at_least(PAIRS[~SAME], 9.0, counts[~SAME])
    labels = np.where(np.arange(N) % 4 == 0, Y, np.nan)
    for y in (None, labels):
        found, expected = learner(check=False), learner(check=False)
        found.fit(X, y, constraints=side, sample_ids=names, sample_weight=weights)
        expected.fit(Stacked([X]), y, constraints=given, sample_weight=weights)
        np.testing.assert_array_equal(found.metric_.matrix, expected.metric_.matrix)
    found, expected = learner(), learner()
    found.fit(X, labels, constraints=side, sample_ids=names)
    expected.fit(
        Stacked([X]), labels, constraints=given
    )  # what is left of the pairs is in pieces there, and here not
    assert found.scores_.start == expected.scores_.start
    assert found.scores_.learned == pytest.approx(expected.scores_.learned, abs=0.03)


@pytest.mark.long
def test_a_fit_goes_on_from_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[float] = []
    found_by = RegressionInPieces._found

    def counted(self: RegressionInPieces, factor: np.ndarray, along: np.ndarray) -> Any:
        before = len(self.passes or ())
        found = found_by(self, factor, along)
        if len(self.passes or ()) > before:
            passes.append(found.cost)
        return found

    monkeypatch.setattr(RegressionInPieces, "_found", counted)
    how = {"check": False, "checkpoint": tmp_path / "fit"}
    whole = learner(**how).fit(X, constraints=similar_and_not(tmp_path / "a"))
    needed = passes.copy()
    passes.clear()

    class Ended(BaseException):
        pass

    def end(record: Any) -> None:
        if len(passes) >= 3:
            raise Ended

    with pytest.raises(Ended):
        learner(**how, callback=end).fit(X, constraints=similar_and_not(tmp_path / "b", 7, 7))
    other = PAIRS.copy()
    other[0] = other[0, ::-1]
    with pytest.raises(ValueError, match="belongs to another fit: its data"):
        learner(**how).fit(X, constraints=c.at_most(stored(tmp_path / "c", other), 5.0))
    again = learner(**how).fit(X, constraints=similar_and_not(tmp_path / "d", 300))
    assert passes == needed
    np.testing.assert_array_equal(again.metric_.matrix, whole.metric_.matrix)


def test_who_asks_to_stop_on_the_sample_gets_what_it_taught(tmp_path: Path) -> None:
    seen: list[float] = []

    def stop(record: Any) -> bool:
        seen.append(record.cost)
        return len(seen) == 2

    for checkpoint in (None, tmp_path / "fit"):
        seen.clear()
        found = learner(check=False, callback=stop, checkpoint=checkpoint)
        with pytest.warns(ConvergenceWarning, match="Interrupted"):
            found.fit(X, constraints=similar_and_not(tmp_path / str(checkpoint is None)))
        assert found.status_ is nw.Status.INTERRUPTED
        assert len(seen) == 2
    whole, again = learner(check=False), learner(check=False, checkpoint=tmp_path / "fit")
    for one, name in ((whole, "e"), (again, "f")):
        one.fit(X, constraints=similar_and_not(tmp_path / name))
    np.testing.assert_array_equal(whole.metric_.matrix, again.metric_.matrix)


def test_partial_fit_passes_over_parts(tmp_path: Path) -> None:
    found, expected = learner(), learner()
    found.partial_fit(X, constraints=similar_and_not(tmp_path))
    assert found.n_seen_ == found.n_constraints_used_ == len(PAIRS)
    expected.partial_fit(Stacked([X]), constraints=SIDE)
    np.testing.assert_array_equal(found.metric_.matrix, expected.metric_.matrix)
    found.partial_fit(X, constraints=similar_and_not(tmp_path / "again"))
    assert not np.array_equal(found.metric_.matrix, expected.metric_.matrix)


def test_what_cannot_be_learned_from_is_named(tmp_path: Path) -> None:
    sparse = pytest.importorskip("scipy.sparse")
    side = similar_and_not(tmp_path)
    with pytest.raises(ValueError, match="kernel needs data and constraints in memory"):
        learner(kernel="rbf").fit(X, constraints=side)
    with pytest.raises(ValueError, match="solver='online' needs data and constraints in memory"):
        learner(solver="online").fit(X, constraints=side)
    with pytest.raises(TypeError, match="constraints in files need dense data"):
        learner().fit(
            sparse.hstack([X, sparse.csr_array((N, 12_000))]), constraints=side
        )  # too many to be dense
    with pytest.raises(ValueError, match="X has 1 rows of 5 columns; two rows and one column are needed"):
        learner().fit(Stacked([X[:1]]), constraints=side)
    with pytest.raises(ValueError, match=rf"the id {PAIRS[SAME].max()} is not a row number below"):
        learner().fit(X[: PAIRS[SAME].max()], constraints=c.similar(stored(tmp_path / "n", PAIRS[SAME])))
    far = c.at_most(stored(tmp_path / "f", PAIRS), 1e40)
    with pytest.raises(ValueError, match=r"row 0: d\(\d+, \d+\) <= 1e\+40: its bound is \de\+38 times"):
        learner().fit(X, constraints=far)


@pytest.mark.parametrize("kind", ["in files", "in pieces", "taken"])
def test_pairs_of_equal_rows_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    equal = X.copy()
    equal[PAIRS[~SAME][3]] = 1.0
    if kind == "taken":
        monkeypatch.setattr(_in_pieces, "_TAKEN", X.size - 1)
    side = similar_and_not(tmp_path) if kind == "in files" else SIDE
    if kind == "taken":
        side = c.at_least(np.concatenate([PAIRS[~SAME][3:4], PAIRS[SAME][:40]]), 9.0)
    with pytest.warns(UserWarning, match="1 constraint is left out, because no matrix can meet it"):
        learner(check=False).fit(Stacked([equal]), constraints=side)
