"""Tables as people have them: what a column is, what is refused at once, and what steps make of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from nearwise._common.errors import Refused
from nearwise.data import kinds as kinds_of_columns, steps, tables
from nearwise.data.numerals import Numerals
from nearwise.data.tables import TableError

Write = Callable[..., str]

HOSPITAL = """patient,ward,admitted,bmi,smoker,share,cost,note
P1,ICU,2024-01-03,21.5,TRUE,10 %,"€ 1,200.50",arrived late
P2,A1,2024-02-04,,FALSE,15 %,"€ 900.00",
P3,A1,2024-02-05,25.0,TRUE,,"€ 1,000.00",no relatives
P4,,2024-03-06,NA,true,5 %,"€ 100.25",seen twice
P5,ICU,2024-03-07,30.5,false,0 %,"€ 7.00",moved
P6,A1,2024-03-08,22.0,TRUE,1 %,"€ 8.00",a
P7,A1,2024-03-09,22.5,TRUE,1 %,"€ 8.00",b
P8,A1,2024-03-09,22.5,TRUE,1 %,"€ 8.00",c
P9,A1,2024-03-09,22.5,TRUE,1 %,"€ 8.00",d
P10,A1,2024-03-09,22.5,TRUE,1 %,"€ 8.00",e
P11,A1,2024-03-09,22.5,TRUE,1 %,"€ 8.00",f
P12,A1,2024-03-09,22.5,TRUE,1 %,"€ 8.00",g
"""
WISHES: dict[str, Any] = {
    "ids": "patient",
    "drop": ["note"],
    "missing": "impute",
    "categorical": "onehot",
    "thousands": ",",
    "convert": {"admitted": "date", "share": "percent", "cost": "currency-EUR"},
}


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    monkeypatch.chdir(tmp_path)

    def file(content: str, name: str = "data.csv") -> str:
        (tmp_path / name).write_text(content, encoding="utf-8")
        return name

    return file


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "2.5", None], "number"),
        (["1", "2.5", "x"], "number"),  # and a mistake
        (["TRUE", "false", None], "boolean"),
        (["yes", "no", "Yes"], "boolean"),
        (["T", "F"], "boolean"),
        (["yes", "no", "maybe"], "category"),
        (["10 %", "5%", "-0.5 %"], "percent"),
        (["$5", "-$1,000", "$ 7.50"], "currency USD"),
        (["5 EUR", "7,50 €"], "currency EUR"),
        (["CHF 5", "12.30 CHF"], "currency CHF"),
        (["$5", "€5"], "text"),
        (["2024-01-31", "2024-12-01"], "date"),
        (["2024-01-31T12:30:00Z", "2024/1/2"], "date"),
        (["31.01.2024", "01.02.2024"], "date dmy"),
        (["01.02.2024", "03.04.2024"], "date dmy"),
        (["31/01/2024", "01/02/2024"], "date dmy"),
        (["01/31/2024", "01/02/2024"], "date mdy"),
        (["01/02/2024", "03/04/2024"], "date ?"),
        (["31/01/2024", "01/31/2024"], "category"),
        (["ABC", "DEF"], "category"),
        (["a", "b", "a"], "category"),
        ([f"text {k}" for k in range(11)], "text"),
        ([f"text {k % 11}" for k in range(22)], "category"),
        ([f"text {k % 101}" for k in range(1000)], "text"),
        ([None, None], "number"),
    ],
)
def test_what_a_column_holds(cells: list[str | None], kind: str) -> None:
    assert kinds_of_columns.kind_of(cells) == kind


@pytest.mark.parametrize(
    ("cell", "kind", "value"),
    [
        ("yes", "boolean", 1.0),
        ("F", "boolean", 0.0),
        ("0", "boolean", 0.0),
        ("perhaps", "boolean", None),
        ("12.5 %", "percent", 0.125),
        ("12.5", "percent", None),
        ("€ 1,234.50", "currency EUR", 1234.5),
        ("-$5", "currency USD", -5.0),
        ("$5", "currency EUR", None),
        ("1970-01-02", "date", 1.0),
        ("1970-01-02 12:00", "date", 1.5),
        ("1970-01-01T01:00+01:00", "date", 0.0),
        ("03/04/1970", "date dmy", 92.0),
        ("03/04/1970", "date mdy", 62.0),
        ("31/02/1970", "date dmy", None),
        ("1969-12-31", "date", -1.0),
    ],
)
def test_a_cell_as_a_number(cell: str, kind: str, value: float | None) -> None:
    found, wrong = kinds_of_columns.values([cell, None], kind, Numerals(".", ","))
    assert (found[0] == value, wrong) == ((True, []) if value is not None else (False, [0]))
    assert math.isnan(found[1])


def test_one_message_lists_every_column_and_the_options_that_help(write: Write) -> None:
    path = write(HOSPITAL)
    with pytest.raises(TableError) as caught:
        tables.read(path, ids="patient")
    message = str(caught.value)
    assert message.startswith("data.csv: 6 of 7 columns cannot be used as they are: column 'ward': 'ICU'")
    for part in (
        "(line 2, --categorical onehot) and the value is missing (line 5, --missing impute)",
        "column 'admitted': '2024-01-03' is not a number (line 2, --convert admitted=date)",
        "column 'bmi': the value is missing, as in 2 rows (line 3, --missing impute)",
        "column 'share': '10 %' is not a number (line 2, --convert share=percent)",
        "column 'cost': '€ 1,200.50' is not a number (line 2, --convert cost=currency-EUR)",
        "column 'note': 'arrived late' is not a number, one of 11 different texts (line 2)",
    ):
        assert part in message
    assert "smoker" not in message  # true and false are 1 and 0
    advice = message.rpartition("give ")[2]
    assert advice == (
        "--categorical onehot --missing impute --convert admitted=date --convert share=percent "
        "--convert cost=currency-EUR --drop note"
    )
    with pytest.raises(TableError, match=r"line 2, column 'cost': '€ 1,200\.50' .*--thousands comma"):
        tables.read(path, **(WISHES | {"thousands": None}))
    table = tables.read(path, **WISHES)  # which is what the advice says
    assert table.X.shape == (12, 6)


def test_what_is_not_asked_for_stays_refused(write: Write) -> None:
    path = write(HOSPITAL)
    for wish, message in [
        ({"missing": "refuse"}, r"'ward': the value is missing \(line 5, --missing impute\); .*'bmi'"),
        (
            {"categorical": "refuse"},
            r"line 2, column 'ward': 'ICU' is not a number.*give --categorical one",
        ),
        (
            {"convert": {"admitted": "date", "cost": "currency-EUR"}},
            r"line 2, column 'share': '10 %' .*give --convert share=percent",
        ),
        ({"drop": []}, r"line 2, column 'note': 'arrived late' is not a number.*--drop note"),
        ({"missing": "guess"}, r"missing must be one of 'refuse', 'impute', 'drop', got 'guess'"),
        ({"convert": {"cost": "money"}}, r"converted from 'date'.*not from 'money'"),
        ({"convert": {"price": "percent"}}, r"has no column 'price'"),
        ({"convert": WISHES["convert"] | {"cost": "currency-USD"}}, r"line 2, column 'cost': '€ 1,200.50'"),
    ]:
        with pytest.raises(TableError, match=message):
            tables.read(path, **(WISHES | wish))


def test_a_table_of_everything(write: Write) -> None:
    table = tables.read(write(HOSPITAL), **WISHES)
    assert table.names == ("ward", "admitted", "bmi", "smoker", "share", "cost")
    assert table.kinds == ("category", "date", "number", "boolean", "percent", "currency EUR")
    assert table.X[0].tolist() == ["ICU", 19725.0, 21.5, 1.0, 0.1, 1200.5]
    assert math.isnan(table.X[1, 2])
    assert math.isnan(table.X[3, 0])
    assert table.missing == "impute"
    assert any("4 missing values are filled" in notice for notice in table.notices)
    assert any("read 'smoker' as 1 and 0" in notice for notice in table.notices)
    assert table.fingerprint() == tables.read("data.csv", **WISHES).fingerprint()


def test_columns_and_rows_can_be_left_out(write: Write) -> None:
    path = write(HOSPITAL)
    table = tables.read(path, **(WISHES | {"categorical": "drop", "missing": "drop", "drop": []}))
    assert table.names == ("admitted", "bmi", "smoker", "share", "cost")
    assert table.ids.tolist() == ["P1", "P5", "P6", "P7", "P8", "P9", "P10", "P11", "P12"]
    assert table.rows.tolist() == [0, 4, 5, 6, 7, 8, 9, 10, 11]
    assert table.left_out == {"P2", "P3", "P4"}
    assert table.lines[1] == 6
    assert table.X.dtype == np.float64
    assert any("left out, because their texts are no numbers: 'ward', 'note'" in n for n in table.notices)
    assert any(
        "3 of 12 rows are left out, because a value is missing, as in line 3" in n for n in table.notices
    )
    without = tables.read(path, **(WISHES | {"ids": None, "drop": ["note", "patient"], "missing": "drop"}))
    assert without.row_names.tolist() == [0, 4, 5, 6, 7, 8, 9, 10, 11]
    assert without.left_out == {"1", "2", "3"}
    with pytest.raises(TableError, match="every row lacks a value"):
        tables.read(write("a,b\n1,\n,2\n"), missing="drop")


def test_codes_can_be_categories_and_dates_an_order(write: Write) -> None:
    path = write("code,when,x\n1,01/02/2024,1\n2,03/04/2024,2\n")
    with pytest.raises(TableError, match=r"'01/02/2024' .*--convert when=date-dmy or date-mdy"):
        tables.read(path, categories=["code"])
    for order, days in (("dmy", 19754.0), ("mdy", 19724.0)):
        table = tables.read(path, categories=["code"], convert={"when": f"date-{order}"})
        assert table.kinds == ("category", f"date {order}", "number")
        assert table.X[0].tolist() == ["1", days, 1.0]


def test_a_column_without_any_value_is_no_use(write: Write) -> None:
    with pytest.raises(TableError, match=r"line 2, column 'b': the value is missing"):
        tables.read(write("a,b\n1,\n2,NA\n"), missing="impute")


def test_a_model_reads_columns_as_it_knows_them(write: Write) -> None:
    known = tables.read(write(HOSPITAL), **WISHES)
    kinds = dict(zip(known.names, known.kinds, strict=True))
    one = "cost,ward,admitted,bmi,smoker,share,colour\n€ 7,new,2024-01-03,20,1,5 %,red\n"
    table = tables.read(write(one, "one.csv"), known=known.names, kinds=kinds, missing="impute", least=1)
    assert table.X[0].tolist() == ["new", 19725.0, 20.0, 1.0, 0.05, 7.0]
    for old, new, message in [
        ("€ 7", "$ 7", r"line 2, column 'cost': '\$ 7' is not of the kind 'currency EUR'; correct it"),
        ("2024-01-03", "soon", r"column 'admitted': 'soon' is not of the kind 'date'"),
        (",1,", ",maybe,", r"column 'smoker': 'maybe' is not of the kind 'boolean'"),
        ("5 %", "5", r"column 'share': '5' is not of the kind 'percent'"),
        (
            "bmi",
            "BMI",
            r"one.csv lacks 'bmi' of the 6 columns that the model was learned with; it has",
        ),
    ]:
        with pytest.raises(TableError, match=message):
            tables.read(
                write(one.replace(old, new, 1), "one.csv"),
                known=known.names,
                kinds=kinds,
                missing="impute",
                least=1,
            )
    with pytest.raises(TableError, match=r"line 2, column 'b': the value is missing; .*the model needs it"):
        tables.read(write("a,b\n1,\n"), known=["a", "b"], kinds={"a": "number", "b": "number"}, least=1)


def test_parquet_has_types(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    import datetime

    path = str(tmp_path / "shop.parquet")
    columns = {
        "when": [datetime.date(1970, 1, 2), None, datetime.date(1970, 1, 4)],
        "at": [datetime.datetime(1970, 1, 1, 12)] * 3,
        "sold": [1, None, 3],
        "kind": ["a", "b", None],
        "new": [True, False, True],
    }
    pq.write_table(pa.table(columns), path)
    with pytest.raises(TableError, match=r"4 of 5 columns .*'when': '1970-01-02' .*--convert when=date"):
        tables.read(path)
    table = tables.read(path, missing="impute", categorical="onehot", convert={"when": "date", "at": "date"})
    assert table.kinds == ("date", "date", "number", "category", "number")
    assert table.X[0].tolist() == [1.0, 0.5, 1.0, "a", 1.0]
    dropped = tables.read(
        path, missing="drop", categorical="onehot", convert={"when": "date", "at": "date"}, least=1
    )
    assert dropped.X.tolist() == [[1.0, 0.5, 1.0, "a", 1.0]]


def test_vectors_with_gaps(tmp_path: Path) -> None:
    path = str(tmp_path / "v.npy")
    np.save(path, np.array([[1.0, 2.0], [np.nan, 4.0], [5.0, np.nan], [7.0, 8.0]]))
    with pytest.raises(
        TableError, match=r"row 1, column 'x0': the value is missing, as in 2 rows; .*--missing"
    ):
        tables.read(path)
    assert tables.read(path, missing="drop").X.tolist() == [[1.0, 2.0], [7.0, 8.0]]
    assert np.isnan(tables.read(path, missing="impute").X).sum() == 2


@pytest.mark.parametrize("scale", [True, False])
def test_the_steps_are_those_of_scikit_learn(scale: bool, write: Write) -> None:
    table = tables.read(write(HOSPITAL), **WISHES)
    wanted = steps.preparation(table.kinds, table.missing, scale)
    pipeline, rows = steps.fitted(wanted, table.X, table.names)
    numbers = table.X[:, 1:].astype(float)
    filled = np.where(np.isnan(numbers), np.nanmedian(numbers, axis=0), numbers)
    if scale:
        filled = (filled - filled.mean(axis=0)) / filled.std(axis=0)
    wards = np.where([isinstance(cell, float) for cell in table.X[:, 0]], "A1", table.X[:, 0])
    expected = np.column_stack([filled, wards == "A1", wards == "ICU"])
    np.testing.assert_allclose(rows, expected, rtol=1e-12)
    strange = table.X[:1].copy()
    strange[0, 0] = "garden"
    assert pipeline.transform(strange)[0, -2:].tolist() == [0.0, 0.0]
    assert clone(pipeline) is not pipeline


def test_plain_tables_have_the_steps_they_had() -> None:
    assert steps.preparation((), "refuse", scale=False) == []
    assert [name for name, _ in steps.preparation((), "refuse", scale=True)] == ["scale"]
    assert [name for name, _ in steps.preparation(("number",), "impute", scale=True)] == ["impute", "scale"]


def test_a_column_without_a_value_in_the_rows_learned_from_is_refused() -> None:
    X = np.array([[1.0, np.nan], [2.0, np.nan]])
    with pytest.raises(Refused, match="column 'b' has no value in the rows learned from"):
        steps.fitted(steps.preparation(("number", "number"), "impute", scale=True), X, ["a", "b"])
