"""How the numbers of a text file are written: the decimal mark, and the mark that groups thousands.

`4,161` may be four thousand or a little more than four. What it is, is decided from all numbers that are read
(`decide`): `0.5`, `12,75`, `1.234,5` and `1,234,567` say it, each for the whole file. Where none does, the
numbers are refused, because a guess would be wrong by a factor of a thousand and nobody would see it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearwise.data.tables._table import TableError, shown

_NAMES = {"": "none", ",": "comma", ".": "point", " ": "space", "'": "apostrophe"}
_OTHER = {".": ",", ",": "."}
_ALIKE = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u2019": "'"})  # as locales write them
_GROUPED = re.compile(
    r"[+-]?[1-9]\d{0,2}(?P<mark>[,. '])\d{3}(?:(?P=mark)\d{3})*(?P<rest>[,.]\d*)?", re.ASCII
)
_DECIMAL = re.compile(r"[+-]?(?:\d+[,.]\d*|[,.]\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_MARKS = re.compile(r"[,. ']")
HOW_TO_SAY = "say how numbers are written with --decimal and --thousands"


class Numerals(NamedTuple):
    """The decimal mark, and the mark between groups of three digits, "" for none."""

    decimal: str = "."
    thousands: str = ""

    def describe(self) -> str:
        """As a noun phrase, for messages."""
        groups = f"a {_NAMES[self.thousands]}" if self.thousands else "nothing"
        return f"a decimal {_NAMES[self.decimal]} and {groups} between thousands"


class Wanted(NamedTuple):
    """What the user says about it; None for what is to be found out."""

    decimal: str | None = None
    thousands: str | None = None


PLAIN = Numerals()
NO_WISHES = Wanted()


def wanted(decimal: str | None, thousands: str | None) -> Wanted:
    """The user's wishes, marks or their names, checked."""
    marks = {name: mark for mark, name in _NAMES.items()}
    wish = Wanted(
        None if decimal is None else marks.get(decimal, decimal),
        None if thousands is None else marks.get(thousands, thousands),
    )
    for name, mark, allowed in (
        ("decimal", wish.decimal, (".", ",")),
        ("thousands", wish.thousands, tuple(_NAMES)),
    ):
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
            if form is None or form["mark"] != numerals.thousands:
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
    return number(cell) is not None or bool(_facts(cell))


def proves_decimals(X: NDArray[np.float64]) -> bool:
    """Whether one of these numbers shows that the mark in it is a decimal one: no group of three follows."""
    part = X[np.trunc(X) != X]
    size = np.abs(part)
    with np.errstate(over="ignore"):
        three_digits = np.round(part * 1000.0) / 1000.0 == part
    return bool(np.any((size < 1.0) | (size >= 1000.0) | ~three_digits))


class _Place(NamedTuple):
    """A cell of a file, and whether its column has numbers without any mark too."""

    source: str
    where: str
    cell: str
    beside_plain: bool

    def __str__(self) -> str:
        return f"{self.source}, {self.where}: {shown(self.cell)}"


_Marks = dict[str, _Place]  # where a mark was seen first


def decide(
    source: str,
    columns: Mapping[str, Sequence[str]],
    places: Sequence[str],
    separator: str,
    wish: Wanted,
) -> tuple[Numerals, tuple[str, ...]]:
    """How the numbers of these columns are written, and what the user should know about it.

    Parameters
    ----------
    source : the file, for messages
    columns : the cells by the name of the column; those that are no numbers say nothing
    places : where each row is, for messages
    separator : between the fields; with a comma there, a point is taken for a decimal one
    wish : what the user says
    """
    decimals, groups, either = _evidence(source, columns, places)
    decimal, notices = wish.decimal, []
    if decimal is None and wish.thousands in _OTHER:
        decimal = _OTHER[wish.thousands]
    if decimal is None:
        gaps = groups if wish.thousands is None else {wish.thousands}
        # where a blank, an apostrophe or nothing groups thousands, a point or comma does not
        proofs = either if {"", " ", "'"} & set(gaps) else {}
        proofs = proofs | {_OTHER[mark]: place for mark, place in groups.items() if mark in _OTHER} | decimals
        if len(proofs) > 1:
            raise TableError(_contradiction(proofs["."], proofs[","]))
        decimal = next(iter(proofs), None)
    if decimal is None:
        decimal = "."
        doubt = either.get(",") or (None if separator == "," else either.get("."))
        if doubt is not None:
            if "," in either or doubt.beside_plain:
                raise TableError(_doubtful(doubt))
            notices.append(f"{doubt} is read with a decimal point; if points group thousands, {HOW_TO_SAY}")
    thousands = wish.thousands
    if thousands is None:
        marks = {mark: place for mark, place in (either | groups).items() if mark != decimal}
        if len(marks) > 1:
            raise TableError(_contradiction(*list(marks.values())[:2]))
        thousands, place = next(iter(marks.items()), ("", None))
        if place is not None and (value := number(place.cell, Numerals(decimal, thousands))) is not None:
            notices.append(f"{place} is read as {value:.15g}; if that is wrong, {HOW_TO_SAY}")
    return Numerals(decimal, thousands), tuple(notices)


def _evidence(
    source: str, columns: Mapping[str, Sequence[str]], places: Sequence[str]
) -> tuple[_Marks, _Marks, _Marks]:
    """The marks that are seen as decimal ones, between thousands, and as what may be either."""
    found: dict[str, _Marks] = {"decimal": {}, "thousands": {}, "either": {}}
    for name, cells in columns.items():
        beside_plain = any(_MARKS.search(cell) is None and is_numeral(cell) for cell in map(_normal, cells))
        for place, cell in zip(places, cells, strict=True):
            for role, mark in _facts(cell):
                known = found[role].get(mark)
                if known is None or (beside_plain and not known.beside_plain):
                    here = f"{place}, column {name!r}"
                    found[role][mark] = _Place(source, here, cell.strip(), beside_plain)
    return found["decimal"], found["thousands"], found["either"]


def _normal(cell: str) -> str:
    return cell.strip().translate(_ALIKE)


def _facts(cell: str) -> tuple[tuple[str, str], ...]:
    """Roles of marks that a cell shows: (role, mark)."""
    text = _normal(cell)
    form = _GROUPED.fullmatch(text)
    if form is None:
        decimal = _DECIMAL.fullmatch(text)
        return (("decimal", "," if "," in text else "."),) if decimal else ()
    mark, rest = form["mark"], form["rest"]
    if rest is not None:
        return () if rest[0] == mark else (("thousands", mark), ("decimal", rest[0]))
    return (("either" if mark in _OTHER and text.count(mark) == 1 else "thousands", mark),)


def _doubtful(place: _Place) -> str:
    mark = "," if "," in place.cell else "."
    grouped, decimal = number(place.cell, Numerals(_OTHER[mark], mark)), number(place.cell, Numerals(mark))
    return (
        f"{place} may be {grouped:.15g} or {decimal:.15g}, and no other number tells which; say it with "
        f"--thousands {_NAMES[mark]} or --decimal {_NAMES[mark]}"
    )


def _contradiction(one: _Place, other: _Place) -> str:
    return (
        f"{one} and {other.where}: {shown(other.cell)} are not written in one way; correct them, leave a "
        f"column out with --drop, or {HOW_TO_SAY}"
    )
