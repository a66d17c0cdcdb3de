"""What the cells of a column are: numbers, truth values, categories, texts; dates, percentages and money.

A kind is a word, which a model keeps, so that other files are read in the same way. Numbers and truth values
are read as they are. Dates ("date" as in 2024-01-31, "date dmy", "date mdy"), percentages ("percent") and
money ("currency EUR") are read where the user says so of the column, or a model does; `kind_of` recognises
them for a refusal that offers it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import islice

import numpy as np

from nearwise._common.types import Array
from nearwise.data.frame import TableError
from nearwise.data.numerals import PLAIN, Numerals, is_numeral, number

NUMBER, BOOLEAN, CATEGORY, TEXT = "number", "boolean", "category", "text"
CONVERSIONS = ("date", "date dmy", "date mdy", "percent", "currency EUR")  # or another currency
AMBIGUOUS = "date ?"  # dates of which none says whether the day or the month comes first

_BOOLEANS = (("true", "false"), ("yes", "no"), ("t", "f"), ("y", "n"))
_TRUTH = {word: 1.0 - k for pair in (*_BOOLEANS, ("1", "0")) for k, word in enumerate(pair)}
_PERCENT = re.compile(r"(.*\d.*?)\s*%")
_SYMBOLS = {"$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "₹": "INR", "₽": "RUB", "₩": "KRW"}
_CODE = rf"([A-Z]{{3}}|[{''.join(_SYMBOLS)}])"
_MONEY = re.compile(rf"([+-]?)\s*{_CODE}\s*([+-]?\d.*)|([+-]?)\s*(\d.*?)\s*{_CODE}")
_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d.*)?", re.ASCII)
_ONE_DIGIT = re.compile(r"(^|[-/.])(\d)(?=[-/.T ]|$)")  # a day or month without its 0
_EPOCH, _SECONDS = datetime(1970, 1, 1, tzinfo=UTC), 86_400.0
_MOST_LEVELS = 100  # different texts that a category may have
_FEW = 10  # that it may have in any case; more, and every one must be there twice on average


def kind_of(cells: Sequence[str | None]) -> str:
    """The kind of a column; NUMBER where half of the cells or more are numbers, and the others mistakes."""
    found = list(dict.fromkeys(cell for cell in cells if cell is not None))
    half = (len(found) + 1) // 2
    if len(list(islice(filter(is_numeral, found), half))) == half:
        return NUMBER
    if any({cell.casefold() for cell in found} <= set(pair) for pair in _BOOLEANS):
        return BOOLEAN
    currencies = {_money(cell)[0] for cell in found}
    if "" not in currencies:
        return f"currency {currencies.pop()}" if len(currencies) == 1 else TEXT
    if all(_PERCENT.fullmatch(cell) for cell in found):
        return "percent"
    dates = [kind for kind in CONVERSIONS[:3] if all(_days(cell, kind) is not None for cell in found)]
    if dates:  # where points are written, the day comes first
        return AMBIGUOUS if len(dates) == 2 and "." not in found[0] else dates[0]
    few = len(found) <= _FEW or (len(found) <= _MOST_LEVELS and 2 * len(found) <= len(cells))
    return CATEGORY if few else TEXT


def said(word: str) -> str:
    """The kind that a user says, as "date-dmy" or "currency-EUR", checked."""
    kind = word.replace("-", " ", 1)
    if kind not in CONVERSIONS and not re.fullmatch("currency [A-Z]{3}", kind):
        choices = ", ".join(repr(kind.replace(" ", "-")) for kind in CONVERSIONS)
        raise TableError(f"columns are converted from {choices} or another currency, not from {word!r}")
    return kind


def as_said(kind: str) -> str:
    """How a user says a kind; of dates that can be read in two ways both are offered."""
    return "date-dmy or date-mdy" if kind == AMBIGUOUS else kind.replace(" ", "-")


def numeral(cell: str, kind: str) -> str:
    """What of a cell is a numeral: without a percent sign or currency, and "" in other kinds."""
    if kind == "percent" and (form := _PERCENT.fullmatch(cell)):
        return form[1]
    return _money(cell)[1] if kind.startswith("currency") else cell if kind == NUMBER else ""


def values(cells: Sequence[str | None], kind: str, numerals: Numerals = PLAIN) -> tuple[Array, list[int]]:
    """Cells as numbers, NaN where one is missing, and the rows of those that are not of this kind."""
    read: dict[str | None, float] = {None: math.nan}
    for cell in cells:
        if cell not in read:
            value = _value(cell or "", kind, numerals)
            read[cell] = math.inf if value is None else value
    found = np.array([read[cell] for cell in cells], dtype=np.float64)
    return found, np.flatnonzero(np.isinf(found)).tolist()


def _value(cell: str, kind: str, numerals: Numerals) -> float | None:
    if kind == BOOLEAN:
        return _TRUTH.get(cell.casefold())
    if kind.startswith("date"):
        return _days(cell, kind)
    if kind.startswith("currency") and _money(cell)[0] != kind.removeprefix("currency "):
        return None
    value = number(numeral(cell, kind), numerals)
    return value if value is None or kind != "percent" else value / 100.0


def _money(cell: str) -> tuple[str, str]:
    """The code of the currency of an amount, and its number; "" and "" for what is none."""
    form = _MONEY.fullmatch(cell)
    if form is None:
        return "", ""
    code, amount = (form[2], form[1] + form[3]) if form[2] else (form[6], form[4] + form[5])
    return (_SYMBOLS.get(code, code), amount) if is_numeral(amount) else ("", "")


def _days(cell: str, kind: str) -> float | None:
    """Days since 1970, the time of day as a fraction; without a time zone, UTC is meant."""
    text = _ONE_DIGIT.sub(r"\g<1>0\2", cell).replace("/", "-")
    try:
        if kind == "date":
            found = datetime.fromisoformat(text if _ISO.fullmatch(text) else "")
        else:
            order = "%d-%m-%Y" if kind == "date dmy" else "%m-%d-%Y"
            found = datetime.strptime(text.replace(".", "-"), order)
        found = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
        return (found - _EPOCH).total_seconds() / _SECONDS
    except (ValueError, OverflowError):
        return None
