"""`nearwise learn` as a user runs it: files in, a model, a page and figures out."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline

import nearwise as nw
from nearwise import cli, study
from nearwise.cli import learn
from nearwise.data import tables
from nearwise.study import fitting

X, y = load_iris(return_X_y=True)
SPECIES = np.array(["setosa", "versicolor", "virginica"])[y]
IDS = [f"flower {k}" for k in range(len(X))]
FEATURES = ["sepal length", "sepal width", "petal length", "petal width"]

Run = Callable[..., dict[str, Any]]


def write_csv(path: Path, header: list[str], rows: Any) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


def drawn_pairs(count: int, seed: int = 0) -> list[tuple[int, int, int]]:
    """Pairs of flowers, each once, and whether they are of one species."""
    rng = np.random.RandomState(seed)
    found = {tuple(sorted(rng.choice(len(X), 2, replace=False))) for _ in range(count)}
    return [(int(i), int(j), int(y[i] == y[j])) for i, j in sorted(found)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with flowers, and what is known about them, by row number and by id."""
    monkeypatch.chdir(tmp_path)
    rows = [[name, *row, kind] for name, row, kind in zip(IDS, X, SPECIES, strict=True)]
    write_csv(tmp_path / "flowers.csv", ["name", *FEATURES, "species"], rows)
    pairs = drawn_pairs(300)
    write_csv(tmp_path / "pairs.csv", ["a", "b", "similar"], pairs)
    write_csv(tmp_path / "named.csv", ["a", "b", "similar"], [(IDS[i], IDS[j], s) for i, j, s in pairs])
    rng = np.random.RandomState(1)
    triplets = [(rng.choice(np.flatnonzero(y == k), 2, replace=False), k) for k in rng.randint(3, size=200)]
    rows = [(i, j, rng.choice(np.flatnonzero(y != k))) for (i, j), k in triplets]
    write_csv(tmp_path / "triplets.csv", ["a", "nearer", "farther"], rows)
    distances = [(i, j, 1 + 2 * np.linalg.norm(X[i, 2:] - X[j, 2:])) for i, j, _ in drawn_pairs(200, 2)]
    write_csv(tmp_path / "distances.csv", ["a", "b", "distance"], distances)
    np.save(tmp_path / "vectors.npy", X)
    return tmp_path


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """`nearwise learn ... --json`: what it prints, its exit code and standard error."""

    def command(line: str, code: int = cli.DONE) -> dict[str, Any]:
        assert cli.main(["learn", *shlex.split(line), "--json", "--force"]) == code
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        said = [line for line in printed.err.splitlines(keepends=True) if "compiling loops" not in line]
        return {**json.loads(printed.out), "stderr": "".join(said)}  # a fresh installation compiles once

    return command


def learned(path: str) -> bytes:
    """A model as a file, without what it remembers of the names of files and columns."""
    model = nw.load(path)
    del (model[-1] if isinstance(model, Pipeline) else model).memory_
    nw.save(model, "compared")
    return Path("compared").read_bytes()


