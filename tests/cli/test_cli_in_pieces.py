"""`nearwise learn` from several files, a folder, and with workers."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nearwise as nw
from nearwise.cli import main
from nearwise.distributed import on_dask, pairs as tables
from nearwise.learners import _in_pieces
from nearwise.side import rows as block_rows

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
parquet = pytest.importorskip("pyarrow.parquet")

RNG = np.random.default_rng(0)
Y = RNG.integers(0, 3, 300)
X = (RNG.normal(size=(300, 4)) * [1, 3, 3, 1] + Y[:, None] * [2, 0, 0, 1]).astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two files of vectors, and pairs across them, by id."""
    monkeypatch.chdir(tmp_path)
    found = tmp_path / "vectors"
    found.mkdir()
    for k, rows in enumerate((np.arange(120), np.arange(120, 300))):
        table: dict[str, Any] = {f"x{j}": X[rows, j] for j in range(4)}
        table |= {"key": [f"o{row}" for row in rows], "kind": [f"c{code}" for code in Y[rows]]}
        parquet.write_table(pa.table(table), found / f"{k}.parquet", row_group_size=50)
    pairs = RNG.integers(0, 300, (200, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    lines = {f"o{i},o{j}": f"o{i},o{j},{int(Y[i] == Y[j])}" for i, j in np.sort(pairs, axis=1)}
    Path("pairs.csv").write_text("\n".join(lines.values()) + "\n", encoding="utf-8")
    return found


def test_a_folder_and_its_files_teach_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--labels", "kind", "--id", "key", "--penalty", "0.05"]
    assert main(["learn", "vectors", *options, "-o", "a.safetensors"]) == 0
    out = capsys.readouterr()
    assert "300 rows, 4 features, in pieces" in out.out
    assert "nothing was held out" in out.err
    files = [str(folder / "0.parquet"), str(folder / "1.parquet")]
    assert main(["learn", *files, *options, "-o", "b.safetensors", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["status"] == "SOLVED"
    a, b = (nw.load(name).metric_.matrix for name in ("a.safetensors", "b.safetensors"))
    np.testing.assert_array_equal(a, b)
    expected = nw.MetricLearner(penalty=0.05, random_state=0).fit(X.astype(np.float64), Y)
    np.testing.assert_allclose(a, expected.metric_.matrix, rtol=0, atol=1e-6)


def test_pairs_of_objects_in_different_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [
        "learn",
        "vectors",
        "--features",
        "x0",
        "--features",
        "x3",
        "--id",
        "key",
        "--pairs",
        "pairs.csv",
    ]
    assert main([*command, "--penalty", "0.1", "-o", "p.safetensors", "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    assert nw.load("p.safetensors").n_features_in_ == 2


def pair_files(folder: Path, cuts: tuple[int, ...] = (0, 3, 3, 200)) -> None:
    """The pairs of pairs.csv in Parquet files, cut at some lines."""
    lines = [line.split(",") for line in Path("pairs.csv").read_text(encoding="utf-8").split()]
    folder.mkdir()
    for k, (low, high) in enumerate(itertools.pairwise(cuts)):
        part = lines[low:high]
        answers = ["yes" if line[2] == "1" else "no" for line in part]
        table = {
            "left": [i for i, _, _ in part],
            "right": [j for _, j, _ in part],
            "same": answers,
            "n": part,
        }
        schema = pa.schema(
            [(name, pa.string()) for name in table if name != "n"] + [("n", pa.list_(pa.string()))]
        )
        parquet.write_table(pa.table(table, schema), folder / f"{k}.parquet", row_group_size=40)


def test_a_folder_of_pairs_is_not_read_into_memory(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair_files(folder.parent / "pairs")
    monkeypatch.setattr(block_rows, "ROWS_AT_A_TIME", 30)  # what is more stays in files
    monkeypatch.setattr(_in_pieces, "_TAKEN", 100)
    features = ["--features", "x0", "--features", "x3"]
    command = ["learn", "vectors", *features, "--id", "key", "--penalty", "0.1"]
    assert main([*command, "--pairs", "pairs.csv", "-o", "a.safetensors", "--quiet"]) == 0
    capsys.readouterr()
    assert main([*command, "--pairs", "pairs", "-o", "b.safetensors", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["notices"]
    assert "pairs: not used: 'n'" in told
    assert "pairs: among so many pairs, repetitions and answers that differ are not looked for" in told
    a, b = (nw.load(name).metric_.matrix for name in ("a.safetensors", "b.safetensors"))
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-6 * a.max())


def in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_rows, "ROWS_AT_A_TIME", 30)  # what is more stays in files
    monkeypatch.setattr(_in_pieces, "_TAKEN", 200)


def test_a_fixed_rank_from_folders(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair_files(folder.parent / "pairs")
    in_small_parts(monkeypatch)
    features = [word for name in ("x3", "x0", "x1") for word in ("--features", name)]
    known = ["--id", "key", "--labels", "kind"]
    command = ["learn", "vectors", *features, *known, "--method", "fixed-rank", "--rank", "2"]
    assert main([*command, "--pairs", "pairs.csv", "-o", "a.safetensors", "--quiet"]) == 0
    capsys.readouterr()
    assert main([*command, "--pairs", "pairs", "-o", "b.safetensors"]) == 0
    out = capsys.readouterr().out
    assert "of SampledNewton" in out
    assert out.count("Rank 2.") == 1
    a, b = (nw.load(name) for name in ("a.safetensors", "b.safetensors"))
    assert isinstance(b, nw.FixedRankLearner)
    assert list(b.feature_names_in_) == ["x3", "x0", "x1"]
    np.testing.assert_array_equal(a.metric_.matrix, b.metric_.matrix)
    assert (
        main(["learn", "vectors", "--labels", "kind", "--id", "key", "--method", "fixed-rank", "--json"]) == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert (told["status"], told["rank"], told["penalty"]) == ("STATIONARY", 4, None)
    assert told["learned_from"] == "300 labelled rows in 3 classes"


def test_a_model_remembers_its_columns_and_how_it_was_learned(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another order of columns is the same data, and `info` says what the model is."""
    options = ["--labels", "kind", "--id", "key", "--penalty", "0.05"]
    assert main(["learn", "vectors", *options, "-o", "m.safetensors", "--quiet"]) == 0
    turned = parquet.read_table(folder).select(["kind", "x3", "x1", "x0", "key", "x2"])
    (folder.parent / "turned").mkdir()
    parquet.write_table(turned, "turned/0.parquet")
    for data in ("vectors", "turned"):
        assert main(["apply", "m.safetensors", data, "-o", f"{data}.npy", "--quiet"]) == 0
    np.testing.assert_array_equal(np.load("vectors.npy"), np.load("turned.npy"))
    capsys.readouterr()
    assert main(["info", "m.safetensors"]) == 0
    said = capsys.readouterr().out
    assert "vectors, 300 rows\n" in said
    assert "column 'kind'" in said
    assert "SOLVED after" in said


def test_a_column_of_vectors_is_remembered(folder: Path) -> None:
    (folder.parent / "lists").mkdir()
    table = {"v": list(X), "kind": [f"c{code}" for code in Y]}
    parquet.write_table(pa.table(table), "lists/0.parquet")
    assert (
        main(["learn", "lists", "--labels", "kind", "--penalty", "0.05", "-o", "m.safetensors", "--quiet"])
        == 0
    )
    assert main(["apply", "m.safetensors", "lists", "-o", "a.npy", "--quiet"]) == 0
    expected = nw.load("m.safetensors").metric_.transform(X.astype(np.float64))
    np.testing.assert_array_equal(np.load("a.npy"), expected)


@pytest.mark.long
@pytest.mark.parametrize("method", ["logdet", "fixed-rank"])
def test_the_same_command_goes_on_where_it_was_stopped(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    in_small_parts(monkeypatch)
    pair_files(folder.parent / "pairs")
    how = ["--method", method, *(["--rank", "2"] if method == "fixed-rank" else ["--penalty", "0.5"])]
    command = ["learn", "vectors", "--labels", "kind", "--id", "key", "--pairs", "pairs", *how]
    assert main([*command, "--checkpoint", "other", "-o", "whole.safetensors", "--quiet"]) == 0
    kept = ["--checkpoint", "state", "-o", "m.safetensors"]
    assert main([*command, *kept, "--max-seconds", "1e-9"]) == 1
    assert "the limit of 1e-09 s was reached while learning; the best found so far is kept, and state" in (
        capsys.readouterr().err
    )
    assert main([*command, *kept, "--quiet"]) == 0
    assert not Path("state").exists()
    assert Path("whole.safetensors").read_bytes() == Path("m.safetensors").read_bytes()


def test_one_file_of_data_and_a_large_file_of_pairs(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair_files(folder.parent / "pairs", (0, 200))
    data = parquet.read_table(folder)
    parquet.write_table(data.select(["x0", "x1", "key"]), "data.parquet")
    command = ["learn", "data.parquet", "--id", "key", "--penalty", "0.1", "--pairs", "pairs/0.parquet"]
    assert main([*command, "-o", "a.safetensors"]) == 0
    assert "in pieces" not in capsys.readouterr().out
    monkeypatch.setattr(tables, "_LARGE", 100)
    assert main([*command, "-o", "b.safetensors"]) == 0
    said = capsys.readouterr()
    assert "300 rows, 2 features, in pieces" in said.out
    assert "pairs/0.parquet has so many pairs that the data are used in pieces" in said.err


def test_what_is_wrong_in_a_folder_of_pairs_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair_files(folder.parent / "pairs")
    features = ["--features", "x0", "--features", "x3"]
    command = ["learn", "vectors", *features, "--id", "key", "--pairs", "pairs", "-o", "a.safetensors"]

    def told(*more: str) -> str:
        assert main([*command, *more]) == 2
        return capsys.readouterr().err

    assert "--conflicts needs pairs in memory" in told("--conflicts", "drop")
    assert "--structure needs data in memory" in told("--structure", "diagonal")
    kinds = {"left": ["o1", "o2"], "right": ["o3", "nobody"], "same": ["yes", "no"], "n": [["a"], ["b"]]}
    parquet.write_table(pa.table(kinds), "pairs/3.parquet")
    assert "the id 'nobody' is not one of the data's ids (pairs/3.parquet, row 1)" in told()
    parquet.write_table(pa.table(kinds | {"same": ["yes", "perhaps"]}), "pairs/3.parquet")
    assert "pairs/3.parquet, row 1: 'perhaps' does not say what the pair is" in told()
    parquet.write_table(pa.table(kinds | {"right": ["o3", "o2"]}), "pairs/3.parquet")
    assert "pairs/3.parquet, row 1: the object 'o2' is paired with itself" in told()


@pytest.mark.slow
@pytest.mark.parametrize("method", [["--penalty", "0.05"], ["--method", "fixed-rank", "--rank", "2"]])
def test_workers_teach_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch, method: list[str]) -> None:
    in_small_parts(monkeypatch)
    options = ["--labels", "kind", "--id", "key", *method, "--quiet"]
    assert main(["learn", "vectors", *options, "-o", "a.safetensors"]) == 0
    assert main(["learn", "vectors", *options, "-o", "b.safetensors", "--workers", "2"]) == 0
    a, b = (nw.load(name).metric_.matrix for name in ("a.safetensors", "b.safetensors"))
    np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs signals of POSIX")
def test_workers_outlive_ctrl_c(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which a terminal sends to all processes: the fit is asked to end, and waits for their answers."""
    from nearwise.study import in_pieces

    fit, alive = in_pieces.fit_in_pieces, []

    def interrupted(vectors: Any, *others: Any) -> Any:
        processes = vectors.client.run(os.getpid).values()
        for process in processes:
            os.kill(process, signal.SIGINT)
        time.sleep(3.0)
        for process in processes:
            os.kill(process, 0)  # an error where it is no more
            alive.append(process)
        return fit(vectors, *others)

    monkeypatch.setattr(in_pieces, "fit_in_pieces", interrupted)
    options = ["--labels", "kind", "--id", "key", "--penalty", "0.05", "--quiet"]
    assert main(["learn", "vectors", *options, "-o", "a.safetensors", "--workers", "2"]) == 0
    assert len(alive) == 2


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[str]:
    """The address of a scheduler with two workers, each a process that was started by hand."""
    distributed = pytest.importorskip("distributed")
    file = tmp_path / "scheduler.json"
    own = ["--scheduler-file", str(file), "--no-dashboard"]
    commands = [
        ["dask_scheduler", *own, "--port", "0"],
        *(["dask_worker", *own, "--nthreads", "1", "--no-nanny"] for _ in range(2)),
    ]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.{command[0]}", *command[1:]],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for command in commands
    ]
    try:
        # both wait for the file of the scheduler, for as long as the machine may take
        with distributed.Client(scheduler_file=str(file), timeout="120s", set_as_default=False) as client:
            client.wait_for_workers(2, timeout=120)
            address = client.scheduler.address
        yield address
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


@pytest.mark.slow
def test_a_cluster_that_is_there_teaches_the_same(
    folder: Path, scheduler: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--labels", "kind", "--id", "key", "--penalty", "0.05", "--quiet"]
    assert main(["learn", "vectors", *options, "-o", "a.safetensors"]) == 0
    assert main(["learn", "vectors", *options, "-o", "b.safetensors", "--dask", scheduler]) == 0
    a, b = (nw.load(name).metric_.matrix for name in ("a.safetensors", "b.safetensors"))
    np.testing.assert_array_equal(a, b)


def test_no_scheduler_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    distributed = pytest.importorskip("distributed")

    def nobody(*_: object, **__: object) -> None:
        raise OSError("Timed out trying to connect")

    monkeypatch.setattr(distributed, "Client", nobody)
    assert main(["learn", "vectors", "--labels", "kind", "--id", "key", "--dask", "tcp://there:1"]) == 2
    assert "--dask tcp://there:1: no scheduler answers there" in capsys.readouterr().err


def test_what_is_wrong_with_a_cluster_is_said_in_a_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    distributed = pytest.importorskip("distributed")
    command = ["learn", "vectors", "--labels", "kind", "--id", "key", "--dask", "tcp://there:1"]

    class Nobody(contextlib.nullcontext[Any]):
        def wait_for_workers(self, count: int, timeout: float) -> None:
            raise TimeoutError

    monkeypatch.setattr(distributed, "Client", lambda *_, **__: Nobody())
    assert main(command) == 2
    assert (
        "--dask tcp://there:1: no worker came to this scheduler within 60 seconds" in capsys.readouterr().err
    )

    def lost(*_: object, **__: object) -> None:
        raise on_dask.LostSchedulerError("the Dask scheduler does not answer any more")

    monkeypatch.setattr("nearwise.study.in_pieces.fit_in_pieces", lost)
    assert main(command[:-2]) == 2
    assert capsys.readouterr().err == "nearwise: the Dask scheduler does not answer any more\n"


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_coordinates_are_written_in_parts(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    from nearwise.study import in_pieces

    monkeypatch.setattr(in_pieces, "_NUMBERS", 4 * 70)
    fitted = nw.MetricLearner(penalty=0.05, random_state=0).fit(pd.DataFrame(X, columns=[*"abcd"]), Y)
    nw.save(fitted, "m.safetensors")
    np.save("large.npy", X)
    monkeypatch.setattr("nearwise.cli.apply._LARGE", 1000)
    assert main(["apply", "m.safetensors", "large.npy", "-o", f"out{suffix}"]) == 0
    assert f"wrote out{suffix}: 300 rows of 4 coordinates" in capsys.readouterr().out
    if suffix == ".npy":
        found = np.load("out.npy")
    else:
        found = parquet.read_table("out.parquet").to_pandas().to_numpy()
    expected = fitted.metric_.transform(X.astype(np.float64))
    size = np.abs(expected).max()  # some BLAS round a row by its place in a part
    np.testing.assert_allclose(found, expected, rtol=0, atol=8 * np.finfo(float).eps * size)
    assert main(["apply", "m.safetensors", "large.npy", "-o", f"out{suffix}"]) == 2  # it exists
    low = nw.MetricLearner(rank=2, penalty=0.05, random_state=0).fit(X.astype(np.float64), Y)
    nw.save(low, "low.safetensors")
    assert main(["apply", "low.safetensors", "large.npy", "-o", f"low{suffix}"]) == 0
    assert "learned in a subspace" in capsys.readouterr().err
    assert main(["apply", "m.safetensors", "vectors", "-o", f"other{suffix}"]) == 2
    assert "has no column 'a'" in capsys.readouterr().err


def test_writing_coordinates_leaves_no_file_mapped(folder: Path) -> None:
    """Pages of a mapping would count as memory, as many as the file has."""
    from nearwise import study
    from nearwise.study import in_pieces

    fitted = nw.MetricLearner(penalty=0.05, random_state=0).fit(X.astype(np.float64), Y)
    nw.save(fitted, "m.safetensors")
    for k, rows in enumerate((X[:100], X[100:100], X[100:])):
        np.save(f"part{k}.npy", rows)
    vectors = in_pieces.open_files([f"part{k}.npy" for k in range(3)])
    in_pieces.write_coordinates(study.load("m.safetensors"), vectors, "out.npy")
    np.testing.assert_array_equal(np.load("out.npy"), fitted.transform(X.astype(np.float64)))
    assert all("_map" not in vars(part) for part in vectors.parts)
    wrong = X.copy()
    wrong[130, 2] = np.nan
    np.save("part2.npy", wrong[100:])
    with pytest.raises(study.Refused, match=r"row 30 of \S+part2\.npy: entry 2 is nan"):
        in_pieces.write_coordinates(
            study.load("m.safetensors"), in_pieces.open_files(["part0.npy", "part2.npy"]), "bad.npy"
        )
    assert not Path("bad.npy").exists()


def test_coordinates_of_a_folder_keep_the_ids(folder: Path) -> None:
    frame = pd.DataFrame(X, columns=[f"x{k}" for k in range(4)])
    fitted = nw.MetricLearner(penalty=0.05, random_state=0).fit(frame, Y)
    nw.save(fitted, "m.safetensors")
    assert main(["apply", "m.safetensors", "vectors", "--id", "key", "-o", "out.parquet", "--quiet"]) == 0
    found = parquet.read_table("out.parquet").to_pandas()
    assert found["id"].tolist() == [f"o{row}" for row in range(300)]
    np.testing.assert_array_equal(
        found.drop(columns="id").to_numpy(), fitted.metric_.transform(X.astype(np.float64))
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--rank", "2"], "--rank needs data in memory"),
        (["--method", "fixed-rank", "--rank", "5"], "--rank 5: the data have 4 features"),
        (["--suspects", "s.csv"], "--suspects needs data in memory"),
        (["--scale", "standard"], "--scale standard needs data in memory"),
        (["--penalty", "inf"], "--penalty inf needs data in memory"),
        (["--workers", "2", "--dask", "tcp://nowhere:1"], "--workers makes a cluster and --dask names one"),
        (["--features", "x9"], "has no column 'x9'"),
    ],
)
def test_what_needs_memory_is_refused_by_name(
    folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    assert main(["learn", "vectors", "--labels", "kind", "--id", "key", *options]) == 2
    assert words in capsys.readouterr().err


def test_text_files_are_not_used_in_pieces(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["learn", "pairs.csv", "pairs.csv", "--labels", "kind"]) == 2
    assert "pairs.csv: only folders and files that end in .parquet" in capsys.readouterr().err
