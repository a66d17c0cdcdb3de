"""The two maps: marks by class, in colour and shape, with hover labels, and a legend to pick out a class.

Rows that were held out are filled, and rows learned from are outlines: a distance flatters the latter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nearwise._common.types import Array, Index, Mask
from nearwise.show.report._svg import WIDTH, figure, legend, mark
from nearwise.show.report._text import LABEL, count, html, percent, shown
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
CLASSES = COLOURS * len(SHAPES)  # that are told apart
PAIRS = 60  # of a kind that are drawn
_MANY = 20  # classes from which on the legend is folded
_NAMES = 16  # of classes on a map, where there are more classes than colours
_NAMED = 20  # characters of such a name
_LETTER, _LINE = 5.8, 17.0  # about the width of a letter of a name, and the room for a line
_MARGIN = 14.0
_REACH = 1.6  # times the box around 98 % of the points in either coordinate, beyond which lie outliers


@dataclass(frozen=True, eq=False)
class Look:
    """How the rows of a map are shown.

    Attributes
    ----------
    labels : the hover labels of its rows
    n_rows : how many rows there are, shown or not
    classes : of all rows, or None
    colour : what the classes are, where they are no labels
    held : which of all rows were held out, or None where none was
    pairs : (m, 2) row numbers, and which of these pairs are similar; or None
    """

    labels: Sequence[str]
    n_rows: int
    classes: Classes | None = None
    colour: str = ""
    held: Mask | None = None
    pairs: tuple[Index, Mask] | None = None


def maps(found: Maps, look: Look) -> str:
    """Both maps side by side, and the legend of their marks."""
    known = look.classes
    slots = ["0"] * len(look.labels) if known is None else [known.slots[row] for row in found.rows]
    kinds = [_style(slot, known) for slot in slots]
    if look.held is not None:
        kinds = [f"{kind} {_HELD[bool(look.held[row])]}" for kind, row in zip(kinds, found.rows, strict=True)]
    shapes = [_shape(slot, known) for slot in slots]
    parts = {"Before": (found.before, found.shares[0]), "After": (found.after, found.shares[1])}
    pictures = ""
    for name, (points, share) in parts.items():
        if points is not None:
            places = _placed(points)
            content = _lines(places, found.rows, look) + _marks(places, kinds, shapes, look.labels)
            content += _names(places, slots, known) if known is not None else ""
            pictures += figure(name, _about(points, share), _FRAME + content, WIDTH, "map")
    turned = "" if found.before is None else "Both maps are turned the same way, each on its own scale. "
    sampled = ""
    if len(look.labels) < look.n_rows:
        sampled = f"A sample of {len(look.labels):,} of {count(look.n_rows, 'row')} is shown. "
    held = ""
    if look.held is not None:
        held = "Filled marks were held out; outlines were learned from, which flatters them. "
    held += "Lines are pairs that were held out. " if look.pairs is not None else ""
    colour = f"Colours are those of {html(look.colour, LABEL)}. " if look.colour else ""
    return (
        '<p class="note">Two principal coordinates of the rows: what lies close together here tends to be '
        f"near. {turned}{sampled}{held}{colour}Point at a mark, tap it, or use the arrow keys to see which "
        f'row it is.</p><div class="maps"><div class="two">{pictures}</div>{_legend(look)}</div>'
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


def _marks(places: Array, kinds: Sequence[str], shapes: Sequence[str], labels: Sequence[str]) -> str:
    """All marks, mixed so that no class hides another: first those without a colour, last those held out."""
    mixed = np.random.RandomState(0).permutation(len(kinds))
    order = sorted(mixed, key=lambda k: (_HELD[True] in kinds[k].split(), not kinds[k].startswith(_PALE)))
    marks = (mark(places[k, 0], places[k, 1], labels[k], shapes[k], kinds[k]) for k in order)
    return f'<g class="marks">{"".join(marks)}</g>'


def _lines(places: Array, rows: Index, look: Look) -> str:
    """Pairs, at most so many of a kind as can be seen."""
    if look.pairs is None:
        return ""
    pairs, similar = look.pairs
    on_map = np.isin(pairs, rows).all(axis=1)
    lines = ""
    for kind, name in ((False, "far"), (True, "near")):
        chosen = pairs[on_map & (similar == kind)][:PAIRS]
        ends = places[np.searchsorted(rows, chosen)]
        path = "".join(f"M{a[0]:g} {a[1]:g}L{b[0]:g} {b[1]:g}" for a, b in ends)
        lines += f'<path class="{name} pair" d="{path}"/>' if path else ""
    return lines


def _names(places: Array, slots: Sequence[str], known: Classes) -> str:
    """Names of classes in the middle of their marks, where there is room: more than colours can tell."""
    if len(known.names) <= COLOURS or known.ordered:
        return ""
    taken: list[tuple[float, float, float, float]] = []
    texts = ""
    of_slot = np.array(slots)
    by_size = sorted((slot for slot in known.names if slot.isdecimal()), key=lambda s: -known.sizes[s])
    for slot in by_size:
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
        texts += f'<text class="name {_style(slot, known)}" x="{x:.1f}" y="{y:.1f}">{html(name)}</text>'
    return texts


def _legend(look: Look) -> str:
    entries = lines = kept = ""
    known = look.classes
    if look.held is not None:
        for is_held, name in ((True, "held out"), (False, "learned from")):
            size = int((look.held == is_held).sum())
            kept += _key(_HELD[is_held], f"ink {_HELD[is_held]}", SHAPES[0], name, size)
        kept = f'<ul class="classes" aria-label="Parts">{kept}</ul>'
    if known is not None:
        for slot, name in known.names.items():
            entries += _key(f"c{slot}", _style(slot, known), _shape(slot, known), name, known.sizes[slot])
    if look.pairs is not None:
        lines = legend([("near", "similar pair"), ("far", "dissimilar pair")])
    if not entries:
        return kept + lines
    found = f'<ul class="classes" aria-label="Classes">{entries}</ul>'
    if known is not None and len(known.names) > _MANY:
        found = f"<details><summary>{count(len(known.names), 'class', 'classes')}</summary>{found}</details>"
    return kept + lines + found


def _key(name: str, style: str, shape: str, text: str, size: int) -> str:
    key = '<svg class="key" viewBox="-6 -6 12 12" aria-hidden="true"><g class="marks">'
    key += f'<path class="{style}" d="M0 0{shape}"/></g></svg>'
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


def _shape(slot: str, known: Classes | None) -> str:
    """Of ten colours in turn, every round with other shapes: a colour and a shape occur together once."""
    if not slot.isdecimal() or (known is not None and known.ordered):
        return SHAPES[0]
    turn, colour = divmod(int(slot), COLOURS)
    return SHAPES[(colour + turn) % len(SHAPES)]


def _style(slot: str, known: Classes | None) -> str:
    if not slot.isdecimal():
        return f"c{slot}"
    tone = f"q{slot}" if known is not None and known.ordered else f"t{int(slot) % COLOURS}"
    return f"{tone} c{slot}"


_FRAME = f'<rect class="frame" x=".5" y=".5" width="{WIDTH - 1}" height="{WIDTH - 1}" rx="6"/>'
_HELD = {True: "held", False: "seen"}
_PALE = ("cother", "cnone")
