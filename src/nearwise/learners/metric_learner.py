"""`MetricLearner`: a Mahalanobis metric for vectors, from labels or constraints."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nearwise._common.checks import one_of
from nearwise._common.reading import symmetric
from nearwise._common.types import Array, Index
from nearwise.core import Divergence, LogDet
from nearwise.distributed import Vectors
from nearwise.learners import _in_pieces
from nearwise.learners._estimator import SolvingLearner
from nearwise.learners._place import Place, all_of, in_subspace, is_wide, on_columns
from nearwise.learners._rows import MAPPED_NUMBERS, dense
from nearwise.learners._side import Side
from nearwise.learners._structure import FULL, Structure, inverse_covariance, structure_of
from nearwise.learners.base import LinearLearner, rank_wanted
from nearwise.learners.coordinate_metrics import DiagonalMetric


@dataclass(kw_only=True, eq=False, repr=False)
class MetricLearner(SolvingLearner, LinearLearner):
    """Learn a squared distance (x - y)^T M (x - y) for vectors. JKDD12 section 3.

    M is the matrix nearest to a prior that respects the side information: labels of any type, from which
    pairs are drawn, and constraints made by `nearwise.constraints`.

    Parameters
    ----------
    divergence : "logdet", "vonneumann", "frobenius" or a `Divergence`, default="logdet"
        What nearest means.
    prior : "identity", "covariance" or (d, d) array, default="identity"
        M without side information; "covariance" is the inverse of the data's covariance matrix (its
        pseudo-inverse where that is singular). An array must be positive semidefinite. All but "identity"
        need dense data.
    penalty : "auto", number > 0 or inf, default="auto"
        What it costs to violate a constraint, inf making all of them hard. "auto" chooses it on what is held
        out, and keeps the prior where none does better than that: with labels half of the objects, by the
        share of their class among their five nearest of the others; without, a third of the constraints, by
        how often what shall be nearer is nearer. For LogDet this is the penalty of `Problem`; for other
        divergences, where a penalty has a unit, it is meant for constraints of size 1.
    rank : int, default=None
        Learn M = I + U (L - I) U^T in a subspace of this dimension only, in O(d rank) memory (JKDD12 3.6).
        By default all of M is learned for data of up to 256 features, and 100 dimensions otherwise.
    basis : "auto", "svd", "kmeans", "class_means", "class_clusters", "neighbors" or (d, k) array,
        default="auto"
        The subspace: leading singular vectors of the data, the means of clusters, of classes, or of clusters
        within classes, the directions of `NeighborLearner`, or the span of given columns. With labels "auto"
        is "neighbors" for a rank of up to 3, where coordinates make a map to look at, and "class_clusters"
        for more; without labels it is "svd". Naming a basis means learning in it, whatever the number of
        features.
    pairs : "auto", "random", "local" or "none", default="auto"
        How pairs are drawn from labels: uniformly, or between near neighbours, which is the default but in a
        basis that is made from the classes; or "none", for labels that serve to make a basis only.
    n_pairs : int, default=None
        How many pairs to draw from labels at most; by default 20,000 local or 40 c^2 random ones for c
        classes.
    tol : float, default=1e-6
        The largest relative gap between the objective and its lower bound at which M counts as solved.
    max_iter : int, default=None
        The largest number of iterations of a solve.
    random_state : int, RandomState or None, default=None
        Seed of all random choices.
    callback : callable, default=None
        Called with a `Record` after every iteration of a solve; a true answer ends the fit with what was
        found so far. scikit-learn's own callbacks (`set_callbacks`) see every iteration too.
    checkpoint : path, default=None
        A file that keeps what a long fit has found so far. If the fit is interrupted, the same call goes on
        from there and ends with the same result; then the file is removed. Needs a whole number as
        `random_state`.
    whole : bool, default=False
        Where a subspace is learned: let `transform` give d coordinates, in which the Euclidean distance is
        the whole learned one, instead of those in the subspace. It can be set after the fit.
    scoring : "auto", "neighbors", "accuracy", "balanced_accuracy" or "roc_auc", default="auto"
        What penalty="auto" looks at on the half of the labelled objects that it holds out: the share of their
        class among the five nearest; whether most of these have it, over all objects or over every class
        alike; or how often a pair of one class is nearer than one of two. "auto" is "neighbors" with labels.
        Without labels it is how often what shall be nearer is nearer, on a third of the constraints. Of
        penalties within half a standard error of the best, the smallest is taken.
    structure : None, "diagonal" or "blocks", default=None
        The form of M: "diagonal" learns a weight for every feature, in time and memory that grow with the
        entries of the data, which may be sparse with a million columns; the prior may be d weights. "blocks"
        learns a matrix for every group of columns, and M is zero between groups. Both need rank=None.
    groups : the groups of columns of structure="blocks", default=None
        Lists of column numbers or names, as in [["height", "weight"], ["age"]], or a dict of such lists by
        the groups' names; a column in none of them is a group by itself. Or an array of the group of every
        column.

    Attributes
    ----------
    metric_ : the learned `Metric`, or `DiagonalMetric` of structure="diagonal"
    start_metric_ : the `Metric` that the fit started from, which `prior` was on the data of the fit
    components_ : (n_components, d) array, the linear map of `transform`
    weights_, groups_ : of structure="diagonal", the weight of every feature; of structure="blocks", the group
        of every column as a number
    rank_ : dimensions of the learned subspace, d where all of M was learned; in the others M is the identity
    result_ : `Result` of the last solve with certificate and history; None where nothing was to be learned
    status_ : `Status` of that solve
    n_iter_ : iterations of all solves, also of those that choose the penalty
    penalty_, penalty_scores_ : the penalty used; pairs (penalty, score on what was held out), the prior's
        first with penalty 0; none where the penalty was given, or too little is known to hold anything out
    kept_prior_ : whether M is the prior
    n_constraints_used_, n_constraints_dropped_ : constraints that were learned from, drawn from labels or
        given; given ones that were left out, because they name objects which are not in the data, or want
        equal objects to be apart
    n_features_in_, feature_names_in_ : as everywhere in scikit-learn

    Examples
    --------
    >>> import nearwise as nw
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> learner = nw.MetricLearner(random_state=0).fit(X, y)
    >>> learner.transform(X).shape
    (150, 4)
    >>> learner.status_
    <Status.SOLVED: 'solved'>
    """

    divergence: str | Divergence = field(default="logdet", kw_only=False)
    prior: str | ArrayLike = "identity"
    rank: int | None = None
    basis: str | ArrayLike = "auto"
    whole: bool = False
    structure: str | None = None
    groups: Any = None

    def places(self, X: Any, side: Side, random_state: Any) -> list[Place]:
        """All of M, M in its structure, or M in a subspace."""
        logdet = isinstance(self._divergence(), LogDet)
        if isinstance(X, Vectors):
            self._refuse_in_pieces()
            return [all_of(X, self.prior_matrix(np.empty((0, X.shape[1]))))]
        if self.structure is not None or self.groups is not None:
            form = self._form()
            if self.rank is not None or not _is(self.basis, "auto"):
                raise ValueError(f"structure={self.structure!r} needs rank=None and basis='auto'")
            if form.is_diagonal:
                return [on_columns(X, self.prior, form)]
            return [all_of(X, self.prior_matrix(X, form), form, unit_free=logdet)]
        if self._is_in_subspace(X):
            if not _is(self.prior, "identity"):
                raise ValueError("a prior other than 'identity' needs all of M: rank=None and basis='auto'")
            rank = rank_wanted(self.rank, X.shape[1])
            return [in_subspace(X, side, self.basis, rank, random_state)]
        X = dense(X)
        return [all_of(X, self.prior_matrix(X), unit_free=logdet)]

    def prior_matrix(self, X: Array, form: Structure = FULL) -> Array | None:
        """The matrix that `prior` means for these rows, None for the identity."""
        if not isinstance(self.prior, str):
            prior, shape = symmetric(self.prior, "prior"), (X.shape[1], X.shape[1])
            if prior.shape != shape:
                raise ValueError(f"prior must have shape {shape} like the features, got {prior.shape}")
            return prior
        if one_of(self.prior, "prior", ("identity", "covariance")) == "identity":
            return None
        return inverse_covariance(X, form.groups)

    @property
    def weights_(self) -> Array:
        metric = self._fitted_metric()
        if not isinstance(metric, DiagonalMetric):
            raise AttributeError("weights_ is there with structure='diagonal' only")
        return metric.weights

    @property
    def groups_(self) -> Index:
        self._fitted_metric()
        groups = self._form().groups if self.structure == "blocks" else None
        if groups is None:
            raise AttributeError("groups_ is there with structure='blocks' only")
        return groups

    def _form(self) -> Structure:
        """What the parameters `structure` and `groups` mean for the columns of the fit."""
        names = getattr(self, "feature_names_in_", None)
        return structure_of(self.structure, self.groups, self.n_features_in_, names)

    @property
    def _accept_sparse(self) -> str | bool:
        """Sparse data are learned from in a subspace, outside which M is the identity."""
        if self.structure == "blocks":
            return False
        free = _is(self.prior, "identity") or self.structure == "diagonal"
        return "csr" if free else False

    def _known(
        self, X: Any, y: Any, constraints: Any, sample_ids: Any, sample_weight: Any
    ) -> tuple[Any, Any, Side]:
        given = X, y, constraints, sample_ids, sample_weight
        return _in_pieces.known(self, *given, maps=self._belongs_in_memory, takes=self._is_wide)

    def _refuse_in_pieces(self) -> None:
        """Refuse what needs all rows at once."""
        if self.structure is not None:
            raise ValueError(f"structure={self.structure!r} needs data in memory")
        if self.rank is not None or not _is(self.basis, "auto"):
            raise ValueError("rank and basis need data in memory: of rows in pieces, all of M is learned")
        if _is(self.prior, "covariance"):
            raise ValueError("prior='covariance' needs data in memory: give the matrix")

    def _belongs_in_memory(self, X: Any) -> bool:
        """Whether a memory-mapped array, which joblib makes of any large one, is learned from as an array is.

        It is unless it is large, and no part of the fit needs all rows at once: no subspace, named or by
        default, and no prior from the data.
        """
        needs_all = self.structure is not None or _is(self.prior, "covariance")
        return needs_all or X.ndim != 2 or self._is_in_subspace(X) or X.size <= MAPPED_NUMBERS

    def _is_in_subspace(self, X: Any) -> bool:
        """Whether one is named, or M is learned in one by default: of many features, however kept."""
        return self.rank is not None or not _is(self.basis, "auto") or self._is_wide(X)

    def _is_wide(self, X: Any) -> bool:
        """Whether nothing is named, and M is learned in a subspace because there are many features."""
        nothing = self.rank is None and _is(self.basis, "auto") and self.structure is None
        return nothing and is_wide(X) and _is(self.prior, "identity")


def _is(given: Any, text: str) -> bool:
    """Whether a parameter that may be an array is this text."""
    return isinstance(given, str) and given == text
