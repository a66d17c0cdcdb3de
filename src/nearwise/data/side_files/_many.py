"""Pairs in Parquet files that are larger than memory: the same columns and words, read a part at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearwise._common.errors import RowsError
from nearwise.data.frame import shown
from nearwise.data.side_files._file import AS_IS, Objects, Reading, Side
from nearwise.data.side_files._roles import PAIRS, Assigned, answer, asked_for, by_title, turns, unknown_value
from nearwise.data.tables import TableError
from nearwise.distributed import PairTable, open_pairs, titles_of
from nearwise.side import Constraints, constraints as c


def read_many_pairs(source: str, objects: Objects, how: Reading = AS_IS) -> Side:
    """Pairs of Parquet files, or a folder of them, of which only a part is in memory at a time.

    Parameters as in `read_pairs`. Repetitions and answers that differ are not looked for.
    """
    try:
        titles = titles_of(source)
        if titles is None:
            raise TableError(f"{source}: several .npy files of pairs cannot be read; Parquet files can")
        asked = asked_for(titles, how.roles)
        roles = by_title(source, titles, PAIRS, asked)
        table = open_pairs(source, [titles[roles.columns[role]] for role in ("first", "second")])
        weights = titles[roles.columns["weight"]] if "weight" in roles.columns else None
        near, far = _sides(source, table, titles, roles, how)
        found = Constraints() if near is None else c.similar(near, weights)
        found += Constraints() if far is None else c.dissimilar(far, weights)
        ids = _alike(objects.ids, found)
        resolved = Constraints(found.resolve(objects.n_rows, ids, known_as="one of the data's ids"))
    except RowsError as error:
        raise TableError(str(error)) from None
    except (ValueError, OSError) as error:
        raise error if isinstance(error, TableError) else TableError(str(error)) from None
    if not len(resolved):
        raise TableError(f"{source}: nothing is left of it")
    used = {column for role, column in roles.columns.items() if role != "annotator"}
    unused = [repr(title) for k, title in enumerate(titles) if k not in used]
    notices = [f"{source}: not used: {', '.join(unused)}"] if unused else []
    if value := unknown_value(titles, PAIRS, roles, asked):
        notices.append(f"{source}: no column is called 'similar'; {value!r} is read as that")
    notices.append(f"{source}: among so many pairs, repetitions and answers that differ are not looked for")
    return Side(resolved, np.empty(0, np.int64), source, "row", tuple(notices))


def _sides(
    source: str, table: PairTable, titles: list[str], roles: Assigned, how: Reading
) -> tuple[PairTable | None, PairTable | None]:
    """The similar and the dissimilar pairs of a table."""
    if how.conflicts is not None:
        raise TableError(
            f"{source}: --conflicts needs pairs in memory, and these are too many or in a folder"
        )
    answers = {role: titles[column] for role, column in roles.columns.items()}
    if (above := how.similar_above) is not None:
        column = answers.get("rating", answers.get("similar"))
        if column is None:
            raise TableError(f"{source} has no column of ratings; say which it is with --role rating=COLUMN")
        return (
            table.where(column, lambda ratings: _numbers(ratings, source, column) > above),
            table.where(column, lambda ratings: _numbers(ratings, source, column) < above),
        )
    role = next((role for role in ("similar", "dissimilar") if role in answers), None)
    if role is None and "rating" in answers:
        raise TableError(
            f"{source}: column {answers['rating']!r} holds ratings; --similar-above T says above which a "
            "pair is similar"
        )
    if role is None:
        return table, None
    column = answers[role]
    turned = role == "dissimilar" or turns(column)
    meant: dict[bool, list[Any]] = {True: [], False: []}
    for value, place in table.distinct(column).items():
        text = "" if value is None else str(value)
        said = answer(text, turned)
        if said is None:
            raise TableError(
                f"{place}: {shown(text)} does not say what the pair is; 1 or 0, yes or no, similar or "
                "dissimilar, same or different do"
            )
        meant[said].append(value)
    near, far = (table.where(column, *meant[said]) if meant[said] else None for said in (True, False))
    return near, far


def _numbers(values: NDArray[Any], source: str, column: str) -> NDArray[Any]:
    if values.dtype.kind not in "iufb" or not np.isfinite(values).all():
        raise TableError(f"{source}: column {column!r} has ratings that are no numbers")
    return values


def _alike(ids: NDArray[Any] | None, found: Constraints) -> NDArray[Any] | None:
    """The data's ids in the type in which the pairs name them: 12 and "12" are the same."""
    named = next((block.object_ids.dtype.kind for block in found.blocks), "")
    if ids is None or ids.dtype.kind == named:
        return ids
    if named == "U":
        return ids.astype(str)
    try:
        return ids.astype(np.int64)
    except ValueError:
        raise TableError(
            f"the pairs name objects by numbers, and the data's ids are texts, as {ids[0]!r}"
        ) from None
