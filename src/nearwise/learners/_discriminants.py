"""Coordinates of objects that tell classes apart: scores of a kernel ridge regression on the labels.

With an RBF kernel and some of the objects as points, the scores are S(x) = weights' k(x, points) + offset,
one for each contrast of the classes. The scale of the kernel and the ridge are those with the smallest
squared error when every object in turn is left out, which a ridge regression tells in closed form: what an
object is wrong by, over one minus its leverage. The scores that an object has when it is left out are those
that a new object would have, so that learning from them learns for new objects.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from nearwise._common.threads import one_blas_thread
from nearwise._common.types import Array, Codes, Index
from nearwise.learners.input_kernels import InputKernel

N_POINTS = 200  # of the kernel; fewer where there are fewer objects
LARGEST_SAMPLE = 4_000  # objects that the regression looks at
SCALES = (0.1, 0.3, 1.0, 3.0, 10.0)  # of the kernel that are tried, times 1 / (d * variance)
RIDGES = tuple(10.0 ** (k / 2) for k in range(-12, 0))  # that are tried, over the weight of all objects
_JITTER = 1e-10  # of the diagonal of the points' kernel, so that it has a Cholesky factor
_LEAST_REST = 1e-6  # of one minus the leverage


@dataclass(frozen=True, eq=False)
class Scores:
    """S(x) = weights' k(x - centre, points) + offset; centred, since a common offset would cost digits."""

    kernel: InputKernel
    centre: Array
    points: Array
    weights: Array
    offset: Array

    def __call__(self, X: Array) -> Array:
        return np.asarray(self.kernel.gram(X - self.centre, self.points) @ self.weights + self.offset)


def discriminants(
    X: Array, codes: Codes, among: Index, rng: np.random.RandomState, weights: Array | None = None
) -> tuple[Scores, Array]:
    """The scores, and those of all rows of X: of those that were learned from, when left out.

    They are scaled so that those of all rows have the total variance of X.

    Parameters
    ----------
    X : (n, d) rows
    codes : the class of every row; what is -1 is not learned from
    among : those of X to learn from, at least two classes among them
    rng : draws points, and a sample where there are more than 4,000 rows
    weights : of all rows of X
    """
    known = among[codes[among] >= 0]
    known = np.sort(known[rng.permutation(len(known))[:LARGEST_SAMPLE]])
    centre = X[known].mean(axis=0)
    rows = X[known] - centre
    points = X[np.sort(known[rng.permutation(len(known))[:N_POINTS]])] - centre
    w = np.ones(len(known)) if weights is None else weights[known] / weights[known].mean()
    targets = _contrasts(codes[known])
    mean = w @ targets / w.sum()
    variance = float(np.square(rows).mean())
    unit = 1.0 / (X.shape[1] * variance) if variance > 0 else 1.0
    tried = (_regression(rows, targets - mean, w, points, scale * unit) for scale in SCALES)
    with one_blas_thread():  # matrices of few points, on which threads wait for each other
        best = min(tried, key=lambda found: found.error)
    fitted = Scores(best.kernel, centre, points, best.weights, best.offset)
    found = fitted(X)
    total = float(found[known].var(axis=0).sum())
    scale = float(np.sqrt(np.square(rows).mean(axis=0).sum() / total)) if total > 0 and variance > 0 else 1.0
    found[known] = best.left_out
    return replace(fitted, weights=scale * fitted.weights, offset=scale * fitted.offset), scale * found


@dataclass(frozen=True, eq=False)
class _Regression:
    error: float
    kernel: InputKernel
    weights: Array
    offset: Array
    left_out: Array


def _regression(X: Array, targets: Array, w: Array, points: Array, gamma: float) -> _Regression:
    """The one of the best ridge, for targets of mean zero."""
    kernel = InputKernel("rbf", {"gamma": gamma})
    n, between = w.sum(), kernel.gram(points, points)
    between[np.diag_indices_from(between)] += _JITTER * len(points)
    root = np.linalg.inv(np.linalg.cholesky(between)).T
    features = kernel.gram(X, points) @ root
    mean = w @ features / n
    features -= mean
    squares, V = np.linalg.eigh(features.T @ (features * w[:, None]))
    kept = squares > max(squares[-1], 0.0) * 1e-12
    squares, V = squares[kept], V[:, kept]
    U = features @ (V / np.sqrt(squares))
    along, lengths = U.T @ (targets * w[:, None]), np.square(U)
    best: tuple[float, Array, Array] | None = None
    for ridge in RIDGES:
        shrunk = squares / (squares + ridge * n)
        rest = 1.0 - w * (lengths @ shrunk) - w / n
        wrong = (targets - U @ (shrunk[:, None] * along)) / np.maximum(rest, _LEAST_REST)[:, None]
        error = float(w @ np.square(wrong).sum(axis=1) / n)
        if best is None or error < best[0]:
            best = error, targets - wrong, shrunk
    assert best is not None
    error, left_out, shrunk = best
    coefficients = V @ ((shrunk / np.sqrt(squares))[:, None] * along)
    return _Regression(error, kernel, root @ coefficients, -mean @ coefficients, left_out)


def _contrasts(codes: Codes) -> Array:
    """Coordinates of the classes in which all are at the same distance of each other, one fewer than classes.

    They are the corners of a simplex: the classes' unit vectors, in an orthonormal basis of what is
    orthogonal to their sum.
    """
    place = np.unique(codes, return_inverse=True)[1]
    count = int(place.max()) + 1
    k = np.arange(1, count)
    # row k - 1: the sum of the first k unit vectors less k times the next
    basis = np.tril(np.ones((count - 1, count)))
    basis[k - 1, k] = -k
    return np.asarray((basis / np.sqrt(k * (k + 1))[:, None]).T[place])
