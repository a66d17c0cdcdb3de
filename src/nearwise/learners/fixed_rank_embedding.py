"""`FixedRankEmbedding`: coordinates for objects known by distances, or by a kernel and constraints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from nearwise._common.checks import one_of
from nearwise._common.errors import RowsError
from nearwise._common.reading import show, symmetric
from nearwise._common.types import Array
from nearwise._common.warning import warn
from nearwise.fixed_rank.driver import FixedRankRecord, FixedRankResult, minimise
from nearwise.fixed_rank.geometry import Flat
from nearwise.fixed_rank.online import Schedule
from nearwise.fixed_rank.regression import Regression
from nearwise.learners import _rows, _side, fixed_rank as shared
from nearwise.learners._kernel_bases import NEGATIVE_TOLERANCE
from nearwise.learners._progress import whole
from nearwise.learners.base import PriorKeptWarning
from nearwise.linalg.directions import with_fixed_signs
from nearwise.linalg.distances import all_squared_distances
from nearwise.linalg.scaling import inner_products
from nearwise.methods import Status
from nearwise.side import Block, Constraints, bounds

_MORE_DIMENSIONS = 3  # of the first embedding where distances are unknown
_ROUGH_TOL = 1e-4  # to which it is found
_PARTS, _MEMBERS = 5, 3  # parts that nothing holds together in a warning, and objects of each
_DENSE = 1000  # objects up to which all eigenvectors are computed


class FixedRankEmbedding(BaseEstimator):  # type: ignore[misc]
    """A kernel of fixed rank, K = G G^T, whose rows of G are coordinates of the objects. MBS11 8.4, 9.1.

    From squared distances, some of which may be unknown, it is multidimensional scaling with the cost
    SSTRESS; from a kernel and constraints, it is kernel learning. Coordinates are found for the given objects
    only. `partial_fit` follows distances that change, without rotating or rearranging the coordinates.

    Parameters
    ----------
    rank : int, default=2
        Coordinates per object, at most the number of objects.
    input : "distances" or "kernel", default="distances"
        What `fit` is given: squared distances, NaN where unknown, or a positive semidefinite kernel matrix.
        Where the known distances and the constraints leave objects in parts that nothing holds together, a
        warning names the parts: distances between them mean nothing.
    geometry, subspace_weight, solver, tol, max_iter, batch_size, epochs, annealing : as for
        `FixedRankRegressor`, but the geometry is "flat" by default, and steps of `partial_fit` do not shrink.
    start : "principal", "random" or (n, rank) array, default="principal"
        "principal" is classical scaling, or kernel PCA for a kernel. It is centred, unless constraints are
        about inner products, which depend on the origin; then it is the kernel's leading eigenvectors.
    random_state : int, RandomState or None, default=None
    callback : callable, default=None
        Called with a `FixedRankRecord` after every iteration or epoch; a true answer ends the fit.

    Attributes
    ----------
    embedding_ : (n, rank) array, G
    margin_ : the margin of comparisons that have none, the median of the squared distances that are given
    sstress_ : sum of squared errors of the squared distances and constraints
    kept_prior_ : whether the embedding is the start, because there is a kernel but no constraint
    result_, status_, n_iter_, schedule_, n_seen_, n_features_in_ : as for `FixedRankRegressor`; result_ is
        None where the start is kept

    Examples
    --------
    >>> import numpy as np, nearwise as nw
    >>> points = np.random.default_rng(0).standard_normal((30, 2))
    >>> D = np.square(points[:, None] - points).sum(axis=2)
    >>> model = nw.FixedRankEmbedding(rank=2, tol=1e-9).fit(D)
    >>> bool(np.allclose(model.distances(squared=True), D, atol=1e-3))
    True
    """

    schedule_: Schedule | None
    result_: Any

    _stored: ClassVar[tuple[str, ...]] = (
        *("n_features_in_", "feature_names_in_", "embedding_", "sstress_", "margin_", "units_"),
        *("result_", "status_", "n_iter_", "kept_prior_", "schedule_", "n_seen_"),
    )

    def __init__(
        self,
        rank: int = 2,
        input: str = "distances",
        geometry: str = "flat",
        subspace_weight: float = 0.5,
        solver: str = "auto",
        start: str | ArrayLike = "principal",
        tol: float = 1e-5,
        max_iter: int | None = None,
        batch_size: int = 32,
        epochs: int = 5,
        annealing: str = "none",
        random_state: int | np.random.RandomState | None = None,
        callback: Callable[[FixedRankRecord], Any] | None = None,
    ) -> None:
        self.rank = rank
        self.input = input
        self.geometry = geometry
        self.subspace_weight = subspace_weight
        self.solver = solver
        self.start = start
        self.tol = tol
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.epochs = epochs
        self.annealing = annealing
        self.random_state = random_state
        self.callback = callback

    @whole
    def fit(
        self,
        X: ArrayLike,
        y: Any = None,
        *,
        constraints: Constraints | None = None,
        sample_ids: ArrayLike | None = None,
    ) -> Self:
        """Find the coordinates.

        Parameters
        ----------
        X : (n, n) squared distances, NaN where unknown, or a kernel matrix
        y : ignored
        constraints : what else is known of the objects; for a kernel, all that is learned from
        sample_ids : n ids, by which the constraints name the objects
        """
        matrix = self._checked(X, reset=True)
        rng = check_random_state(self.random_state)
        chosen = shared.settings(self, len(matrix))
        side = self._side(matrix, constraints, sample_ids)
        self.margin_ = _typical(matrix, self.input)
        if self.input == "distances":
            _tell_parts(len(matrix), side, sample_ids)
        stated = bounds.with_margins(side, self.margin_)
        problem, units = shared.of_constraints(stated, None, len(matrix), None)
        start = self._start(matrix, chosen.rank, problem, units, rng, side)
        if not len(side):
            return self._keep_start(start, units)
        found, self.schedule_, self.n_seen_ = shared.solved(problem, start, chosen, rng, self.callback)
        self._keep(found, units, side)
        shared.tell_end(self, found, chosen.solver)
        return self

    @whole
    def partial_fit(
        self,
        X: ArrayLike | None = None,
        y: Any = None,
        *,
        constraints: Constraints | None = None,
        sample_ids: ArrayLike | None = None,
    ) -> Self:
        """Adapt the coordinates to new values of some distances, section 8.4: one pass in mini-batches.

        The arguments are those of `fit`, for the same objects; unknown distances (NaN) pull at nothing. The
        first call is `fit`.
        """
        if not hasattr(self, "embedding_"):
            if X is None:
                raise NotFittedError(f"{type(self).__name__}: the first call needs X, as `fit` does")
            return self.fit(X, y, constraints=constraints, sample_ids=sample_ids)
        n = len(self.embedding_)
        matrix = np.full((n, n), np.nan) if X is None else self._checked(X, reset=False)
        if len(matrix) != n:
            raise ValueError(f"X must be of the same {n} objects, got {len(matrix)}")
        if self.input == "kernel" and X is not None:
            raise ValueError("a kernel says nothing new: give constraints")
        rng = check_random_state(self.random_state)
        chosen = shared.settings(self, n)
        side = self._side(matrix, constraints, sample_ids)
        if not len(side):
            raise ValueError("nothing to learn from: there are no constraints on these objects")
        problem, units = shared.of_constraints(bounds.with_margins(side, self.margin_), None, n, self.units_)
        found, self.schedule_, self.n_seen_ = shared.epochs(
            problem, units.inward(self.embedding_), chosen, self.schedule_, self.n_seen_, rng, None, 1
        )
        self._keep(found, units, side)
        return self

    def fit_transform(self, X: ArrayLike, y: Any = None, **fit_params: Any) -> Array:
        """`fit`, then the coordinates of the objects."""
        return self.fit(X, y, **fit_params).embedding_

    def distances(self, *, squared: bool = False) -> Array:
        """(n, n) distances of the objects in the embedding."""
        check_is_fitted(self, "embedding_")
        found = all_squared_distances(self.embedding_, self.embedding_)
        return found if squared else np.sqrt(found)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = True
        tags.input_tags.allow_nan = self.input == "distances"
        tags.input_tags.positive_only = self.input == "distances"
        return tags

    def _checked(self, X: ArrayLike, reset: bool) -> Array:
        one_of(self.input, "input", ("distances", "kernel"))
        allowed: Any = "allow-nan" if self.input == "distances" else True
        _rows.refuse(X, self)
        matrix = validate_data(
            self, X, dtype=np.float64, ensure_all_finite=allowed, ensure_min_samples=2, reset=reset
        )
        n = len(matrix)
        if matrix.shape != (n, n):
            raise ValueError(f"X must be square, one row and column per object, got shape {matrix.shape}")
        if self.input == "kernel":
            kernel = symmetric(matrix, "X (a kernel)")
            _refuse_indefinite(kernel)
            return kernel
        known = np.isfinite(matrix)
        wrong = np.argwhere(
            known & ((matrix < 0) | (known.T & (np.abs(matrix - matrix.T) > 1e-8 * np.abs(matrix))))
        )
        if len(wrong):
            i, j = wrong[0]
            pair = f"X[{i}, {j}] is {matrix[i, j]} and X[{j}, {i}] is {matrix[j, i]}"
            # as scikit-learn's checks want it
            cause = "Negative values in data: " if matrix[i, j] < 0 else ""
            raise ValueError(f"{cause}squared distances are symmetric and not negative, but {pair}")
        rounding = 1e-8 * np.max(matrix[known], initial=0.0)
        own = np.flatnonzero(np.diag(matrix) > rounding)
        if own.size:
            i = int(own[0])
            warn(f"X[{i}, {i}] is {matrix[i, i]:.6g} and not used: an object is at distance 0 from itself")
        complete = np.where(known, matrix, matrix.T)
        np.fill_diagonal(complete, 0.0)
        return complete

    def _side(self, matrix: Array, constraints: Any, sample_ids: Any) -> Constraints:
        """Targets by row number: the known distances, and the constraints."""
        side = _side.Side.read(len(matrix), None, constraints, sample_ids).constraints
        if np.isnan(side.bounds).any():
            row = int(np.flatnonzero(np.isnan(side.bounds))[0])
            reason = ": give the bound; an embedding has no data to fill it from"
            raise RowsError([side.stated(row)], after=reason)
        if self.input == "distances":
            i, j = np.triu_indices(len(matrix), 1)
            known = np.isfinite(matrix[i, j])
            pairs, squares = np.stack([i, j], axis=1)[known], matrix[i, j][known]
            # a bound of 0 is a target like any other here, though no constraint on a metric
            side = Constraints((Block("distance", 0, pairs, squares),)) + side
            if not len(side):
                raise ValueError(
                    "nothing to learn from: X has no known distance, and there are no constraints"
                )
        return side

    def _start(
        self,
        matrix: Array,
        rank: int,
        problem: Regression,
        units: shared.Units,
        rng: np.random.RandomState,
        side: Constraints,
    ) -> Array:
        """G_0 in units."""
        by_name = isinstance(self.start, str)
        if not by_name or one_of(self.start, "start", ("principal", "random")) == "random":
            start = shared.start_factor(self.start, matrix, len(matrix), rank, rng)
            typical = float(np.nanmean(np.abs(matrix))) or 1.0
            return units.inward(start * np.sqrt(typical) if by_name else start)
        if self.input == "kernel":
            if all(block.of_kind.n_distances for block in side.blocks):
                matrix = matrix - matrix.mean(axis=0)
                matrix = matrix - matrix.mean(axis=1)[:, None]
            return units.inward(_leading_factor(matrix, rank, rng))
        if np.isfinite(matrix).all():
            return units.inward(_leading_factor(inner_products(matrix), rank, rng))
        # Where distances are unknown, a few more dimensions let objects pass each other on their way.
        wide = min(rank + _MORE_DIMENSIONS, len(matrix))
        first = units.inward(_leading_factor(inner_products(_filled(matrix)), wide, rng))
        found = minimise(problem, Flat(), first, tol=_ROUGH_TOL).factor
        U, values, _ = np.linalg.svd(found - found.mean(axis=0), full_matrices=False)
        return with_fixed_signs(U[:, :rank] * np.maximum(values[:rank], 1e-3 * values[0]))

    def _keep(self, found: FixedRankResult, units: shared.Units, side: Constraints) -> None:
        self.units_ = units
        result = units.result(found)
        self.result_, self.embedding_ = result, result.factor
        self.sstress_ = 2 * float(side.weights.sum()) * result.cost
        self.status_, self.n_iter_, self.kept_prior_ = found.status, found.n_iter, False

    def _keep_start(self, start: Array, units: shared.Units) -> Self:
        """Kernel PCA, where nothing is known beside the kernel."""
        self.units_, self.result_, self.embedding_ = units, None, units.outward(start)
        self.sstress_, self.status_, self.n_iter_, self.kept_prior_ = 0.0, Status.STATIONARY, 0, True
        self.schedule_, self.n_seen_ = None, 0
        cause = "there are no constraints on these objects, and the kernel alone says nothing new"
        warn(f"{type(self).__name__} returns its start: {cause}", PriorKeptWarning)
        return self


def _refuse_indefinite(K: Array) -> None:
    """Refuse a kernel with an eigenvalue that is negative beyond rounding."""
    largest = float(np.max(np.diag(K), initial=0.0))  # the largest eigenvalue is no smaller
    allowed = max(NEGATIVE_TOLERANCE * largest, np.finfo(float).tiny)
    try:
        np.linalg.cholesky(K + allowed * np.eye(len(K)))  # shows it for most, in less time than eigenvalues
    except np.linalg.LinAlgError:
        values = np.linalg.eigvalsh(K)
        if values[0] >= -NEGATIVE_TOLERANCE * max(values[-1], -values[0]):
            return
        hint = "set its negative eigenvalues to zero, or choose another kernel"
        if not np.diag(K).any():
            hint = (
                'its diagonal is 0, so this looks like a distance matrix: square it, with input="distances"'
            )
        raise ValueError(
            f"the kernel must be positive semidefinite, but has the eigenvalue {values[0]:.6g} "
            f"(the largest is {values[-1]:.6g}); {hint}"
        ) from None


def _tell_parts(n: int, side: Constraints, sample_ids: Any) -> None:
    """Warn where known distances and constraints leave objects in parts that nothing holds together."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    first, second = [], []
    for block in side.blocks:
        objects = np.asarray(block.object_ids, dtype=np.int64)
        if block.of_kind.shares_objects:
            first.append(np.full(len(objects), objects[0]))
            second.append(objects)
        else:  # pairs; a comparison has two, whose objects are held together two by two
            i, j = objects.reshape(-1, 2).T
            first.append(i)
            second.append(j)
    i, j = np.concatenate(first), np.concatenate(second)
    count, part = connected_components(csr_array((np.ones(len(i)), (i, j)), shape=(n, n)), directed=False)
    if count == 1:
        return
    names = range(n) if sample_ids is None else sample_ids
    said = []
    for k in range(min(count, _PARTS)):
        members = np.flatnonzero(part == k)
        shown = ", ".join(show(names[int(place)]) for place in members[:_MEMBERS])
        said.append(shown + (f", ... ({len(members)} objects)" if len(members) > _MEMBERS else ""))
    more = f"; and {count - _PARTS} more" if count > _PARTS else ""
    warn(
        f"the known distances and constraints leave {count} parts of the objects that nothing holds "
        f"together, so distances between them mean nothing: {'; '.join(said)}{more}"
    )