def refusal(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that refuses a command."""
    try:
        code = cli.main(["learn", *shlex.split(line)])
    except SystemExit as stop:
        code = stop.code
    printed = capsys.readouterr()
    assert code == cli.BAD_INPUT
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err


@pytest.mark.long
def test_the_model_is_what_the_figures_measured(folder: Path, run: Run) -> None:
    found = run("flowers.csv --labels species --id name --seed 3")
    assert found["model"] == "flowers.safetensors"
    model = nw.load("flowers.safetensors")
    assert isinstance(model, Pipeline)
    assert model.feature_names_in_.tolist() == FEATURES
    del model[0].feature_names_in_  # of which arrays have none
    split = study.hold_out(np.unique(SPECIES, return_inverse=True)[1], nw.constraints.Constraints(), None, 3)
    assert len(split.held_rows) == 30
    # nothing of the held-out rows went into the model, not even into its scaling
    np.testing.assert_allclose(model[0].mean_, X[split.learned_rows].mean(axis=0), rtol=1e-12)
    rows = model[0].transform(X)
    alone = nw.AutoLearner(random_state=3).fit(rows[split.learned_rows], y[split.learned_rows])
    assert found["choice"] == alone.choice_
    assert found["choice_scores"] == [list(pair) for pair in alone.choice_scores_]
    np.testing.assert_allclose(model[1].transform(rows), alone.transform(rows), rtol=1e-9, atol=1e-12)
    error = next(figure for figure in found["figures"] if figure["name"] == "5-NN error")
    for kind, rows in (
        ("before", model[0].transform(X)),
        ("after", model[1].transform(model[0].transform(X))),
    ):
        near = KNeighborsClassifier(5).fit(rows[split.learned_rows], y[split.learned_rows])
        expected = 1 - near.score(rows[split.held_rows], y[split.held_rows])
        assert error[kind]["value"] == pytest.approx(expected, abs=1e-12)
    names = [figure["name"] for figure in found["figures"]]
    assert names == ["5-NN error", "recall@5", "clustering NMI", "pair ROC-AUC"]
    assert found["learned_from"] == "120 labelled rows in 3 classes"
    assert found["status"] == "SOLVED"


def test_what_is_printed_ends_with_files_and_a_command_that_works(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "learn flowers.csv --labels species --id name -o m.safetensors --report m.html"
    assert cli.main(shlex.split(line)) == cli.DONE
    printed = capsys.readouterr()
    assert printed.err == ""  # no progress where nobody looks on
    lines = printed.out.splitlines()
    assert lines[0] == "flowers.csv: 150 rows, 4 features"
    assert re.search(
        r"  clustering NMI +0\.\d\d \(0\.\d\d to \d\.\d\d\) +.* (better|worse|not clear)$", printed.out, re.M
    )
    assert re.search(r"^SOLVED: relative gap \d.*, penalty .* \(chosen\)$", printed.out, re.M)
    assert lines[-3:-1] == ["model:  m.safetensors", "report: m.html"]
    assert lines.count("  not clear: chance alone may explain the change") == 1
    page = Path("m.html").read_text(encoding="utf-8")
    assert f"nearwise {line}" in page
    assert "Not clear: chance alone may explain the change." in page
    words = shlex.split(lines[-1].removeprefix("next:   "))
    assert cli.main(words[words.index("apply") :]) == cli.DONE
    assert Path("m-coordinates.csv").exists()


def test_pairs_by_row_and_by_id_say_the_same(folder: Path, run: Run) -> None:
    by_row = run("flowers.csv --drop name,species --pairs pairs.csv -o a.safetensors")
    by_id = run("flowers.csv --id name --drop species --pairs named.csv -o b.safetensors")
    assert learned("a.safetensors") == learned("b.safetensors")
    assert by_row["figures"] == by_id["figures"]
    assert [figure["name"] for figure in by_row["figures"]] == ["given pairs' ROC-AUC"]
    assert by_row["figures"][0]["verdict"] == "better"
    assert [worst["value"] for worst in by_row["worst"]] == [worst["value"] for worst in by_id["worst"]]


def test_constraints_violated_most_are_named_by_id_and_line(folder: Path, run: Run) -> None:
    found = run("flowers.csv --id name --drop species --pairs named.csv")
    text = Path("named.csv").read_text(encoding="utf-8").splitlines()
    assert len(found["worst"]) > 2
    for worst in found["worst"]:
        one, other, relation = re.match(r"d\((.*), (.*)\) (..) ", worst["constraint"]).groups()
        line = int(re.fullmatch(r"named\.csv, line (\d+)", worst["from"])[1])
        assert text[line - 1] == f"{one},{other},{int(relation == '<=')}"
    labelled = run("flowers.csv --id name --labels species")
    for worst in labelled["worst"]:  # pairs that were drawn from labels carry these
        one, other, relation = re.match(r"d\((.*), (.*)\) (..) ", worst["constraint"]).groups()
        kinds = [SPECIES[IDS.index(name)] for name in (one, other)]
        assert worst["from"] == ", ".join(kinds)
        assert (kinds[0] == kinds[1]) is (relation == "<=")


def test_several_kinds_of_knowledge_together(folder: Path, run: Run) -> None:
    found = run(
        "flowers.csv --id name --labels species --pairs named.csv --penalty 0.1 --held-out 0.3 --scale none"
    )
    assert found["learned_from"].startswith("105 labelled rows in 3 classes and ")
    names = [figure["name"] for figure in found["figures"]]
    assert names[-2:] == ["pair ROC-AUC", "given pairs' ROC-AUC"]
    assert isinstance(nw.load("flowers.safetensors"), nw.AutoLearner)
    found = run("vectors.npy --triplets triplets.csv --distances distances.csv --penalty 1")
    assert found["learned_from"].endswith("triplets and 158 distances")
    names = [figure["name"] for figure in found["figures"]]
    assert names == ["triplets in order", "relative error of distances"]
    assert not found["scaled"]  # vectors are left as they are


@pytest.mark.parametrize(
    ("options", "kind", "width"),
    [
        ("--kernel linear --method vonneumann", nw.MetricLearner, 4),
        ("--rank 3 --penalty 1 --scale none", nw.MetricLearner, 3),
        ("--method fixed-rank", nw.FixedRankLearner, 4),
        ("--method fixed-rank --rank 3", nw.FixedRankLearner, 3),
        ("--kernel rbf --rank 9 --penalty 1", nw.KernelLearner, 9),
        ("--kernel polynomial --penalty 1 --method vonneumann --rank 5", nw.KernelLearner, 5),
    ],
)
def test_methods(options: str, kind: type, width: int, folder: Path, run: Run) -> None:
    found = run(f"flowers.csv --labels species --drop name {options} --report page.html")
    model = nw.load("flowers.safetensors")
    assert isinstance(model[-1] if isinstance(model, Pipeline) else model, kind)
    assert model.transform(_named(X)).shape == (150, width)
    assert found["status"] in ("SOLVED", "STATIONARY", "DONE")
    assert found["rank"] >= width
    assert len(found["figures"]) == 4
    assert "<html" in Path("page.html").read_text(encoding="utf-8")


def _named(rows: Any) -> Any:
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(rows, columns=FEATURES)


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    ["", "--method vonneumann", "--method fixed-rank", "--kernel rbf --penalty 1"],
)
def test_same_seed_same_bytes(options: str, folder: Path, run: Run) -> None:
    one, two = (run(f"flowers.csv --labels species --drop name {options}") for _ in range(2))
    first = Path("flowers.safetensors").read_bytes()
    three = run(f"flowers.csv --labels species --drop name {options}")
    assert Path("flowers.safetensors").read_bytes() == first
    for found in (one, two, three):
        assert found.pop("seconds") > 0
    assert one == two == three


@pytest.mark.parametrize(
    ("data", "name"),
    [
        ("flowers.csv", "flowers.safetensors"),
        ("some/where/flowers.csv.gz", "flowers.safetensors"),
        ("dataset:iris", "iris.safetensors"),
        ("-", "model.safetensors"),
    ],
)
def test_the_model_is_named_after_the_data(data: str, name: str) -> None:
    assert learn.default_output(data) == name


def test_data_from_standard_input(folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    content = Path("flowers.csv").read_bytes()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    found = run("- --labels species --id name --penalty 1 --threads 1")
    assert found["model"] == "model.safetensors"
    assert found["next"].endswith("--drop species < DATA")
    file = run("flowers.csv --labels species --id name --penalty 1")
    assert found["figures"] == file["figures"]
    assert learned("model.safetensors") == learned("flowers.safetensors")


@pytest.mark.long
def test_rows_without_a_label_teach_nothing(folder: Path, run: Run) -> None:
    rows = [[*row, "" if k % 10 == 0 else kind] for k, (row, kind) in enumerate(zip(X, SPECIES, strict=True))]
    write_csv(folder / "gaps.csv", [*FEATURES, "species"], rows)
    there = np.flatnonzero(np.arange(150) % 10)
    write_csv(folder / "full.csv", [*FEATURES, "species"], [rows[k] for k in there])
    found = run("gaps.csv --labels species --penalty 1 --held-out 0")
    assert found["learned_from"] == "135 labelled rows in 3 classes"
    run("full.csv --labels species --penalty 1 --held-out 0")
    assert learned("gaps.safetensors") == learned("full.safetensors")
    # unless a pair speaks of them
    write_csv(folder / "about.csv", ["a", "b", "similar"], [(0, 10, 1), (0, 70, 0)])
    found = run("gaps.csv --labels species --pairs about.csv --penalty 1")
    assert nw.load("gaps.safetensors")[1].n_constraints_used_ > 100
    assert found["learned_from"].endswith("2 pairs")


def test_too_little_to_hold_out_is_said(folder: Path, run: Run) -> None:
    write_csv(folder / "few.csv", [*FEATURES, "species"], [[*X[k], SPECIES[k]] for k in range(0, 150, 8)])
    found = run("few.csv --labels species")
    assert found["figures"] == []
    assert found["notices"][0] == "too little to hold a part out and measure on it: 19 labelled rows"
    assert found["stderr"] == "".join(f"nearwise: note: {notice}\n" for notice in found["notices"])
    assert found["learned_from"] == "19 labelled rows in 3 classes"
    # of so few rows, no penalty is better than none
    assert found["kept_prior"]
    assert found["penalty"] is None
    assert found["notices"][1].startswith("nothing was learned: no penalty that was tried")
    learned = run("few.csv --labels species --penalty 1 --report few.html")
    assert not learned["kept_prior"]
    assert len(learned["notices"]) == 1


def test_contradictions_under_a_hard_penalty_are_named_by_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # on a line, the middle object is nearer to both ends than these to each other
    np.save("line.npy", np.array([[0.0], [1.0], [2.0]]))
    Path("far.csv").write_text("0,1,1.0,==\n1,2,5.0,==\n", encoding="utf-8")
    message = refusal("line.npy --distances far.csv --penalty inf", capsys)
    assert "No matrix meets these hard constraints together" in message
    assert "(far.csv, line 1)" in message
    assert "(far.csv, line 2)" in message
    assert "a finite penalty" in message
    assert not Path("line.safetensors").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("flowers.csv", "give --labels, --pairs, --triplets or --distances"),
        (
            "flowers.csv --labels species --method fixed-rank --kernel rbf",
            "--kernel goes with --method logdet",
        ),
        ("flowers.csv --labels species --squared", "give --distances"),
        ("- --pairs -", "only one file can come from standard input"),
        ("flowers.csv --labels species -o -", "not written to standard output"),
        ("flowers.csv --labels species --report -", "not written to standard output"),
        ("vectors --pairs pairs.csv -o vectors --force", "DATA and -o are the same file"),
        (
            "flowers.csv --labels species -o m.pkl",
            "never as .pkl: name it -o m.safetensors",
        ),
        ("flowers.csv --labels species -o pairs.csv --force", "written as .safetensors, never as .csv"),
        ("flowers.csv --labels species --conflicts drop", "--conflicts is about files of feedback"),
        ("flowers.csv --labels species --similar-above 3", "--similar-above says which ratings in --pairs"),
        ("flowers.csv --pairs pairs.csv --similar-above x", "'x' is not a number"),
        (
            "flowers.csv --pairs pairs.csv --role nonsense=a",
            "'nonsense=a' is not ROLE=COL",
        ),
        ("flowers.csv --labels species --max-iter 0", "'0' is not a whole number, 1 or more"),
        ("flowers.csv --labels species --method online", "invalid choice: 'online'"),
        ("flowers.csv --labels species --missing guess", "invalid choice: 'guess'"),
        ("flowers.csv --labels species -o a --report ./a", "-o and --report are the same file"),
        ("flowers.csv --labels species -o a --checkpoint a", "-o and --checkpoint are the same file"),
        ("flowers.csv --labels species -o no/where", "no is not a folder"),
        ("flowers.csv --labels species --penalty 0", "'0' is not auto, inf or a number greater than 0"),
        ("flowers.csv --labels species --held-out 1", "'1' is not a share from 0 to 0.9"),
        ("flowers.csv --labels species --rank 0", "'0' is not a whole number"),
        ("flowers.csv --labels species --kernel nonsense", "invalid choice"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_read(
    line: str, message: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(*_: object, **__: object) -> None:
        raise AssertionError("the work began")

    monkeypatch.setattr(tables, "read", work)
    before = {path.name for path in folder.iterdir()}
    assert message in refusal(line, capsys)
    assert {path.name for path in folder.iterdir()} == before


def test_a_file_that_exists_hides_no_other_mistake(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("old.safetensors").write_text("something", encoding="utf-8")

    def work(*_: object, **__: object) -> None:
        raise AssertionError("the work began")

    monkeypatch.setattr(study, "learn", work)
    common = "flowers.csv --drop name -o old.safetensors"
    assert "has no column 'sepcies'; did you mean 'species'" in refusal(f"{common} --labels sepcies", capsys)
    assert "there is no such file" in refusal(f"{common} --drop species --pairs no.csv", capsys)
    assert "old.safetensors exists; give --force" in refusal(f"{common} --labels species", capsys)
    report = "--labels species --report pairs.csv"
    assert "pairs.csv exists; give --force" in refusal(f"flowers.csv --drop name {report}", capsys)
    assert Path("old.safetensors").read_text(encoding="utf-8") == "something"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("flowers.csv --labels name --drop species", "all 150 labels differ"),
        ("flowers.csv --labels sepcies", "did you mean 'species'"),
        ("flowers.csv --labels species", "flowers.csv, line 2"),
        ("flowers.csv --labels species --drop name --rank 5", "--rank 5: flowers.csv has 4 features"),
        ("flowers.csv --labels species --drop name --rank 151 --kernel rbf", "has 150 rows"),
        ("flowers.csv --id name --drop species --pairs pairs.csv", "pairs.csv, line 2"),
        ("vectors.npy --pairs nowhere.csv", "nowhere.csv: there is no such file"),
        ("dataset:nonsense --labels target", "no data set is called 'nonsense'"),
    ],
)
def test_what_the_files_say_wrong_is_refused_before_any_work(
    line: str, message: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(*_: object, **__: object) -> None:
        raise AssertionError("the work began")

    monkeypatch.setattr(fitting, "fit", work)
    assert message in refusal(line, capsys)
    assert not list(folder.glob("*.safetensors"))


@pytest.mark.parametrize(("value", "message"), [("-1e+200", "too large"), ("1e-180", "too small")])
def test_numbers_that_cannot_be_squared_are_refused(
    value: str, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_csv(folder / "odd.csv", ["p", "q", "kind"], [(0, 0, "a"), (0, value, "b"), (0, 0, "a")])
    found = refusal("odd.csv --labels kind", capsys)
    assert f"odd.csv, line 3, column 'q': {value}" in found
    assert message in found


def test_one_label_is_no_knowledge(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_csv(folder / "one.csv", ["p", "kind"], [(k, "same") for k in range(9)])
    assert "all 9 labels are 'same'; two classes or more are needed" in refusal(
        "one.csv --labels kind", capsys
    )


def test_max_seconds_keeps_what_was_found(folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(
        "flowers.csv --labels species --id name --max-seconds 1e-9 --report m.html", cli.NOT_CONVERGED
    )
    assert found["status"] == "LIMIT"
    cause = "the limit of 1e-09 s was reached while choosing the penalty; the best found so far is kept"
    assert found["notices"] == [cause]
    assert found["worst"] == []  # rows of the part on which penalties are tried have no names
    learner = nw.load("flowers.safetensors")[1]
    assert learner.status_ is learner.result_.status is nw.Status.LIMIT
    assert learner.result_.limit == "time"
    assert learner.result_.message.startswith("Stopped at the limit of 1e-09 seconds: relative gap")
    assert "LIMIT" in Path("m.html").read_text(encoding="utf-8")
    found = run("flowers.csv --labels species --id name --penalty 1 --max-seconds 1e-9", cli.NOT_CONVERGED)
    assert "while learning" in found["notices"][0]
    line = "flowers.csv --labels species --id name --method fixed-rank --max-seconds 1e-9"
    assert run(line, cli.NOT_CONVERGED)["status"] == "LIMIT"


def test_max_iter_is_a_limit(folder: Path, run: Run) -> None:
    common = "flowers.csv --labels species --id name --max-iter 2"
    assert run(f"{common} --penalty 1", cli.NOT_CONVERGED)["status"] == "LIMIT"
    assert nw.load("flowers.safetensors")[1].result_.limit == "iterations"
    assert run(f"{common} --method fixed-rank --rank 2", cli.NOT_CONVERGED)["status"] == "LIMIT"


@pytest.mark.long
def test_the_same_command_with_a_checkpoint_goes_on(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = shlex.split(
        "learn flowers.csv --labels species --id name --checkpoint state --report r.html --quiet"
    )
    assert cli.main([*words, "-o", "straight.safetensors"]) == cli.DONE
    Path("r.html").unlink()
    assert cli.main([*words, "--max-seconds", "1e-9"]) == cli.NOT_CONVERGED
    assert cli.main(words) == cli.DONE
    assert Path("straight.safetensors").read_bytes() == Path("flowers.safetensors").read_bytes()
    assert not Path("state").exists()
    capsys.readouterr()
    # a fit that is done, a model of another fit and a page of another program stay
    assert cli.main(words) == cli.BAD_INPUT
    assert "flowers.safetensors exists; give --force" in capsys.readouterr().err
    Path("flowers.safetensors").unlink()
    assert cli.main([*words, "--force", "--max-seconds", "1e-9"]) == cli.NOT_CONVERGED
    Path("r.html").write_text("my page", encoding="utf-8")
    assert cli.main(words) == cli.BAD_INPUT
    assert "r.html exists and is not a nearwise report" in capsys.readouterr().err
    assert cli.main([*words, "-o", "straight.safetensors"]) == cli.BAD_INPUT
    assert "straight.safetensors exists and is not the model of an unfinished fit" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize("options", ["", "--method fixed-rank", "--penalty 1 --kernel rbf"])
def test_a_checkpoint_resumes_to_the_same_bytes(options: str, folder: Path, run: Run) -> None:
    common = f"flowers.csv --labels species --drop name {options} --checkpoint state"
    straight = run(f"{common} -o straight.safetensors")
    assert not Path("state").exists()  # a finished fit removes it
    stopped = run(f"{common} -o stopped.safetensors --max-seconds 1e-9", cli.NOT_CONVERGED)
    assert Path("state").exists()
    told = any(notice.endswith("and state to go on from") for notice in stopped["notices"])
    assert told == Path("state").exists()
    resumed = run(f"{common} -o resumed.safetensors")
    assert not Path("state").exists()
    assert Path("straight.safetensors").read_bytes() == Path("resumed.safetensors").read_bytes()
    assert straight["figures"] == resumed["figures"]


def test_a_checkpoint_of_something_else_is_refused(
    folder: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    common = "flowers.csv --labels species --drop name --checkpoint state --force"
    run(f"{common} --max-seconds 1e-9", cli.NOT_CONVERGED)
    assert re.search(r"state .*another fit.*remove it", refusal(f"{common} --seed 1", capsys))


def test_progress_says_what_is_done(folder: Path) -> None:
    seen: list[str] = []
    known = study.from_files("dataset:iris", labels="target")
    settings = study.Settings(scale=True)
    outcome = study.learn(known, settings, study.Watch(settings, seen.append))
    assert seen[-1] == "measuring on what was held out"
    steps = [
        re.fullmatch(r"(\D+)   iteration (\d+)   gap \d\.\de[-+]\d+   \d+\.\d s", text) for text in seen[:-1]
    ]
    phases = [step[1] for step in steps]
    assert len(steps) == outcome.fit.learner.n_iter_
    first = phases.index("learning")
    assert set(phases[:first]) == {"choosing the penalty"}
    assert set(phases[first:]) == {"learning"}


SCRIPT = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
from nearwise import cli
from nearwise.data import tables
from nearwise.study import fitting
place, name = {place}
inner = getattr(place, name)
def slow(*arguments, **options):
    print("ready", file=sys.stderr, flush=True)
    time.sleep({seconds})
    return inner(*arguments, **options)
setattr(place, name, slow)
sys.exit(cli.main(sys.argv[1:]))
"""


def interrupted(place: str, seconds: float, *arguments: str) -> tuple[int, str, str]:
    """Run a command in a process of its own, and press Ctrl-C when it is at a place."""
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(place=place, seconds=seconds), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while (line := process.stderr.readline()) != "ready\n":
            assert line, process.stdout.read()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=600)
    assert "Traceback" not in err
    return process.returncode, out, err.replace("ready\n", "")


