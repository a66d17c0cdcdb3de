"""Files of side information: pairs, triplets and distances, by row number of the data or by id.

Columns are known by their names in any order, others are not used; without names they count by their position
(`_roles`). Answers may have weights, annotators, ratings, and repetitions that differ (`_answers`). Every
error names the file and its line (of a text file) or row (counted from 0, of the others).
"""

from __future__ import annotations

import numpy as np

from nearwise._common.types import Array, Index, Mask
from nearwise.data.frame import shown
from nearwise.data.numerals import Numerals, is_numeral, number, wanted
from nearwise.data.side_files._answers import CONFLICTS, Annotator, Answers, equal_rows, questions_of, settle
from nearwise.data.side_files._file import AS_IS, File, Objects, Reading, Side, each, open_side, whole
from nearwise.data.side_files._many import read_many_pairs
from nearwise.data.side_files._roles import DISTANCES, PAIRS, ROLES, TRIPLETS, answer, is_squared, turns
from nearwise.data.tables import TableError
from nearwise.side import Constraints, constraints as c, relations

__all__ = [
    "CONFLICTS",
    "READERS",
    "ROLES",
    "Annotator",
    "Answers",
    "Objects",
    "Reading",
    "Side",
    "equal_rows",
    "questions_of",
    "read_distances",
    "read_many_pairs",
    "read_pairs",
    "read_triplets",
    "whole",
]


def read_pairs(source: str, objects: Objects, how: Reading = AS_IS) -> Side:
    """Pairs of objects and what they are: 1 or 0, yes or no, similar or dissimilar, same or different.

    With two columns, all pairs are similar. A rating is similar above a threshold, and dissimilar below it. A
    pair that is both similar and dissimilar is an error, unless the user says what to do about it.

    Parameters
    ----------
    source : CSV, TSV, Parquet or .npy file, or "-" for standard input
    objects : of the data
    how : what the user says about the files
    """
    file = open_side(source, PAIRS, objects, how.roles, lambda cell: answer(cell) is not None)
    if how.similar_above is not None:
        _leave_out_undecided(file, how)
    pairs, weights = file.objects_and_weights()
    file.refuse_self_pairs(pairs, "first")
    above = how.similar_above
    similar = _similar(file) if above is None else _ratings(file, how) > above
    questions, _ = questions_of(pairs)
    both = "similar and dissimilar"
    kept, answers = settle(file, PAIRS.what, questions, similar, weights, how.conflicts, both)
    rows = np.flatnonzero(kept)
    order = rows[np.argsort(~similar[rows], kind="stable")]
    near, far = order[similar[order]], order[~similar[order]]
    found = c.similar(pairs[near], _part(weights, near)) + c.dissimilar(pairs[far], _part(weights, far))
    return _side(file, found, order, answers, how)


def read_triplets(source: str, objects: Objects, how: Reading = AS_IS) -> Side:
    """Comparisons: anchor, nearer, farther; or four objects i, j, k, l, for "i is nearer to j than k to l".

    Parameters as in `read_pairs`.
    """
    file = open_side(source, TRIPLETS, objects, how.roles, lambda cell: False)
    rows, weights = file.objects_and_weights()
    near, far = (rows[:, [0, 1]], rows[:, [0, 2]]) if rows.shape[1] == 3 else (rows[:, :2], rows[:, 2:])
    file.refuse_self_pairs(near, "first")
    file.refuse_self_pairs(far, "first" if rows.shape[1] == 3 else "third")
    questions, turned = questions_of(np.hstack([near, far]))
    same = np.flatnonzero((questions[:, :2] == questions[:, 2:]).all(axis=1))
    if same.size:
        raise TableError(f"{file.at(same[0])}: a distance is compared with itself")
    kept, answers = settle(file, TRIPLETS.what, questions, turned, weights, how.conflicts)
    order = np.flatnonzero(kept)
    return _side(file, c.closer(rows[order], weights=_part(weights, order)), order, answers, how)


def read_distances(source: str, objects: Objects, how: Reading = AS_IS) -> Side:
    """Two objects, their distance, and perhaps how it is meant: <=, >= or == (the default).

    Distances are plain ones, not squared, unless their name says so ("squared_distance", "sq_dist") or the
    user does. A distance of 0 cannot be reached by objects that differ: it is read as "at most the smallest
    other one". Parameters as in `read_pairs`.
    """
    wish = wanted(how.decimal, how.thousands)
    file = open_side(source, DISTANCES, objects, how.roles, is_numeral)
    if "distance" not in file.cells:
        raise TableError(
            f"{file.source} has no column of distances; say which it is with --role distance=COLUMN"
        )
    pairs, weights = file.objects_and_weights()
    file.refuse_self_pairs(pairs, "first")
    numerals = file.numerals("distance", wish)
    squared = how.squared or is_squared(file.titles["distance"])
    cells = enumerate(file.cells["distance"])
    bounds = np.array([_squared_distance(file, row, cell, squared, numerals) for row, cell in cells])
    signs = np.full(len(pairs), relations.SIGNS["=="])
    if "relation" in file.cells:
        signs[:] = each(file.cells["relation"], lambda row, cell: _sign(file, row, cell))
    bounds, signs, told = _without_zeros(file, bounds, signs)
    exact = np.flatnonzero((signs == relations.SIGNS["=="]) & told)
    questions, _ = questions_of(pairs[exact])
    counts, both = _part(weights, exact), "at two distances"
    kept, answers = settle(file, DISTANCES.what, questions, bounds[exact], counts, how.conflicts, both, exact)
    told[exact[~kept]] = False
    found, orders = Constraints(), []
    for relation, made in (("<=", c.at_most), (">=", c.at_least), ("==", c.equal)):
        chosen = np.flatnonzero((signs == relations.SIGNS[relation]) & told)
        found += made(pairs[chosen], bounds[chosen], _part(weights, chosen))
        orders.append(chosen)
    return _side(file, found, np.concatenate(orders), answers, how)


