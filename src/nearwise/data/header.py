"""Whether the first record of a text file holds the names of its columns, or data.

A record without a number holds names. One that has both, as `id,2019,2020` and `r1,1.5,2.5` do, holds names
where a word stands above numbers or where its numbers count from 0, and data where it is like the records
below. Where neither is sure, it is refused: read wrongly, a header would be learned as a row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from nearwise._common.reading import MISSING
from nearwise._common.types import Array
from nearwise.data.frame import TableError, shown
from nearwise.data.numerals import Numerals, is_numeral, number

Cells = Sequence[str]
_NAMES = ("id", "ids", "key", "index", "name", "label", "labels", "class", "target", "date")  # hardly values
_MONOTONE = 5  # numbers that rise or fall throughout; fewer do so by chance too often
_ENOUGH = 5  # cells of a column that show its range and how its numbers are written
_FAR = 10.0  # times the largest of fewer cells, from where on a number is not one of them
_WIDE = 20.0  # the range of two columns in which a step of 1 between them is hardly chance


def holds_names(
    where: str, sample: Sequence[Cells], everything: Callable[[], list[Cells]]
) -> tuple[bool, str]:
    """Whether the first record holds names, and what the user should know about that decision.

    Parameters
    ----------
    where : file and line of the first record, for messages
    sample : the first records, that one among them
    everything : all records of the file; asked for only where the sample leaves a doubt
    """
    first, below = _stripped(sample)
    numeric = [is_numeral(cell) for cell in first]
    words = [k for k, cell in enumerate(first) if not numeric[k] and cell.casefold() not in MISSING]
    if words and not any(numeric):
        return True, ""
    if len(sample) < 2:
        return False, ""
    counted = [cell for cell, is_number in zip(first, numeric, strict=True) if is_number]
    beneath = (cell for record in below for cell, above in zip(record, numeric, strict=True) if above)
    whole = all(re.fullmatch(r"[+-]?\d+", cell) for cell in beneath)
    if (
        any(all(is_numeral(record[k]) for record in below) for k in words)
        or (counted == [str(k) for k in range(len(counted))] and len(counted) > (2 if whole else 1))
        or (not first[0] and any(numeric) and counts_rows([record[0] for record in below]))
    ):
        return True, f"{where} is read as column names, though some are numbers"
    is_mixed = any(numeric) and not all(numeric)
    looks = (lambda: sample, everything)
    if is_mixed and all(_is_in_doubt(*_stripped(look()), numeric) for look in looks):
        text = first[numeric.index(False)]
        doubt = f"{shown(text)} and {shown(counted[0])} may be names of columns, or data"
        raise TableError(f"{where}: {doubt}; say which with --header yes or --header no")
    return False, ""


def counts_rows(cells: Cells) -> bool:
    """Whether a column counts the rows, from 0 or 1."""
    return any(list(cells) == [str(k) for k in range(start, start + len(cells))] for start in (0, 1))


def _stripped(records: Sequence[Cells]) -> tuple[list[str], list[list[str]]]:
    """The first record, and those below that are as wide, without blanks around their cells."""
    first, *below = ([cell.strip() for cell in record] for record in records)
    return first, [record for record in below if len(record) == len(first)]


def _is_in_doubt(first: list[str], below: list[list[str]], numeric: Sequence[bool]) -> bool:
    """Whether a record of texts and numbers may hold names, by those below."""
    if not below:
        return False
    columns = list(zip(*below, strict=True))
    texts = [k for k, is_number in enumerate(numeric) if not is_number and first[k]]
    if any(_is_like(first[k], columns[k]) for k in texts):
        return False
    if any(first[k].casefold() in _NAMES for k in texts):
        return True
    numbers = [k for k, is_number in enumerate(numeric) if is_number]
    above = np.array([_size(first[k]) for k in numbers])
    sizes = np.array([[_size(cell) for cell in columns[k]] for k in numbers])
    low = np.where(np.isnan(sizes), np.inf, sizes).min(axis=1)
    high = np.where(np.isnan(sizes), -np.inf, sizes).max(axis=1)
    are_few = np.isfinite(sizes).sum(axis=1) < _ENOUGH
    with np.errstate(invalid="ignore"):
        room = np.where(are_few, _FAR * np.maximum(abs(low), abs(high)), high - low)
        room = np.where(room == 0.0, abs(low), room)
        fits = (low - room <= above) & (above <= high + room)
    for place, k in enumerate(numbers):
        marked = all(map(_has_mark, filter(is_numeral, columns[k])))
        fits[place] &= bool(are_few[place] or not marked or _has_mark(first[k]))  # decimals, where all have
    steps = np.diff(above)
    if len(steps) and steps[0] and np.allclose(steps, steps[0], rtol=1e-6, atol=0.0):  # as years, or counts
        ranges = (high - low)[np.isfinite(high)]
        if len(steps) > 1 or (abs(steps[0]) == 1.0 and ranges.min(initial=np.inf) >= _WIDE):
            return True
    half = len(numbers) if len(below) >= _ENOUGH else len(numbers) - 1
    others = any(_is_monotone(row) for row in sizes.T)
    return bool(2 * fits.sum() <= half) or (_is_monotone(above) and not others)


def _is_like(text: str, column: Cells) -> bool:
    """Whether a text occurs again below, or those below mostly differ from it in their digits alone."""
    if text in column:
        return True
    form = re.sub(r"\d+", "0", text)
    return "0" in form and 2 * sum(re.sub(r"\d+", "0", cell) == form for cell in column) > len(column)


def _is_monotone(sizes: Array) -> bool:
    steps = np.diff(sizes)
    return len(sizes) >= _MONOTONE and bool((steps > 0.0).all() or (steps < 0.0).all())


def _size(cell: str) -> float:
    """About the finite number that a numeral is, however it is written; NaN for others."""
    if not is_numeral(cell):
        return np.nan
    found = (number(cell, Numerals(mark)) for mark in ".,")
    plain = next((value for value in found if value is not None), None)
    size = float(re.sub(r"\D", "", cell) or "nan") if plain is None else plain
    return size if np.isfinite(size) else np.nan


def _has_mark(cell: str) -> bool:
    return not cell.lstrip("+-").isdecimal()
