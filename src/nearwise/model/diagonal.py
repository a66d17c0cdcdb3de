"""The problem of feature weights: a metric that is a diagonal matrix, in vector form.

With M = diag(w) every constraint is a linear function of d numbers, <A_i, M> = <a_i, w> with a_i the diagonal
of A_i (for a distance, the squared differences of two rows, feature by feature), and

    minimise  sum_k scalar(w_k, w0_k) + sum_i loss_i(<a_i, w>)   over w >= 0.

The dual is that of `formulation`, elementwise: w^ = (phi')^-1(phi'(w0) - sum_i y_i a_i). Sparse rows stay
sparse: time and memory are those of the entries of the rows that constraints name, whatever d is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy import sparse

from nearwise._common.errors import RowsError
from nearwise._common.memory import foresee
from nearwise._common.types import Array, Index, Mask
from nearwise.linalg.magnitudes import median
from nearwise.model import binding
from nearwise.model.atoms import Atoms
from nearwise.model.certificate import Certificate, certified, named_violations, relative_gap
from nearwise.model.divergences import Divergence
from nearwise.model.formulation import Formulation
from nearwise.model.losses import Losses
from nearwise.model.measurements import InMemory, bind
from nearwise.side.blocks import Block, Constraints

_SMALLEST = 1e-300  # weight of a mirror point
_WORST = 10  # constraints named in a certificate
_ROUNDINGS = 2 * float(np.finfo(np.float64).eps)  # of a value, relative to the terms that it sums up


@dataclass(frozen=True, eq=False)
class DiagonalMeasurements:
    """The map w -> (<a_1, w>, ..., <a_m, w>).

    Attributes
    ----------
    rows : a_i in the columns that any constraint measures, (m, k), dense or CSR
    columns : these columns
    is_definite : whether A_i is known to be positive semidefinite
    """

    rows: Any
    columns: Index
    is_definite: Mask

    def values(self, w: Array) -> Array:
        """<a_i, w> for weights of the columns measured."""
        return np.asarray(self.rows @ w)

    def adjoint(self, y: Array) -> Array:
        """sum_i y_i a_i."""
        return np.asarray(self.rows.T @ y)


@dataclass(frozen=True, eq=False)
class _Bound(binding.BoundProblem):
    """Bound to features that may be sparse."""

    def _always_zero(self, row: int) -> RowsError:
        reason = ": its objects have the same features, or the prior has no weight where they differ"
        return RowsError([self.constraints.stated(row)], after=f"{reason}, so its value is always 0")


@dataclass(frozen=True, eq=False)
class DiagonalProblem:
    """Find the weights nearest to prior ones that respect the constraints; made by `of`.

    Attributes
    ----------
    divergence : D, of numbers
    prior : w0 of the columns measured
    n_features : d
    measurements, losses : of the constraints
    """

    divergence: Divergence
    prior: Array
    n_features: int
    measurements: DiagonalMeasurements
    losses: Losses
    _bound: _Bound

    @classmethod
    def of(
        cls,
        features: Any,
        constraints: Constraints,
        divergence: Divergence,
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
        reference = binding.reference_of(weights, divergence) if divergence.indefinite_prior else weights
        measured, sizes = bind_diagonal(features, constraints, reference)
        relations, bounds = constraints.relations, constraints.bounds
        lost = binding.lost_rows(relations, bounds, sizes)
        rows: Any = measured  # of which a bound problem asks only what is definite
        whole = binding.reference_of(weights, divergence)
        found = (weights, None, rows, sizes, whole, relations, bounds, lost)
        bound = _Bound(features, constraints, divergence, *found, None)
        bound.tell_of_lost()
        return cls(divergence, weights[measured.columns], len(weights), measured, bound.losses(gamma), bound)

    @staticmethod
    def unreachable(features: Any, constraints: Constraints, prior: Array | None) -> Mask:
        """Which constraints, by row number, have the same value for all weights, and do not allow it.

        Open bounds are meant to be > 0.
        """
        largest = float(abs(features).max()) if 0 not in features.shape else 0.0
        scale = np.exp2(-np.frexp(largest)[1])  # squares neither overflow nor vanish
        weights = np.ones(features.shape[1]) if prior is None else prior
        _, sizes = bind_diagonal(features * scale, constraints, weights)
        return binding.lost_rows(constraints.relations, np.nan_to_num(constraints.bounds, nan=1.0), sizes)

    @property
    def constraints(self) -> Constraints:
        return self._bound.constraints

    def with_penalty(self, penalty: float) -> DiagonalProblem:
        """The same problem at another penalty."""
        return replace(self, losses=self._bound.losses(binding.checked_penalty(penalty, self.constraints)))

    @cached_property
    def unit(self) -> float:
        """How the objective scales with the prior."""
        degree, whole = self.divergence.degree, self._bound.prior
        size = float(np.mean(np.abs(whole))) if len(whole) else 1.0
        return size**degree if degree is not None and size > 0 else 1.0

    @property
    def penalty_unit(self) -> float:
        """A penalty times this means the same for every divergence and unit, as in `Problem`."""
        size = median(self.losses.sizes, self.constraints.weights)
        return self.unit / size ** (self.divergence.degree or 0)

    def objective(self, w: Array, values: Array) -> float:
        """Of weights of the columns measured, and what they give the constraints."""
        return self._distance_to_prior(w) + self.losses.total(values)

    def spread(self, w: Array) -> Array:
        """Weights of all d columns: what no constraint measures keeps its prior weight."""
        whole = np.maximum(self._bound.prior, 0.0)
        whole[self.measurements.columns] = w
        return whole

    @np.errstate(all="ignore")
    def certificate(self, w: Array, values: Array, dual: Array, pullback: Array) -> Certificate:
        """Objective, dual bound, gap and violations, for `pullback` = sum_i dual_i a_i; names no row."""
        theta = self.divergence.gradient(self.prior)
        return certified(
            self.losses,
            values,
            dual,
            self._distance_to_prior(w),
            lambda share: self._distance_to(w, theta - share * pullback),
            self._rounding,
        )

    def as_matrices(self) -> Formulation:
        """The same problem of matrices: those that solve it are diagonal, as the rows are."""
        entries = sparse.coo_array(self.measurements.rows)
        row, column = (np.asarray(places, dtype=np.int64) for places in entries.coords)
        atoms = Atoms(column, column, np.asarray(entries.data, np.float64), row, 0, len(self.losses.bounds))
        rows = InMemory(np.eye(len(self.prior)), atoms)
        return Formulation(self.divergence, self.prior, rows, self.losses)

    @np.errstate(all="ignore")
    def cost_of_rounding(self, w: Array, values: Array, dual: Array) -> float:
        """What rounding of the values at w, and of sum_i y_i a_i, may add to a gap: large terms may cancel.

        The gap feels the first as it is, and the second by its square, since w is next to the mirror point.
        """
        magnitudes, losses = abs(self.measurements.rows), self.losses
        errors = _ROUNDINGS * np.asarray(magnitudes @ w)
        at_bounds = np.where(np.abs(values - losses.bounds) <= errors, errors, 0.0)
        of_values = float(np.abs(dual) @ errors) + float(losses.curvatures(values) @ errors**2) / 2
        of_sum = _ROUNDINGS * np.asarray(magnitudes.T @ np.abs(dual))
        felt = np.square(of_sum) / self.divergence.curvature(np.maximum(w, _SMALLEST))
        return of_values + losses.cost_of(at_bounds) + float(felt.sum()) / 2

    def relative_gap(self, gap: float, primal: float) -> float:
        """The gap relative to the larger of objective and bound, or to rounding where both vanish."""
        return relative_gap(gap, primal, self._rounding)

    @np.errstate(all="ignore")
    def _distance_to_prior(self, w: Array) -> float:
        return float(np.sum(self.divergence.scalar(w, self.prior)))

    @property
    def _rounding(self) -> float:
        """Of objectives."""
        return 1e-15 * len(self.prior) * self.unit

    def named(self, certificate: Certificate, values: Array) -> Certificate:
        """The same with the worst rows by name."""
        bounds, stated = self.losses.bounds, self.constraints.stated
        found = self.losses.most_violated(values, _WORST)
        worst = named_violations(found, lambda row: stated(row, float(bounds[row])))
        return replace(certificate, worst=worst)

    def _distance_to(self, w: Array, theta: Array) -> float:
        """D(w, w^) for theta = phi'(w^), with what is missing where w^ stops at 0; inf if w^ is."""
        mirror = np.maximum(self.divergence.gradient_inverse(theta), _SMALLEST)
        if not np.isfinite(mirror).all():
            return np.inf
        stopped = mirror == _SMALLEST
        lacking = np.where(stopped, np.minimum(theta - self.divergence.gradient(mirror), 0.0), 0.0)
        return float(np.sum(self.divergence.scalar(w, mirror))) - float(w @ lacking)


