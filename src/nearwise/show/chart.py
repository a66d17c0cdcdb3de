"""What a picture is, whoever draws it: a chart has two scales, and marks in the units of its scales.

`charts` describes every picture in these words; `report.svg` draws them for the page, `plotting` with
matplotlib. A tone says what a mark stands for, and each drawer has a colour for it: "before" and "after",
"near" and "far" (similar and dissimilar), "guide".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nearwise._common.types import Array
from nearwise.show.text import number, power_of_ten, tick_number, tick_percent

_WHOLE_POWERS = 1.5  # powers of ten that a logarithmic scale covers, from which on it ends at whole ones


@dataclass(frozen=True)
class Scale:
    """What an axis measures: its title, its ends and its kind.

    Of a logarithmic scale, `low` and `high` are exponents of ten; of any, low < high.
    """

    title: str
    low: float
    high: float
    kind: Literal["number", "share", "whole", "log"] = "number"

    def place(self, value: float) -> float:
        """0 for the lower end, 1 for the upper one."""
        at = math.log10(value) if self.kind == "log" else value
        return (at - self.low) / (self.high - self.low)

    def ticks(self, most: int = 6) -> list[tuple[float, str]]:
        """Round values, few enough to be read, and their texts."""
        if self.kind == "log":
            return self._powers(most)
        values = linear_ticks(self.low, self.high, most)
        if self.kind == "whole":
            values = [value for value in values if value == round(value)]
        text = tick_percent if self.kind == "share" else tick_number
        return [(value, text(value)) for value in values]

    def _powers(self, most: int) -> list[tuple[float, str]]:
        """Powers of ten, or round numbers where there are few powers; none too large for a number."""
        if self.high - self.low >= _WHOLE_POWERS:
            step = max(1, math.ceil((self.high - self.low) / most))
            exponents = range(int(self.high), int(self.low) - 1, -step)
            found = [(float(f"1e{e}"), power_of_ten(e)) for e in reversed(exponents)]
        else:
            exponents = range(math.floor(self.low), math.ceil(self.high) + 1)
            values = [float(f"{m}e{e}") for e in exponents for m in (1, 2, 5)]
            found = [(value, number(value)) for value in values if 0.0 <= self.place(value) <= 1.0]
        return [(value, text) for value, text in found if 0.0 < value < math.inf]


@dataclass(frozen=True, eq=False)
class Line:
    """A line through points, which have marks where they have labels; `ring` is the one that is chosen."""

    tone: str
    name: str
    x: NDArray[Any]
    y: Array
    labels: Sequence[str] = ()
    ring: int | None = None


@dataclass(frozen=True, eq=False)
class Cloud:
    """Points by themselves."""

    tone: str
    name: str
    x: Array
    y: Array


@dataclass(frozen=True, eq=False)
class Histogram:
    """The shares of values between the ends of the chart's scale; the last bar has those beyond it."""

    tone: str
    name: str
    values: Array
    bins: int

    def heights(self, x: Scale) -> Array:
        """The share of every bar."""
        inside = np.clip(self.values, x.low, x.high)
        return np.histogram(inside, self.bins, (x.low, x.high))[0] / max(len(self.values), 1)


@dataclass(frozen=True, eq=False)
class Chart:
    """A picture: what it shows, in a word or two and in a sentence, its scales, its marks, lowest first."""

    title: str
    caption: str
    x: Scale
    y: Scale
    marks: Sequence[Line | Cloud | Histogram]


@dataclass(frozen=True)
class Row:
    """One thing before and after: its name, all in words, a text at the right, and whether it became worse.

    Before and after are a value between the ends of its interval, or None.
    """

    name: str
    label: str
    before: tuple[float, float, float] | None  # value, low, high
    after: tuple[float, float, float] | None
    aside: str = ""
    worse: bool = False


@dataclass(frozen=True, eq=False)
class RowChart:
    """A picture with a row for every thing, from the top; `aside` says what the texts at the right are.

    Where it is stacked, names are long and stand above, and before and after below each other.
    """

    title: str
    caption: str
    x: Scale
    rows: Sequence[Row]
    aside: str = ""
    stacked: bool = False


def log_scale(title: str, values: Iterable[float]) -> Scale:
    """For positive values; it ends at whole powers of ten, unless these values are close together."""
    exponents = [math.log10(value) for value in values]
    low, high = min(exponents), max(exponents)
    if high - low >= _WHOLE_POWERS:
        return Scale(title, math.floor(low + 1e-9), math.ceil(high - 1e-9), "log")
    middle, half = (low + high) / 2, max(high - low, 0.7) * 0.55
    return Scale(title, middle - half, middle + half, "log")


def linear_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers between two others: multiples of 1, 2 or 5 times a power of ten."""
    raw = (high - low) / most
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(step for m in (1, 2, 5, 10, 20) if (step := m * size) >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]
