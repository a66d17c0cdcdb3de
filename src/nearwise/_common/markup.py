"""Small tables in HTML, as notebooks show them: escaped, and without a style of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape


def fact_table(title: str, values: Mapping[str, object], *more: str) -> str:
    """A title, names with their values below each other, and further tables."""
    lines = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(str(value))}</td></tr>'
        for name, value in values.items()
    )
    return f"<div><b>{escape(title)}</b><table><tbody>{lines}</tbody></table>{''.join(more)}</div>"


def listing(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with a line of names above its rows."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    lines = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
