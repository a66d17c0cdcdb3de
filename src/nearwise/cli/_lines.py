"""Figures and outcomes as lines on a screen, and the exit code that an outcome means."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from nearwise.cli._common import DONE, NOT_CONVERGED, one_line
from nearwise.study.figures import UNCLEAR, VERDICTS

if TYPE_CHECKING:
    from nearwise.study.figures import Figure
    from nearwise.study.outcome import Outcome

_SHOWN = 3  # constraints violated most that are named on the screen
_VISIBLE = 0.005  # relative violations from here on; smaller ones are rounding, and would be "off by 0%"
_WIDE = 1000  # more places than a line can have, so that none is cut or broken


def exit_code(status: str) -> int:
    return DONE if status in ("SOLVED", "STATIONARY") else NOT_CONVERGED


def figure_lines(figures: Sequence[Figure]) -> list[str]:
    """The small table: before and after with intervals, and whether the change is one."""
    return table_lines([(figure.name, *figure.texts(), figure.verdict) for figure in figures])


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """The same of texts: name, before, after, verdict."""
    legend = [f"  {UNCLEAR}"] if any(row[-1] == VERDICTS[-1] for row in rows) else []
    return [*_aligned([("", "before", "after", ""), *rows], numbers=()), *legend]


def outcome_lines(outcome: Outcome) -> list[str]:
    """What was learned from, the figures, how the fit ended, and what is violated most."""
    table = outcome.known.table
    lines = [
        f"{one_line(table.source)}: {len(table.X):,} rows, {table.X.shape[1]:,} features",
        f"learned from {outcome.origin()}",
    ]
    if outcome.figures:
        lines += [f"measured on {outcome.measured_on()}, with 95 % intervals", ""]
        lines += [*figure_lines(outcome.figures), ""]
    elif not outcome.split.note:
        lines.append("measured on nothing: nothing was held out")
    lines += filter(None, [outcome.choice()])
    lines.append(outcome.ending())
    rows = dict.fromkeys(  # one that a file repeats is named once
        (found["constraint"], f"{found['value']:.3g}", f"{found['relative']:.0%}", found["from"])
        for found in outcome.worst
        if found["relative"] >= _VISIBLE
    )
    if rows:
        header = ("violated most (squared)", "value", "off by", "from")
        lines += ["", *_aligned([header, *islice(rows, _SHOWN)], numbers=(1, 2)), ""]
    return lines


def _aligned(rows: Sequence[Sequence[str]], numbers: Sequence[int]) -> list[str]:
    """Rows as lines of text with their columns below each other, those of numbers to the right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, padding=(0, 0, 0, 2))
    for k in range(len(rows[0])):
        table.add_column(justify="right" if k in numbers else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(one_line(cell)) for cell in row))
    console = Console(width=_WIDE, color_system=None)
    with console.capture() as found:
        console.print(table)
    return [line.rstrip() for line in found.get().splitlines()]
