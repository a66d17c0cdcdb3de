"""Certificates of small problems from the user's own numbers, with sums in twice the precision.

Multipliers of rows that nearly contradict each other, or of features with a large common part, are large and
cancel: sum_i y_i A_i then loses all its digits in double precision, though the answer is right. Here all sums
are `Pair`s, and what they still lack is added to the gap.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nearwise._common.types import Array, Index
from nearwise.linalg.directions import evened
from nearwise.linalg.eigenpairs import eigenpairs
from nearwise.linalg.pairs import PRECISION, Pair, product, squared_lengths, two_sum, weighted
from nearwise.model.certificate import Certificate, InfeasibilityCheck
from nearwise.model.formulation import PROOF, Iterate, spectrum_of_factor
from nearwise.model.measurements import InMemory
from nearwise.model.problem import Problem
from nearwise.side.blocks import Block
from nearwise.side.matrices import Linear

_MOST_NUMBERS = 2_000_000  # in the rows, written out
_MOST_SQUARES = 20_000
_LARGEST_ORDER = 100
_DIFFERENCES = {"distance", "comparison"}
_KINDS = _DIFFERENCES | {"similarity", "linear"}
_ZERO = 1e-27  # relative size of an eigenvalue that is one: `eigenpairs` tells them to 1e-28 of the largest
_FLATTEST = 1e-11  # relative size of what rows measure, down to which it is told with digits to spare
_EPS = float(np.finfo(float).eps)
_UNSEEN = 0.1  # of the tolerance: errors of values that a certificate need not know of
_LARGE = 0.1  # objective times tolerance, in units of the prior, from which on M may be far from M^
_ROUNDINGS = 8 * _EPS  # in a sum of one term, relative to what is squared
_SHRINKING = 2.0 ** -np.arange(46.0, 12.0, -4.0)  # of multipliers outside the dual's domain


class Recheck:
    """What certifies points of one problem.

    Distances and comparisons are signed squares of differences z of features; every other row is a symmetric
    matrix C on the objects, so that <A, M> = <C, K> for the kernel K. Where M is in blocks, so are factors
    (`Problem.within_groups`): their values need no more care, and of sum_i y_i A_i the blocks count.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem, self.form = problem, problem.formulation
        basis = problem.prior_basis
        self.range = basis if basis is not None and basis.shape[1] < len(basis) else None
        self.range_groups = problem.range_groups
        self._kinds: dict[str, int] = {}  # how many rows there are of each
        for block in problem.constraints.blocks:
            self._kinds[block.kind] = self._kinds.get(block.kind, 0) + len(block.bounds)
        n, n_squares = len(problem.features), sum([self._kinds.get(kind, 0) for kind in _DIFFERENCES])
        # numbers of rows that are matrices on the objects, and squares of the others, at most
        self._on_objects = (self.form.measurements.n_rows - n_squares) * n * n
        self._squares = 2 * n_squares

    @classmethod
    def of(cls, problem: Problem) -> Recheck | None:
        """None where the problem is too large, in pieces, or has rows of other kinds."""
        if not isinstance(problem.formulation.measurements, InMemory):
            return None
        recheck, r = cls(problem), problem.features.shape[1]
        small = r <= _LARGEST_ORDER and recheck._squares <= _MOST_SQUARES
        few = recheck._on_objects + recheck._squares * r <= _MOST_NUMBERS
        return recheck if small and few and recheck._kinds.keys() <= _KINDS else None

    @cached_property
    def is_quick(self) -> bool:
        """Whether all points are to be certified here; many soft rows are decided sooner otherwise."""
        return self.form.losses.any_hard or self._on_objects + self._squares**2 <= _MOST_NUMBERS

    def certificate(self, factor: Array, dual: Array) -> tuple[Certificate, Array]:
        """The certificate of M = factor factor^T, in the coordinates of the features, and its multipliers.

        These are the given ones, or a little smaller where the given ones bound nothing.
        """
        losses, y = self.form.losses, self.form.losses.signed(dual)
        images, power = self._images(factor)
        values = self._values(images, power)
        p = np.ldexp(values.rounded, power)
        if self.form.divergence.congruence_invariant:
            distance, y = self._logarithmic_distance(factor, images, y, power)
        else:
            distance = self._distance(factor, y)
        beyond = np.ldexp(values.plus(-np.ldexp(losses.bounds, -power)).rounded, power)
        total = losses.total(p, beyond)
        primal = self.form.distance_to_prior(self.problem.lower(factor)) + total
        # both terms are large where multipliers are: what is left of them is rounding, and proves nothing
        gap = distance + losses.fenchel_residual(p, y, total, beyond) + _EPS * abs(distance)
        gap = gap if np.isfinite(gap) else np.inf
        violated = losses.violated(p)
        found = Certificate(
            primal=primal,
            dual=primal - gap,
            gap=self.form.relative_gap(gap, primal),
            violation=violated.worst,
            hard_violation=violated.hard,
            satisfied=violated.satisfied,
        )
        return found, y

    def most_errors(self, trace: float) -> Array:
        """Bounds on `errors` from the sizes of features and the trace of M alone."""
        rows, G = self.form.measurements, self.problem.features
        if self.range is None and isinstance(rows, InMemory):
            sizes = rows.sizes_before_differences
        else:  # what is measured is left of larger features; a comparison is of four of them
            sizes = 8 * np.einsum("ij,ij->i", G, G).max()
        return np.asarray((_ROUNDINGS * (sum(G.shape) + 4) * trace) * (sizes + self._linear_sizes))

    def are_negligible(self, errors: Array, dual: Array, primal: float, tol: float) -> bool:
        """Whether errors of values neither close a gap to `tol` nor hide violations of hard rows."""
        losses, limit = self.form.losses, max(abs(primal), self.form.unit)
        if losses.any_hard:
            relative = errors / losses.references
            if not (relative if losses.all_hard else relative[losses.is_hard]).max() <= _UNSEEN * tol:
                return False
        costs = float(np.abs(dual) @ errors) + losses.cost_of(errors)
        return costs <= _UNSEEN * tol * limit

    def is_beyond_doubt(self, point: Iterate, found: Certificate, tol: float) -> bool:
        """Whether a certificate holds, and rough bounds on all that rounding may do show that it matters not.

        The bounds on errors of values are more than |M| times those of the rows, which bound what
        `Formulation.is_lost_to_rounding` asks of sum_i y_i A_i, too.
        """
        form, limit = self.form, max(abs(found.primal), self.form.unit)
        invariant = form.divergence.congruence_invariant
        if not found.holds(tol) or (invariant and limit * tol >= _LARGE * form.unit):
            return False
        trace = float(np.vdot(point.factor, point.factor))
        if trace == 0:
            return False
        errors = self.most_errors(trace)
        if not invariant:
            delta = float(np.abs(point.dual) @ errors) / trace
            if not delta * delta <= tol * limit * float(form.divergence.curvature(np.array([trace]))[0]):
                return False
        return self.are_negligible(errors + _EPS * np.abs(form.losses.bounds), point.dual, found.primal, tol)

    def errors(self, factor: Array, values: Array) -> Array:
        """The errors of values of M = factor factor^T, without their signs.

        Features that are nearly dependent make M large where they measure little, and values that are small
        sums of large terms.
        """
        images, power = self._images(factor)
        exact = self._values(images, power)
        return np.abs(np.ldexp(exact.plus(-np.ldexp(values, -power)).rounded, power))

    @np.errstate(all="ignore")
    def confirms(self, dual: Array, check: InfeasibilityCheck) -> bool:
        """Whether a proof holds on the user's own numbers, but for the last digits of features.

        Features that are dependent but for their last digits leave of A small parts that `Measurements` takes
        for rounding errors of the large ones. They are not: a matrix that is large there may meet all rows.
        `check` is what double precision says of the proof.
        """
        y = self.form.losses.signed(dual)
        allowed = min(PROOF * abs(check.bound), self.form.proof_rounding)
        if check.smallest_eigenvalue >= -allowed and not np.any(y[self._linear_sizes > 0]):
            return True
        magnitudes, groups = self._magnitudes(y), self._rows.groups
        T = evened(magnitudes, groups, _FLATTEST)
        total, noise = self._rows.mapped(T, groups).adjoint(y)
        size, reach = magnitudes @ T, np.abs(magnitudes) @ np.abs(T)
        noise += 2 * PRECISION * float(np.linalg.norm(size) * np.linalg.norm(reach))  # of the map itself
        total = total.plus(allowed * self._rows.within_groups(size.T @ size))
        if not np.isfinite(total.rounded).all():
            return False
        values = eigenpairs(total)[0]
        return bool(values[0] >= -_ZERO * np.abs(values).max() - noise)

    def _magnitudes(self, y: Array) -> Array:
        """W with W^T W = sum_i |y_i| |A_i|, in the coordinates of `_rows`."""
        rows = self._rows
        n, G = len(rows.objects.high), rows.objects.high
        parts = [np.sqrt(np.abs(rows.sign * y[rows.row]))[:, None] * rows.differences.high]
        for k, row in enumerate(rows.others):
            if y[row] == 0:
                continue
            on_objects = Pair(rows.matrices.high[k], rows.matrices.low[k]).reshaped(n, n)
            if self._linear_sizes[row] > 0:
                A = product(rows.objects.T, product(on_objects, rows.objects))
                values, V = eigenpairs(Pair(*map(rows.within_groups, A)))
                parts.append(np.sqrt(abs(y[row]) * np.abs(values))[:, None] * V.T)
            else:
                parts.append(np.sqrt(abs(y[row]) * np.abs(on_objects.high).sum(axis=1))[:, None] * G)
        return np.concatenate(parts)

    def _inside(self, factor: Array) -> Pair | Array:
        return factor if self.range is None else product(self.range.T, factor)

    def _images(self, factor: Array) -> tuple[_Rows, int]:
        """The rows after the map `factor`, in a unit in which no square overflows or vanishes.

        Values in that unit times two to the power that is returned are values.
        """
        power = _exponent(factor)
        images = self._rows.mapped(self._inside(np.ldexp(factor, -power)), self.range_groups)
        return images, self._power + 2 * power

    def _values(self, images: _Rows, power: int) -> Pair:
        values, offsets = images.values(), self.form.measurements.offsets
        return values if offsets is None else values.plus(np.ldexp(offsets, -power))

    @cached_property
    def _power(self) -> int:
        """Of two: the squared unit of `_rows`."""
        return 2 * _exponent(self.problem.features)

    @cached_property
    def _linear_sizes(self) -> Array:
        """|A| |G|^2 of linear rows, whose vectors are computed from A; 0 of others."""
        sizes, start = np.zeros(self.form.measurements.n_rows), 0
        if "linear" not in self._kinds:
            return sizes
        for block in self.problem.constraints.blocks:
            if matrices := block.matrices:
                sizes[start : start + len(matrices)] = [matrix.norm for matrix in matrices]
            start += len(block.bounds)
        return sizes * float(np.vdot(self.problem.features, self.problem.features))

    @cached_property
    def _rows(self) -> _Rows:
        G, blocks = np.ldexp(self.problem.features, -self._power // 2), self.problem.blocks
        idle = self.form.losses.is_idle
        row, first, second, sign, others, parts = [], [], [], [], [], []
        for block, start in zip(blocks, np.cumsum([0, *map(len, blocks)]), strict=False):
            if block.kind in _DIFFERENCES:
                ids = np.asarray(block.ids, dtype=np.int64)
                for k, s in enumerate((1.0, -1.0)[: ids.shape[1] // 2]):
                    row.append(start + np.arange(len(block)))
                    first.append(ids[:, 2 * k])
                    second.append(ids[:, 2 * k + 1])
                    sign.append(np.full(len(block), s))
            else:
                others.append(start + np.arange(len(block)))
                parts.append(_on_objects(block, len(G)))
        none = np.zeros(0, dtype=np.int64)
        i, j = np.concatenate([none, *first]), np.concatenate([none, *second])
        rows = _Rows(
            Pair(G, np.zeros_like(G)),
            Pair(*two_sum(G[i], -G[j])),
            np.concatenate([none, *row]),
            np.concatenate([np.zeros(0), *sign]),
            np.concatenate([none, *others]),
            Pair(*(np.concatenate([np.zeros((0, len(G) ** 2)), *part]) for part in _unzipped(parts))),
            self.form.measurements.n_rows,
            self.problem.groups,
        )
        rows = rows if self.range is None else rows.mapped(self.range, self.range_groups)
        return rows if idle is None else rows.without(idle)

    def _logarithmic_distance(
        self, factor: Array, images: _Rows, y: Array, power: int
    ) -> tuple[float, Array]:
        """D(M, M^), from the eigenvalues of B^T M^^-1 B, and the multipliers; inf where M^ is."""
        lowered = self.problem.lower(factor)
        own = (lowered.T / self.form.prior) @ lowered
        pulled, noise = images.adjoint(np.ldexp(y, power))
        found = np.linalg.eigvalsh(pulled.plus(own).rounded)
        if not found[0] > noise:
            y = (1.0 - self._shrinking(own, pulled, noise)) * y
            pulled, noise = images.adjoint(np.ldexp(y, power))
            found = np.linalg.eigvalsh(pulled.plus(own).rounded)
        mirror = self.form.divergence.gradient_inverse(np.asarray(noise - found, dtype=np.float64))
        return float(np.sum(self.form.divergence.scalar(np.ones_like(mirror), mirror))), y

    def _shrinking(self, own: Array, pulled: Pair, noise: float) -> float:
        """By how much smaller multipliers are in the dual's domain, which the prior's side `own` is in."""
        total = pulled.plus(own)
        for shrink in _SHRINKING:
            if np.linalg.eigvalsh((total.high - shrink * pulled.high) + total.low)[0] > 2 * noise:
                return float(shrink)
        return 0.0

    def _distance(self, factor: Array, y: Array) -> float:
        """D(M, M^), from the eigenvalues of phi'(M^)."""
        gradient, basis = self.form.divergence.gradient(self.form.prior), self.problem.prior_basis
        own = np.diag(gradient) if basis is None or self.range is not None else (basis * gradient) @ basis.T
        pulled, noise = self._rows.adjoint(np.ldexp(y, self._power))
        t, U = eigenpairs(Pair(-pulled.high, -pulled.low).plus(own))
        inside = self._inside(factor)
        spectrum = spectrum_of_factor(inside.rounded if isinstance(inside, Pair) else inside)
        found = self.form.distance_to_gradient(t, U, spectrum)
        mirror = self.form.divergence.gradient_inverse(t)
        return found + noise * float(np.sum(mirror) + np.sum(spectrum[0]))


@dataclass(frozen=True)
class _Rows:
    """The rows in some coordinates: features of the objects, and differences of them with their signs."""

    objects: Pair
    differences: Pair
    row: NDArray[np.int64]  # of each difference
    sign: Array
    others: NDArray[np.int64]  # rows that are matrices on the objects
    matrices: Pair  # these, as vectors
    count: int
    groups: Index | None  # of the coordinates, where M is in blocks

    def mapped(self, T: Pair | Array, groups: Index | None) -> _Rows:
        """The same after a linear map of the features to coordinates of these groups, each to its own."""
        objects, differences = product(self.objects, T), product(self.differences, T)
        return replace(self, objects=objects, differences=differences, groups=groups)

    def within_groups(self, A: Array) -> Array:
        """A matrix on the coordinates with zeros between groups."""
        return A if self.groups is None else np.where(self.groups[:, None] == self.groups, A, 0.0)

    def without(self, idle: NDArray[np.bool_]) -> _Rows:
        """The same with zeros for some rows."""
        kept = ~idle[self.others, None]
        matrices = Pair(self.matrices.high * kept, self.matrices.low * kept)
        return replace(self, sign=np.where(idle[self.row], 0.0, self.sign), matrices=matrices)

    def values(self) -> Pair:
        """<A_i, B B^T> of every row, where self are the rows after the map B."""
        high, low = np.zeros(self.count), np.zeros(self.count)
        squares = squared_lengths(self.differences)
        for s, part in ((1.0, self.sign > 0), (-1.0, self.sign < 0)):  # each row has one of a sign at most
            at = np.flatnonzero(part)
            found = Pair(high[self.row[at]], low[self.row[at]]).plus(
                Pair(s * squares.high[at], s * squares.low[at])
            )
            high[self.row[at]], low[self.row[at]] = found
        if len(self.others):
            kernel = product(self.objects, self.objects.T)
            found = product(self.matrices, kernel.reshaped(kernel.high.size, 1)).reshaped(-1)
            high[self.others], low[self.others] = found
        return Pair(high, low)

    def adjoint(self, y: Array) -> tuple[Pair, float]:
        """sum_i y_i A_i, and how far its eigenvalues may be off."""
        n, weight = len(self.objects.high), self.sign * y[self.row]
        used = np.flatnonzero(weight)  # beside larger ones, which have no part in the sum, they lose digits
        weight, differences = weight[used], Pair(*(part[used] for part in self.differences))
        square = product(differences.T, weighted(weight, differences))
        on_objects = product(y[self.others][None], self.matrices).reshaped(n, n)
        total = square.plus(product(self.objects.T, product(on_objects, self.objects)))
        total = Pair(*(self.within_groups((part + part.T) / 2) for part in total))
        z, G = np.abs(differences.high), np.abs(self.objects.high)
        parts = (np.abs(y[self.others]) @ np.abs(self.matrices.high)).reshape(n, n)
        size = float(np.sum(np.abs(weight) @ z**2) + np.sum(G * (parts @ G)))
        return total, PRECISION * len(total.high) * size


def _exponent(A: Array) -> int:
    """Of the power of two next above the numbers of an array."""
    return int(np.frexp(np.abs(A).max(initial=0.0))[1])


def _on_objects(block: Block, n: int) -> Pair:
    """The matrix of every row of a block, (m, n^2)."""
    high, low = np.zeros((len(block), n, n)), np.zeros((len(block), n, n))
    if block.matrices:
        place = slice(None) if block.ids is None else np.ix_(*2 * [np.asarray(block.ids, dtype=np.int64)])
        for row, matrix in enumerate(block.matrices):
            high[row][place], low[row][place] = _dense(matrix)
    else:
        (i, j), rows = np.asarray(block.ids, dtype=np.int64).T, np.arange(len(block))
        high[rows, i, j] += 0.5
        high[rows, j, i] += 0.5
    return Pair(high, low).reshaped(len(block), n * n)


def _dense(matrix: Linear) -> Pair:
    if matrix.factor is not None and matrix.weights is not None:
        transposed = matrix.factor.T
        return product(matrix.factor, weighted(matrix.weights, Pair(transposed, np.zeros_like(transposed))))
    dense = matrix.matrix if isinstance(matrix.matrix, np.ndarray) else matrix.matrix.toarray()
    return Pair(dense, np.zeros_like(dense))


def _unzipped(pairs: list[Pair]) -> tuple[list[Array], list[Array]]:
    return [pair.high for pair in pairs], [pair.low for pair in pairs]
