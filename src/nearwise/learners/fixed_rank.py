"""What the fixed-rank estimators share: geometries by name, kernels, starts, units, batch and online runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from nearwise._common.checks import one_of, share, tolerance, whole_number, whole_number_or_none
from nearwise._common.errors import RowsError
from nearwise._common.threads import one_blas_thread
from nearwise._common.types import Array
from nearwise._common.warning import warn
from nearwise.fixed_rank.cone import LogEuclidean
from nearwise.fixed_rank.descent import Armijo
from nearwise.fixed_rank.driver import FixedRankRecord, FixedRankResult
from nearwise.fixed_rank.forms import product
from nearwise.fixed_rank.geometry import Flat, Geometry, Polar
from nearwise.fixed_rank.online import Passes, Schedule, Stream, searched_schedule
from nearwise.fixed_rank.regression import Regression, constraint_forms, root_mean_square
from nearwise.fixed_rank.runs import Run
from nearwise.learners._checkpoint import Checkpoint
from nearwise.learners._kernel_bases import kernel_basis
from nearwise.learners._rows import is_precomputed
from nearwise.learners.base import rank_wanted
from nearwise.learners.coordinate_metrics import KernelFeatures
from nearwise.learners.input_kernels import InputKernel, scale_gamma
from nearwise.linalg.directions import turned, with_fixed_signs
from nearwise.linalg.magnitudes import largest_entry
from nearwise.methods import Status
from nearwise.side import Constraints, bounds

GEOMETRIES = ("flat", "polar", "affine_invariant", "log_euclidean")
STARTS = ("principal", "identity", "random")
SOLVERS = ("auto", "armijo", "online")
_STREAM = 1000  # the least n of (23) for a stream, which does not say how long it is
_MANY_THREADS = 10_000_000  # numbers in the data from which on threads speed products up
_SMALL = 500  # features up to which principal directions come from the covariance matrix
_POWER_STEPS = 5
_EXTRA_DIRECTIONS = 10
_SMALL_WORK = 10_000  # samples times rank up to which a second, slower descent costs little
_ROUGH_TOL = 1e-4  # at which the log-Euclidean geometry hands over


@dataclass(frozen=True)
class Settings:
    """The parameters that all fixed-rank estimators have, checked."""

    rank: int
    geometry: Geometry
    solver: str
    tol: float
    max_iter: int | None
    batch_size: int
    epochs: int
    constant_step: bool
    thorough: bool = True  # look for lower minima beside the one that is found first


def settings(estimator: Any, dimension: int) -> Settings:
    """The parameters of an estimator for matrices of order `dimension`."""
    rank = rank_wanted(estimator.rank, dimension, of_features=getattr(estimator, "kernel", None) is None)
    name = one_of(estimator.geometry, "geometry", GEOMETRIES)
    full = name in ("affine_invariant", "log_euclidean")
    if full and rank is not None and rank < dimension:
        raise ValueError(
            f"geometry={name!r} is one of full-rank matrices: rank must be None or {dimension}, got {rank}"
        )
    weight = share(estimator.subspace_weight, "subspace_weight")
    geometries: dict[str, Geometry] = {
        "flat": Flat(),
        "polar": Polar(weight),
        "affine_invariant": Polar(0.0),  # with all of the space as the subspace, which stays
        "log_euclidean": LogEuclidean(),
    }
    annealing = one_of(estimator.annealing, "annealing", ("auto", "none"))
    return Settings(
        rank or dimension,
        geometries[name],
        one_of(estimator.solver, "solver", SOLVERS),
        tolerance(estimator.tol),
        whole_number_or_none(estimator.max_iter, "max_iter"),
        whole_number(estimator.batch_size, "batch_size"),
        whole_number(estimator.epochs, "epochs"),
        annealing == "none",
    )


@dataclass(frozen=True)
class Units:
    """Features are counted in multiples of one number, targets of another: G is what it is in these."""

    feature: float = 1.0
    target: float = 1.0

    def inward(self, factor: Array) -> Array:
        return factor / np.sqrt(self.target) * self.feature

    def outward(self, factor: Array) -> Array:
        return factor / self.feature * np.sqrt(self.target)

    def result(self, found: FixedRankResult) -> FixedRankResult:
        """The result in the units of the user; a cost too large for a floating-point number is infinite."""

        def told(cost: float) -> float:
            return cost * self.target * self.target  # no power: that of a float raises where a product is inf

        history = tuple(replace(record, cost=told(record.cost)) for record in found.history)
        return replace(found, factor=self.outward(found.factor), cost=told(found.cost), history=history)


def of_constraints(
    side: Constraints, rows: Any, n_objects: int, units: Units | None, targets: Array | None = None
) -> tuple[Regression, Units]:
    """The cost of constraints with all their bounds on the rows, or without rows on a kernel, in units.

    Where there are no units yet, they are those of the rows, and of some targets, by default of all bounds.
    """
    forms = constraint_forms(side.blocks, rows, n_objects, None if units is None else units.feature)
    units = units or Units(forms.unit, root_mean_square(side.bounds if targets is None else targets))
    # relations of constraints count the allowed side, as those of the regression do
    return Regression.weighted(forms, side.bounds / units.target, side.relations, side.weights), units


def solved(
    problem: Regression,
    start: Array,
    chosen: Settings,
    rng: np.random.RandomState,
    callback: Callable[[FixedRankRecord], Any] | None = None,
    memory: Checkpoint | None = None,
) -> tuple[FixedRankResult, Schedule | None, int]:
    """A run by the solver that is chosen, its schedule, and the samples seen, None and 0 unless it is online.

    One over all data is in legs that a checkpoint keeps, if there is one.
    """
    if chosen.solver == "online":
        return epochs(problem, start, chosen, None, 0, rng, callback, chosen.epochs)
    if memory is None:
        return batch(problem, start, chosen, callback), None, 0

    def leg(factor: Array | None, max_iter: int) -> FixedRankResult:
        begin = start if factor is None else factor
        return batch(problem, begin, replace(chosen, max_iter=max_iter), callback)

    return memory.last(leg, start, chosen.max_iter, FixedRankRecord), None, 0


def tell_end(estimator: object, found: FixedRankResult, solver: str) -> None:
    """Warn of a run that ended before it was done; one over a stream is done where the stream ends."""
    if found.status is Status.INTERRUPTED or (found.status is Status.LIMIT and solver != "online"):
        warn(f"{type(estimator).__name__}: {found.message}", ConvergenceWarning)


def batch(
    problem: Regression,
    start: Array,
    chosen: Settings,
    callback: Callable[[FixedRankRecord], Any] | None,
) -> FixedRankResult:
    """A run over all data at once; problem and start in units.

    Of all factors of the matrix that is found, the one nearest to the start: which turn of the coordinates
    the way there ends in is a matter of rounding.
    """
    # where the data are small, more BLAS threads gain nothing, and lose much on a busy machine
    with one_blas_thread(problem.n_samples * problem.forms.dimension <= _MANY_THREADS):
        found = _batch(problem, start, chosen, callback)
        return replace(found, factor=turned(found.factor, start))


def _batch(
    problem: Regression,
    start: Array,
    chosen: Settings,
    callback: Callable[[FixedRankRecord], Any] | None,
) -> FixedRankResult:
    of_zero = problem.cost(problem.residual(np.zeros(problem.n_samples)))
    # where W = 0 fits, costs fall towards 0 for ever; that of the start is then what they are compared with
    whole = of_zero or problem.evaluate(start)[0]
    run = Run(problem, chosen.tol, chosen.max_iter, callback, negligible=whole)
    geometry = chosen.geometry
    if chosen.solver == "armijo":
        return run.descend(geometry, start, Armijo())
    if isinstance(geometry, LogEuclidean):
        # steepest descent slows down long before a singular optimum; the flat geometry goes on from there
        rough = replace(run, tol=max(chosen.tol, _ROUGH_TOL)).descend(geometry, start, Armijo())
        geometry = Flat()
        found = run.descend(geometry, None, after=rough)
    else:
        found = run.descend(geometry, start)
    if isinstance(geometry, Polar) and geometry.fixes_scale:
        return found
    if chosen.rank == problem.forms.dimension:
        return run.out_of_saddles(geometry, found)
    if not chosen.thorough or (isinstance(geometry, Polar) and geometry.subspace_weight == 0):
        return found
    if not problem.forms.light and found.cost < (1 - chosen.tol) * of_zero:  # W = 0 is worth work to leave
        return found
    if problem.n_samples * chosen.rank <= _SMALL_WORK:
        found = run.by_small_steps(geometry, start, found)
    return run.around(geometry, found)


def epochs(
    problem: Regression,
    start: Array,
    chosen: Settings,
    schedule: Schedule | None,
    seen: int,
    rng: np.random.RandomState,
    callback: Callable[[FixedRankRecord], Any] | None = None,
    n_passes: int | None = None,
) -> tuple[FixedRankResult, Schedule, int]:
    """Passes over the data in mini-batches, after the search for a schedule where there is none yet.

    With `n_passes` None, one pass in the order of the data.
    """
    geometry, generator = chosen.geometry, np.random.default_rng(rng.randint(2**31))
    with one_blas_thread():  # mini-batches are small
        stream = Stream(geometry.point(start), seen)
        run = Passes(problem, geometry, stream, n_passes or 1, callback)
        if schedule is None:
            expected = max(problem.n_samples, _STREAM if n_passes is None else 0)
            schedule = searched_schedule(
                problem, geometry, stream.point, chosen.batch_size, generator, expected, chosen.constant_step
            )
        order = None if n_passes is None else generator
        found, stream = run.result(schedule, chosen.batch_size, order)
    return found, schedule, stream.seen


def kernel_features(estimator: Any, X: Any, rng: np.random.RandomState) -> KernelFeatures | None:
    """The features of the estimator's kernel, MBS11 8.3; None where it has none.

    They are coordinates in the span of `n_basis` objects drawn from X, or of all if there are fewer. The
    kernel is a name, a function of two rows, or "precomputed", with X its square matrix. For the kernels that
    have one, gamma is 1 / (d var(X)) unless `kernel_params` says otherwise.
    """
    kernel, parameters = estimator.kernel, dict(estimator.kernel_params or {})
    if kernel is None:
        return None
    n_basis = whole_number(estimator.n_basis, "n_basis")
    if not isinstance(kernel, str) and not callable(kernel):
        raise TypeError(f"kernel must be None, a name or a function of two rows, got {kernel!r}")
    if is_precomputed(kernel) and X.shape[0] != X.shape[1]:
        raise ValueError(f"kernel='precomputed' needs a square kernel matrix for fit, got shape {X.shape}")
    if kernel in ("rbf", "laplacian", "poly", "polynomial", "sigmoid"):
        parameters.setdefault("gamma", scale_gamma(X))
    source = InputKernel(kernel, parameters)
    basis = kernel_basis(source, X, "subset", n_basis, rng)
    return KernelFeatures(source, basis.points, basis.weights)


def start_factor(
    start: Any,
    X: Any,
    dimension: int,
    rank: int,
    rng: np.random.RandomState,
    weights: Array | None = None,
) -> Array:
    """The d x r start: by name, or the user's, checked. X is where principal directions are taken from."""
    if isinstance(start, str):
        one_of(start, "start", STARTS)
        if start == "principal":
            return principal_directions(X, rank, rng, weights)
        if start == "identity":
            return np.eye(dimension, rank)
        return np.asarray(rng.standard_normal((dimension, rank)) / np.sqrt(dimension))
    given = np.array(start, dtype=np.float64)
    if given.shape != (dimension, rank):
        raise ValueError(
            f"start must be 'principal', 'identity', 'random' or an array of shape {(dimension, rank)}, "
            f"got shape {given.shape}"
        )
    if not np.isfinite(given).all():
        raise ValueError(f"start contains {given[~np.isfinite(given)][0]}; every entry must be finite")
    if np.linalg.matrix_rank(given) < rank:
        raise ValueError(f"start must have rank {rank}, got rank {np.linalg.matrix_rank(given)}")
    return given


