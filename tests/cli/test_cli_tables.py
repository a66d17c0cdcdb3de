"""Files as a hospital, a shop and a bank have them: from the first refusal to models that remember."""

from __future__ import annotations

import csv
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nearwise as nw
from nearwise import cli, study
from nearwise.cli import _side
from nearwise.cli.learn import configure
from nearwise.data import side_files, tables

Run = Callable[..., tuple[str, str]]
pytestmark = pytest.mark.long
CONVERT = {"admitted": "date", "cost": "currency-EUR"}
CONVERSIONS = "--convert admitted=date --convert cost=currency-EUR"
WISHES = f"--drop note --missing impute --categorical onehot {CONVERSIONS}"
rng = np.random.RandomState(0)


def patients(count: int, start: int = 0) -> list[list[Any]]:
    """Rows of a hospital: id, ward, admitted, bmi (with gaps), smoker, cost, note, diagnosis."""
    rows = []
    for k in range(start, start + count):
        c = k % 3
        rows.append(
            [
                k,
                ("ICU", "A1", "B2")[(k * 7) % 3] if k % 10 else "",
                f"2024-{1 + k % 12:02}-{1 + k % 28:02}",
                round(20 + 4 * c + rng.normal(), 1) if k % 9 else "NA",
                "TRUE" if (k + c) % 4 else "FALSE",
                f"€ {1000 + 500 * c + k % 7}.50",
                f"free text {k}",
                ("flu", "cold", "well")[c],
            ]
        )
    return rows


HEADER = ["patient", "ward", "admitted", "bmi", "smoker", "cost", "note", "diagnosis"]


