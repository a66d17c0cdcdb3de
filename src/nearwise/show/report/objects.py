"""Objects as a reader knows them, by name, label, texts or numbers and picture; and their neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearwise.show.report.pictures import Pictures
from nearwise.show.text import LABEL, count, html, percent, shown
from nearwise.study.examples import Example, Examples
from nearwise.study.inspection import has_label, label_text

_HOVER = 80  # characters of a text at a mark of a map
_TEXT = 240  # of a text beside a neighbour


@dataclass(frozen=True, eq=False)
class Objects:
    """How the rows of the data are shown.

    Attributes
    ----------
    ids : what they are called, or None for their numbers
    labels : their labels, or None
    show : texts by the name of their column, None where one is missing
    pictures : their pictures
    numbers : some features by name, which are shown where there is nothing else
    """

    ids: Sequence[Any] | None = None
    labels: Sequence[Any] | None = None
    show: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    pictures: Pictures = field(default_factory=lambda: Pictures(None))
    numbers: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def name(self, row: int) -> str:
        """The id, or the number."""
        return f"row {row}" if self.ids is None else shown(self.ids[row], LABEL)

    def label(self, row: int) -> str:
        """The label as text, empty where there is none."""
        found = None if self.labels is None else self.labels[row]
        return shown(label_text(found), LABEL) if has_label(found) else ""

    def text(self, row: int, limit: int = _TEXT) -> str:
        """What is shown of a row, on one line; names of columns only where there are several."""
        if self._by_numbers:
            return ", ".join(f"{values[row]:.4g}" for values in self.numbers.values())
        texts = {name: shown(of[row], limit) for name, of in self.show.items() if has_label(of[row])}
        parts = (text if len(self.show) == 1 else f"{name}: {text}" for name, text in texts.items())
        return shown(" · ".join(parts), limit)

    def hover(self, row: int) -> str:
        """What a mark of a map says: the name of its row, its label, and the texts that are shown of it."""
        parts = [self.name(row)]
        if self.labels is not None:
            parts.append(self.label(row) or "no label")
        text = self.text(row, _HOVER) if self.show else ""
        return " · ".join([*parts, text] if text else parts)

    def about(self) -> str:
        """What the numbers are, where features are shown; else empty."""
        if not self._by_numbers:
            return ""
        return f"The numbers are {', '.join(shown(name, LABEL) for name in self.numbers)}."

    @property
    def _by_numbers(self) -> bool:
        return bool(self.numbers) and not self.show and not self.pictures


def cards(found: Sequence[Example], objects: Objects, asked: Objects | None = None) -> str:
    """Every object with its neighbours; `asked` shows the objects where they are of another table."""
    wide = " wide" if objects.show and any(example.before is not None for example in found) else ""
    content = "".join(_card(example, objects, asked or objects) for example in found)
    return f'<div class="cards{wide}">{content}</div>'


def neighbours(found: Examples, objects: Objects) -> str:
    """The examples as cards: the object, and its neighbours before and after."""
    content = cards(found.examples, objects)
    k = len(found.examples[0].after)
    asked = "rows that were held out, among those learned from" if found.held_out else "rows among all others"
    text = f"The {k} nearest of {count(len(found.examples), 'row')}, chosen from {found.n_asked:,} {asked}. "
    if np.isfinite(found.kept):
        text += f"Of the neighbours before, {percent(found.kept)} are neighbours after. "
    text += objects.about()
    if objects.labels is not None:
        text += " A label after ≠ is another one than the row's own."
    note = objects.pictures.note()
    return f'<p class="note">{html(text.strip())} {html(note)}</p>{content}'


def _card(example: Example, objects: Objects, asked: Objects) -> str:
    own, text = asked.label(example.row), asked.text(example.row)
    said = f"<p>{html(text)}</p>" if text else ""
    head = (
        f'<div class="asked">{_picture(example.row, asked)}<div><b><bdi>{html(asked.name(example.row))}</bdi>'
        f'</b>{_tag(own, "own")} <span class="soft">{html(example.why)}</span>{said}</div></div>'
    )
    lists = ""
    before = set() if example.before is None else set(example.before.tolist())
    for name, rows in (("before", example.before), ("after", example.after)):
        if rows is not None:
            known = before if name == "after" and before else None
            items = "".join(_item(int(row), own, known, objects) for row in rows)
            named = "" if objects.labels is not None else " named"  # a label says more than a name
            strip = f' class="strip{named}"' if objects.pictures and not objects.show else ""
            title = f'<h3 class="{name}">{name}</h3>' if example.before is not None else ""
            lists += f"<div>{title}<ol{strip}>{items}</ol></div>"
    return f'<article class="card">{head}<div class="sides">{lists}</div></article>'


def _item(row: int, own: str, before: set[int] | None, objects: Objects) -> str:
    label = objects.label(row)
    kind = "" if not label or not own else ("same" if label == own else "other")
    new = ' <i class="new">new</i>' if before is not None and row not in before else ""
    text = objects.text(row)
    said = f' <span class="said">{html(text)}</span>' if text else ""
    name = f'<bdi class="soft">{html(objects.name(row))}</bdi>'
    return f"<li>{_picture(row, objects)}<span>{name}{_tag(label, kind)}{new}{said}</span></li>"


def _tag(label: str, kind: str) -> str:
    other = "≠ " if kind == "other" else ""
    return f' <span class="tag {kind}">{other}<bdi>{html(label)}</bdi></span>' if label else ""


def _picture(row: int, objects: Objects) -> str:
    uri = objects.pictures.uri(row)
    if not uri:
        return '<span class="blank" aria-hidden="true"></span>' if objects.pictures else ""
    return f'<img src="{uri}" alt="{html(objects.name(row))}">'
