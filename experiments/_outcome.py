"""What an experiment found: figures beside the published ones, curves, remarks; as text and as files.

`drawn` draws panels with matplotlib, which comes with the extra `plot`.
"""

from __future__ import annotations

import io
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from nearwise._common.files import write_whole
from nearwise.show.plotting import MARKERS, PALETTE

Item = TypeVar("Item")
_MARKED = 30  # points of a curve at most that are marked
_DRAWN = 400  # points of a curve at most that are drawn; the eye sees no more
_WIDE, _HIGH = 5.2, 4.0  # inches of a panel


class Progress(Protocol):
    """Told how far an experiment is."""

    def __call__(self, what: str, done: int, total: int) -> None: ...


@dataclass(frozen=True)
class Row:
    """One figure.

    Attributes
    ----------
    setting : what was measured
    published : the paper's figure; None where it printed none
    ours : our figure
    spread : the standard deviation over repetitions; None for a single run
    seconds : the processor time that our part of it took; None where no time was taken
    """

    setting: str
    published: float | None
    ours: float | None
    spread: float | None = None
    seconds: float | None = None


@dataclass(frozen=True, eq=False)
class Curve:
    """One line of a panel; with `classes`, a cloud of points in the colours of their classes."""

    label: str
    x: Any
    y: Any
    spread: Any = None
    classes: Any = None


