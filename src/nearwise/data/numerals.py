"""How the numbers of a text file are written: the decimal mark, and the mark between groups of three digits.

The decimal mark follows from all numbers that are read (`decide`): `0.5` and `12,75` say it for the whole
file. Groups are read only where the user says their mark. `4,161`, which may be four thousand or a little
more than four, is refused where no other number says which: a guess would be wrong by a factor of a thousand,
and nobody would see it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from nearwise._common.types import Array
from nearwise.data.frame import TableError, shown

_NAMES = {"": "none", ",": "comma", ".": "point", " ": "space", "'": "apostrophe"}
_OTHER = {".": ",", ",": "."}
_ALIKE = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u2019": "'"})  # as locales write them
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}([,. '])\d{3}(?:\1\d{3})*(?P<rest>[,.]\d*)?", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(?:\d+[,.]\d*|[,.]\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_MARKS = re.compile(r"[,. ']")


class Numerals(NamedTuple):
    """The decimal mark, and the mark between groups of three digits, "" for none."""

    decimal: str = "."
    thousands: str = ""

    def describe(self) -> str:
        """As a noun phrase, for messages."""
        groups = f"a {_NAMES[self.thousands]}" if self.thousands else "nothing"
        return f"a decimal {_NAMES[self.decimal]} and {groups} between thousands"


class Wanted(NamedTuple):
    """What the user says about it; None for what is to be found out, or not said."""

    decimal: str | None = None
    thousands: str | None = None


class Doubt(NamedTuple):
    """A cell of a column that does not say its number: where, why, and the option that does, or ""."""

    column: str
    row: int
    what: str
    option: str


PLAIN = Numerals()


def wanted(decimal: str | None, thousands: str | None) -> Wanted:
    """The user's wishes, marks or their names, checked."""
    marks = {name: mark for mark, name in _NAMES.items()}
    wish = Wanted(*(None if mark is None else marks.get(mark, mark) for mark in (decimal, thousands)))
    for name, mark, allowed in zip(wish._fields, wish, (tuple(_OTHER), tuple(_NAMES)), strict=True):
        if mark is not None and mark not in allowed:
            raise TableError(f"{name} must be one of {', '.join(map(repr, allowed))} or None, got {mark!r}")
    if wish.decimal is not None and wish.decimal == wish.thousands:
        both = "the decimal mark and the mark that groups thousands"
        raise TableError(f"{both} cannot both be the {_NAMES[wish.decimal]}; see --decimal and --thousands")
    return wish


def number(cell: str, numerals: Numerals = PLAIN) -> float | None:
    """The number that a cell holds, or None."""
    text = cell.strip()
    if numerals.thousands:
        text = text.translate(_ALIKE)
        if numerals.thousands in text:
            form = _GROUPED.fullmatch(text)
            if form is None or form[1] != numerals.thousands or (form["rest"] or "")[:1] == form[1]:
                return None
            text = text.replace(numerals.thousands, "")
    if numerals.decimal == ",":
        if "." in text:
            return None
        text = text.replace(",", ".")
    try:
        return None if "_" in text or not text.isascii() else float(text)
    except ValueError:
        return None


def is_numeral(cell: str) -> bool:
    """Whether a cell is a number in some way of writing."""
    return number(cell) is not None or bool(_role(cell))


def grouped(cell: str, decimal: str) -> str:
    """The option that reads the groups of a cell beside that decimal mark; empty where it has none."""
    for mark, name in _NAMES.items():
        is_there = mark not in ("", decimal) and mark in cell.translate(_ALIKE)
        if is_there and number(cell, Numerals(decimal, mark)) is not None:
            return f"--thousands {name}"
    return ""


def proves_decimals(X: Array) -> bool:
    """Whether one of these numbers shows that the mark in it is a decimal one: no group of three follows."""
    part = X[np.trunc(X) != X]
    size = np.abs(part)
    with np.errstate(over="ignore"):
        three_digits = np.round(part * 1000.0) / 1000.0 == part
    return bool(np.any((size < 1.0) | (size >= 1000.0) | ~three_digits))


