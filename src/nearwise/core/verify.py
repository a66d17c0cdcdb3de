"""The last word on an answer: certificates and proofs from the user's own numbers, in twice the precision.

Solvers work in double precision on rows that were moved to other coordinates. Where rows nearly contradict
each other, or features have a large part in common, multipliers are large and cancel: sum_i y_i A_i then
loses all its digits. So before a problem is called solved or infeasible, the answer is judged once more, as
`Formulation` does it, but on the features as they were given, with sums of `Pair`s; what these still lack is
added to the gap. Every row is a signed sum of squares of differences of features, plus <C, K> for a symmetric
matrix C on the objects and the kernel K = F M F^T.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from nearwise._common.types import Array, Index, Mask
from nearwise.core.certificate import Certificate, InfeasibilityCheck
from nearwise.core.contradictions import EPS
from nearwise.core.farkas import LACKING
from nearwise.core.formulation import Formulation
from nearwise.core.iterates import Iterate
from nearwise.linalg.directions import evened
from nearwise.linalg.eigenpairs import eigenpairs
from nearwise.linalg.pairs import PRECISION, Pair, product, squared_lengths, two_sum, weighted
from nearwise.side.blocks import Block
from nearwise.side.matrices import Linear

# Problems that are verified: below these limits it takes a second at most. Answers to larger ones are as good
# as double precision; of those that the limits let through, 1 in 500 is otherwise called solved wrongly
# (bench decide).
MOST_ROWS, MOST_NUMBERS, LARGEST_ORDER = 10_000, 2_000_000, 100

# Relative size of an eigenvalue that is zero: `eigenpairs` knows them to 1e-28 of the largest.
ZERO = 1e-27

# Of what a proof's rows measure in a direction, relative to the largest: below it that may be nothing.
FLATTEST = 1e-11

# By how much multipliers outside the dual's domain are shrunk: rounding may have put them there.
SHRINKING = 2.0 ** -np.arange(46.0, 12.0, -4.0)


class Verifiable(Protocol):
    """What is needed of a problem: see `verification`."""

    @property
    def features(self) -> Array: ...
    @property
    def blocks(self) -> Sequence[Block]: ...
    @property
    def formulation(self) -> Formulation: ...
    @property
    def prior_basis(self) -> Array | None: ...
    @property
    def groups(self) -> Index | None: ...
    def lift(self, factor: Array) -> Array: ...
    def lower(self, factor: Array) -> Array: ...
    def within_groups(self, factor: Array) -> Array: ...


class Answer(Protocol):
    """What is needed of a result."""

    @property
    def factor(self) -> Array: ...
    @property
    def dual(self) -> Array: ...
    @property
    def certificate(self) -> Certificate: ...


def verify(problem: Verifiable, result: Answer) -> Certificate | InfeasibilityCheck:
    """Judge a result again on the problem's own numbers, in twice the precision where it is small enough.

    Returns
    -------
    The certificate of `result.factor` and `result.dual`; if the result calls the problem infeasible, and its
    lower bound is infinite, what `result.dual` proves.
    """
    if result.certificate.dual == math.inf:
        return check_infeasibility(problem, result.dual)
    verifier = verification(problem)
    if verifier is not None:
        return verifier.certificate(result.factor, result.dual)[0]
    return problem.formulation.certify(Iterate(problem.lower(result.factor), result.dual)).certificate


def check_infeasibility(problem: Verifiable, dual: ArrayLike) -> InfeasibilityCheck:
    """Check, on the problem's own data, that multipliers prove its hard constraints contradictory.

    Parameters
    ----------
    problem : the problem
    dual : one multiplier per constraint, as in `Result.dual` when the status is INFEASIBLE
    """
    y, m = np.asarray(dual, dtype=np.float64), problem.formulation.measured.n_rows
    if y.shape != (m,) or not np.isfinite(y).all():
        raise ValueError(f"dual must be {m} finite numbers, one per constraint")
    return (verification(problem) or problem.formulation).check(y)


def verification(problem: Verifiable) -> Verifier | None:
    """What judges answers to a problem, or None where that is too large to be written out.

    It reads these attributes of the problem:

    features : (n, d) array
    blocks : the constraints, by row numbers of the features
    formulation : in the basis of the prior's range: divergence, prior, offsets of the rows, losses
    prior_basis : (d, r), that basis; None for the columns of the features
    groups : of the columns of the features where M is in blocks, as numbers from 0; else None
    lift, lower : take factors from the prior's range to the features' coordinates, and back
    within_groups : the factor of the blocks of a matrix, in the prior's range
    """
    measured = problem.formulation.measured
    if not measured.is_in_memory or measured.n_rows > MOST_ROWS or problem.features.shape[1] > LARGEST_ORDER:
        return None
    n, d = problem.features.shape
    if n > LARGEST_ORDER and any(block.matrices for block in problem.blocks):
        return None  # matrices of many objects, which may be sparse
    numbers = sum(len(block) * (2 * d if _differs(block) else n * n) for block in problem.blocks)
    return Verifier(problem) if numbers <= MOST_NUMBERS else None


class Verifier:
    """What judges answers to one problem.

    Rows are in the coordinates of the features, or of the prior's range where that is smaller.
    """

    def __init__(self, problem: Verifiable) -> None:
        self.problem, self.form = problem, problem.formulation
        basis, groups = problem.prior_basis, problem.groups
        self.column_groups = groups  # of factors
        if basis is not None and groups is not None:
            self.column_groups = groups[np.abs(basis).argmax(axis=0)]
        is_smaller = basis is not None and basis.shape[1] < len(basis)
        self.range = basis if is_smaller else None
        self.basis = None if is_smaller else basis
        self.groups = self.column_groups if is_smaller else groups  # of the coordinates of the rows

    @np.errstate(all="ignore")
    def certificate(self, factor: Array, dual: Array) -> tuple[Certificate, Array]:
        """The certificate of M = factor factor^T, in the coordinates of the features, and its multipliers.

        These are the given ones, or a little smaller where the given ones bound nothing.
        """
        form, loss = self.form, self.form.loss
        y = loss.signed(dual)
        inside = self._inside(factor)
        B = inside.rounded if self.basis is None else self.basis.T @ inside.rounded
        power = _exponent(B)
        images = self._rows.mapped(Pair(*(np.ldexp(part, -power) for part in inside)), self.column_groups)
        power = 2 * (power + self._power)
        values, offsets = images.values(), form.rows.offsets
        values = values if offsets is None else values.plus(np.ldexp(offsets, -power))
        p = np.ldexp(values.rounded, power)
        off = np.ldexp(values.plus(-np.ldexp(loss.bounds, -power)).rounded, power)
        found = loss.at(p, off)
        primal = form.divergence.distance(B, form.prior) + found.total
        if form.divergence.congruence_invariant:
            apart, share = self._distance_within(B, images, np.ldexp(y, power))
            y = share * y
        else:
            apart = self._distance(inside.rounded, np.ldexp(y, 2 * self._power))
        # both terms are large where multipliers are: what is left of them is rounding, and proves nothing
        gap = apart + loss.fenchel(p, y, found.total, off) + EPS * abs(apart)
        gap = gap if math.isfinite(gap) else math.inf
        certificate = Certificate(
            primal=primal,
            dual=primal - gap,
            gap=form.relative(gap, primal),
            violation=float(found.violations.max(initial=0.0)),
            hard_violation=found.hard_violation,
            satisfied=float(loss.satisfied(found.violations)),
        )
        return certificate, y

    @np.errstate(all="ignore")
    def check(self, proof: Array) -> InfeasibilityCheck:
        """What multipliers prove about the hard rows; a proof has to hold in double precision too.

        Features that are dependent but for their last digits leave small parts of A that double precision
        takes for rounding errors of the large ones. They are not: a matrix that is large there may meet all
        rows.
        """
        found = self.form.check(proof)
        if not found.valid:
            return found
        loss = self.form.loss
        y = np.where(loss.is_hard, loss.signed(proof), 0.0)
        W = self._rows.magnitudes(y)
        T = evened(W, self.groups, FLATTEST)
        total, noise = self._rows.mapped(T, self.groups).adjoint(y)
        size, reach = W @ T, np.abs(W) @ np.abs(T)
        noise += 2 * PRECISION * float(np.linalg.norm(size) * np.linalg.norm(reach))  # of the map itself
        allowed = min(LACKING * abs(found.bound), 8 * self.form.order * EPS)
        total = total.plus(allowed * self._rows.within_groups(size.T @ size))
        if not np.isfinite(total.rounded).all():
            return replace(found, valid=False)
        values = eigenpairs(total)[0]
        return replace(found, valid=bool(values[0] >= -ZERO * np.abs(values).max() - noise))

    def _distance_within(self, B: Array, images: _Rows, y: Array) -> tuple[float, float]:
        """D(M, M^) in the coordinates of M = B B^T, where M is I, and the share of y that it is for.

        A congruence changes nothing, and in these coordinates theta is as exact as the rows.
        """
        own = (B.T / self.form.prior) @ B
        adjoint, noise = images.adjoint(y)
        inverse, share = adjoint.plus(own), 1.0
        if not np.linalg.eigvalsh(inverse.rounded)[0] > noise:
            for shrink in SHRINKING:
                less = inverse.high - shrink * adjoint.high + inverse.low
                if np.linalg.eigvalsh(less)[0] > 2 * noise:
                    share = 1.0 - float(shrink)
                    break
            adjoint, noise = images.adjoint(share * y)
            inverse = adjoint.plus(own)
        unit = np.eye(len(own))
        return self.form.divergence.distance_to_minimiser(unit, noise * unit - inverse.rounded), share

    def _distance(self, B: Array, y: Array) -> float:
        """D(M, M^), in the eigenbasis of theta, whose small eigenvalues are as exact as the large ones."""
        divergence, own = self.form.divergence, np.diag(self.form.gradient_at_prior)
        if self.basis is not None:
            own = self.basis @ own @ self.basis.T
        adjoint, noise = self._rows.adjoint(y)
        t, U = eigenpairs(Pair(-adjoint.high, -adjoint.low).plus(own))
        found = divergence.distance_to_minimiser(U.T @ B, np.diag(t))
        return found + noise * float(divergence.gradient_inverse(t).sum() + np.vdot(B, B))

    def _inside(self, factor: Array) -> Pair:
        """A factor of M in the coordinates of the rows, with no more columns than rows."""
        problem = self.problem
        if problem.groups is not None:
            factor = problem.lift(problem.within_groups(problem.lower(factor)))
        elif factor.shape[1] > factor.shape[0]:
            factor = np.asarray(np.linalg.qr(factor.T, mode="r")).T
        return _exact(factor) if self.range is None else product(self.range.T, factor)

    @cached_property
    def _power(self) -> int:
        """Of two: the unit of the features in `_rows`."""
        return _exponent(self.problem.features)

    @cached_property
    def _rows(self) -> _Rows:
        rows = _Rows.of(
            np.ldexp(self.problem.features, -self._power), self.problem.blocks, self.problem.groups
        )
        rows = rows if self.range is None else rows.mapped(self.range, self.groups)
        idle = self.form.loss.is_idle
        return rows if idle is None else rows.without(idle)


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows in some coordinates, each a sum of signed squares plus a matrix on the objects.

    Attributes
    ----------
    n_rows : how many
    objects : vectors of the objects
    differences, sign, row : vectors of the squares; the sign and the row of each
    matrices, others : matrices on the objects, as vectors, and their rows
    groups : of the coordinates, where M is in blocks
    """

    n_rows: int
    objects: Pair
    differences: Pair
    sign: Array
    row: Index
    matrices: Pair
    others: Index
    groups: Index | None

    @classmethod
    def of(cls, features: Array, blocks: Sequence[Block], groups: Index | None) -> _Rows:
        """In the coordinates of the features."""
        n, start = len(features), 0
        none: Index = np.zeros(0, dtype=np.int64)
        squares, matrices = [(none, none, np.zeros(0), none)], [(none, Pair(*np.zeros((2, 0, n * n))))]
        for block in blocks:
            numbers = start + np.arange(len(block))
            start += len(block)
            if _differs(block):
                part = block.of_kind.atoms(block, features[:0], None)
                squares.append((part.first, part.second, part.coefficient, numbers[part.row]))
            else:
                matrices.append((numbers, _on_objects(block, n)))
        first, second, sign, row = map(np.concatenate, zip(*squares, strict=True))
        others, written = zip(*matrices, strict=True)
        return cls(
            start,
            _exact(features),
            Pair(*two_sum(features[first], -features[second])),
            sign,
            row,
            Pair(
                np.concatenate([part.high for part in written]),
                np.concatenate([part.low for part in written]),
            ),
            np.concatenate(others),
            groups,
        )

    def mapped(self, T: Pair | Array, groups: Index | None) -> _Rows:
        """The same after a linear map of the features to coordinates in these groups."""
        objects, differences = product(self.objects, T), product(self.differences, T)
        return replace(self, objects=objects, differences=differences, groups=groups)

    def without(self, rows: Mask) -> _Rows:
        """The same with zeros for some rows, given as a mask."""
        kept = ~rows[self.others, None]
        matrices = Pair(self.matrices.high * kept, self.matrices.low * kept)
        return replace(self, sign=np.where(rows[self.row], 0.0, self.sign), matrices=matrices)

    def values(self) -> Pair:
        """<A_i, B B^T> of every row, where these are the rows after the map B."""
        values = _exact(np.zeros(self.n_rows))
        squares = squared_lengths(self.differences)
        for sign in (1.0, -1.0):  # a row has at most one square of each
            at = np.flatnonzero(self.sign == sign)
            part = Pair(*np.zeros((2, self.n_rows)))
            part.high[self.row[at]], part.low[self.row[at]] = sign * squares.high[at], sign * squares.low[at]
            values = values.plus(part)
        kernel = product(self.objects, self.objects.T)
        found = product(self.matrices, kernel.reshaped(-1, 1)).reshaped(-1)
        values.high[self.others], values.low[self.others] = found
        return values

    def adjoint(self, y: Array) -> tuple[Pair, float]:
        """sum_i y_i A_i, and how far its eigenvalues may be off."""
        n, weight = len(self.objects.high), self.sign * y[self.row]
        used = np.flatnonzero(weight)  # beside larger ones, which have no part in the sum, they lose digits
        weight, differences = weight[used], Pair(self.differences.high[used], self.differences.low[used])
        total = product(differences.T, weighted(weight, differences))
        on_objects = product(y[self.others][None], self.matrices).reshaped(n, n)
        total = total.plus(product(self.objects.T, product(on_objects, self.objects)))
        total = Pair(*(self.within_groups((part + part.T) / 2) for part in total))
        z, F = np.abs(differences.high), np.abs(self.objects.high)
        C = (np.abs(y[self.others]) @ np.abs(self.matrices.high)).reshape(n, n)
        size = float(np.sum(np.abs(weight) @ z**2) + np.sum(F * (C @ F)))
        return total, PRECISION * len(total.high) * size

    def magnitudes(self, y: Array) -> Array:
        """W with W^T W = sum_i |y_i| |A_i|."""
        parts = [np.sqrt(np.abs(self.sign * y[self.row]))[:, None] * self.differences.high]
        n = len(self.objects.high)
        for row, high, low in zip(self.others, *self.matrices, strict=True):
            if y[row] != 0:
                on_objects = Pair(high, low).reshaped(n, n)
                A = product(self.objects.T, product(on_objects, self.objects))
                values, V = eigenpairs(Pair(*map(self.within_groups, A)))
                parts.append(np.sqrt(np.abs(y[row] * values))[:, None] * V.T)
        return np.concatenate(parts)

    def within_groups(self, A: Array) -> Array:
        """A matrix on the coordinates with zeros between groups."""
        return A if self.groups is None else np.where(self.groups[:, None] == self.groups, A, 0.0)


