"""Constraints in chunks: on features that are memory-mapped, in files or on Dask, or with pairs in files.

`InChunks` is what solvers see, sums over all rows: a factor B goes to every chunk, and an r x r matrix and a
few numbers come back. Sums are added by fours, in the order of the rows, so that they have the same bits on
any number of threads or workers. A number per row exists only where somebody asks for all of them: the
multipliers of a result are `DualInChunks`. `bind_in_chunks` checks what the user states and looks at all rows
once. `SquaresInPieces` has the sums of squared residuals that a descent of fixed rank uses.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearwise._common.digest import digest
from nearwise._common.types import Array, Index, Kept
from nearwise.core import binding
from nearwise.core.chunks import Chunk, Terms, cut
from nearwise.core.divergences import LogDet, SpectralDivergence
from nearwise.core.formulation import Formulation
from nearwise.core.losses import Loss
from nearwise.core.measured import InMemory, Sums, sums_of
from nearwise.core.rows import Rows
from nearwise.core.survey import Survey, surveyed
from nearwise.distributed.running import Runner
from nearwise.distributed.vectors import Vectors, finite_rows
from nearwise.side.blocks import Constraints, Stated
from nearwise.side.bounds import sampled_pairs


@dataclass(frozen=True, eq=False)
class InChunks:
    """`Measured` for rows in chunks, all of them soft.

    Attributes
    ----------
    runner : the chunks
    starts : the number of the first row of every chunk, and of all rows
    terms : what rows measure and cost
    weight : of all rows together
    passes : None, or where to keep what passes find, by a digest of all that it depends on
    """

    runner: Runner
    starts: Index
    terms: Terms
    weight: float
    passes: MutableMapping[str, Kept] | None = None
    _latest: dict[str, Kept] = field(init=False, default_factory=dict)

    any_hard = False
    is_in_memory = False

    @property
    def order(self) -> int:
        return int(self.terms.transform.shape[1])

    @property
    def n_rows(self) -> int:
        return int(self.starts[-1])

    @property
    def penalty_sum(self) -> float:
        return self.terms.penalty * self.weight

    @property
    def median_size(self) -> float:
        return self.terms.typical / self.terms.unit

    def measure(self, B: Array, single: bool = False) -> Sums:
        """One pass, or what the last one found, if that was here.

        Always in double precision, in which the same point is certified: another would be a second pass.
        """
        passes = self._latest if self.passes is None else self.passes
        key = digest(self.starts, self.terms, B)
        if key not in passes:
            self._latest.clear()
            passes[key] = _kept(self._pass(B))
        return _restored(passes[key])

    def _pass(self, B: Array) -> Sums:
        T = self.terms.coordinates
        found = self.runner.run(sums_in, T @ B, self.terms, added=added)
        sums = added(found or [Sums.zero(len(T))])
        adjoint = T.T @ sums.adjoint @ T
        return replace(sums, adjoint=(adjoint + adjoint.T) / 2)

    def sample(self, numbers: Index) -> InMemory:
        own = np.split(numbers, np.searchsorted(numbers, self.starts[1:-1]))
        found = self.runner.run(sample_in, self.terms, each=[part if len(part) else None for part in own])
        parts = [part for of_chunk in found for part in of_chunk or ()]
        return joined(parts, self.terms.divergence, self.order)

    def slopes(self, B: Array) -> Array:
        return self._written_out(slopes_in, B)

    def values(self, B: Array) -> Array:
        """<A_i, B B^T> of every row, (m,)."""
        return self._written_out(values_in, B)

    def _written_out(self, job: Callable[..., Array], B: Array) -> Array:
        return np.concatenate([np.empty(0), *self.runner.run(job, self.terms.coordinates @ B, self.terms)])

    def transformed(self, T: Array, unit: float = 1.0, stiffening: float = 1.0) -> InChunks:
        transform, penalty = self.terms.transform, self.terms.penalty * stiffening
        transform = transform * T if T.ndim == 1 else transform @ T
        terms = replace(self.terms, transform=transform, unit=self.terms.unit * unit, penalty=penalty)
        return replace(self, terms=terms)

    def times(self, share: float) -> InChunks:
        return replace(self, terms=replace(self.terms, penalty=self.terms.penalty * share))


@dataclass(frozen=True, eq=False)
class DualInChunks:
    """Multipliers, `scale` times the slopes of the losses at B B^T, made chunk by chunk when asked for."""

    measured: InChunks
    B: Array
    scale: float = 1.0

    def __len__(self) -> int:
        return self.measured.n_rows

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self.scale * self.measured.slopes(self.B), dtype=dtype)


def loaded(form: Formulation) -> Formulation:
    """The same with its rows in memory, for methods that write all of them out, where they are few."""
    return replace(form, measured=form.measured.sample(np.arange(form.measured.n_rows)))


# ---- jobs on one chunk, with B in the coordinates of the features -----------------------------------------


@np.errstate(all="ignore")  # what overflows makes sums infinite, and their point is refused
def sums_in(chunk: Chunk, B: Array, terms: Terms) -> Sums:
    """One pass at M = B B^T."""
    total = Sums.zero(len(B))
    for batch in chunk.batches(terms.basis):
        p = batch.values(batch.images(B))
        found = terms.loss(batch).at(p)
        total += sums_of(p, found, batch.adjoint(found.slopes), int(batch.numbers[0]))
    return total


def added(parts: list[Sums]) -> Sums:
    """The sums of neighbours, in order."""
    return reduce(add, parts)


@np.errstate(all="ignore")
def slopes_in(chunk: Chunk, B: Array, terms: Terms) -> Array:
    """The slope of the loss of every row."""
    batches = chunk.batches(terms.basis)
    return np.concatenate([terms.loss(own).at(own.values(own.images(B))).slopes for own in batches])


@np.errstate(all="ignore")
def values_in(chunk: Chunk, B: Array, terms: Terms) -> Array:
    """The value of every row."""
    return np.concatenate([batch.values(batch.images(B)) for batch in chunk.batches(terms.basis)])


def sample_in(chunk: Chunk, terms: Terms, numbers: Index) -> list[InMemory]:
    """The rows with these numbers, a batch at a time."""
    batches, T = chunk.batches(terms.basis, numbers), terms.coordinates
    return [InMemory(own.rows.transformed(T), terms.loss(own, all_sizes=True)) for own in batches]


def joined(parts: list[InMemory], divergence: SpectralDivergence, order: int) -> InMemory:
    """Rows that are written out, one after the other."""
    rows, losses = [part.rows for part in parts], [part.loss for part in parts]
    vectors, numbers, flags = np.empty((0, order)), np.empty(0), np.empty(0, bool)

    def column(none: NDArray[Any], of: list[Any], name: str) -> NDArray[Any]:
        return np.concatenate([none, *(getattr(part, name) for part in of)])

    x = y = column(vectors, rows, "x")
    if any(part.y is not part.x for part in rows):
        y = column(vectors, rows, "y")
    starts = np.cumsum([0, *(part.n_rows for part in rows)])
    of_atoms = [part.row_of_atoms + start for part, start in zip(rows, starts, strict=False)]
    row = np.concatenate([np.empty(0, np.int64), *of_atoms])
    loss = Loss(
        divergence,
        column(np.empty(0, np.int8), losses, "relations"),
        *(column(numbers, losses, name) for name in ("bounds", "penalties", "sizes")),
        *(column(flags, losses, name) for name in ("is_definite", "is_idle")),
    )
    return InMemory(Rows.written(x, y, column(numbers, rows, "coefficient"), row, int(starts[-1])), loss)


def _kept(sums: Sums) -> Kept:
    """As arrays, matrices and single numbers."""
    return {name: np.atleast_1d(value) for name, value in vars(sums).items()}


def _restored(arrays: Kept) -> Sums:
    """From what `_kept` made of it."""
    found: dict[str, Any] = {name: of if of.ndim > 1 else of.item() for name, of in arrays.items()}
    return Sums(**found)


# ---- problems in chunks -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class BoundInChunks:
    """The checked parts of a problem in chunks that do not depend on the penalty, as in `binding.Binding`.

    Attributes
    ----------
    features, constraints, divergence : as given
    sample_ids : as given, or as they were read with the features
    filled : the constraints by row number of the features, open bounds filled
    prior : its eigenvalues
    terms : what rows measure, and cost at penalty 1
    runner, starts : the chunks, and the number of the first row of each, and of all
    survey : what was found about the rows
    passes : as in `InChunks`
    """

    features: Vectors
    constraints: Constraints
    divergence: SpectralDivergence
    sample_ids: ArrayLike | None
    filled: Constraints
    prior: Array
    terms: Terms
    runner: Runner
    starts: Index
    survey: Survey
    passes: MutableMapping[str, Kept] | None = None

    of_kernel = False
    groups = None

    @property
    def prior_basis(self) -> Array | None:
        return self.terms.basis

    @property
    def relations(self) -> NDArray[np.int8]:
        return self.constraints.relations

    @property
    def bounds(self) -> Array:
        return self.filled.bounds

    @property
    def typical_size(self) -> float:
        return self.survey.typical_size

    def measured(self, gamma: Array) -> InChunks:
        """The rows with what they cost, for one finite penalty; refuses what cannot be weighed."""
        if gamma.ndim:
            raise ValueError(
                f"constraints in pieces have one penalty in common, got an array of shape {gamma.shape}"
            )
        if not np.isfinite(gamma):
            raise ValueError(
                "hard constraints (penalty inf) need data in memory, because each has a state of its own: "
                "give a finite penalty, or the features as one array"
            )
        weighed, numbers = self.survey.weighed(float(gamma)), self.survey.extreme["number"].tolist()
        binding.refuse_incomparable(
            weighed, self.divergence, self.terms.reference, lambda k: self.constraints.stated(numbers[k])
        )
        terms = replace(self.terms, penalty=float(gamma))
        return InChunks(self.runner, self.starts, terms, self.survey.weight, self.passes)

    def stated(self, row: int) -> Stated:
        """One constraint, with its bound filled in."""
        found = self.filled.stated(row)
        return self.constraints.stated(row, float(found.block.bounds[found.place]))

    def warn_of_lost(self) -> None:
        """Warn of rows that nothing can meet."""
        self.survey.warn_of_lost(self.constraints)

    def keeping(self, passes: MutableMapping[str, Kept]) -> BoundInChunks:
        """The same, with what passes find kept in a mapping."""
        return replace(self, passes=passes)


def bind_in_chunks(
    vectors: Vectors,
    constraints: Constraints,
    divergence: SpectralDivergence,
    prior: ArrayLike | None,
    sample_ids: ArrayLike | None,
) -> BoundInChunks:
    """Check constraints and bind them to vectors: fill open bounds, cut chunks, look at all rows once."""
    if 0 in vectors.shape:
        raise ValueError(f"features must be a non-empty (n, r) array, got shape {vectors.shape}")
    constraints.refuse_linear()
    values, basis = binding.checked_prior(prior, vectors.shape[1], divergence)
    reference = binding.reference_of(values, divergence)
    names = vectors.ids if sample_ids is None else sample_ids
    filled = Constraints(constraints.resolve(len(vectors), names))
    if any(block.has_open_bounds for block in filled.blocks):
        pairs = sampled_pairs(len(vectors))
        rows, place = np.unique(pairs, return_inverse=True)
        first, second = finite_rows(vectors, rows)[place.reshape(pairs.shape).T]
        filled = binding.open_bounds(first - second, basis, reference).filled(filled)
    chunks, starts = cut(filled.blocks, vectors)
    runner = vectors.runner(chunks)
    terms = Terms(divergence, reference, basis, np.eye(len(values)))
    survey = surveyed(runner, constraints, filled, vectors, terms)
    terms = replace(terms, typical=survey.median_size, lost=survey.lost)
    return BoundInChunks(
        vectors, constraints, divergence, names, filled, values, terms, runner, starts, survey
    )


# ---- squares of residuals, for fixed rank -----------------------------------------------------------------


class SquareSums(NamedTuple):
    """Of some rows: sum_i residual_i^2, and sum_i residual_i A_i D for some D."""

    cost: float
    slope: Array


@dataclass(frozen=True, eq=False)
class SquaresInPieces:
    """Squares of residuals of rows in chunks, made by `of`, which looks at all rows once.

    Attributes
    ----------
    runner : the chunks, with bounds as targets
    n_rows : how many rows they have
    weight : of all rows together
    """

    runner: Runner
    n_rows: int
    weight: float

    @classmethod
    def of(cls, constraints: Constraints, filled: Constraints, vectors: Vectors) -> Self:
        """Warns of rows that nothing can meet, and refuses those that are no numbers to work with.

        Parameters
        ----------
        constraints : as they were stated, for messages
        filled : the same by row number, with all their bounds
        vectors : rows of features
        """
        runner, r = vectors.runner(cut(filled.blocks, vectors)[0]), vectors.shape[1]
        survey = surveyed(runner, constraints, filled, vectors, Terms(LogDet(), np.ones(r), None, np.eye(r)))
        survey.warn_of_lost(constraints)
        return cls(runner, len(filled), survey.weight)

    def sums(self, G: Array, D: Array | None, feature: float, target: float, weight: float) -> SquareSums:
        """Of all rows at G G^T, along D, by default along G.

        `feature`, `target` and `weight` are the units of features and targets and the mean weight of a row,
        which count as 1.
        """
        B, along = G / feature, None if D is None else D / feature
        cost, slope = squares_added(
            self.runner.run(squares_in, B, along, target, weight, added=squares_added)
        )
        return SquareSums(cost, slope / feature)


def squares_in(chunk: Chunk, B: Array, D: Array | None, target: float, weight: float) -> SquareSums:
    """Of a chunk."""
    cost, slope = 0.0, np.zeros_like(B if D is None else D)
    for batch in chunk.batches(None):
        images, relation = batch.images(B), batch.block.relation
        residual, weights = batch.values(images) - batch.block.bounds / target, batch.block.counts / weight
        if relation:
            residual = np.minimum(residual, 0.0) if relation > 0 else np.maximum(residual, 0.0)
        cost += float(weights @ (residual * residual))
        slope += batch.product(weights * residual, images if D is None else batch.images(D, "others"))
    return SquareSums(cost, slope)


def squares_added(parts: list[SquareSums]) -> SquareSums:
    """The sums of some chunks, in order."""
    return SquareSums(float(sum(part.cost for part in parts)), np.sum([part.slope for part in parts], axis=0))