READERS = {"pairs": read_pairs, "triplets": read_triplets, "distances": read_distances}


def _side(file: File, constraints: Constraints, order: Index, answers: Answers, how: Reading) -> Side:
    """The result, for constraints whose rows in the file are `order`."""
    if not len(constraints):
        raise TableError(f"{file.source}: nothing is left of it")
    said = tuple(notice for notice in (*file.notices, answers.sentence()) if notice)
    roles = tuple(role for role, name in how.roles.items() if name in file.titles.values())
    return Side(constraints, file.places[order], file.source, file.unit, said, answers, roles)


def _part(weights: Array | None, rows: Index) -> Array | None:
    return None if weights is None else weights[rows]


def _similar(file: File) -> Mask:
    """Whether every pair is similar, by what the file says."""
    for role, turned in (("similar", False), ("dissimilar", True)):
        if role in file.cells:
            title = file.titles.get(role, "")
            turned = turned or turns(title)
            found = each(file.cells[role], lambda row, cell: _is_similar(file, row, cell, turned))  # noqa: B023
            if turned:
                file.notices.append(f"{file.source}: 1 in column {title!r} is read as dissimilar")
            return np.array(found, dtype=bool)
    if "rating" in file.cells:
        cell = file.cells["rating"][0]
        title = file.titles["rating"]
        raise TableError(
            f"{file.source}: column {title!r} holds ratings, as {shown(cell or '')}; --similar-above T says "
            "above which a pair is similar"
        )
    return np.ones(len(file), dtype=bool)


def _is_similar(file: File, row: int, cell: str | None, turned: bool) -> bool:
    said = answer(cell, turned)
    if said is None:
        meant = "1 or 0, yes or no, similar or dissimilar, same or different"
        is_number = number(cell or "") is not None
        more = "; of ratings, --similar-above T says which are similar" if is_number else ""
        raise TableError(
            f"{file.at(row)}: {shown(cell or '')} does not say what the pair is; {meant} do{more}"
        )
    return said


def _leave_out_undecided(file: File, how: Reading) -> None:
    """Forget the pairs whose rating is the threshold itself."""
    equal = _ratings(file, how) == how.similar_above
    if equal.any():
        count = int(equal.sum())
        pairs = "1 pair is" if count == 1 else f"{count:,} pairs are"
        file.notices.append(f"{file.source}: {pairs} left out, whose rating is {how.similar_above:g} itself")
        file.keep(~equal)


def _ratings(file: File, how: Reading) -> Array:
    role = next((role for role in ("rating", "similar") if role in file.cells), None)
    if role is None:
        raise TableError(f"{file.source} has no column of ratings; say which it is with --role rating=COLUMN")
    numerals = file.numerals(role, wanted(how.decimal, how.thousands))

    def read(row: int, cell: str | None) -> float:
        value = number(cell or "", numerals)
        if value is None or not np.isfinite(value):
            raise TableError(f"{file.at(row)}: {shown(cell or '')} is not a rating; a number is needed")
        return value

    return np.array(each(file.cells[role], read), dtype=np.float64)


def _without_zeros(file: File, bounds: Array, signs: Index) -> tuple[Array, Index, Mask]:
    """Distances of 0 as at most the smallest other one; and which rows say something, as >= 0 does not."""
    zero, told = bounds == 0.0, np.ones(len(bounds), dtype=bool)
    if not zero.any():
        return bounds, signs, told
    if zero.all():
        raise TableError(
            f"{file.source}: all distances are 0, which says nothing of how near that is; give such pairs as "
            "--pairs"
        )
    smallest = float(bounds[~zero].min())
    told[zero & (signs == relations.SIGNS[">="])] = False
    count = int(zero.sum())
    distances = "1 distance is 0, and" if count == 1 else f"{count:,} distances are 0, and"
    file.notices.append(
        f"{file.source}: {distances} read as at most the smallest other one, {np.sqrt(smallest):.6g}"
    )
    return np.where(zero, smallest, bounds), np.where(zero, relations.SIGNS["<="], signs), told


def _sign(file: File, row: int, cell: str | None) -> int:
    sign = relations.sign_written(cell)
    if sign is None:
        raise TableError(f"{file.at(row)}: {shown(cell or '')} is not a relation; <=, >= and == are")
    return sign


def _squared_distance(file: File, row: int, cell: str | None, squared: bool, numerals: Numerals) -> float:
    value = number(cell or "", numerals)
    if value is None:
        raise TableError(f"{file.at(row)}: {shown(cell or '')} is not a distance; a number >= 0 is needed")
    with np.errstate(over="ignore", under="ignore"):
        bound = float(value if squared else np.square(value))
    if value == 0.0:
        return 0.0
    if not (value > 0.0 and 0.0 < bound < np.inf):
        raise TableError(
            f"{file.at(row)}: the distance {shown(cell)} is not possible; a number >= 0 is needed"
        )
    return bound