@dataclass(frozen=True, eq=False)
class Panel:
    """One pair of axes."""

    title: str
    x: str
    y: str
    curves: Sequence[Curve]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one experiment found.

    Attributes
    ----------
    name : by which `make reproduce NAME=...` runs it
    title : what is reproduced, with the section of the paper
    rows, panels : the table and the figure
    remarks : sentences on what differs from the paper, and why, where that is known
    seconds : the processor time of the whole run; None where it was not taken
    """

    name: str
    title: str
    rows: Sequence[Row]
    panels: Sequence[Panel] = ()
    remarks: Sequence[str] = ()
    seconds: float | None = None

    def write(self, folder: Path) -> list[Path]:
        """The rows as JSON, and the figure as SVG and PNG; the files that were written."""
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps([_finite(asdict(row)) for row in self.rows], indent=1) + "\n"
        contents = {".json": text.encode()}
        if self.panels:
            contents |= drawn(self.title, self.panels)
        for ending, content in contents.items():
            write_whole(folder / f"{self.name}{ending}", content)
        return [folder / f"{self.name}{ending}" for ending in contents]

    def markdown(self, pictures: str) -> str:
        """A section of a page; `pictures` is the folder of the figures as the page sees it."""
        taken = "" if self.seconds is None else f" The run took {self.seconds:.0f} seconds of processor time."
        lines = [f"## {self.name}", "", f"{self.title}.{taken}", ""]
        lines += ["| setting | published | ours | ± | seconds |", "| --- | ---: | ---: | ---: | ---: |"]
        lines += ["| " + " | ".join(cells) + " |" for cells in self.cells()]
        if self.remarks:
            lines += ["", *(f"- {remark}" for remark in self.remarks)]
        if self.panels:
            lines += ["", f"![{self.title}]({pictures}/{self.name}.svg)"]
        return "\n".join(lines) + "\n"

    def cells(self) -> Iterator[tuple[str, ...]]:
        """The rows as text."""
        for row in self.rows:
            yield (row.setting, *map(shown, (row.published, row.ours, row.spread, row.seconds)))


@dataclass
class Sample:
    """A figure that is measured again and again, with the time that it takes."""

    values: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def add(self, value: float, seconds: float | None = None) -> None:
        self.values.append(float(value))
        if seconds is not None:
            self.seconds.append(seconds)

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def spread(self) -> float | None:
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None

    @property
    def mean_seconds(self) -> float | None:
        return float(np.mean(self.seconds)) if self.seconds else None

    def row(self, setting: str, published: float | None = None) -> Row:
        return Row(setting, published, self.mean, self.spread, self.mean_seconds)


def curve(label: str, x: Sequence[float], samples: Sequence[Sample]) -> Curve:
    """The means of samples, with their spread."""
    return Curve(label, x, [s.mean for s in samples], spread=[s.spread or 0.0 for s in samples])


def timed(work: Callable[..., Item], *arguments: Any, **options: Any) -> tuple[Item, float]:
    """What the work returns, and the seconds of processor time it took: other programs do not lengthen it."""
    started = time.process_time()
    found = work(*arguments, **options)
    return found, time.process_time() - started


def followed(items: Iterable[Item], what: str, progress: Progress) -> Iterator[Item]:
    """The items, with a word on how many are done."""
    listed = list(items)
    for done, item in enumerate(listed):
        progress(what, done, len(listed))
        yield item
    progress(what, len(listed), len(listed))


def shown(value: float | None) -> str:
    """A number for a table."""
    if value is None or not math.isfinite(value):
        return "" if value is None else str(value)
    return f"{value:.0f}" if value == round(value) and abs(value) < 1e6 else f"{value:.3g}"


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in row.items()
    }


def drawn(title: str, panels: Sequence[Panel]) -> dict[str, bytes]:
    """The figure by file ending. Nothing in it changes from run to run but what was measured."""
    import matplotlib
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDE * len(panels), _HIGH + 0.4), layout="constrained")
    figure.suptitle(title, fontsize="medium")
    for place, panel in enumerate(panels):
        _draw(figure.add_subplot(1, len(panels), place + 1), panel)
    contents = {}
    # letters as letters, not as outlines, make a small file
    with matplotlib.rc_context({"svg.hashsalt": "nearwise", "svg.fonttype": "none"}):
        for kind, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
            file = io.BytesIO()
            figure.savefig(file, format=kind, dpi=120, metadata=metadata)
            contents[f".{kind}"] = file.getvalue()
    return contents


def _draw(axes: Any, panel: Panel) -> None:
    for number, curve in enumerate(panel.curves):
        if curve.classes is not None:
            _cloud(axes, curve)
            continue
        colour, mark = PALETTE[number % len(PALETTE)], MARKERS[number % len(MARKERS)]
        marked = {"marker": mark, "markersize": 4} if len(curve.x) <= _MARKED else {}
        chosen = _places(len(curve.x), panel.log_x)
        x, y = (np.asarray(values)[chosen] for values in (curve.x, curve.y))
        axes.plot(x, y, color=colour, label=curve.label, **marked)
        if curve.spread is not None:
            spread = np.asarray(curve.spread)[chosen]
            axes.fill_between(x, y - spread, y + spread, color=colour, alpha=0.15, linewidth=0)
    axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
    axes.set_xscale("log" if panel.log_x else "linear")
    axes.set_yscale("log" if panel.log_y else "linear")
    axes.grid(alpha=0.3)
    if len(panel.curves) > 1 or any(curve.classes is not None for curve in panel.curves):
        axes.legend(fontsize="small")


def _places(count: int, log: bool) -> Any:
    """Which points of a curve are drawn: evenly many of a long one, as its axis shows them."""
    if count <= _DRAWN:
        return np.arange(count)
    spaced = np.geomspace(1, count, _DRAWN) if log else np.linspace(1, count, _DRAWN)
    return np.unique(spaced.round().astype(int)) - 1


def _cloud(axes: Any, curve: Curve) -> None:
    classes = np.asarray(curve.classes)
    axes.locator_params(nbins=6)  # numbers of many digits would run into each other
    for number, label in enumerate(np.unique(classes)):
        x, y = (np.asarray(values)[classes == label] for values in (curve.x, curve.y))
        style = {"color": PALETTE[number % len(PALETTE)], "marker": MARKERS[number % len(MARKERS)], "s": 8}
        axes.scatter(x, y, label=str(label), linewidths=0, rasterized=len(classes) > _DRAWN, **style)