def _typical(matrix: Array, kind: str) -> float:
    """The median of the squared distances that are known and not 0; 1 where there are none."""
    i, j = bounds.sampled_pairs(len(matrix)).T
    squares = matrix[i, j]
    if kind == "kernel":
        squares = matrix[i, i] + matrix[j, j] - 2 * squares
    found = bounds.of_sample(squares[np.isfinite(squares)])
    return 1.0 if found is None else found.threshold


def _filled(squares: Array) -> Array:
    """Unknown distances as lengths of shortest paths, or of the longest of these where there is no path."""
    if np.isfinite(squares).all():
        return squares
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import shortest_path

    i, j = np.nonzero(squares > 0)
    lengths = shortest_path(csr_array((np.sqrt(squares[i, j]), (i, j)), shape=squares.shape), directed=False)
    reached = np.isfinite(lengths)
    lengths[~reached] = lengths[reached].max(initial=0.0)
    return np.where(np.isfinite(squares), squares, np.square(lengths))


def _leading_factor(B: Array, rank: int, rng: np.random.RandomState) -> Array:
    """V Lambda^1/2 of the largest eigenvalues; a tiny random column for each that is not positive."""
    n = len(B)
    if n <= _DENSE:
        values, V = np.linalg.eigh((B + B.T) / 2)
        values, V = values[::-1][:rank], V[:, ::-1][:, :rank]
    else:
        from scipy.sparse.linalg import eigsh

        values, V = eigsh(B, k=rank, which="LA", v0=rng.standard_normal(n))
        values, V = values[::-1], V[:, ::-1]
    largest = max(float(values[0]), np.finfo(float).tiny)
    factor = with_fixed_signs(V) * np.sqrt(np.maximum(values, 0.0))
    missing = values <= 1e-12 * largest
    factor[:, missing] = rng.standard_normal((n, int(missing.sum()))) * np.sqrt(1e-4 * largest / n)
    return np.ascontiguousarray(factor)
