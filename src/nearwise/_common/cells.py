"""Cells of table files that spreadsheets show as they are."""

from __future__ import annotations

_ACTIVE = ("=", "+", "-", "@", "\t", "\r", "\n")  # what a spreadsheet takes for the start of a formula


def inert(text: str) -> str:
    """The text of a cell, with a quotation mark before it where a spreadsheet would compute it."""
    return f"'{text}" if text.startswith(_ACTIVE) else text
