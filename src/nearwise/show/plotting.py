"""Plots of what was learned, in the manner of scikit-learn's Display classes.

`from_estimator` takes a fitted learner, or a Pipeline whose last step is one, draws, and returns the display;
its `ax_` holds the matplotlib axes (two of them where before and after are side by side), and `figure_` their
figure. `plot` draws again. What is not there to be drawn is an error that says why. The pictures are those of
the report (`charts`). matplotlib is imported by the first plot; it comes with the extra `plot`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from nearwise.show import charts
from nearwise.show.chart import Chart, Cloud, Histogram
from nearwise.study import inspection
from nearwise.study.before_after import Missing
from nearwise.study.inspection import Classes, Convergence, Distances, Maps, Spectrum

__all__ = ["ConvergenceDisplay", "DistanceDisplay", "EmbeddingDisplay", "SpectrumDisplay"]

# Ten colours with marks in four shapes: neighbours in the list of classes differ in both.
PALETTE = (
    *("#0b66c3", "#c2500a", "#0a8560", "#a83a8c", "#8a6d00"),
    *("#5344b8", "#0e86b4", "#7a4420", "#cc3f6d", "#4d5b66"),
)
GREY = "#8b949e"
MARKERS = ("o", "s", "^", "D")
WHEN = ("both", "before", "after")
COLOURS = tuple(map(str, range(len(PALETTE))))  # the tones of classes
_TONES = dict(zip((*COLOURS, "near", "after", "far"), (*PALETTE, *PALETTE[:1], *PALETTE[:2]), strict=True))


class _Display:
    """What displays have in common.

    Attributes
    ----------
    ax_, figure_ : axes and figure of the last plot; two axes in an array where before and after are drawn
    """

    ax_: Any
    figure_: Any

    def _plot(
        self, found: Mapping[str, Chart], ax: Any, style: Mapping[str, Any], when: str = "both"
    ) -> list[Any]:
        """Draw charts side by side, by their titles; the lines that have marks, which take the style."""
        if when not in WHEN:
            raise ValueError(f"when must be one of {', '.join(map(repr, WHEN))}, got {when!r}")
        drawn = {title: chart for title, chart in found.items() if when in ("both", title)}
        if not drawn:
            raise Missing("The learner starts from no distance that could be shown.")
        targets = _axes(ax, len(drawn))
        lines = []
        for (title, chart), target in zip(drawn.items(), targets, strict=True):
            lines += _draw(chart, target, style)
            target.set_title(title)
        if targets[-1].get_legend_handles_labels()[1]:
            targets[-1].legend()
        self.ax_ = targets[0] if len(drawn) == 1 else np.array(targets, dtype=object)
        self.figure_ = targets[0].figure
        return lines


class ConvergenceDisplay(_Display):
    """What every iteration recorded, on a logarithmic scale: relative gap and worst violation, or the cost.

    Made of what `nearwise.inspection.convergence` returns; `lines_` are the matplotlib lines, one per series.
    """

    lines_: list[Any]

    def __init__(self, convergence: Convergence) -> None:
        self.convergence = convergence

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None, **style: Any) -> Self:
        """Draw the history of a fit.

        Parameters
        ----------
        estimator : a fitted learner that records iterations, or a Pipeline that ends with one
        ax : matplotlib axes; by default those of a new figure
        style : further arguments of `Axes.plot`
        """
        return cls(inspection.convergence(estimator)).plot(ax, **style)

    def plot(self, ax: Any = None, **style: Any) -> Self:
        """Draw; arguments as for `from_estimator`."""
        chart = charts.convergence(self.convergence)
        self.lines_ = self._plot({chart.title: chart}, ax, style)
        return self


class SpectrumDisplay(_Display):
    """The eigenvalues of the learned matrix in falling order, on a logarithmic scale, beside the prior's.

    Made of what `nearwise.inspection.spectrum` returns; `line_` is the matplotlib line of the learned ones.
    """

    line_: Any

    def __init__(self, spectrum: Spectrum) -> None:
        self.spectrum = spectrum

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any = None, *, ax: Any = None, **style: Any) -> Self:
        """Draw the spectrum of a fitted learner.

        Parameters
        ----------
        estimator : a fitted learner, or a Pipeline that ends with one
        X : the data of the fit, only to show the prior of prior="covariance"
        ax : matplotlib axes; by default those of a new figure
        style : further arguments of `Axes.plot`
        """
        return cls(inspection.spectrum(estimator, X)).plot(ax, **style)

    def plot(self, ax: Any = None, **style: Any) -> Self:
        """Draw; arguments as for `from_estimator`."""
        chart = charts.spectrum(self.spectrum)
        (self.line_,) = self._plot({chart.title: chart}, ax, style)
        return self


class DistanceDisplay(_Display):
    """Histograms of the distances of similar and of dissimilar pairs, before and after.

    They end at three times the median, and their last bars take in what is farther. Made of what
    `nearwise.inspection.pair_distances` returns.
    """

    def __init__(self, distances: Distances) -> None:
        self.distances = distances

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        y: ArrayLike | None = None,
        *,
        pairs: ArrayLike | None = None,
        is_similar: ArrayLike | None = None,
        when: str = "both",
        ax: Any = None,
        **style: Any,
    ) -> Self:
        """Draw the distances of pairs of rows.

        Parameters
        ----------
        estimator : a fitted learner, or a Pipeline that ends with one
        X : the rows; not needed for `FixedRankEmbedding`, which keeps its coordinates
        y : labels, from which 20,000 pairs are drawn where none are given
        pairs, is_similar : (m, 2) row numbers, and which of the pairs are similar
        when : "both", or only "before" or "after"
        ax : matplotlib axes, two of them for "both"; by default those of a new figure
        style : further arguments of `Axes.hist`
        """
        if (pairs is None) is not (is_similar is None):
            raise ValueError("pairs and is_similar belong together: give both")
        if pairs is None or is_similar is None:
            if y is None:
                raise ValueError("give y, or pairs and is_similar, which say what is similar")
            pairs, is_similar = inspection.label_pairs(y)
        found = inspection.pair_distances(estimator, X, pairs, is_similar)
        return cls(found).plot(ax, when=when, **style)

    def plot(self, ax: Any = None, *, when: str = "both", **style: Any) -> Self:
        """Draw; arguments as for `from_estimator`."""
        self._plot(charts.distances(self.distances, in_medians=False), ax, style, when)
        return self


class EmbeddingDisplay(_Display):
    """Maps of the rows by two principal coordinates, before and after, turned to be compared.

    Made of what `nearwise.inspection.maps` returns, and `nearwise.inspection.classes` for the labels of all
    rows, or None.
    """

    def __init__(self, maps: Maps, classes: Classes | None = None) -> None:
        self.maps, self.classes = maps, classes

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        y: ArrayLike | None = None,
        *,
        n_points: int = inspection.MAP_POINTS,
        when: str = "both",
        ax: Any = None,
        **style: Any,
    ) -> Self:
        """Draw the rows of X where the distance puts them.

        Parameters
        ----------
        estimator : a fitted learner, or a Pipeline that ends with one
        X : the rows; not needed for `FixedRankEmbedding`, which keeps its coordinates
        y : labels of the rows; the ten most frequent ones have a colour
        n_points : the largest number of rows that are shown; of more, a sample
        when : "both", or only "before" or "after"
        ax : matplotlib axes, two of them for "both"; by default those of a new figure
        style : further arguments of `Axes.scatter`
        """
        found = inspection.maps(estimator, X, n_points)
        known = None if y is None else inspection.classes(list(np.asarray(y, dtype=object)))
        if known is not None and len(known.slots) <= int(found.rows.max()):
            raise ValueError(f"y has {len(known.slots)} labels, which are fewer than there are rows")
        return cls(found, known).plot(ax, when=when, **style)

    def plot(self, ax: Any = None, *, when: str = "both", **style: Any) -> Self:
        """Draw; arguments as for `from_estimator`."""
        self._plot(charts.maps(self.maps, self.classes), ax, style, when)
        targets = np.ravel(self.ax_)
        for target in targets:
            target.set(aspect="equal", adjustable="datalim", xticks=[], yticks=[])
        if self.classes is not None:
            targets[-1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize="small")
        return self


def _draw(chart: Chart, ax: Any, style: Mapping[str, Any]) -> list[Any]:
    """The marks and scales of a chart; the lines that have marks, which take the style."""
    lines = []
    for part in chart.marks:
        look: dict[str, Any] = {"color": _TONES.get(part.tone, GREY)}
        look |= {"label": part.name} if part.name else {}
        if isinstance(part, Histogram):
            look |= {"bins": part.bins, "alpha": 0.5, "range": (chart.x.low, chart.x.high)} | dict(style)
            inside = np.minimum(part.values, look["range"][1])
            ax.hist(inside, **({"weights": np.full(len(inside), 1 / len(inside))} | look))
        elif isinstance(part, Cloud):
            look |= {"s": 8, "linewidths": 0, "alpha": 0.85}
            if part.tone in COLOURS:
                look |= {"s": 16, "marker": MARKERS[COLOURS.index(part.tone) % len(MARKERS)]}
            ax.scatter(part.x, part.y, **(look | dict(style)))
        elif part.labels:
            lines += ax.plot(part.x, part.y, **(look | {"marker": "o", "markersize": 4} | dict(style)))
        else:
            ax.plot(part.x, part.y, linestyle=":", **look)
    for name, scale in (("x", chart.x), ("y", chart.y)):
        ax.set(**{f"{name}label": scale.title} | ({f"{name}scale": "log"} if scale.kind == "log" else {}))
        if scale.kind == "whole":
            getattr(ax, f"{name}axis").get_major_locator().set_params(integer=True)
    return lines


def _axes(ax: Any, count: int) -> list[Any]:
    """As many axes as are wanted: the given ones, or those of a new figure."""
    if ax is None:
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise ImportError('plots need matplotlib: pip install "nearwise[plot]"') from error
        size = (5.0 * count, 4.5) if count > 1 else None
        _, found = plt.subplots(1, count, figsize=size, squeeze=False, layout="constrained")
        return list(found[0])
    from matplotlib.axes import Axes

    given = list(np.ravel(np.asarray(ax, dtype=object)))
    for one in given:
        if not isinstance(one, Axes):
            raise TypeError(f"ax must be matplotlib axes, got {type(one).__name__}")
    if len(given) != count:
        hint = "; when='before' or when='after' draws into one" if count == 2 else ""
        raise ValueError(f"ax must hold {count} axes, got {len(given)}{hint}")
    return given