@pytest.mark.long
def test_ctrl_c_during_a_fit_keeps_the_best_iterate(folder: Path) -> None:
    line = "learn flowers.csv --labels species --drop name --report m.html"
    code, out, err = interrupted("fitting.Watch, '__call__'", 0.05, *shlex.split(line))
    assert code == cli.NOT_CONVERGED
    assert "INTERRUPTED: relative gap" in out
    assert err == "nearwise: note: interrupted while choosing the penalty; the best found so far is kept\n"
    assert nw.load("flowers.safetensors")[1].status_ is nw.Status.INTERRUPTED
    assert Path("m.html").exists()


@pytest.mark.long
@pytest.mark.parametrize("place", ["tables, 'read'", "fitting.Pipeline, '__init__'"])
def test_ctrl_c_outside_a_fit_leaves_nothing_behind(place: str, folder: Path) -> None:
    before = {path.name for path in folder.iterdir()}
    line = "learn flowers.csv --labels species --drop name --penalty 1"
    code, out, err = interrupted(place, 30, *shlex.split(line))
    assert (code, out, err) == (cli.INTERRUPTED, "", "nearwise: interrupted\n")
    assert {path.name for path in folder.iterdir()} == before


def lead(page: str) -> str:
    """The sentences on top of a report."""
    text = re.search(r'<p class="lead">(.*?)</p>', Path(page).read_text(encoding="utf-8"))
    assert text is not None
    return html.unescape(text[1]).replace("\xa0", " ")


