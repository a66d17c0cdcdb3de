"""Where Newton's method starts on many soft rows: nearer than the prior, since steps pass over all rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from nearwise._common.types import Array
from nearwise.model.divergences import LogDet
from nearwise.model.formulation import Formulation
from nearwise.model.measurements import InMemory
from nearwise.solving.logdet import COMPILED_RANK, LogDetEngine

_LARGE = 1_000_000  # numbers in the rows, from which on a start pays
_FEWEST, _MOST = 5, 20  # projections per unknown


def after_projections(form: Formulation, seed: int) -> Array | None:
    """A factor of M after projections onto some rows, drawn at random; None where they do not pay.

    A projection costs as much as its row's share of an iteration, and knows the rows before it. There are as
    many as the penalties of all rows add up to, within limits: a part of the rows, or at most all of them.
    """
    rows: Any = form.measurements
    if not (isinstance(form.divergence, LogDet) and isinstance(rows, InMemory)) or form.losses.any_hard:
        return None
    unknowns, total = rows.rank * (rows.rank + 1) // 2, form.losses.soft_penalties[1]
    if rows.offsets is not None or rows.n_rows * rows.rank < _LARGE:
        return None
    engine = LogDetEngine(form)
    if engine.largest_rank > COMPILED_RANK:
        return None
    count = min(int(np.clip(total, _FEWEST * unknowns, _MOST * unknowns)), rows.n_rows)
    engine.sweep(np.random.default_rng(seed).permutation(rows.n_rows)[:count])
    factor = engine.factor()
    return factor if np.isfinite(factor).all() else None