def _differs(block: Block) -> bool:
    """Whether its rows are squares of differences; else they are matrices on the objects."""
    return block.of_kind.n_distances > 0


def _on_objects(block: Block, n: int) -> Pair:
    """The matrix of every row, (m, n^2)."""
    high, low = np.zeros((2, len(block), n, n))
    if block.matrices:
        place = slice(None) if block.ids is None else np.ix_(*2 * [np.asarray(block.ids, dtype=np.int64)])
        for row, matrix in enumerate(block.matrices):
            high[row][place], low[row][place] = _written(matrix)
    else:
        part = block.of_kind.atoms(block, np.zeros((0, 0)), None)
        np.add.at(high, (part.row, part.first, part.second), part.coefficient / 2)
        np.add.at(high, (part.row, part.second, part.first), part.coefficient / 2)
    return Pair(high, low).reshaped(len(block), n * n)


def _written(matrix: Linear) -> Pair:
    if matrix.factor is not None and matrix.weights is not None:
        return product(matrix.factor, weighted(matrix.weights, _exact(matrix.factor.T)))
    return _exact(matrix.matrix if isinstance(matrix.matrix, np.ndarray) else matrix.matrix.toarray())


def _exact(A: Array) -> Pair:
    return Pair(A, np.zeros_like(A))


def _exponent(A: Array) -> int:
    """Of the power of two next above the numbers of an array."""
    return int(np.frexp(np.abs(A).max(initial=0.0))[1])
