"""Constraints of tables that are larger than memory: read once, checked, and kept as numbers in files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np

from nearwise._common.columns import ColumnWriter, Constant
from nearwise._common.errors import RowError
from nearwise._common.reading import Ids
from nearwise.distributed.pairs import Batch, PairTable, Texts
from nearwise.model.blocks import Block, Constraints

Made = Callable[[Ids, Any, Any], Constraints]  # of ids, bounds and weights of some rows


def from_table(table: PairTable, bound: Any, weights: Any, made: Made) -> Constraints:
    """The constraints of all rows of a table, each part of which `made` checks as it does arrays.

    Parameters
    ----------
    table : the rows
    bound, weights : one number for all rows, the name of a column, or None
    made : the constructor
    """
    given = {"bounds": bound, "weights": weights}
    columns = {name: value for name, value in given.items() if isinstance(value, str)}
    for name, value in given.items():
        if value is not None and not isinstance(value, str | Real):
            raise TypeError(
                f"{name} of a table of pairs must be one number or the name of a column, got {value!r:.60}"
            )
    writer, texts, first = ColumnWriter(table.scratch), Texts(), None
    smallest, largest, count = np.iinfo(np.int64).max, np.iinfo(np.int64).min, 0
    in_place = table.plain is not None
    try:
        for batch in table.batches(texts, *columns.values()):
            own = {
                name: batch.others[columns[name]] if name in columns else value
                for name, value in given.items()
            }
            block = _checked(made, batch, texts, own)
            first = first or block
            kept: dict[str, Any] = {name: getattr(block, name) for name in columns}
            in_place = in_place and block.ids is not None and block.ids.shape == batch.ids.shape
            if not in_place:
                width = np.int64 if texts.known is None else np.int32
                kept["ids"] = block.object_ids.astype(width, copy=False)
            if kept:
                writer.append(**kept)
            smallest = min(smallest, int(block.object_ids.min()))
            largest = max(largest, int(block.object_ids.max()))
            count += len(block)
        found: dict[str, Any] = dict(writer.columns())
    finally:
        writer.close()
    if first is None:
        return Constraints()
    ids: Any = found.get("ids", table.plain)
    span = (smallest, largest) if texts.known is None else None
    found["ids"] = replace(ids, texts=texts.array(), span=span, origin=table)
    for name in given:
        if name not in found and getattr(first, name) is not None:
            found[name] = Constant(float(getattr(first, name)[0]), count)
    return Constraints((replace(first, **found),))


def _checked(made: Made, batch: Batch, texts: Texts, own: dict[str, Any]) -> Block:
    """The rows of a batch as a block; an error names the file and the row."""
    try:
        try:
            return made(batch.ids, own["bounds"], own["weights"]).blocks[0]
        except RowError:
            if (names := texts.array()) is None:
                raise
            return made(names[batch.ids], own["bounds"], own["weights"]).blocks[0]  # which names the ids
    except RowError as error:
        raise ValueError(f"{batch.place(error.row)}: {error.words}") from None
