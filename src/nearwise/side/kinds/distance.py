"""Bounds on squared distances, some of them filled from the data: similar and dissimilar pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from nearwise._common.types import Array, Mask
from nearwise.side.kinds.kind import (
    Grade,
    Kind,
    Names,
    Part,
    RowsOfKind,
    bounded,
    by_relation,
    rows_of,
    shown_pair,
)

if TYPE_CHECKING:
    from nearwise.side.blocks import Block

_PAIRS = Grade("pairs", "given pairs' ROC-AUC", "order")
_BOUNDS = Grade("bounds", "bounds that hold", "share")
_MEASURED = Grade("distances", "relative error of distances", "error", root=True)


class Distance(Kind):
    """d(i, j) = (f_i - f_j)^T M (f_i - f_j)."""

    name: ClassVar[str] = "distance"
    plural: ClassVar[str] = "distances"
    n_distances: ClassVar[int] = 1

    def atoms(self, block: RowsOfKind, features: Array, sizes: Array | None) -> Part:
        ids = rows_of(block)
        return Part(ids[:, 0], ids[:, 1], np.ones(len(ids)), np.arange(len(ids)), True)

    def text(self, block: Block, row: int, symbol: str, bound: float, names: Names) -> str:
        return bounded(shown_pair("d", block.object_ids[row], names), symbol, bound)

    def grades(self, block: Block) -> list[tuple[Grade, Mask]]:
        is_open = np.isnan(block.bounds)
        ((given, _),) = by_relation(block, _BOUNDS, _MEASURED)
        return [(grade, rows) for grade, rows in ((_PAIRS, is_open), (given, ~is_open)) if rows.any()]
