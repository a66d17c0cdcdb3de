"""Charts as inline SVG: figures with their captions, and a legend made of the marks themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from nearwise.show.chart import Chart, Cloud, Histogram, Line, Row, RowChart, Scale
from nearwise.show.text import html

WIDTH = 360  # of every picture, in its own units
LEFT, RIGHT, TOP = 44.0, 352.0, 10.0  # edges of the plot in a picture with axes
_HEIGHT, _BELOW = 225.0, 38.0  # of a picture; of them, for ticks and title of the axis below
_MOST = 200  # marks on a line; of more points, evenly chosen ones are drawn
_MANY = 50  # marks on a line from which on they are fine
_NAMES, _NAME = 120.0, 17  # where the names of rows end, and for how many of their characters there is room
_STACKED = 52  # characters of a name that has the whole width
_ASIDE = 50.0  # for the texts at the right of rows
_ROW, _STACKED_ROW = 20.0, 40.0  # their heights

Edge = Callable[[float], float]  # a value on a scale -> its place in the picture
Key = tuple[str, str]  # of a legend: the class of a mark, and its text


def draw(found: Chart | RowChart | Mapping[str, Chart]) -> str:
    """A chart with its legend, or charts side by side with one legend for them all."""
    if not isinstance(found, Mapping):
        return _figure(found) + legend(_keys(found))
    both = "".join(map(_figure, found.values()))
    keys = dict.fromkeys(key for chart in found.values() for key in _keys(chart))
    return f'<div class="two">{both}</div>{legend(keys)}'


def figure(title: str, description: str, content: str, height: float, live: str = "") -> str:
    """A picture with its caption; `live` names a group whose marks answer to pointer and keys together."""
    label = html(f"{title}: {description}")
    kind = f' class="live" data-group="{html(live)}"' if live else ""
    return (
        f'<figure><svg{kind} viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{label}">{content}</svg>'
        f"<figcaption><b>{html(title)}.</b> {html(description)}</figcaption></figure>"
    )


def mark(x: float, y: float, title: str, shape: str = "h0", kind: str = "") -> str:
    """A point with its hover label. A length of zero is drawn as a dot by the round end of its line."""
    style = f' class="{kind}"' if kind else ""
    return f'<path{style} d="M{x:g} {y:g}{shape}"><title>{html(title)}</title></path>'


def legend(keys: Iterable[Key]) -> str:
    """What the marks are; a key looks like the mark, because it has its class."""
    items = "".join(f'<li class="{kind}">{html(text)}</li>' for kind, text in keys)
    return f'<ul class="legend">{items}</ul>' if items else ""


def _keys(found: Chart | RowChart) -> Iterable[Key]:
    if isinstance(found, RowChart):
        return [(f"{name} dot", name) for name in ("before", "after")]
    return [(_class(part), part.name) for part in found.marks if part.name]


def _class(part: Line | Histogram | Cloud) -> str:
    """The class of a mark: its tone and its kind."""
    return f"{part.tone} {type(part).__name__.lower()}"


def _figure(found: Chart | RowChart) -> str:
    if isinstance(found, RowChart):
        content, height = _rows(found)
        return figure(found.title, found.caption, content, height)
    alike = (found.x.low, found.x.high) == (found.y.low, found.y.high)  # then lengths are comparable
    height = RIGHT - LEFT + TOP + _BELOW if alike else _HEIGHT
    floor = height - _BELOW
    labelled = any(isinstance(part, Line) and part.labels for part in found.marks)
    inset = 5.0 if labelled else 0.0  # marks at the ends are whole
    x, y = _edge(found.x, LEFT + inset, RIGHT - inset), _edge(found.y, floor, TOP)
    content = f'<path class="axis" d="M{LEFT} {floor}H{RIGHT}"/>'
    content += "".join(f'<path class="axis" d="M{x(value)} {floor}v4"/>' for value, _ in found.x.ticks())
    for value, text in found.y.ticks(5):
        content += f'<path class="grid" d="M{LEFT} {y(value)}H{RIGHT}"/>'
        content += f'<text class="y" x="{LEFT - 7}" y="{y(value)}">{text}</text>'
    content += _below(found.x, x, height, (LEFT + RIGHT) / 2)
    content += "".join(_mark(part, found, x, y) for part in found.marks)
    return figure(found.title, found.caption, content, height, found.x.title if labelled else "")


def _edge(scale: Scale, start: float, end: float) -> Edge:
    """A scale along an edge of the picture, from one place to another."""
    return lambda value: round(start + scale.place(value) * (end - start), 1)


def _below(scale: Scale, x: Edge, height: float, middle: float, most: int = 6) -> str:
    """The texts below a picture: of ticks, and the title of the axis."""
    texts = [(x(value), height - _BELOW + 17, text) for value, text in scale.ticks(most)]
    texts.append((middle, height - 4, html(scale.title)))
    return "".join(f'<text class="x" x="{at}" y="{y:g}">{text}</text>' for at, y, text in texts)


def _mark(part: Line | Histogram | Cloud, chart: Chart, x: Edge, y: Edge) -> str:
    kind = _class(part)
    if isinstance(part, Histogram):
        edges = np.linspace(chart.x.low, chart.x.high, part.bins + 1)
        bars = zip(part.heights(chart.x), edges[1:], strict=True)
        steps = "".join(f"V{y(float(share))}H{x(float(edge))}" for share, edge in bars)
        return f'<path class="{kind}" d="M{x(float(edges[0]))} {y(0.0)}{steps}V{y(0.0)}Z"/>'
    if isinstance(part, Cloud):
        dots = "".join(f"M{x(a)} {y(b)}h0" for a, b in zip(part.x, part.y, strict=True))
        return f'<path class="{kind}" d="{dots}"/>'
    chosen = np.unique(np.linspace(0, len(part.x) - 1, min(len(part.x), _MOST)).round().astype(int))
    places = [(x(float(part.x[k])), y(float(part.y[k]))) for k in chosen]
    drawn = f'<polyline class="{kind}" points="{" ".join(f"{a},{b}" for a, b in places)}"/>'
    if part.labels:
        dots = "".join(mark(*place, part.labels[k]) for place, k in zip(places, chosen, strict=True))
        drawn += f'<g class="{part.tone} dots{" fine" if len(places) > _MANY else ""}">{dots}</g>'
    if part.ring is not None:
        a, b = float(part.x[part.ring]), float(part.y[part.ring])
        drawn += f'<circle class="chosen" cx="{x(a)}" cy="{y(b)}" r="7"/>'
    return drawn


def _rows(found: RowChart) -> tuple[str, float]:
    """The content of a chart of rows, and how high it is."""
    each = _STACKED_ROW if found.stacked else _ROW
    height = each * len(found.rows) + _BELOW + 10.0
    has_aside = any(row.aside for row in found.rows)
    start, end = (10.0 if found.stacked else _NAMES + 10.0), RIGHT - (_ASIDE if has_aside else 8.0)
    x, most = _edge(found.x, start, end), 5 if found.stacked else 4
    grid = (f'<path class="grid" d="M{x(value)} 4V{height - _BELOW}"/>' for value, _ in found.x.ticks(most))
    content = "".join(grid) + _below(found.x, x, height, (start + end) / 2, most)
    if found.aside:
        content += f'<text class="y soft" x="{RIGHT}" y="{height - _BELOW + 13:g}">{html(found.aside)}</text>'
    for k, row in enumerate(found.rows):
        content += _row(row, x, 4.0 + each * k, found.stacked)
    return content, height


def _row(row: Row, x: Edge, top: float, stacked: bool) -> str:
    middle = top + _ROW / 2
    name = f'<text class="y" x="{_NAMES}" y="{middle:g}">{html(row.name, _NAME)}</text>'
    if stacked:
        name = f'<text class="row" x="10" y="{top + 11:g}">{html(row.name, _STACKED)}</text>'
    drawn = ""
    if not stacked and row.before and row.after:
        ends = x(row.before[0]), x(row.after[0])
        drawn = f'<path class="{"far" if row.worse else "after"} range" d="M{ends[0]} {middle:g}H{ends[1]}"/>'
    for tone, part, below in (("before", row.before, 9), ("after", row.after, 19)):
        if part is not None:
            y = middle + below if stacked else middle
            drawn += f'<path class="{tone} range" d="M{x(part[1])} {y:g}H{x(part[2])}"/>'
            drawn += f'<path class="{tone} dot" d="M{x(part[0])} {y:g}h0"/>'
    aside = f'<text class="y soft" x="{RIGHT}" y="{middle:g}">{html(row.aside)}</text>' if row.aside else ""
    return f'<g class="bar"><title>{html(row.label)}</title>{name}{drawn}{aside}</g>'
