"""`LogDetOnline`: implicit updates for squared loss of squared distances, in the LogDet divergence."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nearwise._common import checks
from nearwise._common.types import Array
from nearwise.online import _arguments
from nearwise.online._states import FactorState, squares_of


class LogDetOnline:
    """Learn M from squared distances z^T M z = y. Jain et al. 2008, LogDet Online in JKDD12 6.1.

    An update is M <- argmin D(M, M_old) + learning_rate / 2 (z^T M z - y)^2 with the LogDet divergence D. Its
    gradient vanishes where M^-1 = M_old^-1 + learning_rate (q - y) z z^T; with p = z^T M_old z, the new
    distance q = z^T M z is the positive root of q = p / (1 + learning_rate p (q - y)), and

        M = M_old + (q - p) / p^2 (M_old z) (M_old z)^T

    is positive definite for every learning rate and every y, also for targets that no M reaches. M is kept as
    B B^T with B triangular and updated in O(d^2), so that rounding cannot make it indefinite.

    Parameters
    ----------
    dimension : the length of z
    learning_rate : how far an update goes towards its target, in units of 1 / y^2
    start : the positive definite M to start from, by default the identity

    Attributes
    ----------
    total_loss : sum of (p - y)^2, of each distance before its update; inf where too large
    n_updates : examples seen
    """

    def __init__(self, dimension: int, learning_rate: float = 0.1, *, start: ArrayLike | None = None) -> None:
        self.dimension = checks.whole_number(dimension, "dimension")
        self.learning_rate = checks.positive(learning_rate, "learning_rate")
        M = np.eye(self.dimension)
        if start is not None:
            if np.iscomplexobj(start):
                raise ValueError("start must be real, got complex numbers")
            M = _arguments.semidefinite(start, self.dimension, "start", definite=True)
        self._state = FactorState.of(M)
        self.total_loss = 0.0
        self.n_updates = 0

    @property
    def matrix(self) -> Array:
        """M."""
        return self._state.matrix

    @property
    def factor(self) -> Array:
        """B, upper triangular, with M = B B^T."""
        return self._state.factor

    def predict(self, z: ArrayLike) -> Any:
        """z^T M z, for a vector or rows of vectors."""
        rows, single = _arguments.vectors(z, self.dimension, "z")
        factor = self._state.transposed.T
        return _arguments.predicted(lambda: np.square(rows @ factor).sum(axis=1), single, "z")

    def update(self, z: ArrayLike, y: ArrayLike) -> Any:
        """Learn that the squared length of z is y; returns its squared length before that.

        Rows z with one y each, or one y for all, are learned in their order, exactly as one by one. Where a
        number would overflow, the row is named and nothing is learned.
        """
        rows, single = _arguments.vectors(z, self.dimension, "z")
        m = len(rows)
        wanted = _arguments.targets(y, m)
        found = np.empty(m)
        feedback = squares_of(rows, np.zeros(m, np.int8), wanted, np.full(m, self.learning_rate))
        done = self._state.follow(feedback, found)
        if done < m:
            raise _arguments.not_finite(done, "z")
        self.total_loss = _arguments.with_squares(self.total_loss, found - wanted)
        self.n_updates += m
        return _arguments.answer(found, single)
