"""KSD09 7.2: MNIST, deskewed and in 100 principal components: error of the nearest neighbour, and time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier

import nearwise as nw
from experiments import _data
from experiments._kernels import DIVERGENCES
from experiments._outcome import Outcome, Progress, Row, followed, timed
from nearwise import constraints as c
from nearwise._common.types import Array, Labels

COMPONENTS = 100
PENALTIES = (0.001, 0.01, 0.1)  # of which held-out training rows choose
PUBLISHED = {  # error in percent, and minutes
    ("LogDet", 10_000): (2.29, 4.8),
    ("von Neumann", 10_000): (2.30, 7.7),
    ("LogDet", 100_000): (2.18, 11.3),
    ("von Neumann", 100_000): (2.17, 71.4),
}
BASELINE = 2.35
UPRIGHT, CENTRED = "upright", "upright and centred"
REMARKS = (
    "The paper's deskewing code is not described. The published error lies between that of pixels as they "
    "are and that of digits sheared upright, so the code must have done about this much: a shear about the "
    "centre of mass is what the table has; about the middle of the image it gives 2.21 %, by whole pixels "
    "2.23 %. Moving the centre of mass to the middle of the image as well gains more than any metric does, "
    "and cannot have been done there.",
    "What gains: the random pairs of the paper, with bounds at percentiles 5 and 95, and a small penalty, "
    "which lower the error of upright digits by as much as in the paper. Pairs of near neighbours "
    '(`draw="local"`) do not: 2.17 % to 2.19 % with 10,000. From centred digits there is nothing left to '
    "gain.",
    "Penalties are chosen by the error on a twelfth of the training rows, among "
    + ", ".join(f"{penalty:g}" for penalty in PENALTIES)
    + ", in the unit of `Problem.penalty_unit`; times are of the last solve.",
)


def run(quick: bool, seed: int, progress: Progress) -> Outcome:
    """Errors in percent and times of solves, for 10,000 and 100,000 random pairs."""
    data, remarks = _data.load("mnist", quick, "digits")
    (images, y), (test_images, y_test) = _split(data, quick)
    plain, plain_test = _components(images, test_images)
    rows = [Row("error %, pixels as they are", None, _error(plain, y, plain_test, y_test))]
    prepared = {}
    for name in followed((UPRIGHT, CENTRED), "preparations", progress):
        X, X_test = _components(*(deskewed(part, name == CENTRED) for part in (images, test_images)))
        prepared[name] = X, X_test
        published = BASELINE if name == UPRIGHT else None
        rows.append(Row(f"error %, {name}", published, _error(X, y, X_test, y_test)))
    held = np.random.RandomState(seed).permutation(len(y)) < len(y) // 12
    counts = (300,) if quick else (10_000, 100_000)
    work = [(UPRIGHT, name, count) for count in counts for name in DIVERGENCES]
    work += [(CENTRED, "LogDet", counts[-1])]
    for preparation, name, count in followed(work, "divergences and numbers of pairs", progress):
        X, X_test = prepared[preparation]
        penalties = PENALTIES[:1] if quick else PENALTIES
        trials = [
            _learned(X[~held], y[~held], count, DIVERGENCES[name], penalty, seed)[0] for penalty in penalties
        ]
        scores = [_error(X[~held] @ B, y[~held], X[held] @ B, y[held]) for B in trials]
        penalty = penalties[int(np.argmin(scores))]
        B, seconds = _learned(X, y, count, DIVERGENCES[name], penalty, seed)
        figures = PUBLISHED.get((name, count)) if preparation == UPRIGHT else None
        published, minutes = figures or (None, None)
        wrong = _error(X @ B, y, X_test @ B, y_test)
        setting = f"{preparation}, {name}, {count:,} pairs, penalty {penalty:g}"
        rows.append(Row(f"error %, {setting}", published, wrong, seconds=seconds))
        rows.append(Row(f"minutes, {setting}", minutes, seconds / 60, seconds=seconds))
    title = "KSD09 7.2: MNIST, deskewed, 100 principal components, 1-NN"
    return Outcome("mnist", title, rows, (), (*remarks, *REMARKS))


def deskewed(images: NDArray[Any], centred: bool) -> Array:
    """Every image (n, h, w) sheared about its centre of mass so that it leans to no side.

    The centre of mass stays where it is, or is moved to the middle of the image.
    """
    from scipy.ndimage import affine_transform

    h, w = images.shape[1:]
    rows, columns = np.mgrid[:h, :w].astype(np.float64)
    out = np.empty(images.shape)
    for place, image in enumerate(images.astype(np.float64)):
        mass = image.sum() or 1.0
        r, k = (rows * image).sum() / mass, (columns * image).sum() / mass
        spread = ((rows - r) ** 2 * image).sum() / mass
        lean = ((rows - r) * (columns - k) * image).sum() / mass / spread if spread > 0 else 0.0
        shear = np.array([[1.0, 0.0], [lean, 1.0]])
        offset = np.array([r, k]) - shear @ np.array([(h - 1) / 2, (w - 1) / 2] if centred else [r, k])
        out[place] = affine_transform(image, shear, offset, order=1)
    return out


def _split(data: Any, quick: bool) -> tuple[tuple[NDArray[Any], Labels], tuple[NDArray[Any], Labels]]:
    if data.X_test is None:  # scikit-learn's digits, 8 x 8
        images, y = data.X.reshape(-1, 8, 8), np.asarray(data.y)
        return (images[::2], y[::2]), (images[1::2], y[1::2])
    train, test = (2_000, 500) if quick else (len(data.X), len(data.X_test))
    return (data.X[:train], data.y[:train]), (data.X_test[:test], data.y_test[:test])


def _components(train: NDArray[Any], test: NDArray[Any]) -> tuple[Array, Array]:
    """Principal components, in the unit of pixels over 255."""
    rows, others = (part.reshape(len(part), -1) / 255.0 for part in (train, test))
    pca = PCA(min(COMPONENTS, rows.shape[1] // 2), svd_solver="covariance_eigh").fit(rows)
    return pca.transform(rows), pca.transform(others)


def _learned(
    X: Array, y: Labels, count: int, divergence: nw.Divergence, penalty: float, seed: int
) -> tuple[Array, float]:
    problem = nw.Problem(X, c.from_labels(y, n_pairs=count, random_state=seed), divergence)
    result, seconds = timed(nw.solve, problem.with_penalty(penalty * problem.penalty_unit), tol=1e-4)
    return result.factor, seconds


def _error(X: Array, y: Labels, X_test: Array, y_test: Labels) -> float:
    """In percent; single precision suffices to find the nearest of these."""
    rows, others = (part.astype(np.float32) for part in (X, X_test))
    found = KNeighborsClassifier(1, algorithm="brute").fit(rows, y).predict(others)
    return 100.0 * float(np.mean(found != y_test))
