"""Side information as a learner takes it: labels, and constraints by row number or sample id.

`read` checks it against the data and drops constraints on objects that are not there; the result can be
restated for a subspace, outside which distances are fixed. `share_in_order` grades distances by it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.metrics import roc_auc_score
from sklearn.utils import column_or_1d

from nearwise import _drawing, _labels
from nearwise._reading import regular_array
from nearwise.constraints import Block, Constraints

Array = NDArray[np.float64]
Codes = NDArray[np.int64]
Index = NDArray[np.int64]
InnerProducts = Callable[[Index, Index], Array]

_GRADED_PAIRS = 50_000  # of all pairs of labelled objects, above which a sample is graded


@dataclass(frozen=True, eq=False)
class SideInformation:
    """What is known about the rows of some data.

    Attributes
    ----------
    n_objects : the number of rows
    codes : the class of every row as a number, -1 for a row without one; None where no labels are there that
        tell something
    constraints : by row number
    n_dropped : how many constraints named objects that are not in the data
    useless : why labels that were given tell nothing, as a clause
    """

    n_objects: int
    codes: Codes | None
    constraints: Constraints
    n_dropped: int = 0
    useless: str = ""

    @property
    def nothing_known(self) -> str:
        """Why there is nothing to learn from, where that is so."""
        return self.useless or "neither labels nor constraints say anything about these objects"

    def inside(self, outside: InnerProducts) -> SideInformation:
        """The same as bounds on what a subspace contributes: JKDD12 (11) and (20).

        `outside` gives the inner products of objects i and j less those of their projections on the subspace.
        Open bounds stay open: they are filled from distances in the subspace. An upper bound on a distance
        that the part outside already exceeds is refused, and a lower bound that it already meets is left out.
        """
        blocks: list[Block] = []
        first = 0
        for block in self.constraints.blocks:
            if np.isnan(block.bounds).all():
                blocks.append(block)
            else:
                shifted = replace(block, bounds=block.bounds - _values(block, outside, self.n_objects))
                if block.kind == "distance":
                    _refuse_exceeded(self.constraints, shifted, first)
                    shifted = _without_met(shifted)
                if len(shifted):
                    blocks.append(shifted)
            first += len(block)
        return replace(self, constraints=Constraints(tuple(blocks)))


def read(
    n_objects: int,
    y: ArrayLike | None,
    constraints: Constraints | None,
    sample_ids: ArrayLike | None,
    complete: bool = True,
) -> SideInformation:
    """Labels as class numbers and constraints by row number.

    With `sample_ids`, constraints on other objects are dropped; without, they are an error. `complete` is
    false for a part of the data, which does not tell how often a label occurs (`_labels.read`).
    """
    codes, useless = (None, "") if y is None else _codes(y, n_objects, complete)
    if constraints is None:
        return SideInformation(n_objects, codes, Constraints(), useless=useless)
    if not isinstance(constraints, Constraints):
        kind = type(constraints).__name__
        raise TypeError(f"constraints must be made by nearwise.constraints, got {kind}")
    dropped = 0
    if sample_ids is not None:
        constraints, dropped = constraints.restricted_to(sample_ids)
    try:
        blocks = constraints.resolve(n_objects, sample_ids)
    except ValueError as error:
        if sample_ids is not None:
            raise
        raise ValueError(
            f"{error}; in cross-validation, where a part of the data has its own row numbers, pass sample_ids"
        ) from None
    if useless and complete and blocks:
        warnings.warn(f"the labels are not used: {useless}", UserWarning, stacklevel=4)
    return SideInformation(n_objects, codes, Constraints(blocks), dropped, useless)


def share_in_order(
    side: SideInformation,
    squared_distances: Callable[[Index, Index], Array],
    rng: np.random.RandomState,
) -> float:
    """How often something that shall be nearer is nearer, under the given squared distances of rows i, j.

    From labels and from bounds on distances: of all combinations of a similar with a dissimilar pair, the
    share in which the similar one is nearer (the area under the ROC curve). From comparisons: the share that
    holds. Where there are both, their mean, weighted by the number of pairs and of comparisons.
    """
    similar, dissimilar = _graded_pairs(side, rng)
    comparisons = [block.ids for block in side.constraints.blocks if block.kind == "comparison"]
    parts: list[tuple[float, int]] = []
    if len(similar) and len(dissimilar):
        pairs = np.concatenate([similar, dissimilar])
        is_similar = np.arange(len(pairs)) < len(similar)
        parts.append((roc_auc_score(is_similar, -squared_distances(*pairs.T)), len(pairs)))
    for rows in comparisons:
        assert rows is not None
        margin = squared_distances(*rows[:, 2:].T) - squared_distances(*rows[:, :2].T)
        parts.append((float(np.mean((np.sign(margin) + 1.0) / 2.0)), len(rows)))
    if not parts:
        raise ValueError(
            "nothing to score by: needs labels y with two classes and two objects of one class, or "
            "constraints with similar and dissimilar pairs or comparisons among these objects. In "
            "cross-validation, cv=StratifiedKFold() keeps all classes in all parts, and constraints and "
            "sample_ids reach score by metadata routing: sklearn.set_config(enable_metadata_routing=True)"
        )
    values, weights = np.array(parts).T
    return float(np.average(values, weights=weights))


def _codes(y: ArrayLike, n_objects: int, complete: bool) -> tuple[Codes | None, str]:
    """Class numbers, None where the labels tell nothing, and then why."""
    if regular_array(y, "y").shape[1:] == (1,):
        y = column_or_1d(y, warn=True)
    labels = _labels.read(y, complete=complete)
    if len(labels.codes) != n_objects:
        raise ValueError(f"X has {n_objects} rows, but there are {len(labels.codes)} labels")
    labels.warn(stacklevel=5)
    return (None if labels.useless else labels.codes), labels.useless


def _graded_pairs(side: SideInformation, rng: np.random.RandomState) -> tuple[Index, Index]:
    blocks = [block for block in side.constraints.blocks if block.kind == "distance" and block.relation != 0]
    similar = [block.ids for block in blocks if block.relation < 0 and block.ids is not None]
    dissimilar = [block.ids for block in blocks if block.relation > 0 and block.ids is not None]
    if side.codes is not None:
        same, different = _drawing.random_pairs(side.codes, _GRADED_PAIRS, rng)
        similar.append(same)
        dissimilar.append(different)
    none = np.empty((0, 2), np.int64)
    return np.concatenate([none, *similar]), np.concatenate([none, *dissimilar])


def _values(block: Block, inner: InnerProducts, n_objects: int) -> Array:
    """<A, K> of every row of a block, for the matrix K of given inner products."""

    def distance(i: Index, j: Index) -> Array:
        return inner(i, i) + inner(j, j) - 2.0 * inner(i, j)

    if block.kind == "linear":
        rows = np.arange(n_objects) if block.ids is None else block.ids
        K = np.stack([inner(np.full_like(rows, row), rows) for row in rows])
        return np.array([_trace(matrix, K) for matrix in block.matrices])
    assert block.ids is not None
    columns = block.ids.T
    if block.kind == "similarity":
        return inner(*columns)
    if block.kind == "comparison":
        return distance(*columns[:2]) - distance(*columns[2:])
    return distance(*columns)


def _trace(A: Any, K: Array) -> float:
    if A.factor is not None:
        return float(np.einsum("ik,ij,jk,k->", A.factor, K, A.factor, A.weights, optimize=True))
    return float(A.matrix.multiply(K).sum() if sparse.issparse(A.matrix) else np.sum(A.matrix * K))


def _without_met(block: Block) -> Block:
    rows = ~(block.bounds <= 0)
    assert block.ids is not None
    return replace(block, ids=block.ids[rows], bounds=block.bounds[rows])


def _refuse_exceeded(constraints: Constraints, shifted: Block, first: int) -> None:
    wrong = np.flatnonzero((shifted.bounds <= 0) & (shifted.relation <= 0))
    if wrong.size:
        row = first + int(wrong[0])
        excess = -float(shifted.bounds[wrong[0]])
        raise ValueError(
            f"{constraints.describe(row)}: outside the basis this distance is fixed, and there it already is "
            f"{excess:.3g} above the bound; raise rank or the bound"
        )
