"""Figures before and after, as a table with all intervals on one scale; and charts of what they summarise.

The charts are of classes, measured distances and triplets, and of penalties.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nearwise.show.report._svg import (
    LEFT,
    RIGHT,
    TOP,
    Axis,
    axes,
    bottom,
    exponent_range,
    figure,
    legend,
    linear_ticks,
    log_ticks,
    outline,
    series,
    ticks,
)
from nearwise.show.report._text import LINE, count, html, number, percent, shown, tick_percent
from nearwise.study.by_kind import ClassRecall, Margins, MeasuredDistances, PenaltyPath
from nearwise.study.resampling import UNCLEAR, VERDICTS, Figure, Interval

_CLASSES = 20  # that are shown, those with the lowest recall
_NAME, _EDGE = 18, 124.0  # characters of a class, and where its name ends
_BINS = 32


def recall(found: ClassRecall) -> str:
    """A line per class from its recall before to that after, the lowest after first."""
    order = np.lexsort((found.before, found.after))[:_CLASSES]
    row = 19.0
    height = row * len(order) + 48.0
    x = Axis(0.0, 1.0, _EDGE + 10.0, RIGHT - 50.0)
    floor = bottom(height)
    content = "".join(
        f'<path class="grid" d="M{x(tick)} {TOP - 4}V{floor}"/>'
        f'<text class="x" x="{x(tick)}" y="{floor + 17:g}">{tick_percent(tick)}</text>'
        for tick in linear_ticks(0.0, 1.0, 4)
    )
    content += f'<text class="y soft" x="{RIGHT}" y="{floor + 13:g}">rows</text>'
    for place, k in enumerate(order):
        y = TOP + row * (place + 0.5) - 2
        old, new = float(found.before[k]), float(found.after[k])
        says = f"{shown(found.names[k], 100)}: {percent(old)} before, {percent(new)} after, "
        says += count(int(found.counts[k]), "row")
        content += (
            f'<g class="recall"><title>{html(says)}</title>'
            f'<text class="y" x="{_EDGE}" y="{y:g}">{html(found.names[k], _NAME)}</text>'
            f'<path class="{"after" if new >= old else "far"} range" d="M{x(old)} {y:g}H{x(new)}"/>'
            f'<path class="before dot" d="M{x(old)} {y:g}h0"/><path class="after dot" d="M{x(new)} {y:g}h0"/>'
            f'<text class="y soft" x="{RIGHT}" y="{y:g}">{int(found.counts[k]):,}</text></g>'
        )
    content += (
        f'<text class="x" x="{(_EDGE + RIGHT) / 2:g}" y="{height - 4:g}">recall of five neighbours</text>'
    )
    better, worse = (int(part.sum()) for part in (found.after > found.before, found.after < found.before))
    about = f"Recall rose in {count(better, 'class', 'classes')} and fell in {worse:,}"
    if len(order) < len(found.names):
        about += f"; of {len(found.names):,} classes, the {len(order)} with the lowest are shown"
    keys = legend([("before point", "before"), ("after point", "after")])
    return figure("Classes", about + ".", content, height) + keys


def measured(found: MeasuredDistances) -> str:
    """Known distances against those before and after, on the same axes, with the line where they agree."""
    top = float(max(part.max() for part in (found.given, found.before, found.after))) * 1.04 or 1.0
    height = 330.0
    x, y = Axis(0.0, top, LEFT, RIGHT), Axis(0.0, top, bottom(height), TOP)
    steps = linear_ticks(0.0, top, 5)
    frame = axes(height, ticks(x, steps), ticks(y, steps), "distance that is known")
    frame += f'<path class="axis" d="M{x(0.0)} {y(0.0)}L{x(top)} {y(top)}"/>'
    pictures = ""
    for name, values, kind in (("Before", found.before, "before"), ("After", found.after, "after")):
        dots = "".join(f"M{x(a)} {y(b)}h0" for a, b in zip(found.given, values, strict=True))
        off = np.abs(values - found.given) / np.where(found.given > 0, found.given, 1.0)
        about = (
            f"Half of {count(len(values), 'distance')} are off by {percent(float(np.median(off)))} or less"
        )
        about += ", in the unit that fits best." if name == "Before" else "."
        content = f'{frame}<path class="{kind} cloud" d="{dots}"/>'
        pictures += figure(name, about, content, height)
    return f'<div class="two">{pictures}</div>'


def margins(found: Margins) -> str:
    """Histograms of the margins of triplets, before and after; those right of the line hold."""
    edges = np.linspace(-1.0, 1.0, _BINS + 1).tolist()
    shares = [np.histogram(part, edges)[0] / max(len(part), 1) for part in (found.before, found.after)]
    peak = max(float(share.max()) for share in shares) or 1.0
    height = 220.0
    x, y = Axis(-1.0, 1.0, LEFT, RIGHT), Axis(0.0, peak, bottom(height), TOP)
    content = axes(
        height,
        [(x(tick), f"{tick:g}".replace("-", "\u2212")) for tick in (-1.0, -0.5, 0.0, 0.5, 1.0)],
        [(y(tick), tick_percent(tick)) for tick in linear_ticks(0.0, peak, 4)],
        "margin: (far \u2212 near) / (far + near)",
    )
    for kind, share in zip(("before", "after"), shares, strict=True):
        content += f'<path class="{kind} area" d="{outline(share, edges, x, y)}"/>'
    content += f'<path class="zero" d="M{x(0.0)} {TOP}V{bottom(height)}"/>'
    holds = [percent(float(np.mean(part > 0))) for part in (found.before, found.after)]
    about = f"Of {count(len(found.after), 'triplet')}, {holds[0]} hold before and {holds[1]} after: "
    about += "those with a margin above zero."
    return figure("Margins", about, content, height) + legend(
        [("before line", "before"), ("after line", "after")]
    )


def penalties(found: PenaltyPath) -> str:
    """The score of every penalty that was tried, with that of the distance before."""
    known = [*found.scores, *([found.start] if math.isfinite(found.start) else [])]
    low, high = min(known), max(known)
    room = (high - low) * 0.12 or 0.01
    height = 220.0
    x = Axis(*exponent_range(found.penalties), LEFT + 6, RIGHT - 6)
    y = Axis(low - room, min(high + room, 1.0) if high < 1.0 else 1.0 + room / 4, bottom(height), TOP)
    content = axes(
        height, log_ticks(x), [(y(tick), tick_percent(tick)) for tick in linear_ticks(y.low, y.high, 4)],
        "penalty: what it costs to violate what is known",
    )  # fmt: skip
    if math.isfinite(found.start):
        content += f'<path class="before line" d="M{LEFT} {y(found.start)}H{RIGHT}"/>'
    places = [(x(math.log10(p)), y(s)) for p, s in zip(found.penalties, found.scores, strict=True)]
    tried = zip(found.penalties, found.scores, strict=True)
    content += series("after", places, [f"penalty {number(p)}: score {percent(s)}" for p, s in tried])
    best = int(np.argmax(found.scores))
    if found.chosen is None:
        about = "None scores better on what was held out than the distance before, which was kept."
    else:
        content += f'<circle class="chosen" cx="{places[best][0]}" cy="{places[best][1]}" r="7"/>'
        about = (
            f"The best of {count(len(places), 'penalty', 'penalties')} scores {percent(found.scores[best])}"
        )
        about += f", the distance before {percent(found.start)}" if math.isfinite(found.start) else ""
        about += f"; the fit to everything takes {number(found.chosen)}."
    keys = [("after line", "score on what was held out")]
    keys += [("before line", "distance before")] if math.isfinite(found.start) else []
    return figure("Penalties", about, content, height, "penalties") + legend(keys)


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
