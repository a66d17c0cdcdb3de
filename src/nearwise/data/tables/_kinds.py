"""What the cells of a column are: numbers, yes and no, dates, percentages, amounts of money, or texts.

`kind_of` finds it out from all cells of a column, None standing for a missing one; `values` then reads the
cells as that kind. A kind is a word, which a model file keeps, so that other files are read in the same way:
of dates with slashes it says the order ("date dmy"), of amounts the currency ("currency EUR").
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from nearwise._common.types import Array
from nearwise.data.tables._table import shown
from nearwise.data.tables.numerals import PLAIN, Numerals, is_numeral, number

NUMBER, BOOLEAN, DATE, PERCENT, CURRENCY = "number", "boolean", "date", "percent", "currency"
CATEGORY, TEXT = "category", "text"
AMBIGUOUS = f"{DATE} ?"  # dates of which nothing tells whether the day or the month comes first
# the word by which a user asks for the conversion of a kind
_WORDS = {BOOLEAN: "booleans", DATE: "dates", PERCENT: "percent", CURRENCY: "currency"}
CONVERSIONS = ("all", *_WORDS.values(), "dates-dmy", "dates-mdy")

_BOOLEANS = (("true", "false"), ("yes", "no"), ("t", "f"), ("y", "n"))
_TRUTH = {word: 1.0 - k for pair in (*_BOOLEANS, ("1", "0")) for k, word in enumerate(pair)}
_PERCENT = re.compile(r"(?P<number>.*\d.*?)\s*%")
_SYMBOLS = {"$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "₹": "INR", "₽": "RUB", "₩": "KRW"}
_CODE = r"[A-Z]{3}|[$€£¥₹₽₩]"
_MONEY = re.compile(
    rf"(?P<sign>[+-]?)\s*(?:(?P<before>{_CODE})\s*(?P<first>[+-]?\d.*)|(?P<second>\d.*?)\s*(?P<after>{_CODE}))"
)
_ISO = re.compile(r"\d{4}[-/]\d{1,2}[-/]\d{1,2}(?P<time>[T ]\d.*)?", re.ASCII)
_SHORT = re.compile(r"(?P<one>\d{1,2})(?P<mark>[./-])(?P<two>\d{1,2})(?P=mark)(?P<year>\d{4})", re.ASCII)
_EPOCH, _SECONDS = datetime(1970, 1, 1, tzinfo=UTC), 86_400.0
_MOST_LEVELS = 100  # different texts that a category may have
_FEW = 10  # that it may have in any case; more, and every one must be there twice on average


def kind_of(cells: Sequence[str | None]) -> str:
    """The kind of a column; NUMBER where half of the cells or more are numbers, and the others mistakes."""
    found = list(dict.fromkeys(cell for cell in cells if cell is not None))
    if not found:
        return NUMBER
    if sum(map(_is_finite, found)) * 2 >= len(found):
        return NUMBER
    folded = {cell.casefold() for cell in found}
    if any(folded <= set(pair) for pair in _BOOLEANS):
        return BOOLEAN
    if all(_PERCENT.fullmatch(cell) for cell in found):
        return PERCENT
    currencies = {_currency(cell) for cell in found}
    if "" not in currencies:
        return f"{CURRENCY} {currencies.pop()}" if len(currencies) == 1 else TEXT
    few = len(found) <= _FEW or (len(found) <= _MOST_LEVELS and 2 * len(found) <= len(cells))
    return _date_kind(found) or (CATEGORY if few else TEXT)


def family(kind: str) -> str:
    """A kind without its order or currency."""
    return kind.partition(" ")[0]


def numerals_in(cells: Sequence[str | None], kind: str) -> list[str]:
    """What of every cell is a numeral: without a percent sign or currency, and "" for nothing."""
    if family(kind) not in (NUMBER, PERCENT, CURRENCY):
        return [""] * len(cells)
    return ["" if cell is None else _numeral(cell, kind) for cell in cells]


def values(cells: Sequence[str | None], kind: str, numerals: Numerals = PLAIN) -> tuple[Array, list[int]]:
    """Cells as numbers, NaN where one is missing, and the places of those that are not of this kind."""
    read: dict[str | None, float] = {None: math.nan}
    wrong: list[int] = []
    for row, cell in enumerate(cells):
        if cell not in read:
            assert cell is not None
            value = _value(cell, kind, numerals)
            read[cell] = math.inf if value is None else value
        if math.isinf(read[cell]):
            wrong.append(row)
    return np.array([read[cell] for cell in cells], dtype=np.float64), wrong


def levels(cells: Sequence[str | None]) -> NDArray[np.object_]:
    """Texts of a category, NaN where one is missing, as scikit-learn and pandas have it."""
    return np.array([math.nan if cell is None else cell for cell in cells], dtype=object)


def described(kind: str, cell: str) -> str:
    """What a column holds, with a cell of it as an example, for messages."""
    words = {
        BOOLEAN: "holds truth values",
        DATE: "holds dates",
        PERCENT: "holds percentages",
        CURRENCY: "holds amounts of money",
        CATEGORY: "holds texts",
    }
    doubt = ", of which none tells whether the day or the month comes first" if kind == AMBIGUOUS else ""
    return f"{words[family(kind)]}, as {shown(cell)}{doubt}"


def expected(kind: str) -> str:
    """What a cell of a kind must be, for messages."""
    order = {"dmy": ", the day first", "mdy": ", the month first"}
    name, _, rest = kind.partition(" ")
    return {
        NUMBER: "a number",
        BOOLEAN: "true or false, yes or no",
        DATE: f"a date{order.get(rest, '')}",
        PERCENT: "a number with a percent sign",
        CURRENCY: f"an amount in {rest}",
    }[name]


def converted(kind: str, convert: Sequence[str]) -> str | None:
    """The kind as which a column is read where a user asks to convert some kinds; None where not."""
    for order in ("dmy", "mdy"):
        if f"dates-{order}" in convert and kind in (AMBIGUOUS, f"{DATE} {order}"):
            return f"{DATE} {order}"
    is_asked = "all" in convert or _WORDS[family(kind)] in convert
    return kind if is_asked and kind != AMBIGUOUS else None


def conversion(kind: str) -> str:
    """What a user says to have a kind converted."""
    return "dates-dmy" if kind == AMBIGUOUS else _WORDS[family(kind)]


def _is_finite(cell: str) -> bool:
    value = number(cell)
    return is_numeral(cell) if value is None else math.isfinite(value)


def _value(cell: str, kind: str, numerals: Numerals) -> float | None:
    name, _, rest = kind.partition(" ")
    if name == BOOLEAN:
        return _TRUTH.get(cell.casefold())
    if name == DATE:
        return _days(cell, rest)
    if name == CURRENCY and _currency(cell) != rest:
        return None
    if name == PERCENT and _PERCENT.fullmatch(cell) is None:
        return None
    value = number(_numeral(cell, kind), numerals)
    return value / 100.0 if value is not None and name == PERCENT else value


def _numeral(cell: str, kind: str) -> str:
    name = family(kind)
    if name == PERCENT and (form := _PERCENT.fullmatch(cell)):
        return form["number"]
    if name == CURRENCY and (form := _MONEY.fullmatch(cell)):
        return form["sign"] + (form["first"] or form["second"])
    return cell


def _currency(cell: str) -> str:
    """The code of the currency of an amount; "" for what is none."""
    form = _MONEY.fullmatch(cell)
    if form is None or not is_numeral(form["sign"] + (form["first"] or form["second"])):
        return ""
    written = form["before"] or form["after"]
    return _SYMBOLS.get(written, written)


def _date_kind(cells: Sequence[str]) -> str:
    """The kind of a column of dates; "" for other cells."""
    if all(_days(cell, "") is not None for cell in cells):
        return DATE
    forms = [_SHORT.fullmatch(cell) for cell in cells]
    if not all(forms):
        return ""
    orders = [order for order in ("dmy", "mdy") if all(_days(cell, order) is not None for cell in cells)]
    if len(orders) == 2 and all(form is not None and form["mark"] == "." for form in forms):
        orders = ["dmy"]  # where points are written, the day comes first
    return "" if not orders else f"{DATE} {orders[0]}" if len(orders) == 1 else AMBIGUOUS


def _days(cell: str, order: str) -> float | None:
    """Days since 1970, the time of day as a fraction; without a time zone, UTC is meant."""
    try:
        if order:
            form = _SHORT.fullmatch(cell)
            if form is None:
                return None
            one, two = int(form["one"]), int(form["two"])
            day, month = (one, two) if order == "dmy" else (two, one)
            found = datetime(int(form["year"]), month, day, tzinfo=UTC)
        else:
            iso = _ISO.fullmatch(cell)
            if iso is None:
                return None
            parts = re.split("[-/T ]", cell, maxsplit=3)
            text = f"{parts[0]}-{int(parts[1]):02}-{int(parts[2]):02}{iso['time'] or ''}"
            found = datetime.fromisoformat(text)
            found = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
        return (found - _EPOCH).total_seconds() / _SECONDS
    except (ValueError, OverflowError):
        return None
