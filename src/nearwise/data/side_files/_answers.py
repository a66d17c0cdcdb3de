"""Answers that are given more than once: how often, by whom, and what to do where they differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearwise._common.types import Array, Index, Mask
from nearwise.data.frame import shown
from nearwise.data.tables import TableError

if TYPE_CHECKING:
    from nearwise.data.side_files._file import File

CONFLICTS = ("keep", "majority", "drop")
_SHOWN = 3  # annotators in a sentence


class Annotator(NamedTuple):
    """Somebody who answered: how often, how often to what others answered too, and with most of them."""

    name: str
    n_answers: int
    n_shared: int
    n_agreeing: int


@dataclass(frozen=True, eq=False)
class Answers:
    """What a file of feedback holds, counted.

    Attributes
    ----------
    source, what : the file, and what it is about: "pairs", "triplets" or "distances"
    n_answers, n_questions : lines, and different pairs or triplets among them
    n_repeated : questions with more than one answer
    n_conflicting : questions with different answers
    n_ties : of these, those without a majority
    conflicts : what was done about them: "keep", "majority" or "drop"
    n_left_out : answers that are left out for it
    annotators : those who answered, where the file says it
    conflicting_lines : the line, or row, of every answer to a question with different answers
    """

    source: str
    what: str
    n_answers: int
    n_questions: int
    n_repeated: int
    n_conflicting: int
    n_ties: int
    conflicts: str
    n_left_out: int
    annotators: tuple[Annotator, ...] = ()
    conflicting_lines: tuple[int, ...] = ()

    def sentence(self) -> str:
        """In words; empty where every question has one answer, and nobody says by whom."""
        if not self.n_repeated and not self.annotators:
            return ""
        by = ""
        if self.annotators:
            count = len(self.annotators)
            by = f" by {count:,} annotators" if count > 1 else " by 1 annotator"
        text = f"{self.source}: {self.n_answers:,} answers to {self.n_questions:,} {self.what}{by}"
        if self.n_repeated:
            text += f"; {self.n_repeated:,} have more than one, {self.n_conflicting:,} of them different ones"
        if self.n_conflicting:
            ties = f", without {self.n_ties:,} ties" if self.n_ties else ""
            done = {
                "keep": "all are kept",
                "majority": f"the majority's are kept{ties}",
                "drop": "these pairs are left out" if self.what != "triplets" else "these are left out",
            }
            text += f", of which {done[self.conflicts]}"
        odd = [a for a in self.annotators if a.n_shared and 2 * a.n_agreeing < a.n_shared]
        if odd:
            listed = ", ".join(
                f"{a.name!r} ({a.n_agreeing} of {a.n_shared})"
                for a in sorted(odd, key=lambda a: a.n_agreeing / a.n_shared)[:_SHOWN]
            )
            text += f"; seldom with most of the others: {listed}"
        return text

    def as_json(self) -> dict[str, Any]:
        """Everything as numbers and texts."""
        found = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "annotators"}
        found["conflicting_lines"] = list(self.conflicting_lines)
        return found | {"annotators": [annotator._asdict() for annotator in self.annotators]}


def settle(
    file: File,
    what: str,
    questions: Index,
    answers: NDArray[np.generic],
    weights: Array | None,
    conflicts: str | None,
    both: str | None = None,
    rows: Index | None = None,
) -> tuple[Mask, Answers]:
    """Which answers are kept, and what there is to tell about them.

    Parameters
    ----------
    file, what : where they are from, and what they are about, as in `Answers`
    questions : (m, k) whole numbers, equal rows for equal questions
    answers : (m,) what was answered
    weights : of the answers, by which a majority counts; or None
    conflicts : what to do where answers to one question differ; None where the user does not say
    both : what a pair cannot be, which is refused where the user does not say what to do about it; None where
        such answers are kept then
    rows : of the file, one per answer; None for all
    """
    rows = np.arange(len(file)) if rows is None else rows
    group = equal_rows(questions)
    _, said = np.unique(answers, return_inverse=True)
    counted = np.ones(len(group)) if weights is None else weights
    order = np.lexsort((np.arange(len(group)), group))
    earlier = order[:-1][group[order][1:] == group[order][:-1]]
    later = order[1:][group[order][1:] == group[order][:-1]]
    differ = said[earlier] != said[later]
    n_groups = int(group.max(initial=-1)) + 1
    conflicting = np.zeros(n_groups, dtype=bool)
    conflicting[group[later[differ]]] = True
    if conflicts is None and differ.any() and both is not None:
        worst = int(np.argmin(later[differ]))
        second, first = (int(rows[part[differ][worst]]) for part in (later, earlier))
        names = " and ".join(shown(file.cells[role][second]) for role in ("first", "second"))
        help_ = "--conflicts keep, majority or drop says what to do"
        raise TableError(f"{file.at(second)}: {names} are {both}; see {file.where(first)}; {help_}")
    # the answer with the largest weight of every question, and whether no other has as much
    n_said = int(said.max(initial=-1)) + 1
    keys, place = np.unique(group * n_said + said, return_inverse=True)
    votes = np.bincount(place, weights=counted)
    best = np.zeros(n_groups)
    np.maximum.at(best, keys // n_said, votes)
    leading = votes >= best[keys // n_said] * (1 - 1e-12)
    is_tie = np.bincount((keys // n_said)[leading], minlength=n_groups) > 1
    with_most = leading[place] & ~is_tie[group]
    kept: Mask = np.ones(len(group), dtype=bool)
    if conflicts == "majority":
        kept = with_most
    elif conflicts == "drop":
        kept = np.logical_not(conflicting[group])
    repeated = np.bincount(group, minlength=n_groups) > 1
    found = Answers(
        source=file.source,
        what=what,
        n_answers=len(group),
        n_questions=n_groups,
        n_repeated=int(repeated.sum()),
        n_conflicting=int(conflicting.sum()),
        n_ties=int(is_tie.sum()),
        conflicts=conflicts or "keep",
        n_left_out=int(np.sum(~kept)),
        annotators=_annotators(file, rows, repeated[group] & ~is_tie[group], with_most),
        conflicting_lines=tuple(file.places[rows][conflicting[group]].tolist()),
    )
    return kept, found


def questions_of(ids: Index) -> tuple[Index, Mask]:
    """Pairs, (m, 2), or two pairs that are compared, (m, 4), with the smaller object and pair first.

    What asks the same, whichever way round, is the same row then; and whether the pairs changed places.
    """
    pairs = np.sort(ids.reshape(len(ids), ids.shape[1] // 2, 2), axis=2)
    turned: Mask = np.zeros(len(ids), dtype=bool)
    if pairs.shape[1] == 2:
        (a, b), (c, d) = pairs[:, 0].T, pairs[:, 1].T
        turned = (a > c) | ((a == c) & (b > d))
        pairs[turned] = pairs[turned][:, ::-1]
    return pairs.reshape(ids.shape), turned


def equal_rows(rows: NDArray[Any]) -> Index:
    """A number for every row, equal for equal rows; much faster than np.unique of rows."""
    order = np.lexsort(rows.T[::-1])
    is_new = (np.diff(rows[order], axis=0) != 0).any(axis=1)
    found = np.zeros(len(rows), np.int64)
    found[order[1:]] = np.cumsum(is_new)
    return found


def _annotators(file: File, rows: Index, shared: Mask, with_most: Mask) -> tuple[Annotator, ...]:
    """Those who answered; "" for rows that do not say who."""
    if "annotator" not in file.cells:
        return ()
    names = [cell or "" for cell in file.cells["annotator"][rows]]
    called, who = np.unique(np.asarray(names, dtype=str), return_inverse=True)
    counts = [np.bincount(who, weights=part, minlength=len(called)) for part in (shared, shared & with_most)]
    total = np.bincount(who, minlength=len(called))
    columns = (called.tolist(), total.tolist(), *(part.astype(int).tolist() for part in counts))
    return tuple(Annotator(*line) for line in zip(*columns, strict=True))
