"""Plots of what was learned, in the manner of scikit-learn's Display classes.

`from_estimator` takes a fitted learner, or a Pipeline whose last step is one, draws, and returns the display;
its `ax_` holds the matplotlib axes (two of them where before and after are side by side), and `figure_` their
figure. `plot` draws again. What is not there to be drawn is an error that says why. matplotlib is imported by
the first plot; it comes with the extra `plot`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from nearwise._common.types import Array
from nearwise.study import inspection
from nearwise.study.before_after import Missing
from nearwise.study.inspection import OTHER, UNKNOWN, Classes, Convergence, Distances, Maps, Spectrum

__all__ = ["ConvergenceDisplay", "DistanceDisplay", "EmbeddingDisplay", "SpectrumDisplay"]

# Ten colours with marks in four shapes: neighbours in the list of classes differ in both.
PALETTE = (
    *("#0b66c3", "#c2500a", "#0a8560", "#a83a8c", "#8a6d00"),
    *("#5344b8", "#0e86b4", "#7a4420", "#cc3f6d", "#4d5b66"),
)
GREY = "#8b949e"
MARKERS = ("o", "s", "^", "D")
_FARTHEST = 3.0  # median distances at which a histogram ends
WHEN = ("both", "before", "after")


class ConvergenceDisplay:
    """What every iteration recorded, on a logarithmic scale: relative gap and worst violation, or the cost.

    Parameters
    ----------
    convergence : what `nearwise.inspection.convergence` returns

    Attributes
    ----------
    lines_ : the matplotlib lines, one per series
    ax_, figure_ : axes and figure of the last plot
    """

    ax_: Any
    figure_: Any
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
        found = self.convergence
        ax = _axes(ax)
        self.lines_ = []
        for (name, values), colour, marker in zip(found.series.items(), PALETTE, MARKERS, strict=False):
            shown = np.isfinite(values) & (values > 0)
            look = {"color": colour, "marker": marker, "markersize": 4, "label": name} | style
            self.lines_ += ax.plot(found.iteration[shown], values[shown], **look)
        ax.set_yscale("log")
        ax.set_xlabel("iteration")
        _whole_numbers(ax)
        ax.set_title(f"{found.solver}: {found.status}")
        ax.legend()
        self.ax_, self.figure_ = ax, ax.figure
        return self


class SpectrumDisplay:
    """The eigenvalues of the learned matrix in falling order, on a logarithmic scale, beside the prior's.

    Parameters
    ----------
    spectrum : what `nearwise.inspection.spectrum` returns

    Attributes
    ----------
    line_ : the matplotlib line of the learned eigenvalues
    ax_, figure_ : axes and figure of the last plot
    """

    ax_: Any
    figure_: Any
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
        found = self.spectrum
        ax = _axes(ax)
        look = {"color": PALETTE[0], "marker": "o", "markersize": 4, "label": "learned"} | style
        (self.line_,) = ax.plot(np.arange(1, len(found.values) + 1), found.values, **look)
        prior = () if found.prior is None else found.prior[found.prior > 0]
        if len(prior):
            ax.plot(np.arange(1, len(prior) + 1), prior, color=GREY, linestyle=":", label="before")
            ax.legend()
        ax.set_yscale("log")
        ax.set_xlabel("number of the eigenvalue, largest first")
        ax.set_ylabel("eigenvalue")
        _whole_numbers(ax)
        ax.set_title(f"effective rank {found.effective_rank:.1f}")
        self.ax_, self.figure_ = ax, ax.figure
        return self


class _SideBySide(ABC):
    """A display that draws the distance before, the learned one, or both, each into axes of its own."""

    ax_: Any
    figure_: Any
    _shown: Distances | Maps  # with the numbers `before`, where there are any, and `after`

    def plot(self, ax: Any = None, *, when: str = "both", **style: Any) -> Self:
        """Draw; arguments as for `from_estimator`."""
        if when not in WHEN:
            raise ValueError(f"when must be one of {', '.join(map(repr, WHEN))}, got {when!r}")
        found = self._shown
        if when == "before" and found.before is None:
            raise Missing("The learner starts from no distance that could be shown.")
        known = {"before": found.before, "after": found.after}
        parts = {part: of for part, of in known.items() if of is not None and when in ("both", part)}
        targets = _several_axes(ax, len(parts))
        for (part, of), target in zip(parts.items(), targets, strict=True):
            self._draw(target, of, style)
            target.set_title(part)
        self._explain(targets[-1])
        self.ax_ = targets[0] if len(parts) == 1 else np.array(targets, dtype=object)
        self.figure_ = targets[0].figure
        return self

    @abstractmethod
    def _draw(self, ax: Any, of: Array, style: dict[str, Any]) -> None:
        """Draw one of the two."""

    @abstractmethod
    def _explain(self, ax: Any) -> None:
        """Put a legend into or beside the last axes."""


class DistanceDisplay(_SideBySide):
    """Histograms of the distances of similar and of dissimilar pairs, before and after.

    They end at three times the median, and their last bars take in what is farther.

    Parameters
    ----------
    distances : what `nearwise.inspection.pair_distances` returns

    Attributes
    ----------
    ax_, figure_ : axes and figure of the last plot; two axes in an array where both are drawn
    """

    def __init__(self, distances: Distances) -> None:
        self.distances = self._shown = distances

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

    def _draw(self, ax: Any, of: Array, style: dict[str, Any]) -> None:
        plain = np.sqrt(of)
        end = min(float(plain.max()), _FARTHEST * float(np.median(plain))) or 1.0
        look: dict[str, Any] = {"bins": 40, "alpha": 0.5, "range": (0.0, end)} | style
        for kind, name, colour in ((True, "similar", PALETTE[0]), (False, "dissimilar", PALETTE[1])):
            chosen = plain[self.distances.similar == kind]
            if len(chosen):
                weights = np.full(len(chosen), 1.0 / len(chosen))
                ax.hist(
                    np.minimum(chosen, look["range"][1]),
                    **({"color": colour, "label": name, "weights": weights} | look),
                )
        ax.set_xlabel("distance")
        ax.set_ylabel("share of pairs")

    def _explain(self, ax: Any) -> None:
        ax.legend()


class EmbeddingDisplay(_SideBySide):
    """Maps of the rows by two principal coordinates, before and after, turned to be compared.

    Parameters
    ----------
    maps : what `nearwise.inspection.maps` returns
    classes : what `nearwise.inspection.classes` returns for the labels of all rows, or None

    Attributes
    ----------
    ax_, figure_ : axes and figure of the last plot; two axes in an array where both are drawn
    """

    def __init__(self, maps: Maps, classes: Classes | None = None) -> None:
        self.maps = self._shown = maps
        self.classes = classes

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

    def _draw(self, ax: Any, of: Array, style: dict[str, Any]) -> None:
        slots = np.array([self.classes.slots[row] if self.classes else "0" for row in self.maps.rows])
        for slot in (UNKNOWN, OTHER, *map(str, range(len(PALETTE)))):
            chosen = slots == slot
            if chosen.any():
                k = int(slot) if slot.isdecimal() else None
                look: dict[str, Any] = {"s": 8, "color": GREY, "linewidths": 0, "alpha": 0.85}
                if k is not None:
                    look |= {"s": 16, "color": PALETTE[k], "marker": MARKERS[k % len(MARKERS)]}
                if self.classes is not None:
                    look["label"] = self.classes.names[slot]
                ax.scatter(*of[chosen].T, **(look | style))
        ax.set_aspect("equal", adjustable="datalim")
        ax.set_xticks([])
        ax.set_yticks([])

    def _explain(self, ax: Any) -> None:
        if self.classes is not None:
            ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize="small")


def _axes(ax: Any) -> Any:
    """The given axes, or those of a new figure."""
    return _pyplot().subplots()[1] if ax is None else _checked_axes(ax)


def _checked_axes(ax: Any) -> Any:
    from matplotlib.axes import Axes

    if not isinstance(ax, Axes):
        raise TypeError(f"ax must be matplotlib axes, got {type(ax).__name__}")
    return ax


def _whole_numbers(ax: Any) -> None:
    """Ticks below at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def _several_axes(ax: Any, count: int) -> list[Any]:
    """As many axes as are wanted: the given ones, or those of a new figure."""
    if ax is None:
        figure, found = _pyplot().subplots(1, count, figsize=(5.0 * count, 4.5), squeeze=False)
        figure.set_layout_engine("constrained")
        return list(found[0])
    given = list(map(_checked_axes, np.ravel(np.asarray(ax, dtype=object))))
    if len(given) != count:
        hint = "; when='before' or when='after' draws into one" if count == 2 else ""
        raise ValueError(f"ax must hold {count} axes, got {len(given)}{hint}")
    return given


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError('plots need matplotlib: pip install "nearwise[plot]"') from error
    return plt
