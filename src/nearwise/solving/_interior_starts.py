"""Where the runs of an interior-point method start: from further and further inside the cone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Literal

import numpy as np

from nearwise._common.types import Array
from nearwise.model.divergences import LogDet
from nearwise.solving._interior_run import Run
from nearwise.solving._scalings import start_sizes
from nearwise.solving._written import WrittenForm, WrittenRows

STARTS = 5
WORK = 3e8  # multiplications in an orthogonal factorisation that takes a tenth of a second
_LARGER = 1e4  # how much further inside each start is, at least
_LARGEST = 1e200
_LARGER_MATRIX = 1e9
_LAST = STARTS - 1
_PUSHED = 1e-3  # of what soft rows may push: the multiplier of the first start
# where further runs start: whether from a larger matrix, how often the multiplier is enlarged, and which
# shape the matrix has: that of I, one that suits the rows, or one that is as large where all of them measure
# little; all solve their systems by an orthogonal factorisation, and in the first of them conditions and M Z
# fall together
_FROM: tuple[tuple[bool, int, Literal["I", "rows", "stretched"]], ...] = (
    (True, _LAST, "I"),
    (False, 0, "rows"),
    (False, _LAST, "stretched"),
    (False, 0, "I"),
    (False, 1, "I"),
    (False, 1, "rows"),
    (True, _LAST, "rows"),
    *((False, start, "I") for start in range(2, STARTS)),
)
_TOGETHER = 5  # further runs
_FLATTEST = 1e-12  # relative size of a direction of the rows that is one, and is stretched to equal size


def runs(form: WrittenForm, work: float = WORK) -> Iterator[Run]:
    """Runs from further and further inside the cone, from a multiple of I or from one that suits the rows.

    Stiff soft rows that cannot all be met have large multipliers, so the first run starts with one as large.
    A path along which M grows by many orders of magnitude is narrow and bent, one along which it shrinks is
    not; so some start from a matrix that is much larger than it seems to have to be. Hard rows under LogDet
    get the shape that suits them before.
    """
    with suppress(np.linalg.LinAlgError):
        yield Run(form, max(_PUSHED * _push(form), 1.0))
    larger = enlargement(form)
    first, second, *others = _FROM
    swapped = form.losses.any_hard and isinstance(form.divergence, LogDet)
    for place, (primal, dual, shape) in enumerate([second, first, *others] if swapped else _FROM):
        turn = None if shape == "I" else equalising(form.rows, alike=shape == "rows")
        size = _LARGER_MATRIX if primal else 1.0
        with suppress(np.linalg.LinAlgError):
            yield Run(form, larger**dual, turn, size, orthogonal=work, together=place < _TOGETHER)


def equalising(rows: WrittenRows, alike: bool = True) -> Array:
    """T such that the vectors T^T x of the rows have about the same size in all directions that they have.

    By default each vector counts alike, whatever its own size.
    """
    vectors = rows.x.T if rows.x is rows.y else np.vstack([rows.x.T, rows.y.T])
    if alike:
        norms = np.linalg.norm(vectors, axis=1)
        vectors = vectors[norms > 0] / norms[norms > 0, None]
    _, s, Vt = np.linalg.svd(np.vstack([vectors, np.zeros((rows.order, rows.order))]), full_matrices=False)
    largest = s[0] if s[0] > 0 else 1.0
    return np.asarray(Vt.T / np.where(s > _FLATTEST * largest, s, largest))


def enlargement(form: WrittenForm) -> float:
    """By how much the multipliers grow from one start to the next: at last, as far as soft rows can push."""
    return max(_LARGER, _push(form) ** (1 / (STARTS - 1)))


@np.errstate(all="ignore")
def _push(form: WrittenForm) -> float:
    """What soft rows may ask of the matrix's multiplier, in units of that of the usual first point."""
    losses, sizes = form.losses, form.rows.sizes
    primal, dual = start_sizes(form, sizes)
    on_both_sides = replace(losses, relations=np.zeros_like(losses.relations))
    push = np.abs(on_both_sides.slopes(primal * sizes)) * sizes / dual
    return float(np.fmin(np.fmax.reduce(push, initial=0.0), _LARGEST))
