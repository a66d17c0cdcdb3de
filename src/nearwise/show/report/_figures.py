"""The figures before and after: a table, and beside it all intervals on one scale."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nearwise.show.report._svg import RIGHT, Axis, bottom, figure, legend, linear_ticks
from nearwise.show.report._text import LINE, html, shown, tick_percent
from nearwise.study.evaluation import UNCLEAR, VERDICTS, Figure, Interval

_ROW, _START, _NAME = 40.0, 10.0, 52  # height of a figure's part, left edge, characters of its name


def figures(found: Sequence[Figure]) -> str:
    """The table with its note, and the chart."""
    lines = ""
    for item in found:
        cells = "".join(f"<td>{_value(text)}</td>" for text in item.texts())
        better = f"{'lower' if item.lower_is_better else 'higher'} is better"
        if item.change is not None:
            better += f"; change: {html(item.verdict)}"
        lines += (
            f'<tr><th scope="row">{html(item.name, LINE)}<span class="soft">{better}</span></th>{cells}</tr>'
        )
    head = '<th scope="col">figure</th>' + "".join(
        f'<th scope="col" class="{name}">{name}</th>' for name in ("before", "after")
    )
    table = f'<table class="numbers"><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>'
    unclear = any(item.change is not None and item.verdict == VERDICTS[-1] for item in found)
    meaning = f" {UNCLEAR.capitalize()}." if unclear else ""
    note = f'<p class="note">In parentheses: 95 % intervals over resamples.{meaning}</p>'
    return f'<div class="two"><div>{table}{note}</div><div>{intervals(found)}</div></div>'


def intervals(found: Sequence[Figure]) -> str:
    """Values before and after with their intervals, all on one scale that begins at zero."""
    drawn = [item for item in found if _known(item.before) or _known(item.after)]
    if not drawn:
        return ""
    highest = max(part.high for item in drawn for part in (item.before, item.after) if _known(part))
    x = Axis(0.0, 1.0 if highest <= 1.0 else highest * 1.04, _START, RIGHT - 8.0)
    height = _ROW * len(drawn) + 46.0
    floor = bottom(height)
    content = ""
    for tick in linear_ticks(x.low, x.high, 5):
        content += f'<path class="grid" d="M{x(tick)} 4V{floor}"/>'
        content += f'<text class="x" x="{x(tick)}" y="{floor + 15:g}">{tick_percent(tick)}</text>'
    for place, item in enumerate(drawn):
        top = _ROW * place + 4.0
        arrow = "lower is better" if item.lower_is_better else "higher is better"
        content += f'<text class="row" x="{_START}" y="{top + 11:g}">{html(item.name, _NAME)}</text>'
        parts = ((item.before, "before", top + 19), (item.after, "after", top + 29))
        texts = " before, ".join(item.texts())
        content += f"<g><title>{html(shown(item.name, LINE))}: {html(texts)} after; {arrow}</title>"
        content += "".join(_line(part, kind, x, y) for part, kind, y in parts if _known(part)) + "</g>"
    several = f"{len(drawn)} figures" if len(drawn) > 1 else "One figure"
    unit = "" if all(item.percent for item in drawn) else "; where no percentage is given, 100 % stands for 1"
    about = f"{several} with 95 % intervals on one scale{unit}."
    keys = legend([("before line", "before"), ("after line", "after")])
    return figure("Intervals", about, content, height) + keys


def _line(part: Interval, kind: str, x: Axis, y: float) -> str:
    return (
        f'<path class="{kind} range" d="M{x(part.low)} {y:g}H{x(part.high)}"/>'
        f'<path class="{kind} dot" d="M{x(part.value)} {y:g}h0"/>'
    )


def _known(part: Interval) -> bool:
    return all(map(math.isfinite, part))


def _value(text: str) -> str:
    """A value, and its interval on a line of its own."""
    value, bracket, interval = text.partition(" (")
    return f"<b>{html(value)}</b>" + (f'<span class="soft">({html(interval)}</span>' if bracket else "")
