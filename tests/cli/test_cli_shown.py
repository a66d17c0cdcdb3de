"""`--show`, `--image`, `--color-by`, `--suspects`: what is shown and refused, and what stays a feature."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris

import nearwise as nw
from nearwise import cli
from nearwise.show.report.pictures import png

X, y = load_iris(return_X_y=True)
Capture = pytest.CaptureFixture[str]
KINDS = ("setosa", "versicolor", "virginica")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty flowers with texts and pictures, and a model of them."""
    path = tmp_path_factory.mktemp("flowers")
    (path / "pictures").mkdir()
    rows = np.arange(0, 150, 2)[:60]
    with (path / "flowers.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["name", "sl", "sw", "pl", "pw", "note", "picture", "kind"])
        for k, row in enumerate(rows):
            (path / "pictures" / f"{k}.png").write_bytes(png(np.full((4, 4), k, np.uint8)))
            text = f"<i>flower</i>, number {k}" if k else ""
            picture = f"pictures/{k}.png" if k != 3 else ""
            writer.writerow([f"f{k}", *X[row], text, picture, KINDS[y[row]]])
    code = cli.main(
        [
            "learn", str(path / "flowers.csv"), "--id", "name", "--labels", "kind", "--show", "note",
            "--image", "picture", "--penalty", "1", "-o", str(path / "m.safetensors"),
            "--report", str(path / "report.html"), "--suspects", str(path / "check.csv"), "--quiet",
        ]
    )  # fmt: skip
    assert code == cli.DONE
    return path


@pytest.fixture(autouse=True)
def _inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def refusal(capsys: Capture, *words: str) -> str:
    """The one line of an error, with exit code 2."""
    assert cli.main([*words]) == cli.BAD_INPUT
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    return line


LEARN = ("learn", "flowers.csv", "--id", "name", "--labels", "kind", "-o", "other.safetensors")
NEIGHBORS = ("neighbors", "m.safetensors", "flowers.csv", "--id", "name", "--drop", "kind")


def test_texts_that_are_shown_are_not_learned_from(folder: Path) -> None:
    model = nw.load(folder / "m.safetensors")
    assert model[0].feature_names_in_.tolist() == ["sl", "sw", "pl", "pw"]


def test_the_report_shows_texts_and_pictures(folder: Path) -> None:
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "&lt;i&gt;flower&lt;/i&gt;, number " in page
    assert "<i>flower" not in page
    assert page.count('<img src="data:image/png;base64,') > 20
    assert re.search(r"<title>f\d+ · setosa · &lt;i&gt;flower", page)


def test_suspects_are_a_table(folder: Path, capsys: Capture) -> None:
    with (folder / "check.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = [*csv.DictReader(io.StringIO((folder / "check.csv").read_text())).fieldnames]
    assert names[:2] == ["kind", "object_1"]
    assert all(row["kind"] == "label" and row["object_1"].startswith("f") for row in rows)


@pytest.mark.long
def test_suspects_are_told_of(capsys: Capture) -> None:
    words = ("--drop", "note,picture", "--penalty", "1", "--force", "--suspects", "check.tsv")
    assert cli.main([*LEARN, *words]) == cli.DONE
    assert "to check: check.tsv" in capsys.readouterr().out
    assert Path("check.tsv").read_text().startswith("kind\tobject_1\t")
    assert cli.main([*LEARN, *words, "--json"]) == cli.DONE
    assert json.loads(capsys.readouterr().out)["suspects"] == "check.tsv"


def test_suspects_that_would_be_formulas_are_told_of(capsys: Capture) -> None:
    lines = Path("flowers.csv").read_text(encoding="utf-8").splitlines()
    lines = [line.replace("f", "=f", 1) if k else line for k, line in enumerate(lines)]
    lines[1] = lines[1].replace("setosa", "virginica")
    Path("formulas.csv").write_text("\n".join(lines), encoding="utf-8")
    words = ("learn", "formulas.csv", *LEARN[2:], "--drop", "note,picture", "--penalty", "1", "--force")
    assert cli.main([*words, "--suspects", "formulas-check.csv"]) == cli.DONE
    note = r"note: formulas-check.csv: \d+ texts? (is|are) written with an apostrophe in front"
    assert re.search(note, capsys.readouterr().err)
    assert "'=f0," in Path("formulas-check.csv").read_text(encoding="utf-8")


def test_what_is_only_shown_and_what_is_not_looked_at_is_said(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nearwise.study.suspicion.LARGEST_SAMPLE", 50)
    words = ("--show", "note", "--drop", "picture", "--penalty", "1", "--force", "--suspects", "check.tsv")
    assert cli.main([*LEARN, *words, "--categorical", "onehot"]) == cli.DONE
    told = capsys.readouterr().err
    assert "note: to check: 50 of 60 labels were looked at, held-out rows first" in told
    assert "note: shown, and not learned from, because not all are numbers: 'note'\n" in told


def test_maps_are_coloured_by_a_column_of_numbers_that_stays_a_feature(capsys: Capture) -> None:
    words = ("--drop", "note,picture", "--penalty", "1", "--color-by", "pl", "--report", "c.html", "--json")
    assert cli.main([*LEARN, *words, "--force"]) == cli.DONE
    assert json.loads(capsys.readouterr().out)["features"] == 4
    assert "Colours are those of pl." in Path("c.html").read_text(encoding="utf-8")


def test_answers_that_differ_are_on_the_page(capsys: Capture) -> None:
    pairs = [(f"f{k}", f"f{59 - k}", k % 2) for k in range(25)]
    lines = ["a,b,similar", *(f"{a},{b},{s}" for a, b, s in pairs), "f0,f59,1", "f1,f58,1"]
    Path("answers.csv").write_text("\n".join(lines), encoding="utf-8")
    words = ("--id", "name", "--drop", "note,picture,kind", "--pairs", "answers.csv", "--conflicts", "keep")
    files = ("-o", "p.safetensors", "--report", "p.html", "--penalty", "1", "--force", "--quiet")
    assert cli.main(["learn", "flowers.csv", *words, *files]) == cli.DONE
    page = Path("p.html").read_text(encoding="utf-8")
    found = re.search(r"<h2>Repeated and different answers</h2><ul><li>(.*?)</li>", page)[1]
    assert "answers.csv: 27 answers to 25 pairs" in found
    assert "They differ in lines (or rows) 2, 27." in found


def test_rows_that_were_left_out_leave_the_others_their_texts(capsys: Capture) -> None:
    text = Path("flowers.csv").read_text(encoding="utf-8").splitlines()
    cells = text[1].split(",")
    text[1] = ",".join([*cells[:2], "", *cells[3:]])  # the first flower lacks a number
    Path("holes.csv").write_text("\n".join(text), encoding="utf-8")
    words = (
        "--drop",
        "name",
        "--labels",
        "kind",
        "--missing",
        "drop",
        "--show",
        "note",
        "--image",
        "picture",
    )
    files = ("-o", "h.safetensors", "--report", "h.html", "--penalty", "1", "--force", "--quiet")
    assert cli.main(["learn", "holes.csv", *words, *files]) == cli.DONE
    page = Path("h.html").read_text(encoding="utf-8")
    named = re.findall(r"<title>row (\d+) · \w+ · &lt;i&gt;flower&lt;/i&gt;, number (\d+)</title>", page)
    assert len(named) == 2 * 59
    assert all(row == number for row, number in named)  # rows keep their numbers in the file


def test_neighbors_have_texts_beside_them(capsys: Capture) -> None:
    assert cli.main([*NEIGHBORS, "--drop", "picture", "--show", "note", "-k", "2", "--quiet"]) == cli.DONE
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [*rows[0]] == ["query", "rank", "neighbor", "distance", "query_note", "neighbor_note"]
    for row in rows:
        for kind in ("query", "neighbor"):
            number = row[kind].removeprefix("f")
            assert row[f"{kind}_note"] == (f"<i>flower</i>, number {number}" if number != "0" else "")
    assert cli.main([*NEIGHBORS, "--show", "note,picture", "--json", "-k", "1"]) == cli.DONE
    first = json.loads(capsys.readouterr().out)["neighbors"][1]
    assert first["query_picture"].endswith("1.png")


@pytest.mark.parametrize("suffix", [".npz", ".parquet", ".tsv"])
def test_neighbors_with_texts_are_written_in_every_format(suffix: str, capsys: Capture) -> None:
    target = f"n{suffix}"
    assert cli.main([*NEIGHBORS, "--drop", "picture", "--show", "note", "-o", target]) == cli.DONE
    assert Path(target).stat().st_size > 0


def test_neighbors_as_a_page(capsys: Capture) -> None:
    words = ("--show", "note", "--image", "picture", "-o", "n.html", "--force")
    assert cli.main([*NEIGHBORS, *words]) == cli.DONE
    assert capsys.readouterr().out == "wrote n.html: 5 neighbors of the first 50 rows\n"
    page = Path("n.html").read_text(encoding="utf-8")
    assert page.count("<article") == 50
    assert page.count("<img ") >= 6 * 50 - 10  # f3 has none, wherever it is a neighbor
    assert "&lt;i&gt;flower" in page


def test_queries_may_be_without_the_texts(capsys: Capture) -> None:
    Path("new.csv").write_text("sl,sw,pl,pw\n5,3,1,0\n6,3,5,2\n", encoding="utf-8")
    words = ("--show", "note", "-k", "1", "--query", "new.csv", "--quiet")
    assert cli.main(["neighbors", "m.safetensors", "flowers.csv", "--id", "name", *words]) == cli.DONE
    assert capsys.readouterr().out.splitlines()[0] == "query,rank,neighbor,distance,neighbor_note"
    page = ("--image", "picture", "--query", "new.csv", "-o", "q.html", "--force", "--quiet")
    words = ("neighbors", "m.safetensors", "flowers.csv", "--id", "name", *page)
    assert cli.main([*words]) == cli.DONE
    assert Path("q.html").read_text(encoding="utf-8").count("<article") == 2


def test_a_column_that_is_not_there_is_refused(capsys: Capture) -> None:
    for flag in ("--show", "--image", "--color-by"):
        line = refusal(capsys, *LEARN, "--force", flag, "nte")
        assert line.startswith("nearwise: flowers.csv has no column 'nte'; did you mean 'note'?")


def test_pictures_that_are_not_there_are_refused_before_any_work(capsys: Capture) -> None:
    line = refusal(capsys, *LEARN, "--force", "--image", "note")
    assert line.startswith("nearwise: flowers.csv, line 3, column 'note': there is no picture <i>flower</i>")
    Path("web.csv").write_text("a,p\n1,https://example.com/a.png\n2,\n", encoding="utf-8")
    line = refusal(capsys, "learn", "web.csv", "--pairs", "x.csv", "--image", "p")
    assert line.startswith("nearwise: web.csv, line 2: pictures are read from files, not from 'https://")
    Path("none.csv").write_text("a,p\n1,\n2,\n", encoding="utf-8")
    line = refusal(capsys, "learn", "none.csv", "--pairs", "x.csv", "--image", "p")
    assert line == "nearwise: none.csv: the column 'p' names no picture"


def test_what_cannot_be_meant_is_refused(capsys: Capture) -> None:
    line = refusal(capsys, "learn", "-", "--labels", "kind", "--show", "note")
    assert line == "nearwise: --show needs a file that can be read twice, not standard input"
    line = refusal(capsys, *NEIGHBORS, "--image", "picture")
    assert line == "nearwise: --image shows pictures on a page; write it with -o FILE.html"
    line = refusal(capsys, *LEARN, "--force", "--suspects", "check.xlsx")
    assert line == "nearwise: cannot write check.xlsx: the name must end in .csv or .tsv"
    line = refusal(capsys, *LEARN, "--force", "--suspects", "flowers.csv")
    assert line == "nearwise: DATA and --suspects are the same file: flowers.csv"
    drop = ["--drop", "note,picture"]
    line = refusal(capsys, *LEARN, *drop, "-o", "fresh.safetensors", "--suspects", "check.csv")
    assert "check.csv exists; give --force" in line


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_and_help_know_the_options(shell: str, capsys: Capture) -> None:
    assert cli.main(["completion", shell]) == cli.DONE
    script = capsys.readouterr().out
    for flag in ("show", "image", "color-by", "suspects"):
        assert flag in script
    with pytest.raises(SystemExit):
        cli.main(["learn", "--help"])
    shown = capsys.readouterr().out
    assert all(flag in shown for flag in ("--show COL", "--image COL", "--color-by COL", "--suspects FILE"))