def write(name: str, header: list[str], rows: Any) -> None:
    with open(name, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """A command in a folder with files: what it prints on standard output and on standard error."""
    monkeypatch.chdir(tmp_path)
    write("patients.csv", HEADER, patients(90))
    write("new.csv", HEADER[::-1], [row[::-1] for row in patients(30, 90)])
    pairs = [(i, j, int(i % 3 == j % 3)) for i in range(0, 60) for j in (i + 1, i + 3)]
    answers = [(f"{i}.0", s, j, "ann" if i % 2 else "bob", 1 + s, "2024") for i, j, s in pairs]
    write("feedback.csv", ["left", "similar", "right", "annotator", "weight", "time"], answers)

    def command(line: str, code: int = cli.DONE) -> tuple[str, str]:
        assert cli.main(shlex.split(line)) == code
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return printed.out, printed.err

    return command


def test_the_first_refusal_says_how_to_go_on(run: Run) -> None:
    out, err = run("learn patients.csv --labels diagnosis --id patient", cli.BAD_INPUT)
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("nearwise: patients.csv: 5 of 6 columns cannot be used as they are")
    options = err.rstrip().rpartition("give ")[2]
    out, err = run(f"learn patients.csv --labels diagnosis --id patient --penalty 1 {options}")
    assert "patients.csv: 90 rows, 5 features" in out
    assert "read 'smoker' as 1 and 0" in err


def test_what_was_done_to_a_table_is_done_to_others(run: Run) -> None:
    run(f"learn patients.csv --labels diagnosis --id patient --penalty 1 -o m.safetensors {WISHES}")
    out, err = run("apply m.safetensors new.csv")
    rows = list(csv.reader(out.splitlines()))
    assert [row[0] for row in rows[1:]] == [str(k) for k in range(90, 120)]  # the ids are remembered
    assert "ids are in column 'patient', as in the data learned from" in err
    # the same by hand, in scikit-learn
    model = nw.load("m.safetensors")
    table = tables.read(
        "patients.csv",
        labels="diagnosis",
        ids="patient",
        drop=["note"],
        missing="impute",
        categorical="onehot",
        convert=CONVERT,
    )
    new = study.load("m.safetensors").read("new.csv", ids="patient")
    pd = pytest.importorskip("pandas")
    coordinates = model.transform(pd.DataFrame(new.X, columns=new.names))
    np.testing.assert_allclose(np.array([row[1:] for row in rows[1:]], dtype=float), coordinates, rtol=1e-12)
    learned = study.hold_out(
        study.from_files(
            "patients.csv",
            labels="diagnosis",
            ids="patient",
            drop=["note"],
            missing="impute",
            categorical="onehot",
            convert=CONVERT,
        ).codes,
        nw.constraints.Constraints(),
        None,
        0,
    ).learned_rows
    medians = np.nanmedian(table.X[learned][:, 1:].astype(float), axis=0)
    np.testing.assert_allclose(model[0].transformers_[0][1]["impute"].statistics_, medians)
    out, err = run("evaluate m.safetensors new.csv --labels diagnosis --json")
    assert json.loads(out)["rows_learned_from"] == 0
    out, err = run("neighbors m.safetensors patients.csv --query new.csv -k 2 --json")
    found = json.loads(out)["neighbors"]
    assert (found[0]["query"], len(found)) == ("90", 60)
    out, err = run("evaluate m.safetensors patients.csv --labels diagnosis --unseen-only --json")
    assert json.loads(out)["measured_on"].startswith("18 labelled rows")


def test_texts_that_are_new_are_told(run: Run) -> None:
    run(f"learn patients.csv --labels diagnosis --id patient --penalty 1 -o m.safetensors {WISHES}")
    rows = patients(5, 91)
    rows[1][1] = rows[3][1] = "garden"
    write("strange.csv", HEADER, rows)
    _, err = run("apply m.safetensors strange.csv -o c.npy")
    assert (
        "column 'ward' has texts in 2 rows that the rows learned from do not have, as 'garden' in line 3"
        in err
    )
    assert np.load("c.npy").shape[0] == 5


def test_missing_columns_are_listed(run: Run) -> None:
    run(f"learn patients.csv --labels diagnosis --id patient --penalty 1 -o m.safetensors {WISHES}")
    write("less.csv", ["patient", "note", "bmi"], [[1, "text", 3]])
    for command in ("apply m.safetensors less.csv", "neighbors m.safetensors less.csv"):
        out, err = run(command, cli.BAD_INPUT)
        lacking = "less.csv lacks 'ward', 'admitted', 'smoker', 'cost' of the 5 columns"
        assert f"{lacking} that the model was learned with; it has 'patient', 'note', 'bmi'" in err
        assert out == ""
    out, err = run("apply m.safetensors new.csv --drop bmi", cli.BAD_INPUT)
    assert "the model needs 'bmi', which cannot be left out, a label or an id" in err
    rows = patients(4)
    rows[2][3] = "tall"
    write("wrong.csv", HEADER, rows)
    out, err = run("apply m.safetensors wrong.csv", cli.BAD_INPUT)
    assert "wrong.csv, line 4, column 'bmi': 'tall' is not a number; correct it" in err


def test_feedback_by_ids_with_weights_and_annotators(run: Run) -> None:
    common = "learn patients.csv --id patient --drop note,diagnosis --missing impute --categorical onehot"
    out, err = run(f"{common} {CONVERSIONS} --pairs feedback.csv --penalty 1 --json")
    found = json.loads(out)
    (answers,) = found["feedback"]
    assert (answers["n_answers"], answers["n_questions"], answers["n_conflicting"]) == (120, 120, 0)
    assert [annotator["n_answers"] for annotator in answers["annotators"]] == [60, 60]
    assert "feedback.csv: not used: 'time'" in err
    assert "feedback.csv: ids are matched without their decimals, as '0.0' in line 2" in err
    assert "feedback.csv: 120 answers to 120 pairs by 2 annotators" in err
    weighted = nw.load("patients.safetensors")
    assert weighted[-1].memory_.study["feedback"][0]["what"] == "pairs"


def test_conflicts_and_ratings_on_the_command_line(run: Run) -> None:
    rows = [(i, i + 1, k % 2 * 4 + 1, k) for i in range(20) for k in range(3)]
    write("rated.csv", ["item1", "item2", "stars", "user"], rows)
    wishes = f"--drop patient,note,diagnosis,ward --missing impute {CONVERSIONS}"
    common = f"learn patients.csv {wishes} --pairs rated.csv"
    _, err = run(common, cli.BAD_INPUT)
    assert "column 'stars' holds ratings, as '1'; --similar-above T says above which a pair is similar" in err
    _, err = run(f"{common} --similar-above 3", cli.BAD_INPUT)
    assert "are similar and dissimilar; see line 2; --conflicts keep, majority or drop says what to do" in err
    out, err = run(f"{common} --similar-above 3 --conflicts majority --held-out 0 --penalty 1 --json")
    (answers,) = json.loads(out)["feedback"]
    assert (answers["n_conflicting"], answers["n_left_out"], answers["conflicts"]) == (20, 20, "majority")
    assert "20 have more than one, 20 of them different ones, of which the majority's are kept" in err
    assert "seldom with most of the others: '1' (0 of 20)" in err


def test_rows_that_are_left_out_keep_their_numbers(run: Run) -> None:
    write("gaps.csv", ["x", "y"], [[k % 3, k if k % 5 else ""] for k in range(40)])
    pairs = [(i, j, int(i % 3 == j % 3)) for i in range(30) for j in (i + 1, i + 3)]
    write("pairs.csv", ["a", "b", "similar"], pairs)
    out, err = run("learn gaps.csv --missing drop --pairs pairs.csv --penalty 1 --held-out 0 --json")
    found = json.loads(out)
    there = [pair for pair in pairs if pair[0] % 5 and pair[1] % 5]
    assert found["learned_from"] == f"{len(there)} pairs"
    assert "gaps.csv: 8 of 40 rows are left out, because a value is missing, as in line 2, column 'y'" in err
    assert (
        f"pairs.csv: {len(pairs) - len(there)} lines are left out, on rows of the data that lack a value"
        in err
    )
    assert all("0" not in worst["constraint"].split(")")[0][2:].split(", ") for worst in found["worst"])
    out, err = run("neighbors gaps.safetensors gaps.csv -k 1")
    queries = [row[0] for row in csv.reader(out.splitlines())][1:]
    assert queries == [str(k) for k in range(40) if k % 5]


def test_a_model_says_what_it_is(run: Run) -> None:
    run(f"learn patients.csv --labels diagnosis --id patient --penalty 1 -o m.safetensors {WISHES}")
    out, err = run("info m.safetensors")
    assert err == ""
    learner = nw.load("m.safetensors")[-1]
    chosen = f"kernel auto ({learner.choice_}), penalty 1, {learner.rank_} dimensions"
    for part in (
        "model           AutoLearner after ColumnTransformer",
        "data            patients.csv, 90 rows, fingerprint ",
        "5: 'ward' (category), 'admitted' (date), 'bmi', 'smoker' (boolean), 'cost' (currency EUR)",
        "ids             column 'patient'",
        "labels          column 'diagnosis'",
        "missing values  filled: numbers by the median, categories by the most frequent text",
        "learned from    72 labelled rows in 3 classes",
        f"how             method logdet, {chosen}, standardised, seed 0",
        "outcome         SOLVED after",
        "measured on     18 other rows",
        "  5-NN error ",
    ):
        assert part in out
    found = json.loads(run("info m.safetensors --json")[0])
    assert (found["id_column"], found["kinds"][0], found["study"]["seed"]) == ("patient", "category", 0)
    assert found["study"]["figures"][0]["name"] == "5-NN error"
    assert found["rows_learned_from"] == 72
    nw.save(nw.Metric(np.eye(2)), "metric")
    out, _ = run("info metric")
    assert "remembers  nothing of its data; models of nearwise learn do" in out
    _, err = run("info patients.csv", cli.BAD_INPUT)
    assert "patients.csv is damaged, or not a model file" in err


def test_the_column_of_vectors_is_remembered(run: Run) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    vectors = rng.normal(size=(40, 3)) + np.arange(40)[:, None] % 2 * [2, 0, 0]
    columns = {
        "name": [f"n{k}" for k in range(40)],
        "vector": vectors.tolist(),
        "kind": [k % 2 for k in range(40)],
    }
    pq.write_table(pa.table(columns), "v.parquet")
    run("learn v.parquet --labels kind --id name --penalty 1 --features vector")
    out, err = run("apply v.safetensors v.parquet")
    assert out.startswith("id,autolearner0,")
    assert "the model does not use 'kind'" in err
    assert "vectors of 3 numbers in column 'vector'" in run("info v.safetensors")[0]


def test_the_options_are_those_of_the_library() -> None:
    parser = cli.Parser(prog="learn")
    configure(parser)
    choices = {action.dest: action.choices for action in parser._actions}
    assert choices["missing"] == tables.MISSING_CHOICES
    assert choices["categorical"] == tables.CATEGORICAL_CHOICES
    assert choices["conflicts"] == side_files.CONFLICTS
    assert _side.ROLES == side_files.ROLES
    assert all(action.help for action in parser._actions)
