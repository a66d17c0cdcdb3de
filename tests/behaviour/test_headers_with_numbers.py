"""A first line of texts and numbers: names of columns, a row of data, or a question to the user."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nearwise as nw
from crossing import crossed
from nearwise import cli, study
from nearwise.tables import TableError

WORDS = ["rose", "tulip", "fern", "moss", "oak", "elm", "ash", "yew", "fir", "pine", "birch", "lily", "daisy"]


def content(
    header: str, rows: np.ndarray, digits: str = "%.2f", separator: str = ",", mark: str = "."
) -> str:
    """A text file of those rows, each after a word of its own, under that header."""
    lines = [header.replace(",", separator)] if header else []
    for k, row in enumerate(rows):
        numbers = [(digits % value).replace(".", mark) for value in row]
        lines.append(separator.join([WORDS[k % len(WORDS)] + "x" * (k // len(WORDS)), *numbers]))
    return "\n".join(lines) + "\n"


def numbers(n: int, d: int) -> np.ndarray:
    return np.random.default_rng(n).uniform(1.0, 3.0, size=(n, d))


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "data.csv"


@pytest.mark.parametrize("option", ["--id", "--drop"])
def test_a_header_with_years_is_no_row_to_learn(
    option: str, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        f"u{k % 3}{'abcdefghij'[k // 4]},{1 + k % 7 / 4},{2 - k % 5 / 3},{'ab'[k % 2]}" for k in range(40)
    ]
    path.write_text("\n".join(["id,2019,2020,kind", *rows]), encoding="utf-8")
    if option == "--id":  # ids differ
        path.write_text(
            "\n".join(["id,2019,2020,kind", *(f"{'abcde'[k % 5]}{k}{r}" for k, r in enumerate(rows))]),
            encoding="utf-8",
        )
    command = ["learn", "data.csv", "--labels", "4", option, "1", "--quiet"]
    assert cli.main(command) == cli.BAD_INPUT
    message = capsys.readouterr().err
    assert "line 1" in message
    assert "--header" in message
    assert not Path("data.safetensors").exists()
    assert cli.main([*command, "--header", "yes"]) == cli.DONE
    learned = study.describe(study.load("data.safetensors"))
    assert learned["columns"] == ["2019", "2020"]
    assert learned["study"]["rows"] == 40


@crossed(
    header=["id,2019,2020,2021", "plant,400.25,402.25,404.25", "plant,1,2,3", ",2019,2020,2021"],
    n=[2, 6, 150],
    written={"points": (",", "."), "commas": (";", ",")},
)
def test_a_doubtful_first_line_asks(header: str, n: int, written: tuple[str, str], path: Path) -> None:
    separator, mark = written
    X = numbers(n, 3)
    head = header.replace(",", separator).replace(".", mark) + "\n"
    text = content("", X, separator=separator, mark=mark)
    path.write_text(
        head.replace(",", separator) if mark == "." else header.replace(",", ";").replace(".", ",")
    )
    path.write_text(path.read_text() + "\n" + text, encoding="utf-8")
    with pytest.raises(TableError, match=r"line 1\b.*--header"):
        nw.tables.read(path, drop=["-4"])
    table = nw.tables.read(path, drop=["-4"], header=True)
    assert table.names == tuple(name.replace(".", mark) for name in header.split(",")[1:])
    np.testing.assert_allclose(table.X, np.round(X, 2))
    assert len(nw.tables.read(path, drop=["-4"], header="no").X) == n + 1


@crossed(
    d=[1, 2, 3, 64],
    n=[3, 10, 150],
    kind={
        "decimals": lambda n, d: content("", np.random.default_rng(n + d).normal(size=(n, d)), "%.6f"),
        "counts": lambda n, d: content("", np.random.default_rng(n * d).integers(0, 300, size=(n, d)), "%d"),
        "numbered": lambda n, d: "".join(
            f"r{k},{','.join(str(k + j) for j in range(d))}\n" for k in range(1, n + 1)
        ),
        "classes": lambda n, d: "".join(
            f"{'ab'[k % 2]},{','.join(str(k + j) for j in range(d))}\n" for k in range(5, n + 5)
        ),
        "dates": lambda n, d: "".join(f"2024-01-{k % 28 + 1:02}{',7.5' * d}\n" for k in range(n)),
    },
)
def test_ordinary_rows_are_read_without_a_question(d: int, n: int, kind, path: Path) -> None:  # type: ignore[no-untyped-def]
    path.write_text(kind(n, d), encoding="utf-8")
    assert nw.tables.read(path, drop=["1"]).X.shape == (n, d)


def test_a_class_that_comes_again_far_below_is_data(path: Path) -> None:
    """The first hundred lines are not all that is looked at."""
    lines = [f"{'abcdefghijklmnop'[k % 16]}{'x' * (k // 16)},{1000 + k},{1001 + k}" for k in range(160)]
    path.write_text("\n".join([*lines, lines[0]]), encoding="utf-8")
    assert nw.tables.read(path, labels="1").X.shape == (161, 2)


@pytest.mark.parametrize("start", [0, 1])
def test_names_above_counted_rows_are_a_header(start: int, path: Path) -> None:
    """As pandas writes a frame whose columns are years."""
    X = numbers(5, 2)
    rows = [f"{k + start},{a:.3f},{b:.3f}" for k, (a, b) in enumerate(X)]
    path.write_text("\n".join([",2019,2020", *rows]), encoding="utf-8")
    table = nw.tables.read(path)
    assert table.names == ("2019", "2020")
    assert table.X.shape == (5, 2)
    assert any("line 1" in notice for notice in table.notices)


def test_what_the_user_says_of_the_header_holds_for_words_and_numbers(path: Path) -> None:
    path.write_text("2019,2020\n1.5,2.5\n3.5,4.5\n", encoding="utf-8")
    assert nw.tables.read(path, header="yes").names == ("2019", "2020")
    path.write_text("a,b\n1.5,2.5\n3.5,4.5\n", encoding="utf-8")
    with pytest.raises(TableError, match="line 1"):
        nw.tables.read(path, header=False)
    with pytest.raises(TableError, match="header"):
        nw.tables.read(path, header="maybe")
    with pytest.raises(TableError, match="header"):
        nw.tables.read(path, header=1)  # type: ignore[arg-type]


def test_every_command_that_reads_data_takes_the_header(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = np.random.default_rng(0).uniform(1.0, 3.0, size=(40, 2))
    text = "".join(
        f"{WORDS[k % 13]}{'x' * (k // 13)},{a:.3f},{b:.3f},{'ab'[k % 2]}\n" for k, (a, b) in enumerate(rows)
    )
    path.write_text("who,2019,2020,kind\n" + text, encoding="utf-8")
    said = ["--id", "who", "--header", "yes"]
    assert (
        cli.main(["learn", "data.csv", "--labels", "kind", *said, "--show", "who", "--report", "a.html"])
        == cli.DONE
    )
    assert "--header yes" in capsys.readouterr().out  # the command to go on with
    model = ["data.safetensors", "data.csv"]
    assert cli.main(["apply", *model, *said, "--drop", "kind", "-o", "out.csv"]) == cli.DONE
    assert len(Path("out.csv").read_text().splitlines()) == 41
    assert (
        cli.main(["neighbors", *model, *said, "--query", "data.csv", "--show", "kind", "-o", "n.csv"])
        == cli.DONE
    )
    assert (
        cli.main(["evaluate", *model, *said, "--labels", "kind", "--train", "data.csv", "--quiet"])
        == cli.DONE
    )
