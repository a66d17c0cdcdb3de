"""Bounds on inner products and on squared lengths."""

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

_BOUNDS = Grade("inner products", "inner products in bounds", "share")
_MEASURED = Grade("inner products", "error of inner products", "error")


class Similarity(Kind):
    """K_ij = f_i^T M f_j."""

    name: ClassVar[str] = "similarity"
    plural: ClassVar[str] = "similarities"

    def atoms(self, block: RowsOfKind, features: Array, sizes: Array | None) -> Part:
        ids = rows_of(block)
        return Part(ids[:, 0], ids[:, 1], np.ones(len(ids)), np.arange(len(ids)), False)

    def text(self, block: Block, row: int, symbol: str, bound: float, names: Names) -> str:
        return bounded(shown_pair("K", block.object_ids[row], names), symbol, bound)

    def grades(self, block: Block) -> list[tuple[Grade, Mask]]:
        return by_relation(block, _BOUNDS, _MEASURED)
