"""`Pola`: a pseudo-metric and a threshold from similar and dissimilar pairs, by projections."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nearwise._common import checks
from nearwise._common.types import Array
from nearwise.online import _arguments
from nearwise.online._states import EigenState, part_of, squares_of


class Pola:
    """Learn W and a threshold b with y (b - z^T W z) >= 1. Shalev-Shwartz et al. 2004; JKDD12 5.2.

    y is +1 for a similar pair with difference z, -1 for a dissimilar one. Where an example is not respected,
    (W, b) is projected onto its half space, W <- W - y a z z^T and b <- b + y a with a = loss / (|z|^4 + 1),
    and then onto W >= 0, b >= 1. A similar pair takes a square from W, which makes at most one eigenvalue
    negative: it is found, with its vector, by an update of the eigendecomposition instead of a new one.

    Parameters
    ----------
    dimension : the length of z
    start : the positive semidefinite W to start from, by default zero
    threshold : the b >= 1 to start from

    Attributes
    ----------
    threshold : b
    total_loss : sum of max(0, 1 - y (b - z^T W z))^2, of each example before its update; inf where too large
    n_updates : examples seen
    """

    def __init__(self, dimension: int, *, start: ArrayLike | None = None, threshold: float = 1.0) -> None:
        self.dimension = checks.whole_number(dimension, "dimension")
        self.threshold = checks.positive(threshold, "threshold")
        if self.threshold < 1.0:
            raise ValueError(f"threshold must be >= 1, got {threshold!r}")
        W = np.zeros((self.dimension, self.dimension))
        if start is not None:
            W = _arguments.semidefinite(start, self.dimension, "start")
        if np.iscomplexobj(W):
            raise ValueError("start must be real, got complex numbers")
        self._state = EigenState.of(W)
        self._state.values = np.maximum(self._state.values, 0.0)
        self.total_loss = 0.0
        self.n_updates = 0

    @property
    def matrix(self) -> Array:
        """W."""
        return self._state.matrix(self._state.values)

    def predict(self, z: ArrayLike) -> Any:
        """z^T W z, for a vector or rows of vectors; similar pairs are those below the threshold."""
        rows, single = _arguments.vectors(z, self.dimension, "z")
        values, vectors = self._state.values, self._state.vectors
        return _arguments.predicted(lambda: np.square(rows @ vectors.T) @ values, single, "z")

    def update(self, z: ArrayLike, y: ArrayLike) -> Any:
        """Learn that a pair with difference z is similar (y = +1) or not (-1); returns z^T W z before that.

        Rows z with one y each, or one y for all, are learned in their order, exactly as one by one. Where a
        number would overflow, the row is named and nothing is learned.
        """
        from nearwise.linalg.loops.online_spectral import Room, Spectrum, follow_pola

        rows, single = _arguments.vectors(z, self.dimension, "z")
        m = len(rows)
        sign = _arguments.signs(y, m)
        feedback = squares_of(rows, (-sign).astype(np.int8), -sign, np.ones(m))
        found, errors, threshold = np.empty(m), np.empty(m), np.array([self.threshold])

        def step(first: int, last: int, spectrum: Spectrum, room: Room) -> int:
            cut = slice(first, last)
            part, slopes = part_of(feedback, cut), np.ones(last - first)
            return int(follow_pola(part, spectrum, slopes, threshold, found[cut], errors[cut], room))

        done = self._state.follow(m, step)
        if done < m:
            raise _arguments.not_finite(done, "z")
        self.threshold = float(threshold[0])
        self.total_loss = _arguments.with_squares(self.total_loss, errors)
        self.n_updates += m
        return _arguments.answer(found, single)
