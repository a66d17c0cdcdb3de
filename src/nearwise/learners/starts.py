"""Where an online learner starts: the prior metric, and the subspace in which it learns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearwise._common.checks import one_of
from nearwise._common.reading import symmetric
from nearwise._common.types import Array
from nearwise.learners import _bases
from nearwise.learners.base import rank_wanted
from nearwise.learners.metric import Metric, symmetric_root

FULL_FEATURES = 1000  # the largest number of features for which all of M is learned by default
DEFAULT_RANK = 100  # of a subspace where not


def prior(given: Any, d: int) -> tuple[Array | None, Array | None]:
    """The basis of the prior's subspace and a factor of its matrix there; None for all of it, and for I.

    `given` is "identity", a matrix, a `Metric`, or a fitted learner.
    """
    found = getattr(given, "metric_", given)
    if isinstance(found, str):
        one_of(found, "prior", ("identity",))
        return None, None
    if isinstance(found, Metric):
        if found.n_features != d:
            raise ValueError(f"prior is a metric of {found.n_features} features, but X has {d}")
        return found.basis, found.factor
    if hasattr(found, "get_params"):
        raise ValueError("prior is a learner that is not fitted, as a clone is; pass its metric_")
    matrix = symmetric(found, "prior")
    if matrix.shape != (d, d):
        raise ValueError(f"prior must have shape {(d, d)} like the features, got {matrix.shape}")
    values, V = np.linalg.eigh(matrix)
    if values[0] < -1e-8 * abs(values[-1]) or values[-1] <= 0.0:
        raise ValueError(f"prior must be positive semidefinite, but has the eigenvalue {values[0]:.3g}")
    return None, symmetric_root(V * np.sqrt(np.maximum(values, 0.0)))


def subspace(
    basis: Any, rank: Any, X: Any, codes: NDArray[np.int64] | None, rng: np.random.RandomState, d: int
) -> Array | None:
    """Orthonormal columns that span it; None for all d dimensions. X is None where no data are there yet."""
    wanted = rank_wanted(rank, d)
    if isinstance(basis, str):
        one_of(basis, "basis", ("auto", "random", *_bases.BASES))
        if wanted is None and basis == "auto" and d <= FULL_FEATURES:
            return None
        wanted = min(d, DEFAULT_RANK) if wanted is None else wanted
        if basis == "random" or (basis == "auto" and X is None):
            return np.linalg.qr(rng.standard_normal((d, wanted))).Q
        if X is None:
            raise ValueError(f"basis={basis!r} needs the data of a fit; 'random' or an array does not")
    return _bases.linear_basis(np.empty((0, d)) if X is None else X, basis, wanted or d, codes, rng)