def bind_diagonal(
    features: Any, constraints: Constraints, reference: Array
) -> tuple[DiagonalMeasurements, Array]:
    """The measurements of constraints by row number, and the size of every row under reference weights.

    Columns of no reference weight are left out, and so are those that no constraint measures.
    """
    blocks = constraints.resolve(features.shape[0])
    X: Any = sparse.csr_array(features) if sparse.issparse(features) else np.asarray(features, np.float64)
    named = np.zeros(X.shape[0], dtype=bool)
    for block in blocks:
        named[_objects(block)] = True
    place = np.cumsum(named) - 1
    inside: Any = X[np.flatnonzero(named)]
    kept = reference > 0
    if sparse.issparse(X):
        kept &= np.bincount(inside.indices, minlength=X.shape[1]) > 0
    columns = np.flatnonzero(kept)
    inside = inside[:, columns] if len(columns) < X.shape[1] else inside
    root = np.sqrt(reference[columns])
    parts, sizes, definite = [], [], []
    for block in blocks:
        rows, size, is_definite = _block_rows(block, inside, place, root)
        parts.append(rows)
        sizes.append(size)
        definite.append(is_definite)
    stacked = _stacked(parts, len(columns), sparse.issparse(X))
    found = DiagonalMeasurements(stacked, columns, np.concatenate([np.empty(0, bool), *definite]))
    return found, np.concatenate([np.empty(0), *sizes])


