"""Tables of pairs in files and on Dask: the same constraints as arrays, whatever the cut, or a refusal."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import nearwise as nw
from nearwise import constraints as c
from nearwise.constraints import Constraints
from nearwise.distributed import Vectors, open_pairs

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

InFiles, SetThresholds = Callable[..., Vectors], Callable[..., None]
RNG = np.random.default_rng(5)
N, M = 400, 900
X = RNG.normal(size=(N, 4)) * [1.0, 2.0, 3.0, 1.0]
PAIRS = np.array([pair for pair in RNG.integers(0, N, (M + 50, 2)) if pair[0] != pair[1]])[:M]
SAME = RNG.integers(0, 2, M)
LIMIT, WEIGHT = RNG.uniform(5.0, 30.0, M), RNG.uniform(0.5, 2.0, M)
NAMES = np.array([f"object {k}" for k in RNG.permutation(N)])


@pytest.fixture(autouse=True)
def small_parts(set_thresholds: SetThresholds) -> None:
    """Many parts and pieces even of few rows, which stay in files."""
    set_thresholds(rows_of_a_table_at_a_time=64, rows_of_a_piece=100)


def written(
    folder: Path, cuts: tuple[int, ...] = (0, M), by_name: bool = False, **options: Any
) -> list[Path]:
    """Parquet files of the pairs, cut at some rows."""
    ids = NAMES[PAIRS] if by_name else PAIRS
    paths = []
    for k, (low, high) in enumerate(itertools.pairwise(cuts)):
        own = slice(low, high)
        kind = pa.string() if by_name else pa.int64()
        table = {
            "left": pa.array(ids[own, 0], kind),
            "right": pa.array(ids[own, 1], kind),
            "same": SAME[own],
            "limit": LIMIT[own],
            "weight": WEIGHT[own],
        }
        paths.append(folder / f"pairs-{k}.parquet")
        parquet.write_table(pa.table(table), paths[-1], **options)
    return paths


CUTS = {
    "one file": ((0, M), {}),
    "uneven files": ((0, 1, 700, M), {"row_group_size": 130}),
    "empty files": ((0, 0, 300, 300, M, M), {"row_group_size": 7}),
}


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_tables_and_arrays_have_one_solution(
    tmp_path: Path, cut: Any, by_name: bool, in_files: InFiles
) -> None:
    table = open_pairs(written(tmp_path, cut[0], by_name, **cut[1]), ["left", "right"])
    side = c.similar(table.where("same", 1)) + c.at_least(table.where("same", 0), "limit", "weight")
    ids, near = NAMES[PAIRS] if by_name else PAIRS, SAME == 1
    given = c.similar(ids[near]) + c.at_least(ids[~near], LIMIT[~near], WEIGHT[~near])
    assert side.is_stored
    assert repr(side) == repr(given)
    names = NAMES if by_name else None
    problem = nw.Problem(X, side, penalty=0.01, sample_ids=names)
    assert "0.01 times weights" in problem._repr_html_()
    found = nw.solve(problem, tol=1e-9)
    expected = nw.solve(nw.Problem(in_files(X), given, penalty=0.01, sample_ids=names), tol=1e-9)
    np.testing.assert_array_equal(found.matrix, expected.matrix)
    np.testing.assert_array_equal(np.asarray(found.dual), np.asarray(expected.dual))
    assert found.certificate == expected.certificate
    in_memory = nw.solve(nw.Problem(X, given, penalty=0.01, sample_ids=names), nw.solvers.Newton(), tol=1e-9)
    np.testing.assert_allclose(found.matrix, in_memory.matrix, rtol=0, atol=1e-10 * in_memory.matrix.max())


def arrays(tmp_path: Path) -> dict[str, Callable[[], Any]]:
    np.save(tmp_path / "p.npy", PAIRS)
    np.save(tmp_path / "narrow.npy", np.asfortranarray(PAIRS.astype(np.int32)))
    (tmp_path / "several").mkdir()
    for k, part in enumerate(np.split(PAIRS, [5, 5])):
        np.save(tmp_path / "several" / f"{k}.npy", part)
    return {
        "in place": lambda: tmp_path / "p.npy",
        "by its name": lambda: str(tmp_path / "p.npy"),
        "by columns": lambda: tmp_path / "narrow.npy",
        "several": lambda: tmp_path / "several",
        "mapped": lambda: np.load(tmp_path / "p.npy", mmap_mode="r"),
        "a part of a map": lambda: np.load(tmp_path / "p.npy", mmap_mode="r")[:],
    }


@pytest.mark.parametrize(
    "kind", ["in place", "by its name", "by columns", "several", "mapped", "a part of a map"]
)
def test_arrays_in_files(tmp_path: Path, kind: str, in_files: InFiles) -> None:
    source = arrays(tmp_path)[kind]()
    side = c.at_most(source if kind == "by its name" else open_pairs(source), 10.0, 2.0)
    expected = c.at_most(PAIRS, 10.0, 2.0)
    loaded = side.loaded().blocks[0]
    np.testing.assert_array_equal(loaded.ids, PAIRS)
    np.testing.assert_array_equal(loaded.bounds, expected.bounds)
    np.testing.assert_array_equal(loaded.weights, expected.weights)
    assert side.describe(700) == expected.describe(700)
    assert side.total_weight == expected.total_weight == 2.0 * M


def test_a_checkpoint_knows_a_table_and_an_array_as_the_same(
    tmp_path: Path, in_files: InFiles, set_thresholds: SetThresholds
) -> None:
    set_thresholds(numbers_that_learners_take=3 * N)
    np.save(tmp_path / "p.npy", PAIRS)
    stored, given, other = (
        c.at_most(open_pairs(tmp_path / "p.npy"), 10.0),
        *(c.at_most(pairs, 10.0) for pairs in (PAIRS, PAIRS[::-1])),
    )
    learner = nw.MetricLearner(
        penalty=0.05, random_state=0, checkpoint=tmp_path / "fit", max_iter=1, tol=1e-9
    )
    rows = in_files(X)
    with pytest.warns(ConvergenceWarning, match="limit of 1 iterations"):
        learner.fit(rows, constraints=stored)
    with pytest.warns(ConvergenceWarning, match="limit of 1 iterations"):
        learner.fit(rows, constraints=given)
    with pytest.raises(ValueError, match="belongs to another fit"):
        learner.fit(rows, constraints=other)


def test_comparisons_and_inner_products(tmp_path: Path, in_files: InFiles) -> None:
    triplets = np.column_stack([PAIRS, (PAIRS[:, 0] + 1 + (PAIRS[:, 1] == PAIRS[:, 0] + 1)) % N])
    triplets = triplets[(triplets[:, 2] != triplets[:, 0]) & (triplets[:, 2] != triplets[:, 1])]
    np.save(tmp_path / "t.npy", triplets)
    np.save(tmp_path / "p.npy", PAIRS)
    side = c.closer(open_pairs(tmp_path / "t.npy"), 0.5) + c.similarity(
        open_pairs(tmp_path / "p.npy"), 1.0, ">="
    )
    given = c.closer(triplets, 0.5) + c.similarity(PAIRS, 1.0, ">=")
    found = nw.solve(nw.Problem(X, side, penalty=0.01))
    expected = nw.solve(nw.Problem(in_files(X), given, penalty=0.01))
    np.testing.assert_array_equal(found.matrix, expected.matrix)


@pytest.mark.parametrize("penalty", [0.01, "auto"])
def test_a_learner_learns_the_same(
    tmp_path: Path, set_thresholds: SetThresholds, penalty: Any, in_files: InFiles
) -> None:
    set_thresholds(numbers_that_learners_take=3 * N)  # so few that those in memory are in pieces too
    distances = np.square((X[PAIRS[:, 0]] - X[PAIRS[:, 1]])[:, [0, 3]]).sum(axis=1)
    near = distances < np.median(distances)
    for name, chosen in (("near", near), ("far", ~near)):
        np.save(tmp_path / f"{name}.npy", PAIRS[chosen])
    side = c.similar(open_pairs(tmp_path / "near.npy")) + c.dissimilar(open_pairs(tmp_path / "far.npy"))
    given = c.similar(PAIRS[near]) + c.dissimilar(PAIRS[~near])
    learner = nw.MetricLearner(penalty=penalty, random_state=0, tol=1e-8).fit(X, constraints=side)
    other = nw.MetricLearner(penalty=penalty, random_state=0, tol=1e-8).fit(in_files(X), constraints=given)
    assert learner.penalty_scores_ == other.penalty_scores_
    assert learner.n_constraints_used_ == M
    assert not learner.kept_prior_
    np.testing.assert_array_equal(learner.metric_.matrix, other.metric_.matrix)


def test_weights_of_rows_and_unknown_ids(tmp_path: Path) -> None:
    table = open_pairs(written(tmp_path, by_name=True), ["left", "right"])
    known, weights = NAMES[:-3], np.where(np.arange(N - 3) % 7 == 0, 0.0, 1.5)
    found, expected = (nw.MetricLearner(penalty=0.01, random_state=0, tol=1e-10) for _ in range(2))
    for learner, side in ((found, c.at_most(table, 9.0)), (expected, c.at_most(NAMES[PAIRS], 9.0))):
        with pytest.warns(UserWarning, match="are left out, because they name objects that are not"):
            learner.fit(X[:-3], constraints=side, sample_ids=known, sample_weight=weights)
    assert found.n_constraints_dropped_ == expected.n_constraints_dropped_ > 0
    assert found.n_constraints_used_ == expected.n_constraints_used_
    np.testing.assert_allclose(found.metric_.matrix, expected.metric_.matrix, rtol=0, atol=1e-7)


def test_refusals_name_the_file_and_the_row(tmp_path: Path) -> None:
    paths = written(tmp_path, (0, 100, 300, M), by_name=True)
    table = open_pairs(paths, ["left", "right"]).where("same", 1)
    lost = NAMES[PAIRS[300:, 1][SAME[300:] == 1][100]]
    first = int(np.flatnonzero((NAMES[PAIRS] == lost).any(axis=1) & (SAME == 1))[0])
    k = int(np.searchsorted([100, 300, M], first, side="right"))
    place = rf"pairs-{k}\.parquet, row {first - [0, 100, 300][k]}\)"
    with pytest.raises(ValueError, match=f"the id '{lost}' is not in sample_ids .*{place}"):
        nw.Problem(X, c.similar(table), sample_ids=np.where(lost == NAMES, "other", NAMES))
    np.save(tmp_path / "p.npy", np.where(np.arange(M)[:, None] == 777, 5, PAIRS))
    with pytest.raises(ValueError, match=r"p\.npy, row 777: the object 5 is paired with itself"):
        c.similar(open_pairs(tmp_path / "p.npy"))
    np.save(tmp_path / "q.npy", np.where(np.arange(M)[:, None] == 555, [5, N], PAIRS))
    with pytest.raises(ValueError, match=rf"the id {N} is not a row number below {N} \(.*q\.npy, row 555\)"):
        nw.Problem(X, c.at_most(open_pairs(tmp_path / "q.npy"), 1.0))
    table = pa.table({"a": ["x", "y", "x"], "b": ["y", "y", None], "c": [1.0, -2.0, 3.0]})
    parquet.write_table(table, tmp_path / "bad.parquet")
    bad = open_pairs(tmp_path / "bad.parquet", ["a", "b"])
    with pytest.raises(ValueError, match=r"bad\.parquet, row 2, column 'b': there is no id"):
        c.similar(bad)
    parquet.write_table(table.slice(0, 2), tmp_path / "bad.parquet")
    with pytest.raises(ValueError, match=r"bad\.parquet, row 1: the object 'y' is paired with itself"):
        c.similar(bad)
    with pytest.raises(
        ValueError, match=r"bad\.parquet, row 1: bound is -2\.0, expected a finite number > 0"
    ):
        c.at_most(open_pairs(tmp_path / "bad.parquet", ["a", "b"]).where("c", -2.0), "c")


def test_refusals_of_what_is_no_table(tmp_path: Path) -> None:
    path = written(tmp_path)[0]
    with pytest.raises(ValueError, match="columns must name two to four columns of objects"):
        open_pairs(path)
    with pytest.raises(ValueError, match="has no column 'top'; it has left, right"):
        open_pairs(path, ["left", "top"])
    table = open_pairs(path, ["left", "right"])
    with pytest.raises(ValueError, match="has no column 'b'; it has left"):
        c.at_most(table, "b")
    with pytest.raises(
        TypeError, match="bounds of a table of pairs must be one number or the name of a column"
    ):
        c.at_most(table, LIMIT)
    with pytest.raises(ValueError, match=r"bound is -1\.0, expected a finite number > 0"):
        c.at_most(table, -1.0)
    with pytest.raises(ValueError, match="column 'same' holds int64, and not"):
        c.similar(table.where("same", "yes"))
    np.save(tmp_path / "f.npy", X)
    with pytest.raises(
        ValueError, match=r"f\.npy must have rows of two .* whole numbers, .*\(400, 4\) float64"
    ):
        open_pairs(tmp_path / "f.npy")
    mixed = pa.table({"left": ["a"], "right": ["b"], "same": [1], "limit": [1.0], "weight": [1.0]})
    parquet.write_table(mixed, tmp_path / "z.parquet")
    with pytest.raises(
        ValueError, match=r"z\.parquet: column 'left' holds text, and those before hold numbers"
    ):
        c.similar(open_pairs([path, tmp_path / "z.parquet"], ["left", "right"]))


def test_what_needs_constraints_in_memory_says_so(tmp_path: Path) -> None:
    np.save(tmp_path / "p.npy", PAIRS)
    side = c.at_most(open_pairs(tmp_path / "p.npy"), 10.0)
    said = r"needs constraints in memory, and these are in files: constraints\.loaded\(\) reads them"
    with pytest.raises(ValueError, match=said):
        nw.KernelLearner().fit(X, constraints=side)
    with pytest.raises(ValueError, match=said):
        nw.Problem.from_kernel(X @ X.T, side)
    with pytest.raises(ValueError, match=said):
        nw.Problem(X, side, groups=[0, 0, 1, 1])
    with pytest.raises(ValueError, match="hard constraints"):
        nw.Problem(X, side, penalty=np.inf)
    assert not side.loaded().is_stored


def test_copies_are_removed_and_travel_as_names(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    table = open_pairs(written(tmp_path), ["left", "right"], scratch=scratch)
    side = c.similar(table)
    assert len(list(scratch.iterdir())) == 1
    resolved = Constraints(side.resolve(N, np.arange(N)[::-1]))
    assert len(list(scratch.iterdir())) == 2  # beside the copy that it is made of
    assert len(pickle.dumps(side)) < 1500
    again = pickle.loads(pickle.dumps(resolved))
    np.testing.assert_array_equal(again.loaded().blocks[0].ids, N - 1 - PAIRS)
    del again
    assert len(list(scratch.iterdir())) == 2  # what travelled does not own the files
    del side, resolved
    assert list(scratch.iterdir()) == []


def test_a_file_that_becomes_shorter_is_told(tmp_path: Path) -> None:
    np.save(tmp_path / "p.npy", PAIRS)
    side = c.at_most(open_pairs(tmp_path / "p.npy"), 10.0)
    np.save(tmp_path / "p.npy", PAIRS[:100])
    with pytest.raises(OSError, match=r"p\.npy has fewer rows than when it was opened"):
        nw.Problem(X, side)


def test_large_maps_are_not_read_into_memory(tmp_path: Path, set_thresholds: SetThresholds) -> None:
    np.save(tmp_path / "p.npy", PAIRS)
    mapped = np.load(tmp_path / "p.npy", mmap_mode="r")
    assert not c.similar(mapped).is_stored
    set_thresholds(rows_of_a_large_map=M)
    assert c.similar(mapped).is_stored


def test_the_automatic_learner_learns_a_linear_metric_from_files(tmp_path: Path) -> None:
    np.save(tmp_path / "p.npy", PAIRS)
    side = c.at_most(open_pairs(tmp_path / "p.npy"), 10.0)
    found = nw.AutoLearner(penalty=0.01, random_state=0).fit(X, constraints=side)
    assert found.choice_reason_ == "the constraints are in files"
    expected = nw.MetricLearner(penalty=0.01, random_state=0).fit(X, constraints=side)
    np.testing.assert_array_equal(found.metric_.matrix, expected.metric_.matrix)
    with pytest.raises(ValueError, match="kernel='rbf' cannot be learned: the constraints are in files"):
        nw.AutoLearner(kernel="rbf").fit(X, constraints=side)


class TestOnDask:
    """Pairs, and vectors too, that Dask computes."""

    @pytest.mark.parametrize("chunks", [(250, 2), ((0, 1, 0, M - 1), (1, 1))])
    def test_arrays(self, chunks: Any, in_files: InFiles) -> None:
        da = pytest.importorskip("dask.array")
        side = c.at_most(da.from_array(PAIRS, chunks=chunks), 10.0)
        assert side.is_stored
        for vectors in (X, da.from_array(X, chunks=(50, 4))):
            found = nw.solve(nw.Problem(vectors, side, penalty=0.01))
            expected = nw.solve(nw.Problem(in_files(X), c.at_most(PAIRS, 10.0), penalty=0.01))
            np.testing.assert_array_equal(found.matrix, expected.matrix)

    def test_dataframes_of_unknown_length(self, in_files: InFiles) -> None:
        pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
        frame = pd.DataFrame({"a": NAMES[PAIRS[:, 0]], "b": NAMES[PAIRS[:, 1]], "limit": LIMIT})
        lazy = dd.from_pandas(frame, npartitions=5)
        lazy = lazy[lazy["limit"] > 0]
        side = c.at_most(open_pairs(lazy, ["a", "b"]), "limit")
        found = nw.solve(nw.Problem(X, side, penalty=0.01, sample_ids=NAMES))
        expected = nw.solve(nw.Problem(in_files(X), c.at_most(PAIRS, LIMIT), penalty=0.01))
        np.testing.assert_array_equal(found.matrix, expected.matrix)
