"""Draws the panels of an outcome with matplotlib, which comes with the extra `plot`."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nearwise.show.plotting import MARKERS, PALETTE

if TYPE_CHECKING:
    from nearwise.reproduction._outcome import Curve, Panel

_WIDE, _HIGH = 5.2, 4.0  # inches of a panel
_MARKED = 30  # points of a curve at most that are marked
_DRAWN = 400  # points of a curve at most that are drawn; the eye sees no more


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
        colour, mark = PALETTE[number % len(PALETTE)], MARKERS[number % len(MARKERS)]
        axes.scatter(
            x,
            y,
            s=8,
            color=colour,
            marker=mark,
            label=str(label),
            linewidths=0,
            rasterized=len(classes) > _DRAWN,
        )
