"""Random fits: a learner, data and side information by a seed, and what must hold of any of them.

`python tests/hostile/random_fits.py FIRST COUNT` runs a range of seeds and prints how they ended.
"""

from __future__ import annotations

import re
import signal
import sys
import warnings
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

import nearwise as nw
from nearwise import constraints as c

SECONDS = 120  # after which a fit is taken to hang
DIVERGENCES = ("logdet", "vonneumann", "frobenius")


def random_fit(seed: int) -> str:
    """Run one, and say how it ended; a crash, a hang, NaN or a matrix that is not PSD is an error."""
    rng = np.random.default_rng(seed)
    X, y = _data(rng)
    side = _constraints(rng, len(X)) if rng.random() < 0.4 else None
    learner = _learner(rng, seed, X.shape[1])
    weights = rng.choice([0.0, 0.5, 1.0, 1e3], size=len(X)) if rng.random() < 0.15 else None
    rows = sparse.csr_array(X) if rng.random() < 0.1 else X
    previous = signal.signal(signal.SIGALRM, _hangs)
    signal.alarm(SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", RuntimeWarning)  # what NumPy says about NaN and infinity
            return _outcome(learner, rows, y, side, weights)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def _outcome(learner: Any, X: Any, y: Any, side: Any, weights: Any) -> str:
    regression = isinstance(learner, nw.FixedRankRegressor)
    given = {"constraints": side, "sample_weight": weights}
    if isinstance(learner, nw.FixedRankRegressor | nw.NeighborLearner):
        given = {}
    numbers = regression or getattr(learner, "target", "") == "numbers"
    try:
        learner.fit(X, np.asarray(y, dtype=float) if numbers else y, **given)
    except np.linalg.LinAlgError:
        raise  # is a ValueError too, and nothing that a user can understand
    except (ValueError, TypeError) as error:
        if isinstance(error, TypeError) and not re.match("Sparse data was passed", str(error)):
            raise
        return f"refused: {re.sub('[0-9][0-9.e+-]*', '#', str(error))[:60]}"
    _check(learner, X, regression)
    if not regression:
        _decide(learner, X)
    status = getattr(learner, "status_", None)
    return "learned" if status is None else status.name


def _check(learner: Any, X: Any, regression: bool) -> None:
    """What leaves the model is finite, and of a positive semidefinite matrix."""
    given = [learner.predict(X)] if regression else [learner.transform(X), learner.distances(X)]
    given = [part.toarray() if sparse.issparse(part) else part for part in given]  # of a diagonal matrix
    found = [np.asarray(part, dtype=np.float64) for part in given]  # coordinates may be in single precision
    assert all(np.isfinite(part).all() for part in found), "not finite"
    matrix = learner.get_matrix() if regression else found[0] @ found[0].T
    values = np.linalg.eigvalsh(matrix / max(np.abs(matrix).max(), np.finfo(float).tiny))
    assert values[0] >= -1e-12 * len(values), "not positive semidefinite"
    if not regression:
        assert (found[1] >= 0).all(), "a negative distance"


def _decide(learner: Any, X: Any) -> None:
    """What is calibrated on pairs of the rows decides all pairs, in probabilities from 0 to 1."""
    n = X.shape[0]
    pairs = np.stack(np.triu_indices(n, 1), axis=1)[: 3 * n]
    if len(pairs) < 2:
        return
    signs = np.where(np.arange(len(pairs)) % 3 == 0, 1, -1)
    try:
        learner.calibrate_threshold(pairs, signs, X)
    except ValueError as error:
        if "no threshold" not in str(error):
            raise
        return
    learner.calibrate_probability(pairs, signs, X, method="platt" if n % 2 else "isotonic")
    assert set(np.unique(learner.predict(pairs, X))) <= {-1, 1}
    chances = learner.predict_proba(pairs, X)
    assert ((chances >= 0) & (chances <= 1)).all(), "no probability"


def _hangs(*_: Any) -> None:
    raise AssertionError(f"no end after {SECONDS} seconds")


def _data(rng: np.random.Generator) -> tuple[NDArray[Any], Any]:
    n, d = int(rng.integers(2, 32)), int(rng.integers(1, 8))
    X: NDArray[Any] = rng.normal(size=(n, d))
    style = rng.integers(8)
    if style == 1:
        X = X * 10.0 ** rng.integers(-8, 9, size=d)  # columns of very different units
    elif style == 2:
        X = X[rng.integers(0, max(n // 2, 1), size=n)]  # rows that occur again
    elif style == 3:
        X = np.round(X)  # ties
    elif style == 4:
        X[:, rng.integers(d)] = 3.0  # a constant column
    elif style == 5:
        X = (10.0 ** rng.integers(-140, 141)) * X
    elif style == 6:
        X = rng.standard_cauchy(size=(n, d))  # far outliers
    elif style == 7:
        X = rng.integers(-3, 4, size=(n, 1)) * X[:1]  # all on one line
    X = X.astype(rng.choice(["float64", "float32"])) if style != 5 else X
    y: Any = rng.integers(0, rng.integers(1, 5), size=n)
    if rng.random() < 0.1:
        y = np.where(rng.random(n) < 0.5, np.nan, y)
    return X, y


def _constraints(rng: np.random.Generator, n: int) -> c.Constraints:
    side = c.Constraints()
    for _ in range(int(rng.integers(1, 4))):
        m = int(rng.integers(1, 12))
        pairs = np.array([rng.choice(n, 2, replace=False) for _ in range(m)])
        bounds = 10.0 ** rng.uniform(-3, 3, size=m)
        kind = rng.integers(6)
        if kind == 5 and n >= 3:
            side += c.closer(
                [rng.choice(n, 3, replace=False) for _ in range(m)], float(rng.choice([0.0, 0.5]))
            )
        else:
            makers = (c.similar, c.dissimilar, c.at_most, c.at_least, c.equal, c.similar)
            side += makers[kind](pairs) if kind in (0, 1, 5) else makers[kind](pairs, bounds)  # type: ignore[operator]
    if rng.random() < 0.2:
        side += c.similar(pairs, 10.0 ** rng.uniform(-3, 3, size=m))  # which count more, or less
    return side


def _learner(rng: np.random.Generator, seed: int, d: int) -> Any:
    penalty: Any = rng.choice([1.0, 10.0 ** rng.uniform(-6, 6), np.inf], p=[0.4, 0.5, 0.1])
    divergence = str(rng.choice(DIVERGENCES))
    rank = int(rng.integers(1, 4))
    kernel = str(rng.choice(["rbf", "linear", "poly", "laplacian"]))
    own: dict[str, Any] = {"random_state": seed % 7}
    makers = [
        lambda: nw.MetricLearner(divergence, penalty=penalty, **own),
        lambda: nw.MetricLearner(divergence, penalty="auto", **own),
        lambda: nw.MetricLearner(divergence, prior="covariance", penalty=penalty, **own),
        lambda: nw.MetricLearner(divergence, rank=rank, penalty=penalty, **own),
        lambda: nw.KernelLearner(kernel, divergence=divergence, penalty=penalty, **own),
        lambda: nw.KernelLearner(kernel, rank=rank, divergence=divergence, penalty=penalty, **own),
        lambda: nw.KernelReducer(kernel=kernel, penalty=1.0, tol=1e-4, **own),
        lambda: nw.FixedRankLearner(rank=rank, check=False, max_iter=100, **own),
        lambda: nw.FixedRankLearner(
            rank=rank, geometry="flat", kernel=kernel, max_iter=50, check=False, **own
        ),
        lambda: nw.FixedRankRegressor(rank=rank, max_iter=100, **own),
        lambda: nw.OnlineLearner("logdet", **own),
        lambda: nw.OnlineLearner("exponentiated_gradient", **own),
        lambda: nw.OnlineLearner("pola", **own),
        lambda: nw.MetricLearner(divergence, structure="diagonal", penalty=penalty, **own),
        lambda: nw.MetricLearner(
            divergence,
            structure="blocks",
            groups=[list(range(0, d, 2)), list(range(1, d, 2))][: min(d, 2)],
            penalty=penalty,
            **own,
        ),
        lambda: nw.AutoLearner(penalty="auto" if penalty == np.inf else penalty, **own),
        lambda: nw.AutoLearner("linear+rbf" if rank == 1 else "auto", divergence, penalty=1.0, **own),
        lambda: nw.NeighborLearner(rank, max_iter=30, check=bool(rank % 2), **own),
        lambda: nw.NeighborLearner(None, "numbers", max_iter=30, **own),
        lambda: nw.FixedRankLearner(rank=rank, solver="online", epochs=1, check=False, **own),
    ]
    return makers[rng.integers(len(makers))]()


def main() -> int:
    """Run seeds, and print the count of every ending and the seeds that failed."""
    first, count = (int(word) for word in sys.argv[1:3])
    ends: Counter[str] = Counter()
    failed = []
    for seed in range(first, first + count):
        try:
            ends[random_fit(seed)] += 1
        except Exception as error:
            failed.append(seed)
            print(f"seed {seed}: {type(error).__name__}: {str(error)[:200]}", flush=True)
    print(f"{count} fits from seed {first}, {len(failed)} failed: {failed[:20]}")
    for end, times in ends.most_common():
        print(f"{times:7d}  {end}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
