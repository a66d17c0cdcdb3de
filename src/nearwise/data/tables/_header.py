"""Whether the first record of a text file holds the names of its columns, or data.

A record without a number holds names. One that has both, as `id,2019,2020` and `r1,1.5,2.5` do, holds names
where a word stands above numbers or where its numbers count from 0, and data where it is like the records
below. Where neither is sure, it is refused: read wrongly, a header would be learned as a row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from nearwise._common.reading import MISSING
from nearwise.data.tables._table import TableError, shown
from nearwise.data.tables.numerals import Numerals, is_numeral, number

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
    counted = [cell for k, cell in enumerate(first) if numeric[k]]
    whole = all(
        re.fullmatch(r"[+-]?\d+", cell)
        for record in below
        for cell, counts in zip(record, numeric, strict=True)
        if counts
    )
    if (
        any(all(is_numeral(record[k]) for record in below) for k in words)
        or (counted == [str(k) for k in range(len(counted))] and len(counted) > (2 if whole else 1))
        or (not first[0] and any(numeric) and counts_rows([record[0] for record in below]))
    ):
        return True, f"{where} is read as column names, though some are numbers"
    if any(numeric) and not all(numeric) and _is_in_doubt(first, below, numeric):
        every, rest = _stripped(everything())
        if _is_in_doubt(every, rest, numeric):
            text = next(cell for cell, is_number in zip(first, numeric, strict=True) if not is_number)
            raise TableError(
                f"{where}: {shown(text)} and {shown(counted[0])} may be names of columns, or data; say which "
                "with --header yes or --header no"
            )
    return False, ""


def counts_rows(cells: Cells) -> bool:
    """Whether a column counts the rows, from 0 or 1."""
    return any(list(cells) == [str(k) for k in range(start, start + len(cells))] for start in (0, 1))


def _stripped(records: Sequence[Cells]) -> tuple[list[str], list[list[str]]]:
    """The first record, and those below that are as wide, without blanks around their cells."""
    first, *below = ([cell.strip() for cell in record] for record in records)
    return first, [record for record in below if len(record) == len(first)]


def _is_in_doubt(first: list[str], below: list[list[str]], numeric: list[bool]) -> bool:
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
    sizes = {k: _sizes(columns[k]) for k in numbers}
    fitting = sum(_fits(first[k], columns[k], sizes[k]) for k in numbers)
    ranges = [max(found) - min(found) for found in sizes.values() if found]
    half = len(numbers) if len(below) >= _ENOUGH else len(numbers) - 1
    if 2 * fitting <= half or _is_equally_spaced([_size(first[k]) for k in numbers], min(ranges)):
        return True
    return _is_monotone(first, numbers) and not any(_is_monotone(record, numbers) for record in below)


def _is_like(text: str, column: Cells) -> bool:
    """Whether a text occurs again below, or those below mostly differ from it in their digits alone."""
    if text in column:
        return True
    form = re.sub(r"\d+", "0", text)
    return "0" in form and 2 * sum(re.sub(r"\d+", "0", cell) == form for cell in column) > len(column)


def _fits(cell: str, column: Cells, sizes: list[float]) -> bool:
    """Whether a number may be one of a column: near its range, and with decimals where all have them."""
    if not sizes:
        return False
    low, high, room = min(sizes), max(sizes), max(sizes) - min(sizes)
    if len(sizes) < _ENOUGH:
        room = _FAR * max(abs(low), abs(high))
    elif all(map(_has_mark, filter(is_numeral, column))) and not _has_mark(cell):
        return False
    return low - (room or abs(low)) <= _size(cell) <= high + (room or abs(high))


def _is_equally_spaced(sizes: list[float], width: float) -> bool:
    """Whether numbers are like years or counts: with one step between them, for two in wide columns 1."""
    steps = [later - earlier for earlier, later in pairwise(sizes)]
    if not steps or steps[0] == 0.0 or (len(steps) == 1 and (abs(steps[0]) != 1.0 or width < _WIDE)):
        return False
    return all(math.isclose(step, steps[0], rel_tol=1e-6) for step in steps)


def _is_monotone(record: Cells, columns: list[int]) -> bool:
    sizes = [_size(record[k]) if is_numeral(record[k]) else math.nan for k in columns]
    if len(sizes) < _MONOTONE:
        return False
    return any(all(sign * a < sign * b for a, b in pairwise(sizes)) for sign in (1, -1))


def _size(cell: str) -> float:
    """About the number that a numeral is, however it is written."""
    for numerals in (Numerals("."), Numerals(",")):
        if (value := number(cell, numerals)) is not None:
            return value
    return float(re.sub(r"\D", "", cell) or "nan")


def _sizes(column: Cells) -> list[float]:
    """The finite numbers of a column."""
    return [size for size in map(_size, filter(is_numeral, column)) if math.isfinite(size)]


def _has_mark(cell: str) -> bool:
    return not cell.lstrip("+-").isdecimal()
