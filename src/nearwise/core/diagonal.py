"""Weights of features: the problem of a metric that is a diagonal matrix, with vectors in place of matrices.

With M = diag(w) every constraint is a linear function of d numbers, <A_i, M> = <a_i, w>, where a_i is the
diagonal of A_i: for a distance the squared differences of two rows, column by column. The problem is to

    minimise  sum_j scalar(w_j, prior_j) + sum_i loss_i(<a_i, w>)   over w >= 0.

`DiagonalFormulation` is the `Formulation` of this: the same judge says what objective, bound, gap and
violations are. Sparse features stay sparse: time and memory are those of the numbers in the rows that
constraints name, whatever d is.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self, cast

import numpy as np
from scipy import sparse

from nearwise._common.errors import RowsError
from nearwise._common.memory import foresee
from nearwise._common.types import Array, Index, Mask
from nearwise.core import binding
from nearwise.core.atoms import bind_rows, row_sizes
from nearwise.core.certificate import Certificate, named_violations
from nearwise.core.divergences import SpectralDivergence
from nearwise.core.formulation import Formulation
from nearwise.core.problem import Problem
from nearwise.core.verify import LARGEST_ORDER, MOST_NUMBERS
from nearwise.side.blocks import Constraints
from nearwise.side.kinds.kind import NO_ROWS

SMALLEST = 1e-300  # a weight in place of 0, where phi' may be infinite
TWO_ROUNDINGS = 2 * float(np.finfo(np.float64).eps)  # of a value, relative to the terms that it sums up


@dataclass(frozen=True, eq=False)
class DiagonalRows:
    """The linear map w -> (<a_1, w>, ..., <a_m, w>); the methods are those of `Rows`, with w for a factor.

    Attributes
    ----------
    entries : (m, k) the a_i, dense or CSR
    """

    entries: Any

    @property
    def n_rows(self) -> int:
        return int(self.entries.shape[0])

    def values(self, w: Array) -> Array:
        return np.asarray(self.entries @ w)

    def adjoint(self, y: Array) -> Array:
        return np.asarray(self.entries.T @ y)


class _OfDiagonals:
    """A divergence of diagonal matrices, with their diagonals for factors and matrices."""

    def __init__(self, of_numbers: SpectralDivergence) -> None:
        self.of_numbers = of_numbers

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "of_numbers"), name)  # no recursion in copies

    def distance(self, w: Array, prior: Array) -> float:
        return _sum(self.of_numbers.scalar(w, prior))

    def distance_to_minimiser(self, w: Array, theta: Array) -> float:
        law = self.of_numbers
        minimiser = np.maximum(law.gradient_inverse(theta), SMALLEST)
        if not np.isfinite(minimiser).all():
            return math.inf
        is_stopped = minimiser == SMALLEST
        slack = np.where(is_stopped, np.maximum(law.gradient(minimiser) - theta, 0.0), 0.0)
        return _sum(law.scalar(w, minimiser)) + float(w @ slack)


class DiagonalFormulation(Formulation):
    """A `Formulation` in which vectors stand for matrices: their diagonals, and weights for factors too."""

    @property
    def rows(self) -> Any:
        """The `DiagonalRows`."""
        return super().rows

    def theta(self, adjoint: Array) -> Array:
        return self.gradient_at_prior - adjoint

    @np.errstate(all="ignore")
    def cost_of_rounding(self, w: Array, dual: Array) -> float:
        """What rounding of values, and of sum_i y_i a_i, may add to a gap: large terms may cancel.

        The gap has the first in it as it is, and the second by its square, since w is next to the minimiser.
        """
        loss, magnitudes = self.loss, abs(self.rows.entries)
        values, errors = self.rows.values(w), TWO_ROUNDINGS * np.asarray(magnitudes @ w)
        at_bounds = np.where(np.abs(values - loss.bounds) <= errors, errors, 0.0)
        of_values = np.abs(dual) @ errors + loss.at(values).curvatures @ errors**2 / 2
        of_sum = TWO_ROUNDINGS * np.asarray(magnitudes.T @ np.abs(dual))
        of_weights = np.square(of_sum) / self.divergence.curvature(np.maximum(w, SMALLEST))
        return float(of_values + loss.cost_of_errors(at_bounds) + of_weights.sum() / 2)


@dataclass(frozen=True, eq=False)
class _Binding(binding.Binding):
    """Of features that may be sparse, to `DiagonalRows`."""

    rows: Any

    def _always_zero(self, row: int) -> RowsError:
        reason = ": its objects have the same features, or the prior has no weight where they differ"
        return RowsError([self.constraints.stated(row)], after=f"{reason}, so its value is always 0")


@dataclass(frozen=True, eq=False)
class DiagonalProblem:
    """Find the weights nearest to prior ones that respect the constraints; made by `of`.

    Attributes
    ----------
    formulation : in the weights of some columns
    columns : which these are; the others keep their prior weight
    prior : of all columns
    penalty : as given
    """

    formulation: DiagonalFormulation
    columns: Index
    prior: Array
    penalty: Array
    _bound: _Binding

    @classmethod
    def of(
        cls,
        features: Any,
        constraints: Constraints,
        divergence: SpectralDivergence,
        prior: Array | None = None,
        penalty: float = 1.0,
    ) -> Self:
        """State the problem.

        Parameters
        ----------
        features : (n, d), dense or sparse
        constraints : by row number, with bounds; linear functions of all objects need dense features
        divergence : D
        prior : d weights >= 0; all 1 by default. Where D confines M to the range of the prior, a weight of 0
            stays 0.
        penalty : gamma > 0 of soft constraints, as in `Problem`
        """
        gamma = binding.check_arguments(constraints, divergence, penalty)
        (n, d), m = features.shape, len(constraints)
        is_small = d <= LARGEST_ORDER and max(n, m) * d <= MOST_NUMBERS
        if is_small and sparse.issparse(features) and not any(block.matrices for block in constraints.blocks):
            features = features.toarray()  # which can be verified
        weights = np.ones(features.shape[1]) if prior is None else prior
        inside = weights > 0 if divergence.confines else np.ones(len(weights), dtype=bool)
        reference = np.zeros(len(weights))
        reference[inside] = binding.reference_of(weights[inside], divergence)
        found = bind_weights(features, constraints, reference)
        bound = _Binding(
            features=features,
            constraints=constraints,
            divergence=divergence,
            sample_ids=None,
            prior=weights[inside],
            prior_basis=None,
            rows=found.rows,
            is_definite=found.is_definite,
            sizes=found.sizes,
            reference=reference[inside],
            relations=constraints.relations,
            bounds=constraints.bounds,
            is_lost=binding.lost_rows(constraints.relations, constraints.bounds, found.sizes),
        )
        bound.warn_of_lost()
        law = cast(SpectralDivergence, _OfDiagonals(divergence))
        form = DiagonalFormulation(law, weights[found.columns], bound.measured(gamma))
        return cls(form, found.columns, weights, gamma, bound)

    @staticmethod
    def unreachable(features: Any, constraints: Constraints, prior: Array | None) -> Mask:
        """Which constraints, by row number, have the same value for all weights, and do not allow it.

        Open bounds are meant to be > 0.
        """
        largest = float(abs(features).max()) if 0 not in features.shape else 0.0
        scale = np.exp2(-np.frexp(largest)[1])  # squares neither overflow nor vanish
        weights = np.ones(features.shape[1]) if prior is None else prior
        sizes = bind_weights(features * scale, constraints, weights).sizes
        return binding.lost_rows(constraints.relations, np.nan_to_num(constraints.bounds, nan=1.0), sizes)

    @property
    def constraints(self) -> Constraints:
        """As given."""
        return self._bound.constraints

    def with_penalty(self, penalty: float) -> DiagonalProblem:
        """The same problem at another penalty."""
        gamma = binding.checked_penalty(penalty, self.constraints)
        form = replace(self.formulation, measured=self._bound.measured(gamma))
        return replace(self, formulation=form, penalty=gamma)

    @property
    def penalty_unit(self) -> float:
        """A penalty times this means the same for every divergence and unit, as in `Problem`."""
        bound = self._bound
        return bound.divergence.unit_of(bound.prior) / bound.typical_size ** (bound.divergence.degree or 0)

    def spread(self, w: Array) -> Array:
        """Weights of all columns, from those of the formulation."""
        whole = self.prior.astype(np.float64)
        whole[self.columns] = w
        return whole

    def named(self, certificate: Certificate, w: Array) -> Certificate:
        """With the worst rows by name."""
        worst = self.formulation.measured.measure(w).worst
        return replace(certificate, worst=named_violations(worst, self._bound.stated))

    @cached_property
    def in_blocks(self) -> Problem | None:
        """The same problem of matrices in blocks of one column; None where these are too many."""
        bound, k = self._bound, len(self.columns)
        if sparse.issparse(bound.features) or k > LARGEST_ORDER:
            return None
        X, prior = bound.features[:, self.columns], np.diag(self.formulation.prior)
        with suppress(ValueError):  # sizes that overflow
            found = binding.bind(X, bound.constraints, bound.divergence, prior, None, groups=np.arange(k))
            return Problem._of(found, self.penalty, warn=False)
        return None


class BoundWeights(NamedTuple):
    """Rows, and what is known about them.

    Attributes
    ----------
    rows : a_1, ..., a_m
    columns : of the features, those that rows may measure
    is_definite : (m,) which A_i are positive semidefinite whatever the features are
    sizes : (m,) of the rows under reference weights
    """

    rows: DiagonalRows
    columns: Index
    is_definite: Mask
    sizes: Array


def bind_weights(features: Any, constraints: Constraints, reference: Array) -> BoundWeights:
    """The rows of constraints by row number, without columns of no reference weight."""
    if sparse.issparse(features):
        return _bind_sparse(sparse.csr_array(features), constraints, reference)
    columns = np.flatnonzero(reference > 0)
    X = np.asarray(features, np.float64)
    X = X if len(columns) == X.shape[1] else X[:, columns]
    found = bind_rows(constraints.merged(len(X)), X)
    rows = found.rows
    foresee(16.0 * rows.n_atoms * rows.order, f"the squared differences of {rows.n_atoms:,} pairs")
    x, y = rows.vectors()
    summing = _summing(rows.coefficient, rows.row_of_atoms, rows.n_rows)
    entries = x * y if summing is None else summing @ (x * y)
    sizes = row_sizes(found, reference[columns])
    return BoundWeights(DiagonalRows(entries), columns, found.is_definite, sizes)


def _bind_sparse(X: Any, constraints: Constraints, reference: Array) -> BoundWeights:
    """From the atoms of kinds that name objects; also without columns that no row measures."""
    m, none = len(constraints), np.zeros(0)
    parts, definite = [(sparse.csr_array((0, X.shape[1])), none, none, NO_ROWS)], np.ones(m, dtype=bool)
    for group in constraints.merged(X.shape[0]):
        if group.matrices:
            name = group.of_kind.name
            raise TypeError(f"{name} constraints need dense data where weights of features are learned")
        part = group.of_kind.atoms(group, none, None)
        row, left, right = group.rows[part.row], X[part.first], X[part.second]
        if part.is_difference:
            left = right = left - right
        lengths = [np.sqrt(end.multiply(end) @ reference) for end in (left, right)]
        parts.append((left.multiply(right), lengths[0] * lengths[1], part.coefficient, row))
        is_square = part.is_difference | (part.first == part.second)
        definite[row[~is_square | (part.coefficient < 0)]] = False
    atoms, sizes, coefficients, rows = zip(*parts, strict=True)
    coefficient, row = np.concatenate(coefficients), np.concatenate(rows)
    summing, entries = _summing(coefficient, row, m), sparse.vstack(atoms, format="csr")
    entries = entries if summing is None else summing @ entries
    columns = np.flatnonzero((reference > 0) & (np.bincount(entries.indices, minlength=X.shape[1]) > 0))
    if not len(columns):
        columns = np.flatnonzero(reference > 0)[:1]  # so that there is a weight
    of_rows = np.zeros(m)
    np.add.at(of_rows, row, np.abs(coefficient) * np.concatenate(sizes))
    return BoundWeights(DiagonalRows(entries[:, columns]), columns, definite, of_rows)


def _summing(coefficient: Array, row: Index, n_rows: int) -> Any:
    """The sparse matrix that sums up atoms into rows; None where every atom is a row."""
    if np.array_equal(row, np.arange(n_rows)) and (coefficient == 1.0).all():
        return None
    return sparse.csr_array((coefficient, (row, np.arange(len(row)))), shape=(n_rows, len(row)))


def _sum(terms: Array) -> float:
    """Infinite where it is not a number."""
    total = float(terms.sum())
    return math.inf if math.isnan(total) else total
