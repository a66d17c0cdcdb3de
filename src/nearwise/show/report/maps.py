"""The two maps: marks by class, in colour and shape, with hover labels, and a legend to pick out a class.

Rows that were held out are filled, and rows learned from are outlines: a distance flatters the latter.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nearwise._common.types import Array, Index, Mask
from nearwise.show.report.subject import Subject
from nearwise.show.report.svg import WIDTH, figure, legend, mark
from nearwise.show.text import LABEL, count, html, percent, shown
from nearwise.study import inspection
from nearwise.study.inspection import COLOURS, Classes, Maps

# Drawn after the move to the point: circle, square, triangle, diamond, triangle on its tip, plus, cross,
# hourglass. Neighbours in the list of classes differ in shape: nobody needs to tell ten colours apart.
SHAPES = (
    "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z",
    "m-2.7-2.7h5.4v5.4h-5.4z",
    "m0-3.8l3.6 6.3h-7.2z",
    "m0-4.1l3.6 4.1-3.6 4.1-3.6-4.1z",
    "m0 3.8l3.6-6.3h-7.2z",
    "m-1.2-3.6h2.4v2.4h2.4v2.4h-2.4v2.4h-2.4v-2.4h-2.4v-2.4h2.4z",
    "m-1.7-3.4l1.7 1.7 1.7-1.7 1.7 1.7-1.7 1.7 1.7 1.7-1.7 1.7-1.7-1.7-1.7 1.7-1.7-1.7 1.7-1.7-1.7-1.7z",
    "m-3-3.4h6l-2.2 3.4 2.2 3.4h-6l2.2-3.4z",
)
PAIRS = 60  # of a kind that are drawn
_MANY = 20  # classes from which on the legend is folded
_NAMES = 16  # of classes on a map, where there are more classes than colours
_NAMED = 20  # characters of such a name
_LETTER, _LINE = 5.8, 17.0  # about the width of a letter of a name, and the room for a line
_MARGIN = 14.0
_REACH = 1.6  # times the box around 98 % of the points in either coordinate, beyond which lie outliers
_FRAME = f'<rect class="frame" x=".5" y=".5" width="{WIDTH - 1}" height="{WIDTH - 1}" rx="6"/>'
_HELD, _SEEN = "held", "seen"  # classes of marks: held out, and learned from


def draw(s: Subject) -> str:
    """Both maps side by side, and the legend of their marks."""
    pairs, pictures = _drawn_pairs(s), ""
    found = inspection.maps(s.model, s.X, first=None if pairs is None else np.unique(pairs[0]))
    known = s.colours
    slots = ["0"] * len(found.rows) if known is None else [known.slots[row] for row in found.rows]
    kinds = [style(slot, known) for slot in slots]
    if s.held is not None:
        held = np.isin(found.rows, s.held)
        kinds = [f"{kind} {_HELD if is_held else _SEEN}" for kind, is_held in zip(kinds, held, strict=True)]
    shapes = [shape(slot, known) for slot in slots]
    labels = [s.objects.hover(int(row)) for row in found.rows]
    both = (("Before", found.before, found.shares[0]), ("After", found.after, found.shares[1]))
    for title, points, share in both:
        if points is not None:
            places = _placed(points)
            content = _lines(places, found.rows, pairs) + _marks(places, kinds, shapes, labels)
            content += names(places, slots, known) if known is not None else ""
            pictures += figure(title, _about(points, share), _FRAME + content, WIDTH, "map")
    return (
        f'<p class="note">{html(_note(found, s))}</p>'
        f'<div class="maps"><div class="two">{pictures}</div>{_legend(s)}</div>'
    )


def shape(slot: str, known: Classes | None) -> str:
    """Of ten colours in turn, every round with other shapes: a colour and a shape occur together once."""
    if not slot.isdecimal() or (known is not None and known.ordered):
        return SHAPES[0]
    turn, colour = divmod(int(slot), COLOURS)
    return SHAPES[(colour + turn) % len(SHAPES)]


def style(slot: str, known: Classes | None) -> str:
    """The classes of a mark: its colour, and its class of the legend."""
    if not slot.isdecimal():
        return f"c{slot}"
    tone = f"q{slot}" if known is not None and known.ordered else f"t{int(slot) % COLOURS}"
    return f"{tone} c{slot}"


def names(places: Array, slots: Sequence[str], known: Classes) -> str:
    """Names of classes in the middle of their marks, where there is room: more than colours can tell."""
    if len(known.names) <= COLOURS or known.ordered:
        return ""
    taken: list[tuple[float, float, float, float]] = []
    texts, of_slot = "", np.array(slots)
    for slot in sorted(filter(str.isdecimal, known.names), key=lambda slot: -known.sizes[slot]):
        mine = places[of_slot == slot]
        if not len(mine) or len(taken) == _NAMES:
            continue
        name = shown(known.names[slot], _NAMED)
        half = len(name) * _LETTER / 2
        x, y = np.median(mine, axis=0)
        x = float(np.clip(x, half + 4, WIDTH - half - 4)) if half < WIDTH / 2 - 4 else WIDTH / 2
        box = (x - half, y - _LINE / 2, x + half, y + _LINE / 2)
        if any(a < box[2] and box[0] < c and b < box[3] and box[1] < d for a, b, c, d in taken):
            continue
        taken.append(box)
        texts += f'<text class="name {style(slot, known)}" x="{x:.1f}" y="{y:.1f}">{html(name)}</text>'
    return texts


def _drawn_pairs(s: Subject) -> tuple[Index, Mask] | None:
    """Where there are no labels, held-out pairs are drawn, as many of either kind as can be seen."""
    if s.pairs is None or s.objects.labels is not None:
        return None
    pairs, similar = s.pairs
    chosen = np.sort(np.concatenate([np.flatnonzero(similar == kind)[:PAIRS] for kind in (True, False)]))
    return (pairs[chosen], similar[chosen]) if len(chosen) else None


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


def _marks(places: Array, kinds: Sequence[str], shapes: Sequence[str], labels: Sequence[str]) -> str:
    """All marks, mixed so that no class hides another: first those without a colour, last those held out."""
    mixed = np.random.RandomState(0).permutation(len(kinds))
    pale = ("cother", "cnone")
    order = sorted(mixed, key=lambda k: (kinds[k].endswith(_HELD), not kinds[k].startswith(pale)))
    marks = (mark(places[k, 0], places[k, 1], labels[k], shapes[k], kinds[k]) for k in order)
    return f'<g class="marks">{"".join(marks)}</g>'


def _lines(places: Array, rows: Index, pairs: tuple[Index, Mask] | None) -> str:
    """Pairs whose rows are both on the map."""
    if pairs is None:
        return ""
    on_map = np.isin(pairs[0], rows).all(axis=1)
    lines = ""
    for kind, tone in ((False, "far"), (True, "near")):
        ends = places[np.searchsorted(rows, pairs[0][on_map & (pairs[1] == kind)])]
        path = "".join(f"M{a[0]:g} {a[1]:g}L{b[0]:g} {b[1]:g}" for a, b in ends)
        lines += f'<path class="{tone} pair" d="{path}"/>' if path else ""
    return lines


def _note(found: Maps, s: Subject) -> str:
    text = "Two principal coordinates of the rows: what lies close together here tends to be near. "
    if found.before is not None:
        text += "Both maps are turned the same way, each on its own scale. "
    if len(found.rows) < s.n_rows:
        text += f"A sample of {len(found.rows):,} of {count(s.n_rows, 'row')} is shown. "
    if s.held is not None:
        text += "Filled marks were held out; outlines were learned from, which flatters them. "
    text += "Lines are pairs that were held out. " if _drawn_pairs(s) is not None else ""
    text += "" if s.color_by is None else f"Colours are those of {shown(s.color_by[0], LABEL)}. "
    return text + "Point at a mark, tap it, or use the arrow keys to see which row it is."


def _legend(s: Subject) -> str:
    parts = lines = entries = ""
    known = s.colours
    if s.held is not None:
        parts = _key(_HELD, f"ink {_HELD}", SHAPES[0], "held out", len(s.held))
        parts += _key(_SEEN, f"ink {_SEEN}", SHAPES[0], "learned from", s.n_rows - len(s.held))
        parts = f'<ul class="classes" aria-label="Parts">{parts}</ul>'
    if _drawn_pairs(s) is not None:
        lines = legend([("near line", "similar pair"), ("far line", "dissimilar pair")])
    if known is not None:
        for slot, name in known.names.items():
            entries += _key(f"c{slot}", style(slot, known), shape(slot, known), name, known.sizes[slot])
        entries = f'<ul class="classes" aria-label="Classes">{entries}</ul>'
        if len(known.names) > _MANY:
            many = count(len(known.names), "class", "classes")
            entries = f"<details><summary>{many}</summary>{entries}</details>"
    return parts + lines + entries


def _key(name: str, kind: str, form: str, text: str, size: int) -> str:
    """A button that picks out the marks of a class."""
    key = '<svg class="key" viewBox="-6 -6 12 12" aria-hidden="true"><g class="marks">'
    key += f'<path class="{kind}" d="M0 0{form}"/></g></svg>'
    return (
        f'<li><button type="button" disabled aria-pressed="false" data-class="{name}">'
        f'{key}<bdi>{html(text, LABEL)}</bdi> <span class="soft">{size:,}</span></button></li>'
    )


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
