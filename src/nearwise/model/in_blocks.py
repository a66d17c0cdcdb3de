"""`InBlocks`: measurements whose rows are in pieces, of which solvers see only sums.

What has a number per row, values and multipliers, is here what the numbers are computed from: the point at
which they are taken. Sums over them are found in one pass over the pieces and kept with the point, so that an
iteration of Newton's method is one pass, and what travels is a few r x r matrices. `np.asarray` writes the
numbers out.

`LossesInBlocks` has of `Losses` what Newton's method, certificates and `solve` use. Every constraint is soft.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from nearwise._common.digest import digest
from nearwise._common.types import Array, Index, Kept
from nearwise.distributed.running import Runner
from nearwise.model import pieces
from nearwise.model.local import SINGLE, LocalAtoms, drawn_rows
from nearwise.model.losses import Violated
from nearwise.model.parts import joined_atoms
from nearwise.model.passes import kept, restored
from nearwise.model.pieces import Slopes, Sums, Terms


@dataclass(frozen=True, eq=False)
class InBlocks:
    """`Measurements` in pieces; values and multipliers are `AtPoint` and `Multipliers`.

    Attributes
    ----------
    runner : the pieces
    starts, sizes : the number of the first row of every piece, and how many rows it has
    coordinates : T, of which the rows of features are rows x T
    basis : of the range of the prior; None for the columns of the features
    most : rows with a curvature that a pass names
    passes : None, or where to keep what passes find, by a digest of what they depend on
    """

    runner: Runner
    starts: Index
    sizes: Index
    coordinates: Array
    basis: Array | None
    most: int
    passes: MutableMapping[str, Kept] | None = None

    @property
    def n_rows(self) -> int:
        """m."""
        return int(self.sizes.sum())

    @property
    def rank(self) -> int:
        """r, the order of M."""
        return int(self.coordinates.shape[1])

    @property
    def offsets(self) -> None:
        """No part of the values is fixed."""
        return None

    def values(self, M: Array) -> Any:
        """<A_i, M> for every row, M symmetric, written out."""
        x, V = np.linalg.eigh(M)
        found = np.asarray(self.values_of_factor(V * np.sqrt(np.maximum(x, 0.0))))
        if x.min(initial=0.0) < 0:
            found = found - np.asarray(self.values_of_factor(V * np.sqrt(np.maximum(-x, 0.0))))
        return found

    def values_of_factor(self, B: Array) -> Any:
        """<A_i, B B^T> for every row; nothing is computed before it is needed."""
        return AtPoint(self, B)

    def adjoint(self, weights: Any) -> Array:
        """sum_i weights_i A_i."""
        if isinstance(weights, Multipliers):
            raw = weights.scale * weights.at.sums(weights.terms).pullback
        else:
            raw = self._weighed(weights, np.eye(self.rank))[0]
        return self.coordinates.T @ raw @ self.coordinates

    def weight(self, dual: Any, B: Array, values: Any = None) -> float:
        """sum_i |dual_i| times the magnitudes of the parts of <A_i, B B^T>."""
        if isinstance(dual, Multipliers):
            sums = dual.at.sums(dual.terms)
            if dual.at is values:
                return abs(dual.scale) * sums.weight
            # no less than that, without another pass
            return abs(dual.scale) * sums.size * float(np.linalg.norm(self.coordinates @ B, 2)) ** 2
        return self._weighed(np.asarray(dual), B)[1]

    def curved(
        self, curvature: Any, most: int, rng: np.random.Generator, basis: Array, single: bool
    ) -> tuple[LocalAtoms, Array, bool]:
        """The rows with a curvature in a basis, and their curvatures; of many a random choice."""
        at, terms, share = curvature.at, curvature.terms, curvature.share
        sums, rows, scale, sampled = at.sums(terms), None, 1.0, False
        if sums.curved > most:
            asked = min(-(-most * self.n_rows // sums.curved), self.n_rows)
            rows, scale, sampled = (
                self._numbers(drawn_rows(self.n_rows, asked, rng)),
                self.n_rows / asked,
                True,
            )
        elif len(sums.curved_rows) == sums.curved:
            rows = sums.curved_rows
        else:
            rows = self._numbers(np.arange(self.n_rows))
        n_rows = min(sums.curved, most)
        dtype = np.float32 if single and n_rows * basis.shape[1] > SINGLE else np.float64
        each = [part if len(part) else None for part in self._by_piece(rows)]
        arguments = at.raw, terms, self.coordinates @ basis, dtype
        answers = self.runner.run(pieces.curved_atoms, *arguments, each=each)
        found = [one for one, asked in zip(answers, each, strict=True) if asked is not None]
        atoms = joined_atoms([part for part, _ in found], basis.shape[1], dtype)
        weights = np.concatenate([np.empty(0), *(own for _, own in found)])
        return atoms, weights * (share * scale), sampled

    def local(self, rows: Index, basis: Array, dtype: type) -> LocalAtoms:
        """Refused: who wants rows written out by number needs them in memory."""
        raise TypeError(
            "this solver needs the constraints in memory, got InBlocks; nearwise.solvers.Newton() takes them "
            "in pieces"
        )

    def spanning_rows(self) -> Array:
        """All r directions: a solve in pieces is always one in all dimensions."""
        return np.eye(self.rank)

    def in_coordinates(self, T: Array, unit: float = 1.0, own_workspace: bool = False) -> InBlocks:
        """Those of M' where M = T M' T^T, for a matrix T or the diagonal of one."""
        new = self.coordinates * T if T.ndim == 1 else self.coordinates @ T
        return replace(self, coordinates=new)

    def every(self, stride: int) -> InBlocks:
        """The rows of every k-th piece alone."""
        places = range(0, len(self.starts), stride)
        runner = self.runner.some(places)
        return replace(self, runner=runner, starts=self.starts[::stride], sizes=self.sizes[::stride])

    def written_out(self, job: Callable[..., Array], *arguments: Any) -> Array:
        """The numbers of all rows, from a job that returns those of a piece."""
        return np.concatenate([np.empty(0), *self.runner.run(job, *arguments)])

    def split(self, numbers: Array) -> list[Array]:
        """A number per row, by piece."""
        return np.split(np.asarray(numbers, dtype=np.float64), np.cumsum(self.sizes)[:-1])

    def _weighed(self, weights: Array, B: Array) -> tuple[Array, float]:
        arguments = self.coordinates @ B, self.basis
        found = self.runner.run(pieces.weighed, *arguments, each=self.split(weights))
        return np.sum([total for total, _ in found], axis=0), float(sum(size for _, size in found))

    def _by_piece(self, rows: Index) -> list[Index]:
        return np.split(rows, np.searchsorted(rows, self.starts[1:]))

    def _numbers(self, places: Index) -> Index:
        """The row numbers of the k-th rows of these pieces, which may be some of all."""
        ends = np.cumsum(self.sizes)
        piece = np.searchsorted(ends, places, side="right")
        return places - (ends - self.sizes)[piece] + self.starts[piece]


@dataclass(frozen=True, eq=False)
class AtPoint:
    """The values of all rows at M = B B^T, as sums over them that are found when they are first asked for.

    With `beside`, multipliers of another point, the same pass finds their residual here.
    """

    measurements: InBlocks
    B: Array
    beside: Multipliers | None = None
    _known: dict[int, tuple[Terms, float, Sums]] = field(default_factory=dict)

    @property
    def raw(self) -> Array:
        """B in the coordinates of the features."""
        return self.measurements.coordinates @ self.B

    def sums(self, terms: Terms, share: float = 1.0) -> Sums:
        """Under some losses; the first pass also prepares the certificate for a share of the penalties."""
        if id(terms) not in self._known:
            self._known[id(terms)] = terms, share, self._found(terms, share)
        return self._known[id(terms)][2]

    def _found(self, terms: Terms, share: float) -> Sums:
        """By a pass, or what one found before."""
        rows, beside = self.measurements, None if self.beside is None else self.beside.recipe
        arguments = self.raw, terms, share, rows.most, beside

        def compute() -> Sums:
            added = partial(pieces.added, most=rows.most)
            return added(rows.runner.run(pieces.evaluate, *arguments, added=added))

        if rows.passes is None:
            return compute()
        key = digest(rows.starts, rows.sizes, *arguments)
        if key not in rows.passes:
            rows.passes[key] = kept(compute())
        return restored(rows.passes[key])

    def known_share(self, terms: Terms) -> float:
        """The share of which a pass has found the residual."""
        return self._known[id(terms)][1]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self.measurements.written_out(pieces.values, self.raw, self.measurements.basis)


@dataclass(frozen=True, eq=False)
class Multipliers:
    """The slopes of losses at a point, times `scale`."""

    at: AtPoint
    terms: Terms
    scale: float

    def __mul__(self, factor: float) -> Multipliers:
        return replace(self, scale=self.scale * float(factor))

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Multipliers:
        return self * (1.0 / divisor)

    def __len__(self) -> int:
        return self.at.measurements.n_rows

    def is_same(self, other: Multipliers | None) -> bool:
        """Whether these are the multipliers of the same point, times the same number."""
        return other is not None and (self.at, self.terms, self.scale) == (other.at, other.terms, other.scale)

    @property
    def recipe(self) -> Slopes:
        """What they are computed from, wherever that is done."""
        return Slopes(self.at.raw, self.terms, self.scale)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self.at.measurements.written_out(pieces.multipliers, self.recipe)


@dataclass(frozen=True, eq=False)
class Curvatures:
    """The second derivatives of losses at a point."""

    at: AtPoint
    terms: Terms
    share: float


@dataclass(frozen=True, eq=False)
class LossesInBlocks:
    """`Losses` of rows in pieces, all of them soft.

    Attributes
    ----------
    terms : what rows cost
    n_rows : m
    weight : of all rows together
    median_size : of the rows under the prior
    share : of the penalties
    """

    terms: Terms
    n_rows: int
    weight: float
    median_size: float
    share: float = 1.0

    any_hard = False

    @property
    def divergence(self) -> Any:
        """Gives the slack."""
        return self.terms.divergence

    @property
    def soft_penalties(self) -> tuple[int, float]:
        """How many soft rows there are, and what their penalties add up to."""
        return self.n_rows, self.weight * self.terms.penalty * self.share

    @property
    def cost_of_rounding(self) -> float:
        """What all rows cost if their values differ from bounds of the median size by their rounding."""
        size = np.array([max(self.median_size, float(np.finfo(float).tiny))])
        off = float(np.finfo(float).eps) * float(size[0])
        return self.soft_penalties[1] * float(self.divergence.curvature(size)[0]) * off * off / 2

    def of_part(self, n_rows: int) -> LossesInBlocks:
        """Of some of the rows, whose penalties make up for the others."""
        share = n_rows / self.n_rows
        terms = replace(self.terms, penalty=self.terms.penalty / share)
        return replace(self, terms=terms, n_rows=n_rows, weight=self.weight * share)

    def times(self, share: float) -> LossesInBlocks:
        """The same with a share of the penalties."""
        return replace(self, share=self.share * share)

    def in_unit(self, unit: float, stiffening: float) -> LossesInBlocks:
        """The same for values in another unit; penalties are multiplied by `stiffening`."""
        penalty = max(self.terms.penalty * stiffening, float(np.finfo(float).tiny))
        terms = replace(self.terms, unit=self.terms.unit * unit, penalty=penalty)
        return replace(self, terms=terms, median_size=self.median_size / unit)

    def total(self, p: AtPoint) -> float:
        """The sum of the losses at p."""
        return self.share * p.sums(self.terms, self.share).total

    def slopes(self, p: AtPoint) -> Multipliers:
        """The derivative of the loss of every row at p; finite."""
        return Multipliers(p, self.terms, self.share)

    finite_slopes = slopes

    def curvatures(self, p: AtPoint) -> Curvatures:
        """The second derivative of the loss of every row at p."""
        return Curvatures(p, self.terms, self.share)

    def signed(self, dual: Any) -> Any:
        """The multipliers; those of a point have the right signs."""
        return dual

    def fenchel_residual(self, p: AtPoint, y: Any, total: float) -> float:
        """`total` at p, plus the sum of conjugate(y) - y p: zero where y is the derivative at p."""
        if isinstance(y, Multipliers) and y.scale == 0.0:
            return total  # the least of every loss is 0
        own = isinstance(y, Multipliers) and y.at is p and y.terms is self.terms
        if own and y.scale == 1.0:
            return 0.0
        if own and y.scale == p.known_share(self.terms):
            return total + p.sums(self.terms).residual
        if isinstance(y, Multipliers) and y.is_same(p.beside):
            return total + p.sums(self.terms).residual
        measurements = p.measurements
        if isinstance(y, Multipliers):
            found = measurements.runner.run(pieces.residual, p.raw, self.terms, y.recipe)
        else:
            each = measurements.split(y)
            found = measurements.runner.run(pieces.residual, p.raw, self.terms, None, each=each)
        return total + float(sum(found))

    def smaller_share(self, share: float) -> float:
        """None of multipliers outside the dual's domain: half of them prove little, and cost a pass."""
        return 0.0

    def violated(self, p: AtPoint) -> Violated:
        """What certificates report of the violations."""
        sums = p.sums(self.terms)
        worst = sums.worst[0][2] if sums.worst else 0.0
        return Violated(worst, 0.0, sums.satisfied / self.n_rows if self.n_rows else 1.0)

    def most_violated(self, p: AtPoint, count: int) -> list[tuple[int, float, float]]:
        """The rows with the largest relative violations, with their values and these, worst first."""
        return list(p.sums(self.terms).worst[:count])