def _objects(block: Block) -> Index:
    return np.asarray(block.object_ids, dtype=np.int64).ravel()


def _block_rows(block: Block, X: Any, place: Index, root: Array) -> tuple[Any, Array, Mask]:
    """The diagonals of one block, their sizes under the weights root^2, and which are definite."""
    if block.matrices and sparse.issparse(X):
        raise TypeError(
            f"{block.of_kind.name} constraints need dense data where weights of features are learned"
        )
    local = replace(block, ids=place[_objects(block)].reshape(np.shape(block.object_ids)))
    lengths = np.sqrt(np.einsum("ij,ij->i", X, X)) if block.matrices else None
    part = local.of_kind.atoms(local, X, lengths)
    F: Any = X if part.vectors is None else part.vectors
    count, m = len(part.row), len(block)
    if not sparse.issparse(F):
        foresee(16.0 * count * F.shape[1], f"the squared differences of {count:,} pairs")
    left: Any = F[part.first]
    right: Any = F[part.second]
    if part.is_difference:
        left = left - right
        atoms = left.multiply(left) if sparse.issparse(left) else np.square(left)
        size = np.asarray(atoms @ np.square(root))
    else:
        atoms = left.multiply(right) if sparse.issparse(left) else left * right
        size = _lengths(left, root) * _lengths(right, root)
    weight = part.coefficient
    square = np.full(count, part.is_difference) | (part.first == part.second)
    definite: Mask = np.ones(m, dtype=bool)
    definite[part.row[~square | (weight < 0)]] = False
    definite[part.definite] = True
    if block.matrices:
        sizes = bind((local,), X).sizes(np.square(root))
    else:
        sizes = np.asarray(np.bincount(part.row, np.abs(weight) * size, m), dtype=np.float64)
    if np.array_equal(part.row, np.arange(m)) and (weight == 1.0).all():
        return atoms, sizes, definite
    sums = sparse.csr_array((weight, (part.row, np.arange(count))), shape=(m, count))
    return sums @ atoms, sizes, definite


def _lengths(rows: Any, root: Array) -> Array:
    scaled = rows.multiply(root) if sparse.issparse(rows) else rows * root
    squares = (
        scaled.multiply(scaled).sum(axis=1) if sparse.issparse(scaled) else np.square(scaled).sum(axis=1)
    )
    return np.sqrt(np.asarray(squares).ravel())


def _stacked(parts: list[Any], n_columns: int, is_sparse: bool) -> Any:
    if is_sparse:
        return sparse.csr_array(sparse.vstack(parts)) if parts else sparse.csr_array((0, n_columns))
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty((0, n_columns)), *parts])
