"""Every picture, described: numbers of `study` become charts, with what they say in words.

A function takes what `nearwise.inspection` returns and gives one chart, or two that share their scales:
before and after.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from nearwise._common.types import Array
from nearwise.show.chart import Chart, Cloud, Histogram, Line, Row, RowChart, Scale, log_scale
from nearwise.show.text import LABEL, LINE, count, number, percent, shown
from nearwise.study.before_after import Missing
from nearwise.study.by_kind import ClassRecall, Margins, MeasuredDistances, PenaltyPath, Weights
from nearwise.study.figures import Figure, Interval
from nearwise.study.inspection import Classes, Convergence, Distances, FeatureShares, Maps, Spectrum

FEATURES, WEIGHTS, CLASSES = 15, 20, 20  # rows of a chart
_BINS = 40  # of a histogram of many values
_FARTHEST = 3.0  # distance in medians at which a histogram ends
_NAME = 100  # characters of a name in the words of a row


def intervals(found: Sequence[Figure]) -> RowChart:
    """Values before and after with their intervals, all on one scale that begins at zero."""
    drawn = [item for item in found if _known(item.before) or _known(item.after)]
    top = max((part.high for item in drawn for part in (item.before, item.after) if _known(part)), default=0)
    rows = []
    for item in drawn:
        better = f"{'lower' if item.lower_is_better else 'higher'} is better"
        label = f"{shown(item.name, LINE)}: {' before, '.join(item.texts())} after; {better}"
        before, after = (part if _known(part) else None for part in (item.before, item.after))
        rows.append(Row(item.name, label, before, after))
    x = Scale("", 0.0, 1.0 if top <= 1.0 else top * 1.04, "share")
    about = f"{count(len(drawn), 'figure')} with 95 % intervals, on one scale"
    if not all(item.percent for item in drawn):
        about += "; where no percentage is given, 100 % stands for 1"
    return RowChart("Intervals", about + ".", x, rows, stacked=True)


def distances(found: Distances, in_medians: bool = True) -> dict[str, Chart]:
    """Histograms of the distances of similar and dissimilar pairs: "before", where known, and "after".

    In medians of all pairs both share their scales: a learned distance has a unit of its own.
    """
    squared = {"before": found.before, "after": found.after}
    plain = {when: np.sqrt(np.maximum(part, 0.0)) for when, part in squared.items() if part is not None}
    if in_medians:
        plain = {when: part / (float(np.median(part)) or 1.0) for when, part in plain.items()}
        shared = min(max(*(float(np.quantile(part, 0.995)) for part in plain.values()), 1.5), _FARTHEST)
    bins = min(max(round(3 * len(found.after) ** (1 / 3)), 8), _BINS)
    charts = {}
    for when, part in plain.items():
        end = shared if in_medians else min(part.max(), _FARTHEST * float(np.median(part))) or 1.0
        x = Scale("distance, in medians of these pairs" if in_medians else "distance", 0.0, float(end))
        kinds = (("near", "similar", found.similar), ("far", "dissimilar", ~found.similar))
        marks = [Histogram(tone, name, part[of], bins) for tone, name, of in kinds if of.any()]
        beyond = float(np.mean(part > end))
        farther = f" The last bar takes in {percent(beyond)} that are farther." if beyond >= 0.0005 else ""
        y = _heights("share of pairs", x, marks)
        charts[when] = Chart(when.capitalize(), _order(part, found.similar) + farther, x, y, marks)
    highest = max((chart.y for chart in charts.values()), key=lambda y: y.high)
    return {
        when: Chart(chart.title, chart.caption, chart.x, highest, chart.marks)
        for when, chart in charts.items()
    }


def maps(found: Maps, known: Classes | None = None) -> dict[str, Chart]:
    """The rows where the distance puts them, "before", where known, and "after"; a tone for every class."""
    slots = np.array(["0" if known is None else known.slots[row] for row in found.rows])
    order = sorted(set(slots), key=lambda slot: (slot.isdecimal(), slot))  # classes cover what has none
    charts = {}
    for when, points in (("before", found.before), ("after", found.after)):
        if points is not None:
            chosen = {slot: points[slots == slot].T for slot in order}
            marks = [Cloud(slot, "" if known is None else known.names[slot], *chosen[slot]) for slot in order]
            x, y = (Scale("", float(part.min()), float(part.max())) for part in points.T)
            charts[when] = Chart(when.capitalize(), "", x, y, marks)
    return charts


def recall(found: ClassRecall) -> RowChart:
    """A row for every class, the lowest recall after first."""
    if len(found.names) < 2:
        raise Missing("Only one class was asked for.")
    order = np.lexsort((found.before, found.after))[:CLASSES]
    rows = []
    for k in order:
        old, new, size = float(found.before[k]), float(found.after[k]), int(found.counts[k])
        label = f"{percent(old)} before, {percent(new)} after, {count(size, 'row')}"
        rows.append(_row(found.names[k], (old, new), label, f"{size:,}", new < old))
    better, worse = (int(part.sum()) for part in (found.after > found.before, found.after < found.before))
    about = f"Recall rose in {count(better, 'class', 'classes')} and fell in {worse:,}"
    if len(order) < len(found.names):
        about += f"; of {len(found.names):,} classes, the {len(order)} with the lowest are shown"
    x = Scale("recall of five neighbours", 0.0, 1.0, "share")
    return RowChart("Classes", about + ".", x, rows, aside="rows")


def measured(found: MeasuredDistances) -> dict[str, Chart]:
    """Known distances against those before and after, with the line where they agree."""
    top = float(max(part.max() for part in (found.given, found.before, found.after))) * 1.04 or 1.0
    x, y = Scale("distance that is known", 0.0, top), Scale("distance", 0.0, top)
    charts = {}
    for when, values in (("before", found.before), ("after", found.after)):
        off = np.abs(values - found.given) / np.where(found.given > 0, found.given, 1.0)
        about = f"Half of {count(len(off), 'distance')} are off by {percent(float(np.median(off)))} or less"
        about += ", in the unit that fits best." if when == "before" else "."
        marks = (_guide((0.0, top), (0.0, top)), Cloud(when, "", found.given, values))
        charts[when] = Chart(when.capitalize(), about, x, y, marks)
    return charts


def margins(found: Margins) -> Chart:
    """Histograms of the margins of triplets, before and after; those right of the line hold."""
    x = Scale("margin: (far \u2212 near) / (far + near)", -1.0, 1.0)
    both = (("before", found.before), ("after", found.after))
    marks = [Histogram(when, when, part, 32) for when, part in both]
    y = _heights("share of triplets", x, marks)
    holds = [percent(float(np.mean(part > 0))) for _, part in both]
    about = f"Of {count(len(found.after), 'triplet')}, {holds[0]} hold before and {holds[1]} after: "
    about += "those with a margin above zero."
    return Chart("Margins", about, x, y, (*marks, _guide((0.0, 0.0), (0.0, y.high))))


def features(found: FeatureShares) -> RowChart:
    """The features that carry most of the learned distance."""
    chosen = np.argsort(-np.abs(found.after), kind="stable")[:FEATURES]
    rows = []
    for k in chosen:
        old, new = float(found.before[k]), float(found.after[k])
        label = f"{percent(new)} after, {percent(old)} before"
        rows.append(_row(found.names[k], (old, new), label, percent(new)))
    first, share = shown(found.names[chosen[0]], LABEL), float(found.after[chosen[0]])
    about = f"The largest is that of {first}, {percent(share)}"
    if len(chosen) < len(found.names):
        about += f"; shown are the {len(chosen)} of {len(found.names):,} features with the largest shares, "
        about += f"together {percent(float(found.after[chosen].sum()))}"
    ends = np.concatenate([found.before[chosen], found.after[chosen], [0.0]])
    low, high = float(ends.min()), max(float(ends.max()), float(ends.min()) + 1e-3)
    return RowChart("Shares", about + ".", Scale("share of the squared distance", low, high, "share"), rows)


def weights(found: Weights) -> RowChart:
    """The weights that changed most, of features or of blocks of features, the largest first."""
    with np.errstate(all="ignore"):
        change = np.abs(np.log(found.after) - np.log(found.before))
    chosen = np.argsort(-np.nan_to_num(change, nan=0.0, posinf=np.inf), kind="stable")[:WEIGHTS]
    chosen = chosen[np.argsort(-found.after[chosen], kind="stable")]
    rows = []
    for k in chosen:
        old, new = float(found.before[k]), float(found.after[k])
        label = f"{number(new)} after, {number(old)} before"
        if found.of_blocks:
            label += f": {shown(', '.join(found.columns[k]), LINE)}"
        rows.append(_row(found.names[k], (old, new), label, number(new)))
    what = "blocks" if found.of_blocks else "features"
    about = f"Those of the {len(chosen)} of {len(found.names):,} {what} that changed most."
    if len(chosen) == len(found.names):
        about = f"Those of all {len(chosen)} {what}."
    about += " The weight of a block is the mean of its diagonal." if found.of_blocks else ""
    top = float(max(found.before[chosen].max(), found.after[chosen].max())) * 1.04 or 1.0
    return RowChart("Weights", about, Scale("weight", 0.0, top), rows)


def spectrum(found: Spectrum) -> Chart:
    """The eigenvalues in falling order, on a logarithmic scale, with those of the prior."""
    values = found.values
    prior = np.zeros(0) if found.prior is None else found.prior[found.prior > 0]
    x = Scale("number of the eigenvalue, largest first", 1, max(len(values), len(prior), 2), "whole")
    y = log_scale("eigenvalue", [*values, *prior])
    labels = [f"eigenvalue {k}: {number(value)}" for k, value in enumerate(values, 1)]
    marks = [Line("before", "before", np.arange(1, len(prior) + 1), prior)] if len(prior) else []
    marks.append(Line("after", "learned", np.arange(1, len(values) + 1), values, labels))
    inside = found.dimension - found.outside
    about = f"Of {count(inside, 'eigenvalue')}, the largest is {number(values[0])}"
    about += f", the smallest {number(values[-1])}" if len(values) > 1 else ""
    if zero := inside - len(values):
        about += f", and {zero:,} {'is' if zero == 1 else 'are'} zero"
    if found.outside:
        about += f". In the {found.outside:,} directions outside the learned subspace they are 1"
    title = f"Effective rank {found.effective_rank:.1f}"
    return Chart(title, about + ".", x, y, marks)


def penalties(found: PenaltyPath) -> Chart:
    """The score of every penalty that was tried, with that of the prior, which is tried too."""
    with_prior = math.isfinite(found.start)
    known = [*found.scores, *([found.start] if with_prior else [])]
    low, high = min(known), max(known)
    room = (high - low) * 0.12 or 0.01
    x = log_scale("penalty: what it costs to violate what is known", found.penalties)
    y = Scale("score", low - room, min(high + room, 1.0) if high < 1.0 else 1.0 + room / 4, "share")
    best = None if found.chosen is None else int(np.argmax(found.scores))
    tried = zip(found.penalties, found.scores, strict=True)
    labels = [f"penalty {number(penalty)}: score {percent(score)}" for penalty, score in tried]
    marks = [Line("after", "score", found.penalties, found.scores, labels, best)]
    if with_prior:
        ends = np.array([10.0**x.low, 10.0**x.high])
        marks.insert(0, Line("before", "score of the prior", ends, np.full(2, found.start)))
    if best is None:
        about = "None scores better than the prior, which was kept."
    else:
        tried_all = count(len(labels), "penalty", "penalties")
        about = f"The best of {tried_all} scores {percent(found.scores[best])}"
        about += f", the prior {percent(found.start)}" if with_prior else ""
        about += f"; the fit to everything takes {number(found.chosen or 0.0)}."
    about += " The learner chooses by these, on a part of its own data; they are no figures of this page."
    return Chart("Scores", about, x, y, marks)


def convergence(found: Convergence) -> Chart:
    """What every iteration recorded, on a logarithmic scale, which has no place for zeros."""
    marks, ends = [], []
    for tone, (name, values) in zip(("near", "far"), found.series.items(), strict=False):
        known = values[np.isfinite(values) & (values >= 0)]
        ends += [f"{name} {number(known[-1])}"] if len(known) else []
        drawn = np.isfinite(values) & (values > 0)
        at, seen = found.iteration[drawn], values[drawn]
        labels = [f"iteration {k}: {name} {number(value)}" for k, value in zip(at, seen, strict=True)]
        if labels:
            marks.append(Line(tone, name, at, seen, labels))
    if not marks:
        raise Missing(f"Nothing was recorded that can be drawn: {' and '.join(ends) or 'no finite value'}.")
    first, last = int(min(mark.x[0] for mark in marks)), int(max(mark.x[-1] for mark in marks))
    x = Scale("iteration", first, max(last, first + 1), "whole")
    y = log_scale("", np.concatenate([mark.y for mark in marks]))
    about = f"{count(len(found.iteration), 'iteration')}"
    if found.n_all > len(found.iteration):
        about += f" ({found.n_all:,} in all, with the solves before it)"
    about += f", at the end {' and '.join(ends)}."
    if "worst violation" in found.series:
        about += " A soft constraint may stay violated: the objective counts its loss."
    return Chart(f"{found.solver}: {found.status}", about, x, y, marks)


def _row(name: str, values: tuple[float, float], texts: str, aside: str, worse: bool = False) -> Row:
    """A row without intervals."""
    before, after = ((value, value, value) for value in values)
    return Row(name, f"{shown(name, _NAME)}: {texts}", before, after, aside, worse)


def _guide(x: tuple[float, float], y: tuple[float, float]) -> Line:
    return Line("guide", "", np.array(x), np.array(y))


def _heights(title: str, x: Scale, marks: Sequence[Histogram]) -> Scale:
    """The scale of the highest bar."""
    highest = max((float(mark.heights(x).max()) for mark in marks), default=0.0)
    return Scale(title, 0.0, highest or 1.0, "share")


def _order(values: Array, similar: NDArray[np.bool_]) -> str:
    """How well the distances tell similar pairs from dissimilar ones, in words."""
    near, far = int(similar.sum()), int((~similar).sum())
    if not near or not far:
        kind, some = ("similar", near) if near else ("dissimilar", far)
        return f"{count(some, f'{kind} pair')}, median distance {np.median(values):.2f}."
    order = percent(float(roc_auc_score(~similar, values)))
    medians = [f"{np.median(values[similar == kind]):.2f}" for kind in (True, False)]
    return (
        f"A similar pair is nearer than a dissimilar one in {order} of cases; "
        f"medians {medians[0]} and {medians[1]}."
    )


def _known(part: Interval) -> bool:
    return all(map(math.isfinite, part))
