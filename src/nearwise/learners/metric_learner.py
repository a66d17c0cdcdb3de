"""`MetricLearner`: a Mahalanobis metric for vectors, from labels or constraints."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_feature_names

from nearwise._common.checks import one_of
from nearwise._common.reading import symmetric
from nearwise._common.types import Array, Codes, Index
from nearwise._common.warning import warn
from nearwise.core import Divergence, LogDet
from nearwise.distributed import Stacked, Vectors, is_dask, vectors_of
from nearwise.learners import _bases, _in_pieces, _side
from nearwise.learners._progress import whole, with_callbacks
from nearwise.learners._rows import dense, refuse_too_few
from nearwise.learners._space import Outside
from nearwise.learners._structure import (
    Structure,
    diagonal_of,
    inverse_covariance,
    prior_weights,
    structure_of,
    units_for,
)
from nearwise.learners.base import LinearLearner, rank_wanted
from nearwise.learners.coordinate_metrics import DiagonalMetric
from nearwise.learners.input_kernels import InputKernel, first_equal_rows
from nearwise.learners.metric import Metric, dense_product, euclidean, root_of, symmetric_root
from nearwise.methods import Record
from nearwise.side import Constraints

FULL_FEATURES = 256  # the largest number of features for which all d x d entries of M are learned by default
DEFAULT_RANK = 100  # of the learned part where not
FEW_DIMENSIONS = 3  # up to which a subspace is by default the one in which neighbours tell classes
MAPPED_NUMBERS = 2**27  # in a memory-mapped array, up to which it is read into memory: 1 GB


class MetricLearner(LinearLearner):
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

    def __init__(
        self,
        divergence: str | Divergence = "logdet",
        prior: str | ArrayLike = "identity",
        penalty: float | str = "auto",
        rank: int | None = None,
        basis: str | ArrayLike = "auto",
        pairs: str = "auto",
        n_pairs: int | None = None,
        tol: float = 1e-6,
        max_iter: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        callback: Callable[[Record], Any] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        whole: bool = False,
        structure: str | None = None,
        groups: Any = None,
        scoring: str = "auto",
    ) -> None:
        self.divergence = divergence
        self.prior = prior
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
        self.whole = whole
        self.structure = structure
        self.groups = groups
        self.scoring = scoring

    @with_callbacks
    @whole
    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        constraints: Constraints | None = None,
        sample_ids: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn the metric.

        Parameters
        ----------
        X : (n, d) data, dense or sparse; or a Dask array or dataframe, or rows in files
            (`nearwise.distributed.open_vectors`), of which only few rows are ever in memory
        y : n labels of any type; None, NaN and -1 mean no label (-1 and +1 alone are two classes, with a
            warning), and measurements are refused
        constraints : what else is known; learned from together with the labels, if there are both. Those of a
            table in files or on Dask (`nearwise.distributed.open_pairs`) are passed over a part at a time.
        sample_ids : n ids, by which the constraints name the rows of X; by default they do by row number.
            Constraints on ids that are not among them are left out and counted, with an `UnknownIdsWarning`;
            not so in scikit-learn's cross-validation, which hands over a part of the data.
        sample_weight : n numbers >= 0, how much every row counts: a pair drawn from labels and a constraint
            count times the weights of their rows, as if a row of weight 2 were there twice. Of rows of weight
            0 nothing is known.
        """
        in_files = _side.are_in_files(constraints)
        mapped = isinstance(X, np.memmap) and not in_files and self._belongs_in_memory(X)
        vectors = None if mapped else vectors_of(X)
        if vectors is not None and not in_files and self._is_wide(vectors) and _in_pieces.are_few(vectors):
            given = X, y, sample_ids, sample_weight
            (X, y, sample_ids, sample_weight), vectors = _in_pieces.taken(*given, vectors), None
        if vectors is not None:
            refuse_too_few(vectors)
            _check_feature_names(self, getattr(X, "_meta", None), reset=True)  # of a Dask dataframe
            self.n_features_in_ = vectors.shape[1]
            return self._fit_in_pieces(X, vectors, y, constraints, sample_ids, sample_weight)
        X = self._training_data(X)
        if in_files:
            if sparse.issparse(X):
                raise TypeError("constraints in files need dense data, got a sparse matrix")
            return self._fit_in_pieces(X, Stacked([X]), y, constraints, sample_ids, sample_weight)
        side = _side.read(X.shape[0], y, constraints, sample_ids, sample_weight=sample_weight)
        if self.structure is not None or self.groups is not None:
            return self._fit_structure(X, y, side)
        if self._is_in_subspace(X):
            return self._fit_in_subspace(X, y, side)
        X = dense(X)
        prior = self.prior_matrix(X)
        if prior is None:
            factor = self._learn(X, y, X, side, None)
        else:
            factor = self._learn_in_units(X, y, side, prior)
        return self._with_metric(Metric(symmetric_root(factor)), prior, X, side)

    def _learn_in_units(
        self,
        X: Array,
        y: Any,
        side: _side.SideInformation,
        prior: Array | None,
        form: Structure | None = None,
    ) -> Array:
        """A factor of M, learned in units of the columns in which double precision bears the prior."""
        units = units_for(prior)
        if units is None or prior is None:
            return self._learn(X, y, X, side, prior, structure=form)
        if self.divergence != "logdet" and not isinstance(self.divergence, LogDet):
            hint = "scale the columns of X, or use divergence='logdet', for which units do not matter"
            said = f"the prior is too small in some columns to be told from zero: {hint}"
            warn(f"{type(self).__name__}: {said}")
            return self._learn(X, y, X, side, prior, structure=form)
        factor = self._learn(X, y, X * units, side, prior / units / units[:, None], structure=form)
        return units[:, None] * factor

    def _with_metric(self, metric: Metric, prior: Array | None, X: Any, side: _side.SideInformation) -> Self:
        self.metric_, self.rank_ = metric, len(metric.factor)
        self.start_metric_ = euclidean(self.n_features_in_) if prior is None else Metric(root_of(prior))
        if self.kept_prior_ and prior is not None:
            self.start_metric_ = metric  # the same to the last digit, as a comparison expects
        self._tell_of_selection(X, side.constraints)
        return self

    def _fit_in_subspace(self, X: Any, y: Any, side: _side.SideInformation) -> Self:
        """What M is in a subspace, outside which it is the identity."""
        kind, rank = self._basis_kind, rank_wanted(self.rank, X.shape[1])
        if not self._starts_from_identity:
            raise ValueError("a prior other than 'identity' needs all of M: rank=None and basis='auto'")
        if kind == "auto" and side.codes is not None and rank is not None and rank <= FEW_DIMENSIONS:
            kind = "neighbors"
        given = self.basis if kind == "given" else one_of(kind, "basis", ("auto", *_bases.BASES))
        count, first_equal = rank or min(*X.shape, DEFAULT_RANK), first_equal_rows(X)

        def basis_by(codes: Codes | None) -> Array:
            rng = check_random_state(self.random_state)
            return _bases.linear_basis(X, given, count, codes, rng, side.weights)

        def made_from(rows: Index) -> Array:
            """Coordinates of all rows in the directions that the labels of some tell."""
            assert side.codes is not None
            known = np.full_like(side.codes, -1)
            known[rows] = side.codes[rows]
            return dense_product(X, basis_by(known))[first_equal]

        basis = basis_by(side.codes)
        features = dense_product(X, basis)[first_equal]
        outside = Outside(InputKernel("linear"), X, features)
        # in a basis that is made of the classes' objects, these have neighbours that others do not have
        drawn = "random" if side.codes is not None and kind in _bases.BY_CLASS else "local"
        again = made_from if kind == "neighbors" and side.codes is not None else None
        factor = self._learn(X, y, features, side, None, outside, drawn, made_from=again)
        return self._with_metric(Metric(symmetric_root(factor), basis), None, X, side)

    def _fit_structure(self, X: Any, y: Any, side: _side.SideInformation) -> Self:
        """A diagonal matrix, or one in blocks."""
        form = self._form()
        if self.rank is not None or self._basis_kind != "auto":
            raise ValueError(f"structure={self.structure!r} needs rank=None and basis='auto'")
        start: Metric | DiagonalMetric
        if form.is_diagonal:
            weights = prior_weights(self.prior, X)
            root = self._learn(X, y, X, side, weights, structure=form)
            self.metric_ = DiagonalMetric(diagonal_of(root))
            start = DiagonalMetric(np.ones(X.shape[1]) if weights is None else weights)
        else:
            by_data = isinstance(self.prior, str) and self.prior == "covariance"
            prior = inverse_covariance(X, form.groups) if by_data else self.prior_matrix(X)
            root = symmetric_root(self._learn_in_units(X, y, side, prior, form))
            self.metric_ = Metric(form.without_rounding(root))
            start = euclidean(X.shape[1]) if prior is None else Metric(root_of(prior))
        self.start_metric_ = self.metric_ if self.kept_prior_ else start
        self.rank_ = X.shape[1]
        self._tell_of_selection(X, side.constraints)
        return self

    def _fit_in_pieces(
        self,
        X: Any,
        vectors: Vectors,
        y: Any,
        constraints: Constraints | None,
        sample_ids: ArrayLike | None,
        sample_weight: Any,
    ) -> Self:
        """The same for rows, or constraints, that are not in memory; all of M is learned."""
        if self.structure is not None:
            raise ValueError(f"structure={self.structure!r} needs data in memory")
        if self.rank is not None or not isinstance(self.basis, str) or self.basis != "auto":
            raise ValueError("rank and basis need data in memory: of rows in pieces, all of M is learned")
        if isinstance(self.prior, str) and self.prior == "covariance":
            raise ValueError("prior='covariance' needs data in memory: give the matrix")
        labels = y.compute() if is_dask(y) else y
        names = vectors.ids if sample_ids is None else sample_ids
        weights = sample_weight.compute() if is_dask(sample_weight) else sample_weight
        side = _side.read(len(vectors), labels, constraints, names, sample_weight=weights, in_files=True)
        prior = self.prior_matrix(np.empty((0, vectors.shape[1])))
        rows = vectors.by_number() if isinstance(vectors, Stacked) else vectors
        factor = self._learn(X, labels, rows, side, prior)
        return self._with_metric(Metric(symmetric_root(factor)), prior, rows, side)

    @property
    def weights_(self) -> Array:
        metric = self._fitted_metric()
        if not isinstance(metric, DiagonalMetric):
            raise AttributeError("weights_ is there with structure='diagonal' only")
        return metric.weights

    @property
    def groups_(self) -> Index:
        self._fitted_metric()
        if self.structure != "blocks":
            raise AttributeError("groups_ is there with structure='blocks' only")
        return self._form().groups

    def _form(self) -> Structure:
        """What the parameters `structure` and `groups` mean for the columns of the fit."""
        names = getattr(self, "feature_names_in_", None)
        return structure_of(self.structure, self.groups, self.n_features_in_, names)

    @property
    def _starts_from_identity(self) -> bool:
        return isinstance(self.prior, str) and self.prior == "identity"

    @property
    def _accept_sparse(self) -> str | bool:
        """Sparse data are learned from in a subspace, outside which M is the identity."""
        if self.structure == "blocks":
            return False
        return "csr" if self._starts_from_identity or self.structure == "diagonal" else False

    @property
    def _basis_kind(self) -> str:
        """The name of the basis; "given" for an array."""
        return self.basis if isinstance(self.basis, str) else "given"

    def _belongs_in_memory(self, X: Any) -> bool:
        """Whether a memory-mapped array, which joblib makes of any large one, is learned from as an array is.

        It is unless it is large, and no part of the fit needs all rows at once: no subspace, named or by
        default, and no prior from the data.
        """
        needs_all = self.structure is not None or (isinstance(self.prior, str) and self.prior == "covariance")
        return needs_all or X.ndim != 2 or self._is_in_subspace(X) or X.size <= MAPPED_NUMBERS

    def _is_in_subspace(self, X: Any) -> bool:
        """Whether one is named, or M is learned in one by default: of many features, however kept."""
        return self.rank is not None or self._basis_kind != "auto" or self._is_wide(X)

    def _is_wide(self, X: Any) -> bool:
        """Whether nothing is named, and M is learned in a subspace because there are many features."""
        named = self.rank is not None or self._basis_kind != "auto" or self.structure is not None
        return not named and X.shape[1] > FULL_FEATURES and self._starts_from_identity

    def prior_matrix(self, X: Array) -> Array | None:
        """The matrix that `prior` means for these rows, None for the identity."""
        if not isinstance(self.prior, str):
            prior = symmetric(self.prior, "prior")
            if prior.shape != (X.shape[1], X.shape[1]):
                shape = (X.shape[1], X.shape[1])
                raise ValueError(f"prior must have shape {shape} like the features, got {prior.shape}")
            return prior
        if one_of(self.prior, "prior", ("identity", "covariance")) == "identity":
            return None
        return inverse_covariance(X)