def principal_directions(
    X: Any, rank: int, rng: np.random.RandomState, weights: Array | None = None
) -> Array:
    """The directions of largest variance, orthonormal; by power steps where there are many features.

    Directions beyond the rank of the data are any that complete them. Of matrices X, (n, d, d), the leading
    eigenvectors of the mean. `weights` are those of the rows.
    """
    counts = np.ones(X.shape[0]) if weights is None else weights / weights.mean()
    if X.ndim == 3:
        mean_matrix = np.tensordot(counts, X / (largest_entry(X) or 1.0), axes=1)
        return with_fixed_signs(np.linalg.eigh(mean_matrix + mean_matrix.T)[1][:, ::-1][:, :rank])
    n, d = X.shape
    largest = largest_entry(X) or 1.0
    mean = np.asarray(X.T @ (counts / n)).ravel() / largest

    def covariance(Q: Array) -> Array:
        image = counts[:, None] * (product(X, Q / largest) - mean @ Q)
        return product(X.T, image) / largest - np.outer(mean, image.sum(axis=0))

    if d <= _SMALL:
        Q = np.linalg.eigh(covariance(np.eye(d)))[1]
        return with_fixed_signs(Q[:, ::-1][:, :rank])
    Q = np.linalg.qr(rng.standard_normal((d, min(d, rank + _EXTRA_DIRECTIONS))))[0]
    for _ in range(_POWER_STEPS):
        Q = np.linalg.qr(covariance(Q) / n + 1e-12 * Q)[0]
    V = np.linalg.eigh(Q.T @ covariance(Q))[1]
    return with_fixed_signs(Q @ V[:, ::-1][:, :rank])


