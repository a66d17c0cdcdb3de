"""Side information as a learner takes it: labels, and constraints by row number or sample id.

`Side.read` checks it against the data, once, and drops constraints on objects that are not there; the result
can be restated for a subspace, outside which distances are fixed.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils import column_or_1d
from sklearn.utils.validation import _check_sample_weight

from nearwise._common.errors import RowsError
from nearwise._common.reading import A_WEIGHT, id_list, is_weight, regular_array, show
from nearwise._common.types import Array, Codes, Index
from nearwise._common.warning import warn
from nearwise.distributed import Vectors
from nearwise.learners._space import Outside
from nearwise.side import Block, Constraints, LeftOutWarning, UnknownIdsWarning, labelling

_SHOWN = 3  # unknown ids in a message
_COMPARED = 1 << 22  # numbers of rows that are compared at a time


@dataclass(frozen=True, eq=False)
class Side:
    """What is known about the rows of some data.

    Attributes
    ----------
    n_objects : the number of rows
    codes : the class of every row as a number, -1 for a row without one; None where no labels are there that
        tell something
    constraints : by row number
    n_dropped : how many constraints named objects that are not in the data
    useless : why labels or constraints that were given tell nothing, as a clause
    weights : of the rows, by which drawn pairs count; None where all count 1. Constraints have their own.
    """

    n_objects: int
    codes: Codes | None
    constraints: Constraints
    n_dropped: int = 0
    useless: str = ""
    weights: Array | None = None

    @classmethod
    def read(
        cls,
        n_objects: int,
        y: ArrayLike | None = None,
        constraints: Constraints | None = None,
        sample_ids: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        complete: bool = True,
        in_files: bool = False,
    ) -> Side:
        """Labels as class numbers and constraints by row number.

        With `sample_ids`, constraints on other objects are dropped, with a warning unless it is scikit-learn
        that took a part of the data; without, they are an error, and so are all constraints in such a part,
        where row numbers are those of other objects. `complete` is false for a part of the data, which does
        not tell how often a label occurs (`labelling.read`). With `sample_weight`, a constraint counts times
        the weights of its objects, and an object of weight 0 is one of which nothing is known. `in_files`
        says whether the constraints may be there.
        """
        weights = read_weights(sample_weight, n_objects)
        codes, useless = (None, "") if y is None else _codes(y, n_objects, complete, weights)
        if constraints is None:
            return cls(n_objects, codes, Constraints(), useless=useless, weights=weights)
        if not isinstance(constraints, Constraints):
            kind = type(constraints).__name__
            raise TypeError(f"constraints must be made by nearwise.constraints, got {kind}")
        if not in_files:
            constraints.refuse_stored("this learner")
        resolved, dropped = _by_row(constraints, n_objects, sample_ids)
        if useless and complete and resolved.blocks:
            warn(f"the labels are not used: {useless}")
        return cls(n_objects, codes, weighed(resolved, weights), dropped, useless, weights)

    @property
    def nothing_known(self) -> str:
        """Why there is nothing to learn from, where that is so."""
        return self.useless or "neither labels nor constraints say anything about these objects"

    def inside(self, outside: Outside) -> Side:
        """The same as bounds on what a subspace contributes, for hard constraints: JKDD12 (11) and (20).

        Open bounds stay open: they are filled from distances in the subspace. An upper bound on a distance
        or a squared length that the part outside already exceeds is refused, and a lower bound that it
        already meets is left out.
        """
        blocks: list[Block] = []
        first = 0
        for block in self.constraints.blocks:
            if np.isnan(block.bounds).all():
                blocks.append(block)
            else:
                shifted = replace(block, bounds=block.bounds - outside.values_of(block))
                never_negative = block.of_kind.is_definite(block)
                _refuse_exceeded(self.constraints, shifted, never_negative, first)
                shifted = shifted.part(np.flatnonzero(~((shifted.bounds <= 0) & never_negative)))
                if len(shifted):
                    blocks.append(shifted)
            first += len(block)
        met = "what is fixed outside the basis meets every constraint" if first and not blocks else ""
        return replace(self, constraints=Constraints(tuple(blocks)), useless=self.useless or met)


def are_in_files(constraints: object) -> bool:
    """Whether constraints, if they are any, are in files."""
    return isinstance(constraints, Constraints) and constraints.is_stored


def weighed(constraints: Constraints, weights: Array | None) -> Constraints:
    """Constraints by row number, each counting times the weights of its objects; none on one of weight 0.

    Linear functions of all objects are about none of them.
    """
    if weights is None:
        return constraints

    def counted(block: Block) -> Block:
        kept = np.flatnonzero((weights[block.object_ids] > 0).all(axis=1))
        return replace(block.part(kept), weights=counting(block.object_ids, block.counts, weights)[1])

    blocks = (
        block if block.of_kind.shares_objects else block.rewritten(counted, "weights")
        for block in constraints.blocks
    )
    return Constraints(tuple(block for block in blocks if len(block)))


def tell_of_equal(constraints: Constraints, X: Any, numbered: Constraints | None = None) -> None:
    """Say which constraints want equal rows apart, for a learner that keeps them and learns nothing there.

    `numbered` are the same by row number of X, where the constraints are not. Rows in pieces are looked at in
    the pass over all of them that a fit makes.
    """
    if isinstance(X, Vectors):
        return
    lost, first = [], 0
    for block in (constraints if numbered is None else numbered).blocks:
        if block.kind == "distance" and block.relation >= 0:
            i, j = np.asarray(block.object_ids).T
            step = max(_COMPARED // X.shape[1], 1)
            for low in range(0, len(block), step):
                differ = X[i[low : low + step]] - X[j[low : low + step]]
                sizes = abs(differ).max(axis=1)
                sizes = sizes.toarray() if sparse.issparse(sizes) else sizes
                lost.append(first + low + np.flatnonzero(sizes.ravel() == 0.0))
        first += len(block)
    rows = np.concatenate([np.empty(0, np.int64), *lost])
    if len(rows):
        example = constraints.describe(int(rows[0]))
        warn(LeftOutWarning.of(constraints, rows, f", as in {example}, whose objects are equal"))


def counting(rows: Index, counts: Array, weights: Array | None) -> tuple[Index, Array]:
    """Those without an object of weight zero, and their weights: times that of every object, once."""
    if weights is None:
        return rows, counts
    kept = (weights[rows] > 0).all(axis=1)
    rows, counts = rows[kept], counts[kept]
    ordered = np.sort(rows, axis=1)
    again = np.diff(ordered, axis=1, prepend=-1) == 0
    return rows, counts * np.where(again, 1.0, weights[ordered]).prod(axis=1)


def _by_row(given: Constraints, n_objects: int, sample_ids: ArrayLike | None) -> tuple[Constraints, int]:
    """Constraints by row number, and how many name other objects."""
    constraints, dropped, is_in_fold = given, 0, _is_in_fold(given)
    if sample_ids is None and is_in_fold:
        raise ValueError(
            "constraints by row number in cross-validation, where a part of the data has its own row numbers "
            "and the constraints would be about other objects; pass sample_ids, one id for each row of X "
            "(np.arange(len(X)) keeps the constraints as they are)"
        )
    if sample_ids is not None:
        constraints, dropped = given.restricted_to(sample_ids)
        if dropped and not is_in_fold:
            _tell_dropped(given, dropped, sample_ids)
    try:
        return Constraints(constraints.resolve(n_objects, sample_ids)), dropped
    except RowsError as error:
        if sample_ids is not None:
            raise
        hint = "; in cross-validation, where a part of the data has its own row numbers, pass sample_ids"
        raise RowsError(error.rows, before=error.before, after=error.after + hint) from None


def _tell_dropped(constraints: Constraints, dropped: int, sample_ids: ArrayLike) -> None:
    """Warn of constraints on unknown objects; where all objects are unknown, the ids cannot be meant."""
    known, missing = id_list(sample_ids, "sample_ids"), dict[Any, None]()
    found = False
    for _, part in (chunk for block in constraints.blocks for chunk in block.chunks()):
        ids = part.object_ids.ravel()
        present = np.isin(ids, known) if ids.dtype.kind == known.dtype.kind else np.zeros(len(ids), bool)
        found = found or bool(present.any())
        missing |= dict.fromkeys(ids[~present].tolist())
    shown = ", ".join(show(name) for name in [*missing][:_SHOWN]) + (", ..." if len(missing) > _SHOWN else "")
    if not found:
        example = f"; they hold {show(known[0])}, for example" if len(known) else ""
        raise ValueError(f"no object that the constraints name is in sample_ids: {shown}{example}")
    warn(
        f"{dropped} of {len(constraints)} constraints are left out, because they name objects that are not "
        f"in sample_ids: {shown}; where that is meant, constraints.restricted_to(sample_ids)[0] says so",
        UnknownIdsWarning,
    )


def _is_in_fold(constraints: Constraints) -> bool:
    """Whether scikit-learn passes these constraints on to a fit or score of a part of the data.

    It hands over what it cannot cut as it is, without a sign; so this looks for the function that cuts: one
    of scikit-learn that runs now, has `train`, and these constraints among the parameters that it passes.
    Constraints that an estimator makes inside such a part are others, and not meant.
    """
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if str(frame.f_globals.get("__name__")).startswith("sklearn.") and "train" in frame.f_locals:
            passed = (value for value in frame.f_locals.values() if isinstance(value, dict))
            if any(value is constraints for parameters in passed for value in parameters.values()):
                return True
    return False


def read_weights(sample_weight: ArrayLike | None, n_objects: int) -> Array | None:
    """Numbers >= 0, one per row; None where all are 1."""
    if sample_weight is None:
        return None
    found = _check_sample_weight(
        sample_weight, np.empty(n_objects), dtype=np.float64, ensure_non_negative=True
    )
    extreme = np.flatnonzero((found != 0.0) & ~is_weight(found))
    if extreme.size:
        row = int(extreme[0])
        raise ValueError(f"row {row}: sample_weight is {found[row]:.3g}, expected 0 or {A_WEIGHT}")
    return None if (found == 1.0).all() else np.asarray(found)


def _codes(y: ArrayLike, n_objects: int, complete: bool, weights: Array | None) -> tuple[Codes | None, str]:
    """Class numbers, None where the labels tell nothing, and then why; rows of weight 0 have no label."""
    if regular_array(y, "y").shape[1:] == (1,):
        y = column_or_1d(y, warn=True)
    labels = labelling.read(y, complete=complete)
    if len(labels.codes) != n_objects:
        raise ValueError(f"X has {n_objects} rows, but there are {len(labels.codes)} labels")
    labels.warn()
    if weights is not None:
        labels = labels.of_rows(weights > 0)
    return (None if labels.useless else labels.codes), labels.useless


def _refuse_exceeded(
    constraints: Constraints, shifted: Block, never_negative: NDArray[np.bool_], first: int
) -> None:
    wrong = np.flatnonzero((shifted.bounds <= 0) & never_negative & (shifted.relation <= 0))
    if wrong.size:
        row = first + int(wrong[0])
        excess = -float(shifted.bounds[wrong[0]])
        raise RowsError(
            [constraints.stated(row)],
            after=f": outside the basis its value is fixed, and there it already is {excess:.3g} above the "
            "bound; raise rank or the bound, or let it give way by a finite penalty",
        )
