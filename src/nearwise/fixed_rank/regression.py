"""The cost of fixed-rank regression, MBS11 (1) and 8.2, its Newton direction, and the forms of the data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nearwise._common.types import Array, Index
from nearwise.fixed_rank.forms import Forms, Matrices, Squares
from nearwise.linalg.conjugate import End, conjugate_gradients
from nearwise.linalg.magnitudes import largest_entry
from nearwise.side import Block

_ITERATIONS = 40  # for Newton's direction
_FORCED = 0.1  # relative residual of its linear system at which it counts as solved
_FLAT = 1e-12  # curvature, relative to the first, that counts as none


@dataclass(frozen=True, eq=False)
class Regression:
    """The cost (1), the mean of (y^ - y)^2 / 2, where a sample may be an inequality instead (section 8.2).

    Attributes
    ----------
    forms : X_i
    targets : y_i
    relation : -1 for "at most y_i", +1 for "at least y_i", 0 for equality; None where all are equalities
    """

    forms: Forms
    targets: Array
    relation: NDArray[np.int8] | None = None

    @property
    def n_samples(self) -> int:
        """n."""
        return len(self.targets)

    @classmethod
    def weighted(
        cls, forms: Forms, targets: Array, relation: NDArray[np.int8] | None, weights: Array | None
    ) -> Regression:
        """The cost in which a sample of weight 2 counts like two: the mean over all weights.

        Forms and targets are multiplied by the root of the weight, relative to the mean weight.
        """
        relation = None if relation is None or not relation.any() else relation
        if weights is None or (weights == 1.0).all():
            return cls(forms, targets, relation)
        roots = np.sqrt(weights / weights.mean())
        return cls(forms.scaled(roots), roots * targets, relation)

    def residual(self, values: Array) -> Array:
        """y^ - y, and 0 where an inequality holds."""
        residual = values - self.targets
        if self.relation is not None:
            slack = ((self.relation < 0) & (residual < 0)) | ((self.relation > 0) & (residual > 0))
            residual[slack] = 0.0
        return residual

    def cost(self, residual: Array) -> float:
        """Half the mean square."""
        return float(residual @ residual) / (2 * max(len(residual), 1))

    def active(self, residual: Array) -> NDArray[np.bool_] | None:
        """The samples that pull; None where all do."""
        return None if self.relation is None else (self.relation == 0) | (residual != 0)

    def at(self, factor: Array) -> Evaluated:
        """All that one image of G tells."""
        Z = self.forms.image(factor)
        return Evaluated(self, factor, Z, self.residual(self.forms.cross(Z, Z)))

    def evaluate(self, factor: Array) -> tuple[float, Callable[[Array], Array]]:
        """The cost at G G^T, and S with S(D) = grad_W f D, where grad_W f = mean_i residual_i sym(X_i)."""
        here = self.at(factor)
        return here.cost, here.slope

    def asked(self) -> Array:
        """|y| / |X| of every sample: no W with <W, X> = y has a smaller trace.

        |X| bounds the largest eigenvalue of X, or of -X for a negative y; where that is 0, so is this.
        """
        upward, downward = self.forms.sizes()
        size = np.where(self.targets > 0, upward, downward)
        return np.divide(np.abs(self.targets), size, out=np.zeros(len(size)), where=size > 0)

    def subset(self, rows: Index | slice) -> Regression:
        """Some of the samples."""
        relation = None if self.relation is None else self.relation[rows]
        return Regression(self.forms.subset(rows), self.targets[rows], relation)


@dataclass(frozen=True, eq=False)
class Evaluated:
    """A cost at W = G G^T: the image of G and the residuals there."""

    problem: Regression
    factor: Array
    image: Array
    residual: Array

    @property
    def cost(self) -> float:
        """That of `Regression`."""
        return self.problem.cost(self.residual)

    def slope(self, D: Array) -> Array:
        """grad_W f D."""
        forms = self.problem.forms
        image = self.image if D is self.factor else forms.image(D)
        return forms.pull(forms.weigh(self.residual / max(len(self.residual), 1), image))

    def along(self, D: Array) -> Line:
        """What the image of D tells besides."""
        return Line(self, self.problem.forms.image(D))

    def missing(self, asked: Array) -> float:
        """The trace of W that samples ask for where y^ is on the wrong side, given `Regression.asked`."""
        return float(asked @ (self.residual * self.problem.targets < 0))


@dataclass(frozen=True, eq=False)
class Line:
    """The cost on G + s D: the image of D beside that of G."""

    start: Evaluated
    image: Array

    def cost(self, s: float) -> float:
        """At G + s D."""
        problem, Z = self.start.problem, self.start.image + s * self.image
        return problem.cost(problem.residual(problem.forms.cross(Z, Z)))

    def bend(self) -> float:
        """Its second derivative at s = 0, were y^ linear in s: the mean of (dy^ / ds)^2."""
        problem = self.start.problem
        change = 2 * problem.forms.cross(self.start.image, self.image)
        active = problem.active(self.start.residual)
        if active is not None:
            change = change[active]
        return float(change @ change) / max(problem.n_samples, 1)


def newton_directions(
    problem: Regression,
    Z: Array,
    residual: Array,
    SG: Array,
    inverse: Array,
    whiten: Callable[[Array], Array] | None,
    allowed: Callable[[Array], Array],
) -> tuple[list[tuple[Array, Array]], bool]:
    """Directions with their images: Newton's, the preconditioned gradient, and one of negative curvature.

    And whether the first is what it claims to be: the Hessian is positive as far as one can see, and the
    linear system solved, by conjugate gradients.

    With residuals r_i = <X_i, G G^T> - y_i, half the Hessian of the cost along D is
    (1/n) sum_i (2 <X_i, sym(G D^T)> X_i G + r_i X_i D), the first term over the samples that pull. A product
    with it costs as much as a gradient, so that an iteration here costs as much as a step of another search.

    Z and SG are the image and the slope of the factor, `allowed` is the projection on the directions in
    which it may move. The last is there only where the Hessian is not positive.
    """
    forms, n = problem.forms, len(residual)
    active = problem.active(residual)
    pull_weights = residual / n
    share = (1.0 if active is None else active.astype(np.float64)) * (2.0 / n)

    def preconditioned(D: Array) -> Array:
        D = allowed(D)
        return allowed((D if whiten is None else whiten(D)) @ inverse)

    latest: dict[str, Array] = {}  # the images of the first direction and of the last one

    def hessian(P: Array) -> Array:
        E = latest["last"] = forms.image(P)
        latest.setdefault("first", E)
        return forms.pull(forms.weigh(share * forms.cross(Z, E), Z) + forms.weigh(pull_weights, E))

    first = preconditioned(-SG)
    if not float(np.vdot(-SG, first)) > 0:
        return [(first, forms.image(first))], False
    found = conjugate_gradients(
        hessian,
        -SG,
        preconditioned,
        accuracy=_FORCED,
        most_steps=min(_ITERATIONS, SG.size),
        in_its_norm=True,
        flat=_FLAT,
    )
    directions = [(found.x, forms.image(found.x)), (first, latest["first"])] if found.x.any() else []
    if found.end is End.CURVED:
        directions.append((found.direction, latest["last"]))
    return directions, found.end is End.SOLVED


def vector_forms(X: Any, unit: float | None = None) -> Squares:
    """X_i = x_i x_i^T for the rows x_i of a dense or sparse array."""
    return Squares(X, X.shape[1], X.shape[0], unit=_unit(X) if unit is None else unit)


def matrix_forms(X: Array, unit: float | None = None) -> Matrices:
    """The symmetric parts of the matrices X, (n, d, d)."""
    n, d, _ = X.shape
    flat = (X / 2 + X.transpose(0, 2, 1) / 2).reshape(n, d * d)
    return Matrices(flat, d, float(np.sqrt(_unit(flat))) if unit is None else unit)


def constraint_forms(
    blocks: tuple[Block, ...], features: Any, n_objects: int, unit: float | None = None
) -> Squares:
    """The forms of resolved constraints: distances, comparisons, inner products, linear functions.

    With features, (N, d), dense or sparse, they are forms of the metric of d variables; without, of the
    kernel of the objects: a distance is then X = (e_i - e_j)(e_i - e_j)^T, sections 8.4 and 9.1.
    """
    shares_objects = any(block.of_kind.shares_objects for block in blocks)
    if shares_objects and sparse.issparse(features):
        raise TypeError("linear constraints need dense data, got a sparse matrix")
    dense = np.eye(n_objects) if shares_objects and features is None else features
    first, second, sign, coefficient, sample = _signed_squares(blocks, dense, n_objects)
    rows, count = features, sum(map(len, blocks))
    if shares_objects:
        vectors = [_part(block, dense).vectors for block in blocks if block.of_kind.shares_objects]
        rows = np.concatenate([dense, *(found for found in vectors if found is not None)])
    elif features is not None and len(used := np.unique([first, second])) < n_objects:
        rows, first, second = features[used], np.searchsorted(used, first), np.searchsorted(used, second)
    return Squares(
        rows,
        n_objects if features is None else features.shape[1],
        count,
        first,
        second,
        sign,
        None if (coefficient == 1).all() else coefficient,
        None if np.array_equal(sample, np.arange(count)) else sample,
        (1.0 if features is None else _unit(features)) if unit is None else unit,
    )


def _signed_squares(
    blocks: tuple[Block, ...], features: Any, n_objects: int
) -> tuple[Index, Index, Array, Array, Index]:
    """Constraints as sums of coefficient (f_first + sign f_second)^2, and the constraint of every square.

    A difference has sign -1, a square sign 0, and a product is x y^T + y x^T = ((x + y)^2 - (x - y)^2) / 2.
    Vectors of linear functions are numbered from `n_objects` on.
    """
    none, no_numbers = np.empty(0, np.int64), np.empty(0)
    columns = [(none, none, no_numbers, no_numbers, none)]
    row, end = 0, n_objects
    for block in blocks:
        part = _part(block, features)
        first, second, c, own = part.first, part.second, part.coefficient, row + part.row
        if part.vectors is not None:
            first = second = first + end
            end += len(part.vectors)
        product = np.zeros(len(c), dtype=bool) if part.is_difference else first != second
        sign = np.where(product, -1.0, -1.0 if part.is_difference else 0.0)
        columns.append((first, second, sign, np.where(product, -c / 4, c), own))
        columns.append((first[product], second[product], -sign[product], c[product] / 4, own[product]))
        row += len(block)
    first, second, sign, c, own = (np.concatenate(column) for column in zip(*columns, strict=True))
    order = np.argsort(own, kind="stable")
    return first[order], second[order], sign[order], c[order], own[order]


def _part(block: Block, features: Any) -> Any:
    """The atoms of a resolved block."""
    if not block.of_kind.shares_objects:
        return block.of_kind.atoms(block, np.empty((0, 0)), None)
    return block.of_kind.atoms(block, features, np.sqrt(np.einsum("ij,ij->i", features, features)))


def root_mean_square(numbers: Array) -> float:
    """Without overflow; 1 where all is zero."""
    largest = largest_entry(numbers)
    if largest == 0.0:
        return 1.0
    share = max(1, numbers.size // 1_000_000)  # a sample of a large array is enough for a unit
    sampled = numbers.ravel()[::share] / largest
    return largest * float(np.sqrt(np.mean(sampled * sampled)))


def _unit(X: Any) -> float:
    """The typical length of a row."""
    entries = X.data if sparse.issparse(X) else X
    per_row = entries.size / max(X.shape[0], 1)
    return root_mean_square(entries) * float(np.sqrt(max(per_row, 1.0)))
