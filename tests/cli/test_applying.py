"""`nearwise apply` and `nearwise neighbors`: models of every kind, files of every kind, and refusals."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import nearwise as nw
from nearwise import cli
from nearwise.data import tables
from nearwise.learners.metric import Metric
from nearwise.linalg import nearest as linalg_nearest
from nearwise.study import neighbors

X, y = load_iris(return_X_y=True)
X = np.ascontiguousarray(X)
NAMES = ("sl", "sw", "pl", "pw")
Capture = pytest.CaptureFixture[str]


def pipeline() -> Pipeline:
    """As `nearwise learn` makes it: a model that knows the names of its columns."""
    model = Pipeline(
        [("scale", StandardScaler()), ("learn", nw.MetricLearner(penalty=1.0, random_state=0))]
    ).fit(X, y)
    model[0].feature_names_in_ = np.array(NAMES, dtype=object)
    return model


MODELS = {
    "pipeline": pipeline,
    "metric learner": lambda: nw.MetricLearner(penalty=1.0, random_state=0).fit(X, y),
    "subspace": lambda: nw.MetricLearner(penalty=1.0, rank=2, random_state=0).fit(X, y),
    "kernel": lambda: nw.KernelLearner(penalty=1.0, random_state=0).fit(X, y),
    "scaled kernel": lambda: make_pipeline(
        StandardScaler(), nw.KernelLearner(penalty=1.0, rank=9, random_state=0)
    ).fit(X, y),
    "fixed rank": lambda: nw.FixedRankLearner(rank=2, random_state=0).fit(X, y),
    "reducer": lambda: nw.KernelReducer(random_state=0).fit(X, y),
    "metric": lambda: nw.MetricLearner(penalty=1.0, random_state=0).fit(X, y).metric_,
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with flowers, models of them, and things that are not quite that."""
    path = tmp_path_factory.mktemp("prepared")
    species = np.array(["setosa", "versicolor", "virginica"], dtype=object)[y]
    names = [f"flower {row}" for row in range(len(X))]
    tables.write(f"{path}/flowers.csv", NAMES, X, ids=names, labels=species, force=False)
    tables.write(f"{path}/other.csv", ["sl", "x", "y", "z"], X, force=False)
    (path / "bad.csv").write_text("sl,sw,pl,pw\n1,2,3,4\n1,2,3,\n", encoding="utf-8")
    arrays = {"flowers": X, "narrow": X[:, :3], "huge": X * 1e200, "large": X * 1e305}
    for name, array in arrays.items():
        np.save(path / f"{name}.npy", array)
    nw.save(pipeline(), path / "model")
    nw.save(nw.MetricLearner(), path / "plain")
    nw.save(nw.FixedRankRegressor(), path / "regressor")
    nw.save(Metric(np.eye(4)), path / "metric")
    nw.save(Metric(1e9 * np.eye(4)), path / "steep")
    return path