def best_multiple(problem: Regression, start: Array) -> Array:
    """The multiple of a start that fits best, where that is a positive one."""
    image = problem.forms.image(start)
    values = problem.forms.cross(image, image)
    share = float(values @ problem.targets) / max(float(values @ values), np.finfo(float).tiny)
    return start * np.sqrt(share) if share > 0 else start


def refuse_incomparable(constraints: Constraints, filled: Constraints, typical: float) -> None:
    """Refuse bounds beside which the typical squared distance of the objects is nothing.

    `constraints` are for the message; `filled` are the same rows with all their bounds.
    """
    if not typical > 0.0:
        return
    start = 0
    for block in filled.blocks:
        for low, own in block.bound_chunks():
            ratio = np.abs(own) / typical
            far = (ratio > bounds.LARGEST_CHANGE) | ((own != 0.0) & (ratio < 1.0 / bounds.LARGEST_CHANGE))
            if far.any():
                place = int(np.flatnonzero(far)[0])
                raise RowsError(
                    [constraints.stated(start + low + place)],
                    after=f": its bound is {ratio[place]:.0e} times the median squared distance, and double "
                    f"precision bears a factor of {bounds.LARGEST_CHANGE:.0e}; is the unit of the bounds "
                    "that of the features squared?",
                )
        start += len(block)
