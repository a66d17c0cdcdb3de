"""What `structure` of `MetricLearner` means: M is diagonal, or in blocks of columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse

from nearwise._common.checks import one_of
from nearwise._common.reading import column_groups, finite, show
from nearwise._common.types import Array, Index, Mask
from nearwise.core import DiagonalProblem, Divergence, Problem, unreachable
from nearwise.linalg.dense import RANK_TOLERANCE
from nearwise.methods import DiagonalResult, Result
from nearwise.side import Constraints

AnyProblem: TypeAlias = Problem | DiagonalProblem
AnyResult: TypeAlias = Result | DiagonalResult

_ALL_EQUAL = "prior='covariance': all rows of X are equal, so their covariance is zero"
_ROUNDING = 4 * np.finfo(np.float64).eps  # standard deviation of a constant, relative to its size
_WRITTEN_OUT = 2**27  # numbers of all columns' blocks that hard constraints on a diagonal may write out


@dataclass(frozen=True, eq=False)
class Structure:
    """The form of M.

    Attributes
    ----------
    groups : the group of every column as a number from 0, each its own where M is diagonal; None for all of M
    is_diagonal : whether M is learned as weights of the columns
    names : of the groups that the user named
    """

    groups: Index | None = None
    is_diagonal: bool = False
    names: tuple[str, ...] = ()

    def freedom(self, n_objects: int, n_columns: int) -> float:
        """The degrees of freedom of M that so many objects determine."""
        if self.is_diagonal:
            return float(n_columns)
        all_of_them = np.array([n_columns]) if self.groups is None else np.bincount(self.groups)
        sizes = np.minimum(all_of_them, max(n_objects - 1, 1)).astype(np.float64)
        return float(np.sum(sizes * (sizes + 1) / 2))

    def stated(
        self,
        features: Any,
        side: Constraints,
        divergence: Divergence,
        prior: Array | None,
        penalty: float,
        fixed: Array | None,
    ) -> AnyProblem:
        """The problem of constraints with bounds; `fixed` are parts of their values that M does not change.

        Weights under hard constraints are blocks of one column each, for what proves that they contradict
        each other.
        """
        if not self.is_diagonal:
            return Problem(features, side, divergence, prior, penalty, fixed=fixed, groups=self.groups)
        if np.isfinite(penalty):
            return DiagonalProblem.of(features, side, divergence, prior, penalty)
        n, d = features.shape
        if n * d * d > _WRITTEN_OUT:
            raise ValueError(
                f"penalty=inf with structure='diagonal' is for few columns, and {n:,} rows of {d:,} are too "
                "many; a large finite penalty comes near to it"
            )
        dense = features.toarray() if sparse.issparse(features) else features
        matrix = None if prior is None else np.diag(prior)
        return Problem(dense, side, divergence, matrix, penalty, groups=self.groups)

    def unreachable(
        self,
        features: Any,
        side: Constraints,
        divergence: Divergence,
        prior: Array | None,
        fixed: Array | None,
    ) -> Mask:
        """Which constraints have the same value for every M, and do not allow it."""
        if self.is_diagonal:
            return DiagonalProblem.unreachable(features, side, prior)
        return unreachable(features, side, divergence, prior, fixed)

    def without_rounding(self, root: Array) -> Array:
        """A symmetric root of M, with exact zeros between groups."""
        return root if self.groups is None else np.where(self.groups[:, None] == self.groups, root, 0.0)


FULL = Structure()


def structure_of(
    structure: Any, groups: Any, n_columns: int, column_names: Sequence[Any] | None
) -> Structure:
    """The parameters `structure` and `groups`, of which one is given, checked."""
    if structure is None:
        raise ValueError("groups go with structure='blocks'")
    if one_of(structure, "structure", ("diagonal", "blocks")) == "diagonal":
        if groups is not None:
            raise ValueError("groups go with structure='blocks', not 'diagonal'")
        return Structure(np.arange(n_columns), is_diagonal=True)
    if groups is None:
        raise ValueError("structure='blocks' needs groups, as in groups=[[0, 1], [2, 3, 4]]")
    if isinstance(groups, Mapping):
        lists, names = list(groups.values()), tuple(map(str, groups))
    elif len(groups) and all(isinstance(group, list | tuple | np.ndarray) for group in groups):
        lists, names = list(groups), ()
    else:
        return Structure(column_groups(groups, n_columns), is_diagonal=False)
    found = np.full(n_columns, -1, dtype=np.int64)
    for number, columns in enumerate(lists):
        for column in columns:
            place = _place(column, n_columns, column_names)
            if found[place] >= 0:
                raise ValueError(f"groups: column {show(column)} is in two groups")
            found[place] = number
    alone = np.flatnonzero(found < 0)  # a column that no group names is one by itself
    found[alone] = len(lists) + np.arange(len(alone))
    return Structure(np.unique(found, return_inverse=True)[1].ravel(), is_diagonal=False, names=names)


def prior_weights(prior: Any, X: Any) -> Array | None:
    """What `prior` means for a diagonal M, None for all 1."""
    d = X.shape[1]
    if isinstance(prior, str):
        if one_of(prior, "prior", ("identity", "covariance")) == "identity":
            return None
        deviation = _deviations(X)
        if not deviation.any():
            raise ValueError(_ALL_EQUAL)
        return np.divide(1.0, deviation**2, out=np.zeros(d), where=deviation > 0)
    if np.iscomplexobj(prior):
        raise ValueError("prior must be real, got complex numbers")
    given = np.asarray(prior, dtype=np.float64)
    if given.shape == (d, d):
        if np.count_nonzero(given - np.diag(np.diag(given))):
            raise ValueError("with structure='diagonal' the prior must be d weights, or a diagonal matrix")
        given = np.diag(given)
    weights = finite(given, "prior", ndim=1)
    if weights.shape != (d,):
        raise ValueError(f"prior must be {d} weights like the columns, got shape {weights.shape}")
    if (weights < 0).any():
        row = int(np.flatnonzero(weights < 0)[0])
        raise ValueError(f"prior must be weights >= 0, got {weights[row]:.6g} for column {row}")
    if not weights.any():
        raise ValueError("prior is zero, so no other matrix is at a finite divergence from it")
    return np.array(weights)


def inverse_covariance(X: Array, groups: Index | None = None) -> Array:
    """The inverse of the covariance matrix, or of its blocks of columns; its pseudo-inverse where singular.

    How many dimensions there are is told by correlations, in which the units of the columns have no part.
    """
    deviation, d = _deviations(X), X.shape[1]
    if not deviation.any():
        raise ValueError(_ALL_EQUAL)
    inverse = np.zeros((d, d))
    places = np.zeros(d, np.int64) if groups is None else groups
    for group in np.unique(places):
        columns = np.flatnonzero((places == group) & (deviation > 0))
        if columns.size:
            inverse[np.ix_(columns, columns)] = _pseudo_inverse(X[:, columns], deviation[columns])
    return inverse


def _pseudo_inverse(X: Array, deviation: Array) -> Array:
    """Of the covariance matrix of columns that are not constant, with the standard deviations of these."""
    standard = (X - X.mean(axis=0)) / deviation
    values, V = np.linalg.eigh(standard.T @ standard / (len(X) - 1))
    kept = values > max(X.shape) * np.finfo(np.float64).eps * values.max()
    if kept.all():
        root = V / np.sqrt(values) / deviation[:, None]
    else:  # the covariance matrix is A A^T, with independent columns in A
        root = np.linalg.pinv(V[:, kept] * np.sqrt(values[kept]) * deviation[:, None], rcond=0.0).T
    return np.asarray(root @ root.T)


def units_for(prior: Array | None) -> Array | None:
    """Units of the columns in which a prior has all its dimensions; None where it has them as it is.

    A dimension beside which others are 1e12 times as large counts as none. Where it is the units of the
    columns that make it small, powers of two, which round nothing, take them off.
    """
    if prior is None or not np.count_nonzero(prior - np.diag(np.diag(prior))):
        return None  # of weights, small ones are none the less there
    sizes = np.diag(prior)
    units = np.exp2(np.round(np.log2(np.where(sizes > 0, sizes, 1.0)) / 2))
    gained = _n_dimensions(prior / units / units[:, None]) - _n_dimensions(prior)
    return units if gained > 0 else None


def _n_dimensions(matrix: Array) -> int:
    values = np.linalg.eigvalsh(matrix)
    return int(np.sum(values > RANK_TOLERANCE * np.abs(values).max(initial=0.0)))


def diagonal_of(factor: Array) -> Array:
    """The diagonal of M, from a factor of it or the diagonal of one."""
    return np.square(factor) if factor.ndim == 1 else np.einsum("ij,ij->i", factor, factor)


def _deviations(X: Any) -> Array:
    """The standard deviation of every column, 0 for one whose numbers differ by rounding alone."""
    n = X.shape[0]
    if sparse.issparse(X):
        columns = X.tocsc()
        place = np.repeat(np.arange(X.shape[1]), np.diff(columns.indptr))
        mean = np.asarray(columns.mean(axis=0)).ravel()
        # from differences to the mean, and less what rounding of the mean makes of these
        differences, empty = columns.data - mean[place], n - np.diff(columns.indptr)
        squares = np.bincount(place, np.square(differences), X.shape[1]) + empty * np.square(mean)
        rest = (np.bincount(place, differences, X.shape[1]) - empty * mean) / n
        deviation = np.sqrt(np.maximum(squares - n * np.square(rest), 0.0) / (n - 1))
        largest = abs(columns).max(axis=0).toarray().ravel()
    else:
        deviation = np.std(X - X.mean(axis=0), axis=0, ddof=1)
        largest = np.abs(X).max(axis=0)
    return np.where(deviation > _ROUNDING * largest, deviation, 0.0)


def _place(column: Any, n_columns: int, column_names: Sequence[Any] | None) -> int:
    if isinstance(column, str):
        if column_names is None:
            raise ValueError(f"groups: column {show(column)} is named, but X has no column names")
        found = [k for k, name in enumerate(column_names) if name == column]
        if not found:
            raise ValueError(f"groups: X has no column {show(column)}")
        return found[0]
    if isinstance(column, bool | np.bool_) or not isinstance(column, int | np.integer):
        raise ValueError(f"groups: a column is a number or a name, got {show(column)}")
    if not 0 <= column < n_columns:
        raise ValueError(f"groups: X has {n_columns} columns, and no column {int(column)}")
    return int(column)
