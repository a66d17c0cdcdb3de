"""What the pictures share: axes with ticks at round numbers, and the figure around an SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nearwise._common.types import Array
from nearwise.show.report._text import html, number, power_of_ten

WIDTH = 360  # of every picture, in its own units
LEFT, RIGHT, TOP = 44.0, 352.0, 10.0  # edges of the plot in a picture with axes
_BELOW = 38.0  # room for ticks and title of the axis below
_MANY = 50  # marks on a line from which on they are fine
_SPAN = 1.5  # powers of ten that an axis covers, from which on it begins and ends at whole ones


@dataclass(frozen=True)
class Axis:
    """A line from `start`, where `low` is drawn, to `end`, where `high` is; low < high."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)


def bottom(height: float) -> float:
    """The lower edge of the plot in a picture of that height."""
    return height - _BELOW


def linear_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers between two others: multiples of 1, 2 or 5 times a power of ten."""
    raw = (high - low) / most
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(step for m in (1, 2, 5, 10, 20) if (step := m * size) >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


def whole_ticks(low: int, high: int, most: int = 6) -> list[float]:
    """The same, of whole numbers, with the lowest one first."""
    if high - low <= 2 * most:
        return [float(k) for k in range(low, high + 1, max(1, math.ceil((high - low) / most)))]
    found = [tick for tick in linear_ticks(low, high, most) if tick == int(tick)]
    step = found[1] - found[0]
    return [float(low), *(tick for tick in found if low + 0.6 * step <= tick <= high)]


def decades(low: int, high: int, most: int = 6) -> list[int]:
    """Exponents of ten from low to high, few enough to be read."""
    step = max(1, math.ceil((high - low) / most))
    return list(range(high, low - 1, -step))[::-1]


def exponent_range(values: Iterable[float]) -> tuple[float, float]:
    """The exponents of ten between which positive numbers are shown: whole ones, unless these are close."""
    exponents = [math.log10(value) for value in values]
    low, high = min(exponents), max(exponents)
    if high - low >= _SPAN:
        return math.floor(low + 1e-9), math.ceil(high - 1e-9)
    middle, half = (low + high) / 2, max(high - low, 0.7) * 0.55
    return middle - half, middle + half


def log_ticks(axis: Axis) -> list[tuple[float, str]]:
    """Places and labels on an axis of exponents: powers of ten, or round numbers where it is short."""
    if axis.high - axis.low >= _SPAN:
        return [(axis(e), power_of_ten(e)) for e in decades(int(axis.low), int(axis.high))]
    low, high = math.floor(axis.low), math.ceil(axis.high)
    exponents = [e + math.log10(m) for e in range(low, high + 1) for m in (1, 2, 5)]
    return [(axis(e), number(10.0**e)) for e in exponents if axis.low <= e <= axis.high]


def ticks(axis: Axis, values: Sequence[float]) -> list[tuple[float, str]]:
    """Places and labels of numbers on an axis."""
    return [(axis(value), number(value) if value else "0") for value in values]


def axes(
    height: float,
    x_ticks: Sequence[tuple[float, str]],
    y_ticks: Sequence[tuple[float, str]],
    x_title: str,
) -> str:
    """Grid lines, tick labels and the title of the axis below; labels are no text from data."""
    floor = bottom(height)
    grid = "".join(f'<path class="grid" d="M{LEFT} {y}H{RIGHT}"/>' for y, _ in y_ticks)
    grid += f'<path class="axis" d="M{LEFT} {floor}H{RIGHT}"/>'
    grid += "".join(f'<path class="axis" d="M{x} {floor}v4"/>' for x, _ in x_ticks)
    labels = "".join(f'<text class="y" x="{LEFT - 7}" y="{y}">{label}</text>' for y, label in y_ticks)
    labels += "".join(f'<text class="x" x="{x}" y="{floor + 17}">{label}</text>' for x, label in x_ticks)
    title = f'<text class="x" x="{(LEFT + RIGHT) / 2}" y="{height - 4}">{x_title}</text>'
    return grid + labels + title


def outline(shares: Array, edges: Sequence[float], x: Axis, y: Axis) -> str:
    """The outline of a histogram, as the path of a picture."""
    steps = "".join(f"V{y(float(share))}H{x(edge)}" for share, edge in zip(shares, edges[1:], strict=True))
    return f"M{x(edges[0])} {y(0.0)}{steps}V{y(0.0)}Z"


def figure(title: str, description: str, content: str, height: float, live: str = "") -> str:
    """A picture with its caption; `live` names a group whose marks answer to pointer and keys together."""
    label = html(f"{title}: {description}")
    kind = f' class="live" data-group="{live}"' if live else ""
    return (
        f'<figure><svg{kind} viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{label}">{content}</svg>'
        f"<figcaption><b>{html(title)}.</b> {html(description)}</figcaption></figure>"
    )


def mark(x: float, y: float, title: str, shape: str = "h0", kind: str = "") -> str:
    """A point with its hover label. A length of zero is drawn as a dot by the round end of its line."""
    style = f' class="{kind}"' if kind else ""
    return f'<path{style} d="M{x:g} {y:g}{shape}"><title>{html(title)}</title></path>'


def series(kind: str, points: Sequence[tuple[float, float]], titles: Sequence[str] = ()) -> str:
    """A line through points, with a mark at each of them where there are titles; fine ones where many are."""
    line = " ".join(f"{x},{y}" for x, y in points)
    drawn = f'<polyline class="{kind} line" points="{line}"/>'
    if not titles:
        return drawn
    dots = "".join(mark(x, y, title) for (x, y), title in zip(points, titles, strict=True))
    return f'{drawn}<g class="{kind} dots{" fine" if len(points) > _MANY else ""}">{dots}</g>'


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """Keys of the lines and areas of a chart: (class, text of the program)."""
    items = "".join(f'<li class="{kind}">{text}</li>' for kind, text in entries)
    return f'<ul class="legend">{items}</ul>'
