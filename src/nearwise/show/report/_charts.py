"""The charts of the page: distances, features, spectrum, convergence."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from nearwise._common.types import Array
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
    whole_ticks,
)
from nearwise.show.report._text import LABEL, count, html, number, percent, shown, tick_percent
from nearwise.study.inspection import Convergence, Distances, FeatureShares, Spectrum

TOP_FEATURES = 15
_NAME = 17  # characters of a feature's name for which there is room
_BINS = 40  # of a histogram of many pairs
_FARTHEST = 3.0  # distance in medians at which a histogram ends
_MARKS = 200  # on a line; of more points, evenly chosen ones are drawn
_SMALLEST = 1e-16  # what is drawn for a gap of zero


def histograms(found: Distances) -> str:
    """Distances of similar and dissimilar pairs, before and after, on the same axes.

    The unit of either is the median of all its pairs, because a learned distance has a unit of its own. The
    last bar takes in what is farther.
    """
    parts = {"Before": found.before, "After": found.after}
    scaled = {name: _in_medians(squared) for name, squared in parts.items() if squared is not None}
    end = min(max(*(float(np.quantile(values, 0.995)) for values in scaled.values()), 1.5), _FARTHEST)
    bins = min(max(round(3 * len(found.after) ** (1 / 3)), 8), _BINS)
    shares = {
        name: [_shares(values[found.similar == kind], bins, end) for kind in (True, False)]
        for name, values in scaled.items()
    }
    peak = max(float(share.max()) for pair in shares.values() for share in pair) or 1.0
    height = 210.0
    x, y = Axis(0.0, end, LEFT, RIGHT), Axis(0.0, peak, bottom(height), TOP)
    frame = axes(
        height,
        ticks(x, linear_ticks(0.0, end)),
        [(y(tick), tick_percent(tick)) for tick in linear_ticks(0.0, peak, 4)],
        "distance, in medians of these pairs",
    )
    pictures, edges = "", [end * k / bins for k in range(bins + 1)]
    for name, pair in shares.items():
        areas = "".join(
            f'<path class="{kind} area" d="{outline(share, edges, x, y)}"/>'
            for kind, share in zip(("near", "far"), pair, strict=True)
            if share.any()
        )
        beyond = float(np.mean(scaled[name] > end))
        farther = f" The last bar takes in {percent(beyond)} that are farther." if beyond >= 0.0005 else ""
        pictures += figure(name, _order(scaled[name], found.similar) + farther, frame + areas, height)
    keys = [("near", "similar pairs"), ("far", "dissimilar pairs")]
    return f'<div class="two">{pictures}</div>{legend(keys)}'


def features(found: FeatureShares) -> str:
    """The features that carry most of the learned distance: bars after, ticks before."""
    chosen = np.argsort(-np.abs(found.after), kind="stable")[:TOP_FEATURES]
    low = min(0.0, float(found.before[chosen].min()), float(found.after[chosen].min()))
    high = max(float(found.before[chosen].max()), float(found.after[chosen].max()))
    row, name_edge = 21.0, 120.0
    height = row * len(chosen) + 44.0
    x = Axis(low, max(high, low + 1e-3), name_edge + 8.0, RIGHT - 50.0)
    floor = bottom(height)
    lines = "".join(
        f'<path class="grid" d="M{x(tick)} {TOP - 4}V{floor}"/>'
        f'<text class="x" x="{x(tick)}" y="{floor + 17}">{tick_percent(tick)}</text>'
        for tick in linear_ticks(x.low, x.high, 4)
    )
    for place, k in enumerate(chosen):
        middle = TOP + row * (place + 0.5) - 3
        name, old, new = found.names[k], float(found.before[k]), float(found.after[k])
        edges = sorted((x(0.0), x(new)))
        says = html(f"{shown(name, 100)}: {percent(new)} after, {percent(old)} before")
        lines += (
            f'<g class="bar"><title>{says}</title>'
            f'<text class="y" x="{name_edge}" y="{middle:g}">{html(name, _NAME)}</text>'
            f'<rect class="after" x="{edges[0]}" y="{middle - 6:g}" width="{edges[1] - edges[0]:.1f}" '
            f'height="12" rx="1.5"/><path class="before" d="M{x(old)} {middle - 8.5:g}v17"/>'
            f'<text class="y soft" x="{RIGHT}" y="{middle:g}">'
            f"{percent(new)}</text></g>"
        )
    title = (
        f'<text class="x" x="{(name_edge + RIGHT) / 2}" y="{height - 4}">share of the squared distance</text>'
    )
    some = f"the {len(chosen)} of {len(found.names):,} features with the largest shares, together "
    first = shown(found.names[chosen[0]], LABEL)
    together = percent(float(found.after[chosen].sum()))
    about = f"The largest is that of {first}, {percent(float(found.after[chosen[0]]))}"
    about += f"; shown are {some}{together}." if len(chosen) < len(found.names) else "."
    keys = legend([("bar after", "after"), ("tick before", "before")])
    return figure("Shares", about, lines + title, height) + keys


def spectrum(found: Spectrum) -> str:
    """The eigenvalues in falling order, on a logarithmic scale, with those of the prior."""
    prior = None if found.prior is None else found.prior[found.prior > 0]
    seen = [*found.values, *([] if prior is None else prior)]
    height = 230.0
    x = Axis(1.0, max(len(found.values), 0 if prior is None else len(prior), 2), LEFT + 4, RIGHT - 4)
    y = Axis(*exponent_range(seen), bottom(height), TOP)
    frame = axes(
        height, ticks(x, whole_ticks(1, int(x.high))), log_ticks(y), "number of the eigenvalue, largest first"
    )
    content = frame
    if prior is not None and len(prior):
        places = [(x(k + 1), y(math.log10(prior[k]))) for k in _some(len(prior))]
        content += series("before", places)
    chosen = _some(len(found.values))
    places = [(x(k + 1), y(math.log10(found.values[k]))) for k in chosen]
    content += series("after", places, [f"eigenvalue {k + 1}: {number(found.values[k])}" for k in chosen])
    keys = [("after line", "learned")] + ([("before line", "before")] if prior is not None else [])
    return figure("Eigenvalues", _about_spectrum(found), content, height, "spectrum") + legend(keys)


def convergence(found: Convergence) -> str:
    """Everything that the iterations recorded, on a logarithmic scale."""
    recorded = {}
    for name, values in found.series.items():
        drawn = np.isfinite(values) & (values >= 0)
        if drawn.any():
            seen = zip(found.iteration[drawn].tolist(), values[drawn].tolist(), strict=True)
            recorded[name] = [(i, max(v, _SMALLEST)) for i, v in seen]
    if not recorded:
        return "<p>Nothing finite was recorded.</p>"
    height = 230.0
    first = min(points[0][0] for points in recorded.values())
    last = max(points[-1][0] for points in recorded.values())
    x = Axis(first, max(last, first + 1), LEFT + 4, RIGHT - 4)
    y = Axis(*exponent_range(v for points in recorded.values() for _, v in points), bottom(height), TOP)
    content = axes(height, ticks(x, whole_ticks(first, last)), log_ticks(y), "iteration")
    kinds = dict(zip(recorded, ("near", "far"), strict=False))
    for name, points in recorded.items():
        chosen = [points[k] for k in _some(len(points))]
        places = [(x(i), y(math.log10(v))) for i, v in chosen]
        content += series(kinds[name], places, [f"iteration {i}: {name} {number(v)}" for i, v in chosen])
    ends = " and ".join(f"{name} {number(points[-1][1])}" for name, points in recorded.items())
    before = (
        f" ({found.n_all:,} in all, with the solves before it)" if found.n_all > len(found.iteration) else ""
    )
    done = f"{count(len(found.iteration), 'iteration')} of {found.solver}{before}"
    about = f"{found.status} after {done}, with {ends}."
    if "worst violation" in recorded:
        about += " A soft constraint may stay violated: the objective counts its loss."
    return figure("Progress", about, content, height, "convergence") + legend(
        (f"{kinds[name]} line", html(name)) for name in recorded
    )


def _in_medians(squared: Array) -> Array:
    plain = np.sqrt(np.maximum(squared, 0.0))
    return plain / (float(np.median(plain)) or 1.0)


def _shares(values: Array, bins: int, end: float) -> Array:
    """The share of the values in each bin; the last bin takes in those beyond it."""
    counts = np.histogram(np.minimum(values, end), bins, (0.0, end))[0]
    return counts / max(len(values), 1)


def _order(values: Array, similar: NDArray[np.bool_]) -> str:
    """How well the distances tell similar pairs from dissimilar ones, in words."""
    near, far = int(similar.sum()), int((~similar).sum())
    if not near or not far:
        kind, some = ("similar", near) if near else ("dissimilar", far)
        return f"{count(some, f'{kind} pair')}, median distance {np.median(values):.2f}."
    ranks = rankdata(values)
    above = float(ranks[~similar].sum()) - far * (far + 1) / 2
    medians = [f"{np.median(values[similar == kind]):.2f}" for kind in (True, False)]
    return (
        f"A similar pair is nearer than a dissimilar one in {percent(above / (near * far))} of cases; "
        f"medians {medians[0]} and {medians[1]}."
    )


def _about_spectrum(found: Spectrum) -> str:
    values = found.values
    inside = found.dimension - found.outside
    text = f"Effective rank {found.effective_rank:.1f} of {inside:,}; "
    text += f"the largest is {number(values[0])}"
    if len(values) > 1:
        text += f", the smallest {number(values[-1])}"
    if len(values) < inside:
        text += f", and {inside - len(values):,} {'is' if inside - len(values) == 1 else 'are'} zero"
    if found.outside:
        text += f". In the {found.outside:,} directions outside the learned subspace they are 1"
    return text + "."


def _some(n: int) -> list[int]:
    """At most so many numbers from 0 to n - 1 as can be drawn, with the first and the last."""
    return sorted({int(k) for k in np.linspace(0, n - 1, min(n, _MARKS)).round()})
