"""The two maps: marks by class, in colour and shape, with hover labels, and a legend to pick out a class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nearwise._common.types import Array
from nearwise.show.report._svg import WIDTH, figure, mark
from nearwise.show.report._text import LABEL, count, html, percent, shown
from nearwise.study.inspection import Classes, Maps, has_label, label_text

# Drawn after the move to the point: a dot, a square, a triangle, a diamond. Neighbours in the list of classes
# differ in shape, so that nobody needs to tell ten colours apart.
SHAPES = ("h0", "m-3-3h6v6h-6z", "m0-4l4 7h-8z", "m0-4.5l4 4.5-4 4.5-4-4.5z")
_MARGIN = 14.0
_REACH = 1.6  # times the box around 98 % of the points in either coordinate, beyond which lie outliers


def maps(found: Maps, known: Classes | None, labels: Sequence[str], n_rows: int) -> str:
    """Both maps side by side, and the legend of their marks. `labels` are the hover labels of their rows."""
    slots = ["0"] * len(labels) if known is None else [known.slots[row] for row in found.rows]
    parts = {"Before": (found.before, found.shares[0]), "After": (found.after, found.shares[1])}
    pictures = ""
    for name, (points, share) in parts.items():
        if points is not None:
            groups = _marks(_placed(points), slots, labels)
            pictures += figure(name, _about(points, share), _FRAME + groups, WIDTH, "map")
    keys = "" if known is None else _legend(known)
    turned = "" if found.before is None else "Both maps are turned the same way, each on its own scale. "
    sampled = ""
    if len(labels) < n_rows:
        sampled = f"A sample of {len(labels):,} of {count(n_rows, 'row')} is shown. "
    return (
        '<p class="note">Two principal coordinates of the rows: what lies close together here tends to be '
        f"near. {turned}{sampled}Point at a mark, tap it, or use the arrow keys to see which row it is.</p>"
        f'<div class="maps"><div class="two">{pictures}</div>{keys}</div>'
    )


def _placed(points: Array) -> Array:
    """Places in the picture, on one scale for both coordinates; outliers are put on its edge."""
    low, high = _core(points)
    size = float((high - low).max()) or 1.0
    inner = WIDTH / 2 - _MARGIN
    scaled = np.clip((points - (low + high) / 2) / size * 2, -1.0, 1.0) * inner
    return np.round(WIDTH / 2 + scaled * [1.0, -1.0], 1)


def _core(points: Array) -> tuple[Array, Array]:
    """The box around all points, or where a few lie far outside the others, around those."""
    low, high = points.min(axis=0), points.max(axis=0)
    inner_low, inner_high = np.quantile(points, [0.01, 0.99], axis=0)
    if np.array_equal(inner_low, inner_high):
        return low, high
    middle, half = (inner_low + inner_high) / 2, _REACH * (inner_high - inner_low) / 2
    return np.maximum(low, middle - half), np.minimum(high, middle + half)


def _marks(places: Array, slots: Sequence[str], labels: Sequence[str]) -> str:
    """All marks: those without a colour first, and the others mixed, so that no class hides another."""
    mixed = np.random.RandomState(0).permutation(len(slots))
    order = sorted(mixed, key=lambda k: slots[k].isdecimal())
    marks = (mark(places[k, 0], places[k, 1], labels[k], _shape(slots[k]), _style(slots[k])) for k in order)
    return f'<g class="marks">{"".join(marks)}</g>'


def _legend(known: Classes) -> str:
    entries = ""
    for slot, name in known.names.items():
        key = '<svg class="key" viewBox="-6 -6 12 12" aria-hidden="true"><g class="marks">'
        key += f'<path class="{_style(slot)}" d="M0 0{_shape(slot)}"/></g></svg>'
        size = f'<span class="soft">{known.sizes[slot]:,}</span>'
        entries += (
            f'<li><button type="button" disabled aria-pressed="false" data-class="c{slot}">'
            f"{key}<bdi>{html(name, LABEL)}</bdi> {size}</button></li>"
        )
    return f'<ul class="classes" aria-label="Classes">{entries}</ul>'


def _about(points: Array, share: float) -> str:
    text = f"{percent(share)} of the squared distances {'is' if len(points) == 1 else 'are'} kept."
    spread = np.linalg.svd(points - points.mean(axis=0), compute_uv=False)
    if spread.min() <= 1e-7 * spread.max():
        text += " All rows lie on one line." if spread.max() > 0 else " All rows lie on one point."
    low, high = _core(points)
    size = (high - low).max() / 2
    outside = int((np.abs(points - (low + high) / 2) > size * (1 + 1e-9)).any(axis=1).sum())
    if outside:
        text += f" {count(outside, 'row')} farther out {'is' if outside == 1 else 'are'} drawn at the edge."
    return text


def _shape(slot: str) -> str:
    return SHAPES[int(slot) % len(SHAPES)] if slot.isdecimal() else SHAPES[0]


def _style(slot: str) -> str:
    return f"round c{slot}" if _shape(slot) == SHAPES[0] else f"c{slot}"


def row_label(row: int, ids: Sequence[Any] | None, y: Sequence[Any] | None) -> str:
    """What a mark says: the id or number of its row, and its label."""
    name = f"row {row}" if ids is None else shown(ids[row], LABEL)
    if y is None:
        return name
    return f"{name} · {shown(label_text(y[row]), LABEL) if has_label(y[row]) else 'no label'}"


_FRAME = f'<rect class="frame" x=".5" y=".5" width="{WIDTH - 1}" height="{WIDTH - 1}" rx="6"/>'
