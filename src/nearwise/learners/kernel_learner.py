"""`KernelLearner`: a kernel function for any objects that have one, from labels or constraints."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.metrics.pairwise import PAIRWISE_KERNEL_FUNCTIONS
from sklearn.utils import check_random_state

from nearwise._common.checks import one_of, positive
from nearwise.learners import _kernel_bases, _side
from nearwise.learners._progress import with_callbacks
from nearwise.learners.base import Learner, rank_wanted
from nearwise.learners.input_kernels import InputKernel, in_parts, paired_products
from nearwise.learners.metric import KernelMetric, symmetric_root
from nearwise.model.blocks import Constraints
from nearwise.model.divergences import Divergence
from nearwise.solving.result import Record

Array = NDArray[np.float64]
Index = NDArray[np.int64]

FULL_OBJECTS = 200  # the largest number of objects for which the whole kernel is learned by default
DEFAULT_RANK = 100  # of the learned part where not
_SCALED = ("rbf", "poly", "polynomial", "sigmoid", "laplacian")  # kernels whose gamma goes with the data's


class KernelLearner(Learner):
    """Learn a kernel k(x, y) = phi(x)^T W phi(y) from an input kernel phi(x)^T phi(y). JKDD12 sections 3, 4.

    W is the operator nearest to the identity for which the learned kernel respects the side information. It
    is known on all objects, not only on those of the fit: JKDD12 (6), (18).

    Parameters
    ----------
    kernel : str or callable, default="rbf"
        A kernel of `sklearn.metrics.pairwise`, a function of two rows (or a kernel object of
        `sklearn.gaussian_process`), or "precomputed": then X holds kernel values, n x n for `fit` and one
        row per object, one column per training object for everything else.
    gamma : "scale", number or None, default="scale"
        For rbf, poly, sigmoid and laplacian; "scale" is 1 / (d * variance of X), None is 1 / d.
    degree, coef0 : numbers, default=3 and 1
        For poly and sigmoid.
    kernel_params : dict, default=None
        Further arguments of the kernel.
    divergence, penalty, pairs, n_pairs, tol, max_iter, random_state, callback,
    checkpoint : as for `MetricLearner`
    rank : int, default=None
        The number of dimensions of a reduced basis. Default: 100.
    basis : "auto", "full", "subset", "kmeans" or "random", default="auto"
        The part of the space of the kernel in which W is learned: the span of all training objects, or of
        `rank` of them drawn at random, of the means of `rank` clusters (kernel k-means), of `rank` random
        combinations (JKDD12 3.6, 4.3). "auto" is "subset" if rank is given or there are more than 200
        objects, and "full" otherwise. Only "subset" computes no n x n matrix.

    Attributes
    ----------
    metric_ : the learned `KernelMetric`
    start_metric_ : the `KernelMetric` that the fit started from, that of the input kernel
    rank_ : dimensions of the basis. Eigenvalues of the kernel matrix below 1e-8 of the largest count as
        zero, and so do those that are smaller than twice the most negative one; a negative one beyond 1e-6
        of the largest is refused.
    n_features_in_, feature_names_in_, result_, status_, n_iter_, penalty_, penalty_scores_, kept_prior_,
    n_constraints_used_, n_constraints_dropped_ : as for `MetricLearner`

    Examples
    --------
    >>> import nearwise as nw
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> learner = nw.KernelLearner(random_state=0).fit(X[::2], y[::2])
    >>> learner.learned_kernel(X[1::2], X[::2]).shape
    (75, 75)
    """

    def __init__(
        self,
        kernel: str | Callable[..., float] = "rbf",
        gamma: float | str | None = "scale",
        degree: float = 3,
        coef0: float = 1,
        kernel_params: Mapping[str, Any] | None = None,
        divergence: str | Divergence = "logdet",
        penalty: float | str = "auto",
        rank: int | None = None,
        basis: str = "auto",
        pairs: str = "auto",
        n_pairs: int | None = None,
        tol: float = 1e-6,
        max_iter: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        callback: Callable[[Record], Any] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.divergence = divergence
        self.penalty = penalty
        self.rank = rank
        self.basis = basis
        self.pairs = pairs
        self.n_pairs = n_pairs
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.callback = callback
        self.checkpoint = checkpoint

    @with_callbacks
    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        constraints: Constraints | None = None,
        sample_ids: ArrayLike | None = None,
    ) -> Self:
        """Learn the kernel.

        Parameters
        ----------
        X : (n, d) data, dense or sparse; with kernel="precomputed" the (n, n) kernel matrix
        y, constraints, sample_ids : as for `MetricLearner`
        """
        X = self._training_data(X)
        side = _side.read(X.shape[0], y, constraints, sample_ids)
        kernel = self._input_kernel(X)
        basis = self._kernel_basis(kernel, X)
        if basis.is_reduced:
            side = side.inside(lambda i, j: _outside(kernel, X, basis.features, i, j))
        factor = self._learn(X, y, basis.features, side, None)
        training = basis.features if kernel.is_precomputed else None
        self.metric_ = KernelMetric(kernel, basis.points, basis.weights, symmetric_root(factor), training)
        self.rank_ = basis.features.shape[1]
        return self

    @property
    def start_metric_(self) -> Any:
        """The metric of the input kernel."""
        metric = self._fitted_metric()
        return replace(metric, factor=np.eye(len(metric.factor)))  # type: ignore[type-var]

    def learned_kernel(self, X: Any, Y: Any = None) -> Array:
        """The learned kernel of every row of X with every row of Y.

        It is k0(x, y) + phi'(x)^T (W - I) phi'(y), JKDD12 (6), (18). With a precomputed input kernel, rows
        are kernel values with the training objects, and without Y the result is the learned kernel with
        these, (n, n_train); with Y, objects are taken for their projections on the span of the basis, because
        the rows do not tell k0(x, y).

        Parameters
        ----------
        X : (n, d) data
        Y : (m, d) data, by default X

        Returns
        -------
        (n, m) array
        """
        metric: Any = self._fitted_metric()
        return metric.gram(self._checked(X), None if Y is None else self._checked(Y))

    def distances(self, X: Any, Y: Any = None, *, squared: bool = False) -> Array:
        """Learned distances of every row of X to every row of Y, by default of X.

        With a precomputed input kernel, by default to the training objects; all objects are then taken for
        their projections on the span of the basis, because kernel values with the training objects do not
        tell k0(x, x). With the full basis this changes all distances of a new object by the same amount.

        Parameters
        ----------
        X : (n, d) data
        Y : (m, d) data
        squared : return squared distances, the unit of constraints

        Returns
        -------
        (n, m) array
        """
        if Y is None and self._is_precomputed:
            found = self._fitted_metric().squared_distances(self._checked(X), None)
            return found if squared else np.sqrt(found)
        return super().distances(X, Y, squared=squared)

    @property
    def _is_precomputed(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    @property
    def _accept_sparse(self) -> str | bool:
        return False if self._is_precomputed else "csr"

    def _input_kernel(self, X: Any) -> InputKernel:
        name, parameters = self.kernel, dict(self.kernel_params or {})
        if not isinstance(name, str):
            if not callable(name):
                raise TypeError(f"kernel must be a name or a function of two rows, got {type(name).__name__}")
            return InputKernel(name, parameters)
        if name != "precomputed":
            one_of(name, "kernel", (*sorted(PAIRWISE_KERNEL_FUNCTIONS), "precomputed"))
        if name in _SCALED:
            parameters = {"gamma": self._gamma(X)} | parameters
        if name in ("poly", "polynomial"):
            parameters = {"degree": self.degree} | parameters
        if name in ("poly", "polynomial", "sigmoid"):
            parameters = {"coef0": self.coef0} | parameters
        return InputKernel(name, parameters)

    def _gamma(self, X: Any) -> float:
        if self.gamma is None:
            return 1.0 / X.shape[1]
        if isinstance(self.gamma, str):
            one_of(self.gamma, "gamma", ("scale",))
            variance = X.multiply(X).mean() - X.mean() ** 2 if sparse.issparse(X) else X.var()
            return 1.0 / (X.shape[1] * variance) if variance > 0 else 1.0
        return positive(self.gamma, "gamma", ", 'scale' or None")

    def _kernel_basis(self, kernel: InputKernel, X: Any) -> _kernel_bases.KernelBasis:
        n = X.shape[0]
        if kernel.is_precomputed and X.shape[1] != n:
            raise ValueError(
                f"kernel='precomputed' needs a square kernel matrix for fit, got shape {X.shape}"
            )
        rank = rank_wanted(self.rank, n)
        kind = one_of(self.basis, "basis", ("auto", *_kernel_bases.BASES))
        if kind == "auto":
            kind = "full" if rank is None and n <= FULL_OBJECTS else "subset"
        if kind == "full" and rank is not None:
            raise ValueError(f"basis='full' takes all {n} objects, so rank must be None, got {rank}")
        rng = check_random_state(self.random_state)
        return _kernel_bases.kernel_basis(kernel, X, kind, rank or min(n, DEFAULT_RANK), rng)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._is_precomputed
        return tags


def _outside(kernel: InputKernel, X: Any, features: Array, i: Index, j: Index) -> Array:
    """The inner products of objects i and j outside the subspace in which `features` are the coordinates."""
    base = X[i, j] if kernel.is_precomputed else in_parts(kernel.paired, X, i, j)
    return base - in_parts(paired_products, features, i, j)
