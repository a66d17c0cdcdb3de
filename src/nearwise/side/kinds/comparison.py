"""Relative comparisons: one pair is nearer than another."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from nearwise._common.types import Array, Mask
from nearwise.side.kinds.kind import Grade, Kind, Names, Part, RowsOfKind, rows_of, shown_pair

if TYPE_CHECKING:
    from nearwise.side.blocks import Block

_TRIPLETS = Grade("triplets", "triplets in order", "share")


class Comparison(Kind):
    """d(i, j) - d(k, l), at most minus the margin."""

    name: ClassVar[str] = "comparison"
    plural: ClassVar[str] = "comparisons"
    n_distances: ClassVar[int] = 2

    def atoms(self, block: RowsOfKind, features: Array, sizes: Array | None) -> Part:
        ids = rows_of(block)
        row, sign = np.arange(len(ids)), np.ones(2 * len(ids))
        sign[len(ids) :] = -1.0
        return Part(ids[:, ::2].T.ravel(), ids[:, 1::2].T.ravel(), sign, np.concatenate([row, row]), True)

    def text(self, block: Block, row: int, symbol: str, bound: float, names: Names) -> str:
        near, far = block.object_ids[row, :2], block.object_ids[row, 2:]
        margin = f" + {-bound:.6g}" if bound else ""
        return f"{shown_pair('d', near, names)}{margin} {symbol} {shown_pair('d', far, names)}"

    def grades(self, block: Block) -> list[tuple[Grade, Mask]]:
        return [(_TRIPLETS, np.ones(len(block), dtype=bool))]
