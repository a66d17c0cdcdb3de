"""Where Newton's method starts on many soft rows: nearer than the prior, since steps pass over all rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from nearwise._common.types import Array
from nearwise.model.divergences import LogDet, VonNeumann
from nearwise.model.formulation import Formulation
from nearwise.model.measurements import InMemory
from nearwise.solving.logdet import COMPILED_RANK, LogDetEngine

_LARGE = 1_000_000  # numbers in the rows, from which on a start pays
_FEWEST, _MOST = 5, 10  # projections per unknown
_LOOKS = 128  # at M during the projections, for a mean of it


def after_projections(form: Formulation, seed: int) -> Array | None:
    """A factor of M after LogDet projections onto some rows, drawn at random; None where they do not pay.

    A projection costs as much as its row's share of an iteration, and knows the rows before it. There are as
    many as the penalties of all rows add up to, within limits: a part of the rows, or at most all of them.
    Where the penalties weigh more than the unknowns, each projection goes too far for the rows of others, and
    the mean of M, the first quarter left out, is far nearer to the solution than the last M. There it is a
    start for the von Neumann divergence as well, with slack that is as stiff at the bounds.
    """
    rows: Any = form.measurements
    if not isinstance(rows, InMemory) or form.losses.any_hard or rows.offsets is not None:
        return None
    unknowns = rows.rank * (rows.rank + 1) // 2
    if isinstance(form.divergence, VonNeumann) and form.losses.is_bregman.all() and (form.prior > 0).all():
        form = _under_logdet(form)
        if form.losses.soft_penalties[1] < unknowns:
            return None
    if not isinstance(form.divergence, LogDet) or rows.n_rows * rows.rank < _LARGE:
        return None
    engine, total = LogDetEngine(form), form.losses.soft_penalties[1]
    if engine.largest_rank > COMPILED_RANK:
        return None
    count = min(int(np.clip(total, _FEWEST * unknowns, _MOST * unknowns)), rows.n_rows)
    chosen = np.random.default_rng(seed).permutation(rows.n_rows)[:count]
    alone = count if total < unknowns else count // 4
    engine.sweep(chosen[:alone])
    mean = np.zeros((rows.rank, rows.rank))
    for part in np.array_split(chosen[alone:], _LOOKS) if alone < count else ():
        engine.sweep(part)
        factor = engine.factor()
        mean += factor @ factor.T / _LOOKS
    factor = engine.factor()
    if not np.isfinite(factor).all():
        return None
    return factor if alone == count else np.asarray(np.linalg.cholesky(mean), dtype=np.float64)


def _under_logdet(form: Formulation) -> Formulation:
    """The problem under LogDet whose slack and divergence bend as much at bounds and prior."""
    losses, divergence = form.losses, LogDet()
    penalties = losses.penalties * losses.bounds / float(np.mean(form.prior))
    return replace(
        form, divergence=divergence, losses=replace(losses, divergence=divergence, penalties=penalties)
    )