@pytest.fixture
def folder(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, a copy of what was prepared."""
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def frame(rows: np.ndarray) -> object:
    """Rows with the names of their columns."""
    return pytest.importorskip("pandas").DataFrame(rows, columns=list(NAMES))


def run(*arguments: str) -> int:
    return cli.main(list(arguments))


@pytest.mark.parametrize("kind", MODELS)
def test_every_model_gives_its_coordinates_and_its_nearest_rows(
    kind: str, folder: Path, capsys: Capture
) -> None:
    nw.save(MODELS[kind](), "other")
    model = nw.load("other")
    assert run("apply", "other", "flowers.npy", "-o", "out.npy", "--quiet") == cli.DONE
    rows_with_names = frame(X) if kind == "pipeline" else X
    np.testing.assert_array_equal(np.load("out.npy"), model.transform(rows_with_names))
    assert run("neighbors", "other", "flowers.npy", "-k", "3", "-o", "out.json", "--quiet") == cli.DONE
    assert capsys.readouterr() == ("", "")
    rows = json.loads(Path("out.json").read_text(encoding="utf-8"))
    learner = model[-1] if isinstance(model, Pipeline) else model
    entered = (X - X.mean(axis=0)) / X.std(axis=0) if isinstance(model, Pipeline) else X
    metric = getattr(learner, "metric_", learner)
    squared = metric.squared_distances(entered, entered)
    np.fill_diagonal(squared, np.inf)
    assert [row["rank"] for row in rows] == [1, 2, 3] * len(X)
    assert [row["query"] for row in rows] == np.repeat(np.arange(len(X)), 3).tolist()
    distances = np.array([row["distance"] for row in rows]).reshape(-1, 3)
    np.testing.assert_allclose(distances, np.sqrt(np.sort(squared, axis=1)[:, :3]), rtol=1e-6, atol=1e-6)
    found = np.array([row["neighbor"] for row in rows]).reshape(-1, 3)
    assert not (found == np.arange(len(X))[:, None]).any()
    np.testing.assert_allclose(
        np.sqrt(np.take_along_axis(squared, found, axis=1)), distances, rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz", ".parquet", ".npz"])
def test_coordinates_keep_ids_and_have_names(suffix: str, folder: Path, capsys: Capture) -> None:
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    target = f"out{suffix}"
    assert run("apply", "model", "flowers.csv", "--id", "id", "-o", target) == cli.DONE
    out, error = capsys.readouterr()
    assert out == f"wrote {target}: 150 rows of 4 coordinates\n"
    assert error == "nearwise: note: flowers.csv: the model does not use 'label'\n"
    table = tables.read(target, ids="id")
    assert table.names == tuple(f"metriclearner{k}" for k in range(4))
    assert table.ids[17] == "flower 17"
    distances = np.linalg.norm(table.X[0] - table.X[1:], axis=1)
    expected = pipeline_distances()
    np.testing.assert_allclose(distances, expected[0, 1:], rtol=1e-9)


def pipeline_distances() -> np.ndarray:
    model = pipeline()
    return model[1].distances((X - model[0].mean_) / model[0].scale_)


def test_columns_are_matched_by_name_in_any_order(folder: Path, capsys: Capture) -> None:
    tables.write("turned.csv", NAMES[::-1], X[:, ::-1], force=False)
    assert run("apply", "model", "turned.csv", "-o", "turned.npy", "--quiet") == cli.DONE
    assert run("apply", "model", "flowers.npy", "-o", "straight.npy", "--quiet") == cli.DONE
    named = ["--features", "pw,pl", "--features", "sl", "--features", "sw"]
    assert run("apply", "model", "flowers.csv", *named, "-o", "named.npy", "--quiet") == cli.DONE
    assert np.array_equal(np.load("turned.npy"), np.load("straight.npy"))
    assert np.array_equal(np.load("named.npy"), np.load("straight.npy"))


def test_apply_writes_csv_to_standard_output(folder: Path, capsys: Capture) -> None:
    assert run("apply", "model", "flowers.csv", "--id", "1", "--quiet") == cli.DONE
    out, error = capsys.readouterr()
    assert out.splitlines()[0] == "id,metriclearner0,metriclearner1,metriclearner2,metriclearner3"
    assert len(out.splitlines()) == 151
    assert error == ""


def test_apply_reads_one_row_from_standard_input(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"sl,sw,pl,pw\n5.1,3.5,1.4,0.2\n")))
    assert run("apply", "model", "-") == cli.DONE
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_apply_sums_up_in_json(folder: Path, capsys: Capture) -> None:
    assert run("apply", "model", "flowers.csv", "--json", "-o", "out.csv") == cli.DONE
    out, error = capsys.readouterr()
    assert error == ""
    summary = json.loads(out)
    assert (summary["output"], summary["rows"], len(summary["coordinates"])) == ("out.csv", 150, 4)
    assert summary["notices"] == ["flowers.csv: the model does not use 'id', 'label'"]


def test_a_subspace_is_said_to_leave_something_out(folder: Path, capsys: Capture) -> None:
    nw.save(MODELS["subspace"](), "other")
    assert run("apply", "other", "flowers.npy", "-o", "out.npy") == cli.DONE
    assert "learned in a subspace" in capsys.readouterr().err


def test_whole_coordinates_have_the_whole_distances(folder: Path, capsys: Capture) -> None:
    model = MODELS["subspace"]()
    nw.save(model, "other")
    assert run("apply", "other", "flowers.npy", "--whole", "-o", "out.npy") == cli.DONE
    assert "subspace" not in capsys.readouterr().err
    found = np.load("out.npy")
    assert found.shape == (150, 4)
    np.testing.assert_allclose(((found[:75] - found[75:]) ** 2).sum(axis=1),
        [model.metric_(X[k], X[75 + k]) ** 2 for k in range(75)], rtol=1e-10)  # fmt: skip
    nw.save(MODELS["kernel"](), "kernel")
    assert run("apply", "kernel", "flowers.npy", "--whole", "-o", "other.npy") == cli.BAD_INPUT
    assert "kernel: the distance is that of a kernel" in capsys.readouterr().err


def test_neighbors_are_csv_where_nobody_looks(folder: Path, capsys: Capture) -> None:
    assert run("neighbors", "model", "flowers.csv", "--id", "id", "-k", "2", "--quiet") == cli.DONE
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "query,rank,neighbor,distance"
    assert len(lines) == 301
    assert lines[1].startswith("flower 0,1,flower ")


def test_neighbors_are_a_table_on_a_terminal(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    assert run("neighbors", "model", "flowers.csv", "--id", "id", "--quiet") == cli.DONE
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["query", "rank", "neighbor", "distance"] in lines
    assert lines[-1][:4] == ["and", "130", "queries", "more;"]
    assert any(line[:3] == ["flower", "0", "1"] for line in lines)


def test_neighbors_of_a_query_file(folder: Path, capsys: Capture) -> None:
    tables.write("new.csv", NAMES, X[[3, 99]], ids=["p", "q"], force=False)
    common = ("neighbors", "model", "flowers.csv", "-k", "2", "--id", "id", "--json")
    assert run(*common, "--query", "new.csv") == cli.DONE
    found = json.loads(capsys.readouterr().out)
    assert (found["k"], len(found["neighbors"])) == (2, 4)
    first = found["neighbors"][0]
    assert first == {"query": "p", "rank": 1, "neighbor": "flower 3", "distance": 0.0}
    assert found["neighbors"][2]["neighbor"] == "flower 99"
    np.save("new.npy", X[[3]])
    assert run(*common, "--query", "new.npy") == cli.DONE
    assert json.loads(capsys.readouterr().out)["neighbors"][0]["query"] == 0


def test_equal_rows_are_at_distance_zero_in_the_order_of_their_numbers(folder: Path, capsys: Capture) -> None:
    np.save("equal.npy", np.repeat(X[:1] + 1e6, 20, axis=0))
    assert run("neighbors", "model", "equal.npy", "-k", "3", "--json") == cli.DONE
    found = json.loads(capsys.readouterr().out)["neighbors"]
    assert {row["distance"] for row in found} == {0.0}
    assert [row["neighbor"] for row in found[:6]] == [1, 2, 3, 0, 2, 3]


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("searched", [True, False])
def test_blocks_find_what_all_differences_at_once_find(
    offset: float, searched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbors, "TILE", 7)
    rng = np.random.default_rng(0)
    data = rng.normal(size=(60, 5)) + offset
    queries = rng.normal(size=(23, 5)) + offset if searched else None
    factor = rng.normal(size=(5, 3))
    done: list[float] = []
    rows, distances = neighbors.nearest(Metric(factor), data, queries, 4, done.append)
    objects = data if queries is None else queries
    exact = np.linalg.norm((objects[:, None] - data[None]) @ factor, axis=2)
    if queries is None:
        np.fill_diagonal(exact, np.inf)
    order = np.argsort(exact, axis=1, kind="stable")[:, :4]
    np.testing.assert_array_equal(rows, order)
    np.testing.assert_allclose(distances, np.take_along_axis(exact, order, axis=1), rtol=1e-9 * (1 + offset))
    assert done[-1] == 1.0
    assert done == sorted(done)


@pytest.mark.parametrize("searched", [True, False])
@pytest.mark.parametrize("kind", ["identity outside a subspace", "kernel"])
def test_every_metric_is_searched_by_its_own_distance(
    kind: str, searched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbors, "TILE", 7)
    monkeypatch.setattr(linalg_nearest, "NUMBERS", 40)
    rng = np.random.default_rng(1)
    data, queries = rng.normal(size=(60, 5)), rng.normal(size=(23, 5))
    if kind == "kernel":
        metric: Any = nw.KernelLearner(penalty=1.0, random_state=0).fit(data, np.arange(60) % 3).metric_
    else:
        metric = Metric(rng.normal(size=(2, 2)), np.linalg.qr(rng.normal(size=(5, 2)))[0])
    rows, distances = neighbors.nearest(metric, data, queries if searched else None, 4)
    exact = np.sqrt(metric.squared_distances(queries if searched else data, data))
    if not searched:
        np.fill_diagonal(exact, np.inf)
    order = np.argsort(exact, axis=1, kind="stable")[:, :4]
    np.testing.assert_array_equal(rows, order)
    np.testing.assert_allclose(distances, np.take_along_axis(exact, order, axis=1), rtol=1e-6)


def test_all_other_rows_can_be_asked_for() -> None:
    data = np.array([[0.0], [1.0], [3.0]])
    rows, distances = neighbors.nearest(Metric(np.eye(1)), data, None, 2)
    assert rows.tolist() == [[1, 2], [0, 2], [1, 0]]
    assert distances.tolist() == [[1, 3], [1, 2], [2, 3]]


REFUSED = {
    "no model": (["apply", "absent", "flowers.csv"], "no model file absent"),
    "not a model": (["apply", "flowers.csv", "flowers.csv"], "flowers.csv is damaged, or not a model file"),
    "a folder for a model": (["apply", ".", "flowers.csv"], "no model file ."),
    "no data": (["apply", "model", "absent.csv"], "absent.csv: there is no such file"),
    "other names": (
        ["apply", "model", "other.csv"],
        "other.csv lacks 'sw', 'pl', 'pw' of the 4 columns that the model was learned with",
    ),
    "a column too many": (
        ["apply", "model", "flowers.csv", "--features", "sl,sw,pl,pw,1"],
        "'flower 0' is not a number",
    ),
    "a column too few": (["apply", "model", "flowers.csv", "--drop", "sl,id,label"], "needs 'sl'"),
    "too few numbers": (
        ["apply", "model", "narrow.npy"],
        "has 3 columns of numbers, but model was",
    ),
    "a bad line": (["neighbors", "model", "bad.csv"], "bad.csv, line 3, column 'pw': the value is missing"),
    "suffix": (
        ["apply", "model", "flowers.csv", "-o", "out.xlsx"],
        "out.xlsx: the name must end in",
    ),
    "no folder": (
        ["apply", "model", "flowers.csv", "-o", "no/out.csv"],
        "no/out.csv: no is not a folder",
    ),
    "exists": (["apply", "model", "flowers.csv", "-o", "narrow.npy"], "narrow.npy exists; give --force"),
    "ids in npy": (["apply", "model", "flowers.csv", "--id", "id", "-o", "o.npy"], "o.npy cannot hold ids"),
    "neighbors in npy": (["neighbors", "model", "flowers.npy", "-o", "o.npy"], "cannot write o.npy"),
    "two outputs": (["apply", "model", "flowers.csv", "--json"], "give -o FILE"),
    "two outputs again": (["neighbors", "model", "flowers.csv", "--json", "-o", "-"], "leave out -o"),
    "too many": (
        ["neighbors", "model", "flowers.npy", "-k", "150"],
        "-k 150 is too large: flowers.npy has",
    ),
    "two inputs": (["neighbors", "model", "-", "--query", "-"], "only one file can come from standard input"),
    "not fitted": (["apply", "plain", "flowers.csv"], "plain holds a MetricLearner that is not fitted"),
    "no metric": (["apply", "regressor", "flowers.csv"], "regressor holds a FixedRankRegressor that has no"),
    "overflow": (["neighbors", "metric", "huge.npy", "-k", "1"], "distances between them overflow"),
    "overflow in coordinates": (["apply", "steep", "large.npy"], "so large that the coordinates overflow"),
    "no such id": (["neighbors", "model", "flowers.csv", "--id", "Id"], "no column 'Id'; did you mean 'id'?"),
    "two lines": (["apply", "model", "a\nb.csv"], "a b.csv: there is no such file"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_are_code_2_and_one_line_and_write_nothing(name: str, folder: Path, capsys: Capture) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    arguments, message = REFUSED[name]
    assert run(*arguments) == cli.BAD_INPUT
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("nearwise: ")
    assert message in error
    assert error.count("\n") == 1
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.long
@pytest.mark.parametrize("command", ["apply", pytest.param("neighbors", marks=pytest.mark.slow)])
def test_a_reader_that_went_away_is_no_error(command: str, folder: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    source = str(Path(nw.__file__).parents[1])
    with os.fdopen(write, "wb") as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "nearwise", command, "model", "flowers.csv", "--quiet"],
            stdout=pipe,
            stderr=subprocess.PIPE,
            check=False,
            env={**os.environ, "PYTHONPATH": source},
        )
    assert (done.returncode, done.stderr) == (cli.DONE, b"")


def test_force_replaces(folder: Path) -> None:
    for _ in range(2):
        assert run("apply", "model", "flowers.npy", "-o", "out.npy", "--force", "--quiet") == cli.DONE
        assert run("neighbors", "model", "flowers.npy", "-o", "out.csv", "--force", "--quiet") == cli.DONE
    assert np.load("out.npy").shape == (150, 4)
    assert not [path.name for path in folder.iterdir() if path.suffix == ".part"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("apply model flowers.csv -o flowers.csv", "DATA and -o are the same file: flowers.csv"),
        ("neighbors model flowers.csv -o ./flowers.csv", "DATA and -o are the same file: ./flowers.csv"),
        (
            "neighbors model flowers.npy --query flowers.csv -o flowers.csv",
            "--query and -o are the same file",
        ),
    ],
)
def test_data_are_not_overwritten_by_what_comes_of_them(
    line: str, message: str, folder: Path, capsys: Capture
) -> None:
    before = Path("flowers.csv").read_bytes()
    assert run(*line.split(), "--force") == cli.BAD_INPUT
    assert message in capsys.readouterr().err
    assert Path("flowers.csv").read_bytes() == before


def test_one_neighbor_is_not_several(folder: Path, capsys: Capture) -> None:
    assert run("neighbors", "model", "flowers.csv", "--id", "id", "-k", "1", "-o", "out.csv") == cli.DONE
    assert capsys.readouterr().out == f"wrote out.csv: 1 neighbor of {len(X)} rows\n"


@pytest.mark.long
@pytest.mark.parametrize("locale", ["ascii", pytest.param("latin-1", marks=pytest.mark.slow)])
def test_any_text_goes_through_a_pipe_in_utf8(locale: str, folder: Path) -> None:
    ids = [f"花{row}" for row in range(len(X))]
    tables.write("named.csv", NAMES, X, ids=ids, force=False)
    command = [sys.executable, "-m", "nearwise", "neighbors", "model", "named.csv", "--id", "id", "-k", "1"]
    environment = {**os.environ, "PYTHONIOENCODING": locale}
    done = subprocess.run(command, capture_output=True, env=environment, timeout=600)
    assert done.returncode == cli.DONE
    assert [line.split(",")[0] for line in done.stdout.decode("utf-8").splitlines()[1:]] == ids
