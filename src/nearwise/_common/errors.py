"""Errors that carry what they are about, so that nobody has to read it back from their text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any


class RowError(ValueError):
    """Something is wrong with one row of an argument.

    Attributes
    ----------
    row : its number
    words : what is wrong
    """

    def __init__(self, row: int, words: str, unit: str = "row") -> None:
        super().__init__(f"{unit} {row}: {words}")
        self.row, self.words, self.unit = int(row), words, unit

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.row, self.words, self.unit)


class RowsError(ValueError):
    """Something is wrong with some rows, of constraints for example.

    Attributes
    ----------
    rows : what they are; `str` names each of them
    before, after : what the message says around their names
    """

    def __init__(self, rows: Sequence[Any], *, before: str = "", after: str = "") -> None:
        self.rows, self.before, self.after = tuple(rows), before, after
        super().__init__(self.retold(str))

    def retold(self, name: Callable[[Any], str]) -> str:
        """The message, with the rows named otherwise."""
        return f"{self.before}{'; '.join(map(name, self.rows))}{self.after}"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), before=self.before, after=self.after), (self.rows,)


class Refused(ValueError):
    """What was given cannot be used; the message is a sentence for the user that says what, and why."""


def one_line(error: Exception) -> str:
    """What an error of another library says, on one line and not too long."""
    return " ".join(str(error).split())[:200] or type(error).__name__