def test_the_report_says_what_was_learned_in_plain_sentences(run: Run) -> None:
    found = run("flowers.csv --labels species --id name --kernel linear --report a.html")
    values = {figure["name"]: figure for figure in found["figures"]}
    assert [figure["verdict"] for figure in found["figures"]] == [
        "not clear",
        "not clear",
        "better",
        "better",
    ]
    nmi, area = (values[name] for name in ("clustering NMI", "pair ROC-AUC"))
    assert lead("a.html") == (
        "This distance was learned on flowers.csv, from 120 labelled rows in 3 classes. On 30 other rows, it "
        f"is better than the one before in clustering NMI (from {nmi['before']['value']:.2f} to "
        f"{nmi['after']['value']:.2f}) and pair ROC-AUC (from {100 * area['before']['value']:.1f} % to "
        f"{100 * area['after']['value']:.1f} %); in 5-NN error and recall@5 no clear difference shows."
    )
    run("flowers.csv --labels species --id name --kernel linear --held-out 0 --penalty 1 --report b.html")
    assert lead("b.html") == (
        "This distance was learned on flowers.csv, from 150 labelled rows in 3 classes. Nothing was held out "
        "to measure it on."
    )
    run("flowers.csv --labels species --features 2 --kernel linear --report c.html")
    assert lead("c.html").startswith(
        "Nothing better than the distance before was found on flowers.csv, from "
    )


