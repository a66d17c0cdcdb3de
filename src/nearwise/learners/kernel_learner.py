"""`KernelLearner`: a kernel function for any objects that have one, from labels or constraints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics.pairwise import PAIRWISE_KERNEL_FUNCTIONS
from sklearn.utils import check_random_state

from nearwise._common.checks import finite, not_negative, one_of, positive
from nearwise._common.reading import symmetric
from nearwise._common.types import Array, Index
from nearwise._common.warning import warn
from nearwise.learners import _kernel_bases
from nearwise.learners._contest import Verdict
from nearwise.learners._estimator import SolvingLearner
from nearwise.learners._place import Place
from nearwise.learners._side import Side
from nearwise.learners._space import Outside
from nearwise.learners.base import rank_wanted
from nearwise.learners.input_kernels import InputKernel, SumKernel, scale_gamma
from nearwise.learners.metric import KernelMetric, ObjectSpan, symmetric_root

FULL_OBJECTS = 100  # the largest number of objects for which the whole kernel is learned by default
# of the learned part where not: of up to 1,000 objects, then with the root of their number, and at most
DEFAULT_RANK, MOST_RANK = 55, 100
GAMMAS = (0.3, 1.0)  # that gamma="auto" tries, times "scale", which is the last
_HIDDEN = 0.01  # of the squared distances, which rounding may hide without a word
_SCALED = ("rbf", "poly", "polynomial", "sigmoid", "laplacian")  # kernels whose gamma goes with the data's


@dataclass(kw_only=True, eq=False, repr=False)
class KernelLearner(SolvingLearner):
    """Learn a kernel k(x, y) = phi(x)^T W phi(y) from an input kernel phi(x)^T phi(y). JKDD12 sections 3, 4.

    W is the operator nearest to the identity for which the learned kernel respects the side information. It
    is known on all objects, not only on those of the fit: JKDD12 (6), (18).

    Parameters
    ----------
    kernel : str, callable or list of these, default="rbf"
        A kernel of `sklearn.metrics.pairwise`, a function of two rows (or a kernel object of
        `sklearn.gaussian_process`), or "precomputed": then X holds kernel values, n x n for `fit` and one
        row per object, one column per training object for everything else. A list, or names joined by "+"
        as in "linear+rbf", is the sum of kernels, scaled so that all have the total variance that the
        first has on X.
    gamma : "auto", "scale", number or None, default="auto"
        For rbf, poly, sigmoid and laplacian; "scale" is 1 / (d * variance of X), None is 1 / d. "auto" is for
        rbf 0.3 or 1 times "scale", whichever does better on what is held out after a first round of learning;
        "scale" where nothing can be held out or constraints are hard, and for other kernels.
    degree, coef0 : numbers, default=3 and 1
        For poly and sigmoid.
    kernel_params : dict, default=None
        Further arguments of the kernel; not for a sum.
    divergence, penalty, scoring, pairs, n_pairs, tol, max_iter, random_state, callback,
    checkpoint : as for `MetricLearner`; pairs="auto" is "random" for the basis "class_means" and else "local"
    rank : int, default=None
        The number of dimensions of a reduced basis. Default: 55, and of more than 1,000 objects more, with
        the root of their number, up to 100: what a fit costs grows with its square.
    basis : str or (n, k) array, default="auto"
        One of "auto", "full", "principal", "leverage", "subset", "kmeans", "spectral", "class_means" and
        "random". The part of the space of the kernel in which W is learned: the span of all training objects;
        of `rank` of them, drawn uniformly ("subset") or far from the span of those before ("leverage"); the
        principal directions of all in the span of three times `rank` that are drawn in this way
        ("principal"); the span of the means of `rank` clusters (kernel k-means or spectral clustering), of
        the means of the classes, of `rank` random combinations, or of the combinations that are the columns
        of a given J (JKDD12 3.6, 4.3). "auto" is "principal" if rank is given or there are more than 100
        objects, and "full" otherwise. The three that draw objects compute no n x n matrix.
    alpha : number >= 0, default=1.0
        What W is nearest to: alpha times the identity, which it also is outside the basis (JKDD12 (18)). The
        alpha = 0 of POLA (JKDD12 5.2), which learns a kernel from nothing, needs divergence="frobenius".

    Attributes
    ----------
    metric_ : the learned `KernelMetric`
    start_metric_ : the `KernelMetric` that the fit started from, that of the input kernel
    gamma_, gamma_scores_ : the gamma of the kernel, None where it has none; pairs (gamma, score on what was
        held out) of those that were tried
    rank_ : dimensions of the basis. Eigenvalues of the kernel matrix, less the mean of the objects in the
        space of the kernel, below 1e-8 of the largest count as zero, and so do those that are smaller than
        twice the most negative one; a negative one of the kernel matrix itself, beyond 1e-6 of its largest,
        is refused.
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

    _looks: ClassVar[bool] = True

    _stored: ClassVar[tuple[str, ...]] = (*SolvingLearner._stored, "gamma_", "gamma_scores_")

    kernel: str | Callable[..., float] | Sequence[str | Callable[..., float]] = field(
        default="rbf", kw_only=False
    )
    gamma: float | str | None = "auto"
    degree: float = 3
    coef0: float = 1
    kernel_params: Mapping[str, Any] | None = None
    rank: int | None = None
    basis: str | ArrayLike = "auto"
    alpha: float = 1.0

    def places(self, X: Any, side: Side, random_state: Any) -> list[Place]:
        """A basis of the kernel of every gamma."""
        alpha = self._alpha()
        return [self._place(X, side, gamma, alpha) for gamma in self._gammas(X)]

    def _place(self, X: Any, side: Side, gamma: float | None, alpha: float) -> Place:
        """Where W is learned, with the kernel of this gamma."""
        kernel = self._input_kernel(X, gamma)
        basis, span, outside = self._kernel_basis(kernel, X, side.codes), None, None
        features, given = basis.features, kernel.is_precomputed
        if basis.is_reduced and alpha > 0:
            outside = Outside(kernel, X, features, alpha)
            if given:
                span = ObjectSpan.of(symmetric(X, "X (a precomputed kernel)"))

        def metric(factor: Array) -> KernelMetric:
            root, training = symmetric_root(factor), features if given else None
            return KernelMetric(kernel, basis.points, basis.weights, root, training, span, alpha)

        prior = None if alpha == 1.0 else alpha * np.eye(features.shape[1])
        by_class = isinstance(self.basis, str) and self.basis == "class_means"
        pairs = "random" if by_class else "local"
        return Place(features, metric, name=gamma, prior=prior, outside=outside, pairs=pairs)

    def _keep(self, verdict: Verdict, side: Side, n_iterations: int) -> None:
        self.gamma_, self.gamma_scores_ = verdict.place.name, verdict.scores
        super()._keep(verdict, side, n_iterations)

    @property
    def start_metric_(self) -> Any:
        """The metric of the input kernel."""
        return self._fitted_metric().start

    @property
    def _before_learning(self) -> InputKernel:
        return self._fitted_metric().kernel

    def learned_kernel(self, X: Any, Y: Any = None) -> Array:
        """The learned kernel of every row of X with every row of Y.

        It is k0(x, y) + phi'(x)^T (W - I) phi'(y), JKDD12 (6), (18). With a precomputed input kernel, rows
        are kernel values with the training objects, and without Y the result is the learned kernel with
        these, (n, n_train); with Y, new objects are taken for their projections on the span of all training
        objects, since rows tell no more.

        Parameters
        ----------
        X : (n, d) data
        Y : (m, d) data, by default X

        Returns
        -------
        (n, m) array
        """
        metric = self._fitted_metric()
        return metric.gram(self._checked(X), None if Y is None else self._checked(Y))

    def distances(self, X: Any, Y: Any = None, *, squared: bool = False) -> Array:
        """Learned distances of every row of X to every row of Y, by default of X.

        They are those of the learned kernel, k(x, x) + k(y, y) - 2 k(x, y), whatever the basis. With a
        precomputed input kernel, by default to the training objects; a new object is then taken for its
        projection on the span of all training objects, because kernel values with these do not tell
        k0(x, x). That makes all its squared distances to training objects less by the same amount.

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

    def _names(self) -> list[Any]:
        """The parts of the kernel."""
        names = self.kernel
        if isinstance(names, str):
            return [name.strip() for name in names.split("+")]
        return list(names) if isinstance(names, (list, tuple)) else [names]

    def _input_kernel(self, X: Any, gamma: float | None) -> InputKernel:
        names = self._names()
        if len(names) == 1 and not isinstance(self.kernel, (list, tuple)):
            return self._single_kernel(names[0], gamma)
        if not names:
            raise ValueError("kernel must name at least one kernel, got an empty list")
        if self._own_parameters():
            raise ValueError("kernel_params belong to one kernel, and must be None beside a sum of kernels")
        if "precomputed" in names:
            raise ValueError("kernel='precomputed' cannot be a part of a sum; add the matrices before fit")
        return SumKernel.of([self._single_kernel(name, gamma) for name in names], X)

    def _own_parameters(self) -> dict[str, Any]:
        """`kernel_params`."""
        if not isinstance(self.kernel_params, Mapping | None):
            raise TypeError(f"kernel_params must be parameters by name or None, got {self.kernel_params!r}")
        return dict(self.kernel_params or {})

    def _single_kernel(self, name: Any, gamma: float | None) -> InputKernel:
        parameters = self._own_parameters()
        if not isinstance(name, str):
            if not callable(name):
                raise TypeError(f"kernel must be a name or a function of two rows, got {type(name).__name__}")
            return InputKernel(name, parameters)
        if name != "precomputed":
            one_of(name, "kernel", (*sorted(PAIRWISE_KERNEL_FUNCTIONS), "precomputed"))
        if name in _SCALED:
            parameters = {"gamma": gamma} | parameters
        if name in ("poly", "polynomial"):
            parameters = {"degree": self.degree} | parameters
            positive(parameters["degree"], "degree")
        if name in ("poly", "polynomial", "sigmoid"):
            parameters = {"coef0": self.coef0} | parameters
            finite(parameters["coef0"], "coef0")
        return InputKernel(name, parameters)

    def _gammas(self, X: Any) -> list[float | None]:
        """Those to choose from; none where the kernel has none."""
        names = [name for name in self._names() if isinstance(name, str)]
        if not any(name in _SCALED for name in names):
            return [None]
        if self.gamma is None:
            return [1.0 / X.shape[1]]
        if not isinstance(self.gamma, str):
            return [positive(self.gamma, "gamma", ", 'auto', 'scale' or None")]
        one_of(self.gamma, "gamma", ("auto", "scale"))
        unit = scale_gamma(X)
        given = "gamma" in self._own_parameters()
        open_to_choice = self.gamma == "auto" and "rbf" in names and not given and self.penalty != np.inf
        return [float(factor * unit) for factor in GAMMAS] if open_to_choice else [unit]

    def _kernel_basis(
        self, kernel: InputKernel, X: Any, codes: Index | None = None
    ) -> _kernel_bases.KernelBasis:
        n = X.shape[0]
        if kernel.is_precomputed and X.shape[1] != n:
            raise ValueError(
                f"kernel='precomputed' needs a square kernel matrix for fit, got shape {X.shape}"
            )
        rank = rank_wanted(self.rank, n, of_features=False)
        rng = check_random_state(self.random_state)
        if not isinstance(self.basis, str):
            if rank is not None:
                raise ValueError(f"rank must be None beside a given basis, got {rank}")
            return _kernel_bases.kernel_basis(kernel, X, self.basis, n, rng)
        kind = one_of(self.basis, "basis", ("auto", *_kernel_bases.BASES))
        if kind == "auto":
            kind = "full" if rank is None and n <= FULL_OBJECTS else "principal"
        if kind == "full" and rank is not None:
            raise ValueError(f"basis='full' takes all {n} objects, so rank must be None, got {rank}")
        if kind == "class_means" and (codes is None or rank is not None):
            raise ValueError(f"basis='class_means' needs labels y and rank=None, got rank={rank}")
        count = n if kind == "full" else rank or min(n, _default_rank(n))
        basis = _kernel_bases.kernel_basis(kernel, X, kind, count, rng, codes)
        if kind in ("full", "principal", "leverage") and basis.features.shape[1] < count:
            self._tell_hidden(_kernel_bases.hidden_share(kernel, X, basis.features))
        return basis

    def _tell_hidden(self, share: float) -> None:
        """Say that kernel values are so large that what differs between objects counts as their rounding."""
        if share > _HIDDEN:
            cause = "kernel values are large beside them, and 1e-8 of the largest counts as rounding"
            told = f"{share:.0%} of the squared distances between objects cannot be learned: {cause}"
            warn(f"{type(self).__name__}: {told}; centre X before the kernel is computed")

    def _alpha(self) -> float:
        alpha = not_negative(self.alpha, "alpha")
        if alpha == 0 and isinstance(self.divergence, str) and self.divergence in ("logdet", "vonneumann"):
            raise ValueError(
                f"alpha=0 needs divergence='frobenius', got {self.divergence!r}, which is infinite from zero "
                "to any other matrix"
            )
        return alpha


def _default_rank(n_objects: int) -> int:
    return min(max(DEFAULT_RANK, round(DEFAULT_RANK * np.sqrt(n_objects / 1000))), MOST_RANK)
