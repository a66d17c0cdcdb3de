"""The problem of feature weights: a metric that is a diagonal matrix, with vectors in place of matrices.

With M = diag(w) every constraint is a linear function of d numbers, <A_i, M> = <a_i, w>, where a_i is the
diagonal of A_i: for a distance the squared differences of two rows, column by column. The problem is to

    minimise  sum_j scalar(w_j, prior_j) + sum_i loss_i(<a_i, w>)   over w >= 0.

`DiagonalFormulation` is the `Formulation` of this, so objective, bound, gap and violations mean the same. Sparse
features stay sparse: time and memory are those of the numbers in the rows that constraints name, whatever d is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

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
from nearwise.core.losses import Loss
from nearwise.core.rows import Rows
from nearwise.core.verify import LARGEST_ORDER, MOST_NUMBERS, Verifier, verification
from nearwise.side.blocks import Block, Constraints

TWO_ROUNDINGS = 2 * float(np.finfo(np.float64).eps)  # of a value, relative to the terms that it sums up
SMALLEST = 1e-300  # weight of a minimiser that stops at 0, where phi' may be infinite


@dataclass(frozen=True, eq=False)
class DiagonalRows:
    """The linear map w -> (<a_1, w>, ..., <a_m, w>), with the methods of `Rows` for factors that are vectors.

    Attributes
    ----------
    entries : (m, k) the a_i, dense or CSR
    """

    entries: Any

    @property
    def order(self) -> int:
        """k, the number of weights."""
        return int(self.entries.shape[1])

    @property
    def n_rows(self) -> int:
        """m."""
        return int(self.entries.shape[0])

    def values(self, factor: Array) -> Array:
        """(m,) <a_i, w> for the roots of w."""
        return self.of_weights(np.square(factor))

    def of_weights(self, w: Array) -> Array:
        """(m,) <a_i, w>."""
        return np.asarray(self.entries @ w)

    def adjoint(self, y: Array) -> Array:
        """(k,) sum_i y_i a_i."""
        return np.asarray(self.entries.T @ y)


class OfWeights(SpectralDivergence):
    """A divergence between diagonal matrices, where vectors of weights stand for these, and roots for factors."""

    def __init__(self, of_numbers: SpectralDivergence) -> None:
        self.of_numbers, self.degree = of_numbers, of_numbers.degree

    def scalar(self, x: Array, y: Array, /) -> Array:
        return self.of_numbers.scalar(x, y)

    def gradient(self, x: Array, /) -> Array:
        return self.of_numbers.gradient(x)

    def gradient_inverse(self, t: Array, /) -> Array:
        return self.of_numbers.gradient_inverse(t)

    def curvature(self, x: Array, /) -> Array:
        return self.of_numbers.curvature(x)

    def shifted(self, x: Array, t: Array, /) -> Array:
        return self.of_numbers.shifted(x, t)

    def distance(self, B: Array, prior: Array) -> float:
        return _sum(self.scalar(np.square(B), prior))

    def distance_to_minimiser(self, B: Array, theta: Array) -> float:
        minimiser, w = self.gradient_inverse(theta), np.square(B)
        if not np.isfinite(minimiser).all():
            return math.inf
        raised = np.maximum(minimiser, SMALLEST)
        slack = np.where(minimiser < SMALLEST, np.maximum(self.gradient(raised) - theta, 0.0), 0.0)
        return _sum(self.scalar(w, raised)) + float(w @ slack)


class DiagonalFormulation(Formulation):
    """A `Formulation` whose factors, adjoints and theta are vectors: the diagonals of those of matrices.

    Its rows are `DiagonalRows`, and its divergence is one `OfWeights`.
    """

    @property
    def rows(self) -> Any:
        return super().rows

    def theta(self, adjoint: Array) -> Array:
        return self.gradient_at_prior - adjoint

    @cached_property
    @np.errstate(all="ignore")
    def has_curvature_at_zero(self) -> bool:
        """Whether phi''(0) is finite, so that a weight may be 0 and rise again."""
        return bool(np.isfinite(self.divergence.curvature(np.zeros(1)))[0])

    @np.errstate(all="ignore")
    def cost_of_rounding(self, factor: Array, dual: Array) -> float:
        """What rounding of values, and of sum_i y_i a_i, may add to a gap: large terms may cancel.

        The gap has the first in it as it is, and the second by its square, since w is next to the minimiser.
        """
        loss, magnitudes, w = self.loss, abs(self.rows.entries), np.square(factor)
        values, errors = self.rows.of_weights(w), TWO_ROUNDINGS * np.asarray(magnitudes @ w)
        at_bounds = np.where(np.abs(values - loss.bounds) <= errors, errors, 0.0)
        of_values = np.abs(dual) @ errors + loss.at(values).curvatures @ errors**2 / 2
        of_sum = TWO_ROUNDINGS * np.asarray(magnitudes.T @ np.abs(dual))
        of_weights = np.square(of_sum) / self.divergence.curvature(np.maximum(w, SMALLEST))
        return float(of_values + loss.cost_of_errors(at_bounds) + of_weights.sum() / 2)


@dataclass(frozen=True, eq=False)
class _Binding(binding.Binding):
    """Of features that may be sparse, to rows of weights."""

    rows: Any

    def _always_zero(self, row: int) -> RowsError:
        reason = ": its objects have the same features, or the prior has no weight where they differ"
        return RowsError([self.constraints.stated(row)], after=f"{reason}, so its value is always 0")


class _InBlocks(NamedTuple):
    """What `verification` asks of a problem: this one has blocks of one column each."""

    features: Array
    blocks: tuple[Block, ...]
    formulation: Formulation
    groups: Index
    prior_basis: None = None

    def lift(self, factor: Array) -> Array:
        return factor

    def lower(self, factor: Array) -> Array:
        return factor

    def within_groups(self, factor: Array) -> Array:
        return np.diag(np.sqrt(np.square(factor).sum(axis=1)))


@dataclass(frozen=True, eq=False)
class DiagonalProblem:
    """Find the weights nearest to prior ones that respect the constraints; made by `of`.

    Attributes
    ----------
    formulation : in the weights of some columns
    columns : which these are: the others keep their prior weight
    prior : of all columns
    """

    formulation: DiagonalFormulation
    columns: Index
    prior: Array
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
        weights = np.ones(features.shape[1]) if prior is None else prior
        within = weights > 0 if divergence.confines else np.ones(len(weights), dtype=bool)
        reference = np.zeros(len(weights))
        reference[within] = binding.reference_of(weights[within], divergence)
        found = bind_weights(features, constraints, reference)
        relations, bounds = constraints.relations, constraints.bounds
        bound = _Binding(
            features=features,
            constraints=constraints,
            divergence=divergence,
            sample_ids=None,
            prior=weights[within],
            prior_basis=None,
            rows=found.rows,
            is_definite=found.is_definite,
            sizes=found.sizes,
            reference=reference[within],
            relations=relations,
            bounds=bounds,
            is_lost=binding.lost_rows(relations, bounds, found.sizes),
        )
        bound.warn_of_lost()
        form = DiagonalFormulation(OfWeights(divergence), weights[found.columns], bound.measured(gamma))
        return cls(form, found.columns, weights, bound)

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

    @property
    def divergence(self) -> SpectralDivergence:
        """As given."""
        return self._bound.divergence

    @property
    def loss(self) -> Loss:
        """Of all rows."""
        return self.formulation.loss

    def with_penalty(self, penalty: float) -> DiagonalProblem:
        """The same problem at another penalty."""
        gamma = binding.checked_penalty(penalty, self.constraints)
        return replace(self, formulation=replace(self.formulation, measured=self._bound.measured(gamma)))

    @property
    def penalty_unit(self) -> float:
        """A penalty times this means the same for every divergence and unit, as in `Problem`."""
        unit = self.divergence.unit_of(self._bound.prior)
        return unit / self._bound.typical_size ** (self.divergence.degree or 0)

    def spread(self, w: Array) -> Array:
        """Weights of all columns from those of the formulation."""
        whole = self.prior.astype(np.float64)
        whole[self.columns] = w
        return whole

    def named(self, certificate: Certificate, factor: Array) -> Certificate:
        """The same with the worst rows at a point by name."""
        worst = self.formulation.measured.measure(factor).worst
        return replace(certificate, worst=named_violations(worst, self._bound.stated))

    # ---- as a problem of matrices, whose solution is diagonal because its rows are ------------------------

    @cached_property
    def as_matrices(self) -> Formulation:
        """The same of matrices."""
        form, entries = self.formulation, sparse.coo_array(self.formulation.rows.entries)
        row, column = (np.asarray(places, dtype=np.int64) for places in entries.coords)
        rows = Rows.of(
            np.eye(form.order),
            column,
            column,
            0,
            np.asarray(entries.data, np.float64),
            row,
            len(form.loss.bounds),
        )
        return Formulation.of(self.divergence, form.prior, rows, form.loss)

    def verification(self) -> Verifier | None:
        """What judges answers in twice the precision; None where the problem is too large for that."""
        features, k = self._bound.features, len(self.columns)
        n = features.shape[0]
        if k > LARGEST_ORDER or n * k > MOST_NUMBERS:
            return None
        inside = features[:, self.columns]
        dense = inside.toarray() if sparse.issparse(inside) else np.asarray(inside, np.float64)
        blocks = self.constraints.resolve(n)
        return verification(_InBlocks(dense, blocks, self.as_matrices, np.arange(k)))


class BoundWeights(NamedTuple):
    """Rows, and what is known about them.

    Attributes
    ----------
    rows : a_1, ..., a_m
    columns : of the features, those that they measure
    is_definite : (m,) which A_i are positive semidefinite whatever the features are
    sizes : (m,) of the rows under reference weights
    """

    rows: DiagonalRows
    columns: Index
    is_definite: Mask
    sizes: Array


def bind_weights(features: Any, constraints: Constraints, reference: Array) -> BoundWeights:
    """The rows of constraints by row number.

    Columns of no reference weight are left out; of sparse features, also those that no constraint measures.
    """
    if sparse.issparse(features):
        return _bind_sparse(sparse.csr_array(features), constraints, reference)
    columns = np.flatnonzero(reference > 0)
    X = np.asarray(features, np.float64)
    X = X if len(columns) == X.shape[1] else X[:, columns]
    found = bind_rows(constraints.merged(len(X)), X)
    rows = found.rows
    foresee(16.0 * rows.n_atoms * rows.order, f"the squared differences of {rows.n_atoms:,} pairs")
    x, y = rows.vectors()
    entries = x * y
    if not (rows.row is None and (rows.coefficient == 1.0).all()):
        entries = _sums(rows.coefficient, rows.row_of_atoms, rows.n_rows) @ entries
    return BoundWeights(
        DiagonalRows(entries), columns, found.is_definite, row_sizes(found, reference[columns])
    )


def _bind_sparse(X: Any, constraints: Constraints, reference: Array) -> BoundWeights:
    """From the atoms of kinds that name objects."""
    parts, none, m = [], np.empty((0, 0)), len(constraints)
    for group in constraints.merged(X.shape[0]):
        if group.matrices:
            name = group.of_kind.name
            raise TypeError(f"{name} constraints need dense data where weights of features are learned")
        parts.append((group.of_kind.atoms(group, none, None), group.rows))
    used = [np.unique(numbers) for part, _ in parts for numbers in (part.first, part.second)]
    named = np.unique(np.concatenate([np.empty(0, np.int64), *used]))
    inside = X[named]
    columns = np.flatnonzero((reference > 0) & (np.bincount(inside.indices, minlength=X.shape[1]) > 0))
    inside, weights = inside[:, columns], reference[columns]
    entries = sparse.csr_array((m, len(columns)))
    sizes, definite = np.zeros(m), np.ones(m, dtype=bool)
    for part, rows in parts:
        left, right = (inside[np.searchsorted(named, numbers)] for numbers in (part.first, part.second))
        if part.is_difference:
            left = right = left - right
        atoms, row = left.multiply(right), rows[part.row]
        sums = _sums(part.coefficient, row, m)
        entries = entries + sums @ atoms
        squared = [(atoms if left is right else end.multiply(end)) @ weights for end in (left, right)]
        sizes += abs(sums) @ (np.sqrt(squared[0]) * np.sqrt(squared[1]))
        is_square = part.is_difference | (part.first == part.second)
        definite[row[~is_square | (part.coefficient < 0)]] = False
    return BoundWeights(DiagonalRows(sparse.csr_array(entries)), columns, definite, sizes)


def _sums(coefficient: Array, row: Index, n_rows: int) -> Any:
    """The sparse matrix that sums up atoms into rows."""
    return sparse.csr_array((coefficient, (row, np.arange(len(row)))), shape=(n_rows, len(row)))


def _sum(terms: Array) -> float:
    """Infinite if not a number."""
    total = float(terms.sum())
    return math.inf if math.isnan(total) else total
