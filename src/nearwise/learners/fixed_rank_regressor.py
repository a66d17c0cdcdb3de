"""`FixedRankRegressor`: y = x^T W x or y = tr(W X) with a positive semidefinite W of given rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from nearwise._common.types import Array
from nearwise.fixed_rank.driver import FixedRankRecord, FixedRankResult
from nearwise.fixed_rank.forms import Forms
from nearwise.fixed_rank.online import Schedule
from nearwise.fixed_rank.regression import Regression, matrix_forms, root_mean_square, vector_forms
from nearwise.learners import _rows, _side, fixed_rank as shared
from nearwise.learners._progress import Callbacks, progress, whole, with_callbacks
from nearwise.side import relations

_ACCEPTED: dict[str, Any] = {"dtype": np.float64, "allow_nd": True}


class FixedRankRegressor(Callbacks, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Regression on fixed-rank positive semidefinite matrices, MBS11.

    Finds W = G G^T of rank r, with a range that is learned too, such that y = x^T W x for the rows x of the
    data, or y = tr(W X) for symmetric matrices X. The cost is the mean of (y^ - y)^2 / 2. It is not convex:
    what is found is a stationary point.

    Parameters
    ----------
    rank : int or None, default=2
        Of W, at most d; None for d.
    geometry : "flat", "polar", "affine_invariant" or "log_euclidean", default="polar"
        "flat" moves G along lines, (10). "polar" moves a subspace and a metric in it, (21), and does not
        notice the unit of y. The other two are for matrices of full rank, section 5.
    subspace_weight : float, default=0.5
        lambda of the polar geometry: 0 keeps the subspace of the start, 1 learns nothing but the subspace.
    solver : "auto", "armijo" or "online", default="auto"
        "auto" is conjugate gradients (after Armijo's rule for "log_euclidean"), "armijo" the descent of the
        paper, "online" passes over the data in mini-batches, as `partial_fit` does.
    start : "principal", "identity", "random" or (d, rank) array, default="principal"
        "principal" are the directions of largest variance of the data.
    kernel : str, callable or None, default=None
        Apply W to the features of this kernel on a basis of objects drawn from the data: the name of one of
        scikit-learn's kernels, a function of two rows, or "precomputed", where X is the (n, n) kernel matrix
        of the training objects, and later the (m, n) kernel values of other objects with these.
    kernel_params : mapping, default=None
        What the kernel is called with.
    n_basis : int, default=100
        How many rows the kernel's basis has.
    tol : float, default=1e-5
        The stopping rules (24): relative cost, relative change of the cost, relative change of G.
    max_iter : int, default=None
        1000 for batch methods.
    batch_size, epochs : int, default=32 and 5
        Samples per step and passes over the data, for "online"; `partial_fit` makes one pass.
    annealing : "auto" or "none", default="auto"
        Online steps shrink as in (23), or stay, to follow data that change.
    random_state : int, RandomState or None, default=None
    callback : callable, default=None
        Called with a `FixedRankRecord` after every iteration or epoch; a true answer ends the fit.

    Attributes
    ----------
    factor_ : (d, rank) array, G
    rank_ : its columns
    result_ : `FixedRankResult` of the last fit or `partial_fit`
    status_, n_iter_ : STATIONARY, LIMIT or INTERRUPTED; iterations or epochs
    schedule_, n_seen_ : step sizes and samples seen, online only
    n_features_in_, feature_names_in_ : as everywhere in scikit-learn

    Examples
    --------
    >>> import numpy as np, nearwise as nw
    >>> rng = np.random.default_rng(0)
    >>> X, G = rng.standard_normal((300, 8)), rng.standard_normal((8, 2))
    >>> model = nw.FixedRankRegressor(rank=2, tol=1e-9).fit(X, np.square(X @ G).sum(axis=1))
    >>> bool(np.allclose(model.get_matrix(), G @ G.T, atol=1e-3))
    True
    """

    schedule_: Schedule | None
    units_: shared.Units

    _stored: ClassVar[tuple[str, ...]] = (
        *("n_features_in_", "feature_names_in_", "factor_", "rank_", "features_", "units_"),
        *("result_", "status_", "n_iter_", "schedule_", "n_seen_"),
    )

    def __init__(
        self,
        rank: int | None = 2,
        geometry: str = "polar",
        subspace_weight: float = 0.5,
        solver: str = "auto",
        start: str | ArrayLike = "principal",
        kernel: str | Callable[..., float] | None = None,
        kernel_params: Mapping[str, Any] | None = None,
        n_basis: int = 100,
        tol: float = 1e-5,
        max_iter: int | None = None,
        batch_size: int = 32,
        epochs: int = 5,
        annealing: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        callback: Callable[[FixedRankRecord], Any] | None = None,
    ) -> None:
        self.rank = rank
        self.geometry = geometry
        self.subspace_weight = subspace_weight
        self.solver = solver
        self.start = start
        self.kernel = kernel
        self.kernel_params = kernel_params
        self.n_basis = n_basis
        self.tol = tol
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.epochs = epochs
        self.annealing = annealing
        self.random_state = random_state
        self.callback = callback

    @with_callbacks
    @whole
    def fit(
        self, X: Any, y: ArrayLike, *, sample_weight: ArrayLike | None = None, relations: Any = None
    ) -> Self:
        """Learn W.

        Parameters
        ----------
        X : (n, d) vectors, dense or sparse, or (n, d, d) matrices, of which the symmetric part counts
        y : n numbers
        sample_weight : n numbers >= 0, as if a sample of weight 2 were there twice
        relations : "==", "<=" or ">=", for all samples or one for each: whether tr(W X) shall be equal to y,
            at most y or at least y (section 8.2)
        """
        rng = check_random_state(self.random_state)
        problem, start, units, chosen = self._stated(X, y, sample_weight, relations, rng, first=True)
        with progress(self, X, y) as callback:
            found, self.schedule_, self.n_seen_ = shared.solved(problem, start, chosen, rng, callback)
        self._keep(found, units)
        shared.tell_end(self, found, chosen.solver)
        return self

    @whole
    def partial_fit(
        self, X: Any, y: ArrayLike, *, sample_weight: ArrayLike | None = None, relations: Any = None
    ) -> Self:
        """Learn from more samples, in the order in which they come: one pass in mini-batches, (9) and (20).

        The first call chooses start, units and step sizes from its samples. After a batch `fit`, the steps
        are chosen anew on the first samples that arrive. Weights are relative to each other in a call.
        """
        first, rng = not hasattr(self, "factor_"), check_random_state(self.random_state)
        if first:
            self.schedule_, self.n_seen_ = None, 0
        problem, start, units, chosen = self._stated(X, y, sample_weight, relations, rng, first)
        found, self.schedule_, self.n_seen_ = shared.epochs(
            problem, start, chosen, self.schedule_, self.n_seen_, rng
        )
        self._keep(found, units)
        return self

    def predict(self, X: Any) -> Array:
        """tr(W X), one per sample."""
        check_is_fitted(self)
        X = self._with_known_shape(
            validate_data(self, X, reset=False, accept_sparse=self._accept_sparse, **_ACCEPTED)
        )
        if X.ndim == 3:
            return np.asarray(np.einsum("nij,ij->n", X, self.factor_ @ self.factor_.T))
        H = np.asarray((X if self.features_ is None else self.features_(X)) @ self.factor_)
        return np.asarray(np.einsum("ij,ij->i", H, H))

    def get_matrix(self) -> Array:
        """W, d x d (in the features of the kernel, if there is one)."""
        check_is_fitted(self)
        return np.asarray(self.factor_ @ self.factor_.T)

    def _stated(
        self, X: Any, y: Any, sample_weight: Any, given: Any, rng: np.random.RandomState, first: bool
    ) -> tuple[Regression, Array, shared.Units, shared.Settings]:
        """The cost, where to begin, and the units of both; `first` makes features, units and a start."""
        _rows.refuse(X, self)
        X, y = validate_data(
            self, X, y, y_numeric=True, reset=first, accept_sparse=self._accept_sparse, **_ACCEPTED
        )
        weights = _side.read_weights(sample_weight, len(y))
        if weights is not None and not weights.any():
            raise ValueError("sample_weight is 0 for every row: none of them counts")
        X, targets = self._with_known_shape(X, tiny=True), y.astype(np.float64)
        signs = None if given is None else relations.signs_of(given, len(targets))
        if first:
            self.features_ = shared.kernel_features(self, X, rng)
        rows = X if self.features_ is None else self.features_(X)
        unit = None if first else self.units_.feature
        forms: Forms = matrix_forms(rows, unit) if rows.ndim == 3 else vector_forms(rows, unit)
        units = shared.Units(forms.unit, root_mean_square(targets)) if first else self.units_
        chosen = shared.settings(self, forms.dimension)
        problem = Regression.weighted(forms, targets / units.target, signs, weights)
        if not first:
            return problem, units.inward(self.factor_), units, chosen
        start = shared.start_factor(self.start, rows, forms.dimension, chosen.rank, rng, weights)
        if not isinstance(self.start, str):
            return problem, units.inward(start), units, chosen
        return problem, shared.best_multiple(problem, start), units, chosen  # the multiple that fits best

    def _with_known_shape(self, X: Any, tiny: bool = False) -> Any:
        if X.ndim > 3 or (X.ndim == 3 and X.shape[1] != X.shape[2]):
            raise ValueError(f"X must have shape (n, d) or (n, d, d), got {X.shape}")
        if X.ndim == 3 and self.kernel is not None:
            raise ValueError("a kernel needs vectors: X must have shape (n, d) where kernel is not None")
        if X.ndim == 2 and not _rows.is_precomputed(self.kernel):
            _rows.refuse_extreme(X, tiny=tiny)
        return X

    def _keep(self, found: FixedRankResult, units: shared.Units) -> None:
        self.units_ = units
        self.result_ = units.result(found)
        self.factor_ = self.result_.factor
        self.rank_ = self.factor_.shape[1]
        self.status_ = found.status
        self.n_iter_ = found.n_iter

    @property
    def _accept_sparse(self) -> str | bool:
        return False if _rows.is_precomputed(self.kernel) else "csr"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = bool(self._accept_sparse)
        tags.input_tags.pairwise = _rows.is_precomputed(self.kernel)
        # a quadratic form without linear part fits few of the test problems
        tags.regressor_tags.poor_score = True
        return tags
