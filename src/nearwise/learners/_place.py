"""Places: where a matrix is learned, and what a factor of it that was found there comes to.

A place has coordinates of all objects, what a distance has besides the part that these tell, the prior and
the form of M there. All vectors, a subspace of them (`in_subspace`), columns in their own groups or alone
(`in_structure`), the basis of a kernel and scores of classes are places, and learned in alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from nearwise._common.checks import one_of
from nearwise._common.types import Array, Codes, Index
from nearwise._common.warning import warn
from nearwise.core import Divergence, Problem
from nearwise.distributed import Vectors
from nearwise.learners import _bases
from nearwise.learners._in_pieces import SpaceInPieces, few_rows, fingerprint
from nearwise.learners._rows import rows_of
from nearwise.learners._side import Side
from nearwise.learners._space import Outside, Space, mapped
from nearwise.learners._structure import FULL, AnyProblem, Structure, diagonal_of, prior_weights, units_for
from nearwise.learners.coordinate_metrics import DiagonalMetric
from nearwise.learners.input_kernels import InputKernel, first_equal_rows
from nearwise.learners.metric import AnyMetric, Metric, dense_product, euclidean, root_of, symmetric_root
from nearwise.side import Constraints, LeftOutWarning

FULL_FEATURES = 256  # the largest number of features for which all d x d entries of M are learned by default
DEFAULT_RANK = 100  # of the learned part where not
FEW_DIMENSIONS = 3  # up to which a subspace is by default the one in which neighbours tell classes
_LARGEST_SCALE = 1e60  # of the features, beyond which they are rescaled


def _linear(factor: Array) -> AnyMetric:
    return Metric(symmetric_root(factor))


@dataclass(frozen=True, eq=False)
class Place:
    """Where M is learned.

    Attributes
    ----------
    features : (n, r), one row per object, in memory or in pieces; sparse only where M is diagonal
    metric : what a factor of M comes to
    name : by which a contest reports on it
    start : the metric before learning; None where it is that of an input kernel
    prior : of M, a vector where M is diagonal; None for the identity
    outside : the fixed part of a distance; constraints, their open bounds, neighbours and the choice of the
        penalty are about the whole
    structure : the form of M
    made_from : for features that are made with the help of labels: those of all objects, made again from the
        labels of some, by row number
    pairs : how pairs are drawn from labels where pairs="auto"
    unlabelled : where `features` tell more than a new object's, what tells which constraints can be met
    """

    features: Array | Vectors
    metric: Callable[[Array], AnyMetric] = _linear
    name: Any = "linear"
    start: AnyMetric | None = None
    prior: Array | None = None
    outside: Outside | None = None
    structure: Structure = FULL
    made_from: Callable[[Index], Array] | None = None
    pairs: str = "local"
    unlabelled: Array | None = None

    @property
    def identity(self) -> Array:
        """A factor of the identity, in the form of M."""
        one = np.ones(self.features.shape[1])
        return one if self.structure.is_diagonal else np.diag(one)

    @cached_property
    def root(self) -> Array:
        """A factor of the prior."""
        if self.prior is None:
            return self.identity
        return np.sqrt(self.prior) if self.prior.ndim == 1 else root_of(self.prior)

    @property
    def is_known(self) -> bool:
        """Whether the metric before learning was given, rather than that of the coordinates."""
        return self.prior is not None or self.structure is not FULL

    @property
    def is_flat(self) -> bool:
        """Whether all objects are equal; of those in pieces, whose pairs tell it too, it is not asked."""
        X = self.features
        if isinstance(X, Vectors):
            return False
        return bool(abs(X.max(axis=0) - X.min(axis=0)).max() == 0.0) if X.shape[1] else True

    def seen_by(self, factor: Array) -> Space | SpaceInPieces:
        """The objects with the distances that a factor of M gives them."""
        if isinstance(self.features, Vectors):
            return SpaceInPieces(self.features, factor)
        return Space(mapped(self.features, factor), self.outside)

    def problem(self, side: Constraints, divergence: Divergence, penalty: float) -> AnyProblem:
        """What constraints with bounds state."""
        if isinstance(self.features, Vectors):
            features, names = few_rows(self.features, side)
            return Problem(features, side, divergence, self.prior, penalty, names)
        fixed = None if self.outside is None else self.outside.values(side)
        return self.structure.stated(self.features, side, divergence, self.prior, penalty, fixed)

    def reachable(self, side: Side, divergence: Divergence) -> Side:
        """Without the constraints that no matrix can meet, as on equal objects; they count as dropped."""
        given = side.constraints
        if len(given) == 0:
            return side
        fixed = None if self.outside is None else self.outside.values(given)
        features = self.features if self.unlabelled is None else self.unlabelled
        lost = self.structure.unreachable(features, given, divergence, self.prior, fixed)
        if not lost.any():
            return side
        first = given.describe(int(np.flatnonzero(lost)[0]))
        same = "whose objects have the same features, or differ only outside the range of the prior or the"
        warn(LeftOutWarning.of(given, np.flatnonzero(lost), f", as in {first}, {same} basis"))
        places = np.split(~lost, np.cumsum([len(block) for block in given.blocks])[:-1])
        parts = [block.part(np.flatnonzero(kept)) for block, kept in zip(given.blocks, places, strict=True)]
        kept = Constraints(tuple(block for block in parts if len(block)))
        return replace(side, constraints=kept, n_dropped=side.n_dropped + int(lost.sum()))

    def of(self, rows: Index) -> Place:
        """The same of some objects, in memory."""
        outside = None if self.outside is None else self.outside.restricted(rows)
        return replace(self, features=rows_of(self.features, rows), outside=outside)

    def without_labels_but_of(self, rows: Index) -> Place:
        """The same, with features that the labels of other objects had no part in."""
        if self.made_from is None:
            return self
        features = self.made_from(rows)
        outside = None if self.outside is None else replace(self.outside, features=features)
        return replace(self, features=features, outside=outside)

    def in_range(self, side: Side) -> tuple[Place, Side]:
        """Both in a unit in which squares neither overflow nor vanish; M does not depend on it."""
        X, made_from = self.features, self.made_from
        if isinstance(X, Vectors) or 0 in X.shape:
            return self, side
        size = float(abs(X).max())
        if size == 0.0 or 1.0 / _LARGEST_SCALE <= size <= _LARGEST_SCALE:
            return self, side
        scale = float(2.0 ** -np.round(np.log2(size)))
        blocks = [replace(block, bounds=block.bounds * scale**2) for block in side.constraints.blocks]
        place = replace(
            self,
            features=X * scale,
            outside=None if self.outside is None else self.outside.scaled(scale),
            made_from=None if made_from is None else lambda rows: scale * made_from(rows),
        )
        return place, replace(side, constraints=Constraints(tuple(blocks)))

    def known_by(self) -> tuple[Any, ...]:
        """What a checkpoint knows it by."""
        X, outside = self.features, self.outside
        every = np.arange(X.shape[0])
        lengths = None if outside is None else outside.products(every, every)
        data = fingerprint(X) if isinstance(X, Vectors) else X
        return data, self.prior, lengths, self.structure


def all_of(X: Any, prior: Array | None, structure: Structure = FULL, unit_free: bool = True) -> Place:
    """All vectors, in units of their columns in which double precision bears the prior.

    `unit_free` says whether units do not matter to the divergence; where they do, columns stay as they are.
    """
    scales = None if isinstance(X, Vectors) else units_for(prior)
    if scales is not None and not unit_free:
        hint = "scale the columns of X, or use divergence='logdet', for which units do not matter"
        warn(f"MetricLearner: the prior is too small in some columns to be told from zero: {hint}")
        scales = None
    start = euclidean(X.shape[1]) if prior is None else Metric(root_of(prior))
    if scales is not None and prior is not None:
        X, prior = X * scales, prior / scales / scales[:, None]

    def metric(factor: Array) -> Metric:
        root = symmetric_root(factor if scales is None else scales[:, None] * factor)
        return Metric(structure.without_rounding(root))

    return Place(X, metric, start=start, prior=prior, structure=structure)


def on_columns(X: Any, prior: Any, structure: Structure) -> Place:
    """Weights of the columns of vectors, dense or sparse; `prior` as the user gave it."""
    weights = prior_weights(prior, X)
    start = DiagonalMetric(np.ones(X.shape[1]) if weights is None else weights)

    def metric(factor: Array) -> DiagonalMetric:
        return DiagonalMetric(diagonal_of(factor))

    return Place(X, metric, start=start, prior=weights, structure=structure)


def in_subspace(X: Any, side: Side, basis: Any, rank: int | None, random_state: Any) -> Place:
    """A subspace of vectors, dense or sparse, outside which M is the identity.

    Parameters
    ----------
    basis : its name as for `MetricLearner`, or its columns
    rank : how many dimensions it shall have; None for 100
    """
    kind, known = basis if isinstance(basis, str) else "given", side.codes is not None
    if kind == "auto" and known and rank is not None and rank <= FEW_DIMENSIONS:
        kind = "neighbors"
    given = basis if kind == "given" else one_of(kind, "basis", ("auto", *_bases.BASES))
    count, first_equal = rank or min(*X.shape, DEFAULT_RANK), first_equal_rows(X)

    def directions(codes: Codes | None) -> Array:
        rng = check_random_state(random_state)
        return _bases.linear_basis(X, given, count, codes, rng, side.weights)

    def made_from(rows: Index) -> Array:
        """Coordinates of all rows in the directions that the labels of some tell."""
        assert side.codes is not None
        codes = np.full_like(side.codes, -1)
        codes[rows] = side.codes[rows]
        return dense_product(X, directions(codes))[first_equal]

    U = directions(side.codes)
    features = dense_product(X, U)[first_equal]
    return Place(
        features,
        lambda factor: Metric(symmetric_root(factor), U),
        start=euclidean(X.shape[1]),
        outside=Outside(InputKernel("linear"), X, features),
        made_from=made_from if kind == "neighbors" and known else None,
        # in a basis that is made of the classes' objects, these have neighbours that others do not have
        pairs="random" if known and kind in _bases.BY_CLASS else "local",
    )


def is_wide(X: Any) -> bool:
    """Whether by default a linear metric is learned in a subspace, because there are many features."""
    return bool(X.shape[1] > FULL_FEATURES)