def decide(
    columns: Mapping[str, Iterable[str | None]],
    separator: str,
    wish: Wanted,
    place: Callable[[int], str],
) -> tuple[Numerals, str, Doubt | None]:
    """How the numbers of these columns are written, a note on it, and what does not say it.

    Parameters
    ----------
    columns : the cells by the name of the column; those that are no numbers say nothing
    separator : between the fields; with a comma there, a point is taken for a decimal one
    wish : what the user says
    place : where a row is in the file
    """
    thousands = wish.thousands or ""
    if wish.decimal is not None or thousands in _OTHER:
        return Numerals(wish.decimal or _OTHER[thousands], thousands), "", None
    seen = _seen(columns)
    # where a blank, an apostrophe or nothing groups thousands, a point or comma does not
    others = wish.thousands is not None or ("groups", " ") in seen or ("groups", "'") in seen
    proofs = {_OTHER[mark]: seen["groups", mark] for mark in ",." if ("groups", mark) in seen}
    for role in ("either", "decimal") if others else ("decimal",):
        proofs |= {mark: seen[role, mark] for mark in ".," if (role, mark) in seen}
    if len(proofs) == 1:
        return Numerals(next(iter(proofs)), thousands), "", None
    if proofs:
        (_, column, row, cell), (_, other, there, comma) = proofs["."], proofs[","]
        what = (
            f"{shown(cell)} and {place(there)}, column {other!r}: {shown(comma)} are not written in one way"
        )
        return PLAIN, "", Doubt(column, row, what, "")
    mark = "," if ("either", ",") in seen else "."
    if ("either", mark) not in seen or (mark == "." and separator == ","):
        return Numerals(".", thousands), "", None
    beside_plain, column, row, cell = seen["either", mark]
    if mark == "." and not beside_plain:
        read = f"{place(row)}, column {column!r}: {shown(cell)} is read with a decimal point"
        return PLAIN, f"{read}; if points group thousands, say so with --thousands point", None
    ways = [number(cell, Numerals(_OTHER[mark], mark)), number(cell, Numerals(mark))]
    what = f"{shown(cell)} may be {ways[0]:.15g} or {ways[1]:.15g}, and no other number says which"
    return PLAIN, "", Doubt(column, row, what, f"--thousands {_NAMES[mark]} or --decimal {_NAMES[mark]}")


def _seen(columns: Mapping[str, Iterable[str | None]]) -> dict[tuple[str, str], tuple[bool, str, int, str]]:
    """By role and mark, a cell that shows it: whether its column has plain numbers too, column, row, cell.

    It is the first, where possible of a column that has.
    """
    found: dict[tuple[str, str], tuple[bool, str, int, str]] = {}
    for name, cells in columns.items():
        texts = [cell or "" for cell in cells]
        beside_plain = any(_MARKS.search(cell) is None and number(cell) is not None for cell in texts)
        for row, cell in enumerate(texts):
            role = _role(cell)
            if role and (role not in found or beside_plain > found[role][0]):
                found[role] = beside_plain, name, row, cell.strip()
    return found


def _role(cell: str) -> tuple[str, str] | tuple[()]:
    """What a cell shows of a mark, and which: a "decimal" one, "either", or one that "groups"; or nothing."""
    whole, point, part = cell.partition(".")
    if cell.isascii() and whole.isdecimal() and part.isdecimal() == bool(point) and len(part) != 3:
        return ("decimal", ".") if point else ()
    text = cell.strip().translate(_ALIKE)
    form = _GROUPED.fullmatch(text)
    if form is None:
        return ("decimal", "," if "," in text else ".") if _DECIMAL.fullmatch(text) else ()
    mark, rest = form[1], form["rest"]
    if rest is not None:
        return () if rest[0] == mark else ("decimal", rest[0])
    return ("either" if mark in _OTHER and text.count(mark) == 1 else "groups", mark)