def test_text_of_data_cannot_act_on_the_terminal(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kinds = [f"\x1b[2J{kind}\n花" for kind in SPECIES]
    rows = [[*row, kind] for row, kind in zip(X, kinds, strict=True)]
    write_csv(Path("hostile.csv"), [*FEATURES, "kind"], rows)
    assert cli.main(shlex.split("learn hostile.csv --labels kind --penalty 1")) == cli.DONE
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert r"\x1b[2Jversicolor\n花, \x1b[2Jversicolor\n花" in printed


def test_constraints_violated_most_are_named_once_and_only_if_they_are(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("both.csv").write_text("1,2,3\n1,3,2\n" * 20, encoding="utf-8")
    line = "learn vectors.npy --triplets both.csv --penalty inf -o m.safetensors --force"
    assert cli.main(shlex.split(line)) == cli.DONE
    assert "violated most" not in capsys.readouterr().out  # both hold, as an equality, up to rounding
    Path("twice.csv").write_text("0,1,0\n" * 30 + "2,140,1\n" * 30, encoding="utf-8")
    line = "learn vectors.npy --pairs twice.csv --penalty 1e-6 --held-out 0 -o m.safetensors --force"
    assert cli.main(shlex.split(line)) == cli.DONE
    named = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  d(")]
    assert len(named) == len(set(named)) > 0
