"""`OnlinePCA`: follows the subspace in which vectors lie, with capped eigenvalues."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nearwise._common import checks
from nearwise._common.types import Array
from nearwise.online import _arguments
from nearwise.online._states import EigenState


class OnlinePCA:
    """Follow the k-dimensional subspace nearest to a stream of vectors. Warmuth and Kuzmin 2008; KSD09 6.3.

    The directions to leave out are kept as W >= 0 of trace one with eigenvalues at most 1 / (d - k): a
    mixture of the (d - k)-dimensional subspaces. A vector x multiplies W by exp(-learning_rate x x^T) (TRW05
    (3.5)), through an update of its eigendecomposition in O(d^2) and a product of eigenvectors; then
    eigenvalues above the cap are set to it and the others scaled up, the projection in relative entropy. The
    loss of x is (d - k) x^T W x, the expected squared distance of x to a subspace drawn from the mixture.

    Parameters
    ----------
    dimension : d
    n_components : k, below d
    learning_rate : the step, for vectors of about length one

    Attributes
    ----------
    total_loss : sum of the losses, each before its update
    n_updates : vectors seen
    """

    def __init__(self, dimension: int, n_components: int, learning_rate: float = 0.5) -> None:
        self.dimension = d = checks.whole_number(dimension, "dimension")
        if d < 2:
            raise ValueError(f"dimension must be at least 2, got {dimension!r}")
        self.n_components = checks.whole_number(n_components, "n_components", most=d - 1)
        self.learning_rate = checks.positive(learning_rate, "learning_rate")
        self._state = EigenState(np.full(d, -math.log(d)), np.eye(d))
        self._moments = np.zeros((d, d))
        self._largest = 0.0
        self.total_loss = 0.0
        self.n_updates = 0

    @property
    def matrix(self) -> Array:
        """W, the directions left out."""
        return self._state.matrix(self._weights())

    @property
    def projection(self) -> Array:
        """I - (d - k) W, the expected projection onto the subspace; its trace is k."""
        kept = 1.0 - (self.dimension - self.n_components) * self._weights()
        return self._state.matrix(np.maximum(kept, 0.0))

    @property
    def components(self) -> Array:
        """The k orthonormal directions that W weighs least, one per row, the most certain first."""
        return np.array(self._state.vectors[: self.n_components])

    def predict(self, x: ArrayLike) -> Any:
        """The loss (d - k) x^T W x, for a vector or rows of vectors."""
        rows, single = _arguments.vectors(x, self.dimension, "x")
        vectors, weights = self._state.vectors, self._weights()
        left_out = self.dimension - self.n_components
        return _arguments.predicted(lambda: left_out * (np.square(rows @ vectors.T) @ weights), single, "x")

    def update(self, x: ArrayLike) -> Any:
        """Learn from a vector, or from rows in their order; returns the losses before each update.

        Where a number would overflow, the row is named and nothing is learned.
        """
        from nearwise.linalg.loops.online_spectral import Room, Spectrum, follow_capped

        rows, single = _arguments.vectors(x, self.dimension, "x")
        losses = np.empty(len(rows))
        cap = 1.0 / (self.dimension - self.n_components)

        def step(first: int, last: int, spectrum: Spectrum, room: Room) -> int:
            cut = slice(first, last)
            return int(follow_capped(rows[cut], self.learning_rate, cap, spectrum, losses[cut], room))

        done = self._state.follow(len(rows), step)
        if done < len(rows):
            raise _arguments.not_finite(done, "x")
        self._moments += rows.T @ rows
        self._largest = max(self._largest, float(np.square(rows).sum(axis=1).max(initial=0.0)))
        self.total_loss = _arguments.added(self.total_loss, losses)
        self.n_updates += len(rows)
        return _arguments.answer(losses, single)

    def best_loss(self) -> float:
        """The total loss of the best fixed subspace in hindsight: ordinary PCA without centering."""
        return float(np.maximum(np.linalg.eigvalsh(self._moments)[: -self.n_components], 0.0).sum())

    def loss_bound(self) -> float:
        """What `total_loss` cannot exceed, whatever the stream.

        With vectors of squared length at most s, (d - k) log(d / (d - k)) + learning_rate * best_loss, times
        s / (1 - exp(-learning_rate s)).
        """
        left_out = self.dimension - self.n_components
        start = left_out * math.log(self.dimension / left_out)
        strength = self.learning_rate * self._largest
        factor = -self._largest / math.expm1(-strength) if strength else 1.0 / self.learning_rate
        return factor * (start + self.learning_rate * self.best_loss())

    def _weights(self) -> Array:
        values = self._state.values
        weights = np.exp(values - values[-1])
        return weights / weights.sum()
