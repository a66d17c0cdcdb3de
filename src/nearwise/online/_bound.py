"""The relative loss bound of the exponentiated gradient, TRW05 lemmas 3.1 and 3.2, for a stream that is kept.

With rates a_t = 2 b_t / (2 + r^2 b_t) lemma 3.1 says: sum_t a_t (loss_t) - b_t (loss of U)_t <= D(U, W_1).
The
rates of a stream never rise, so its total loss is at most (D(U, W_1) + sum_t b_t (loss of U)_t) / (last a_t),
which is (3.7) where all a_t are equal.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearwise._common.types import Array

_AT_THE_LIMIT = 1e-12  # relative distance from the largest rate that the lemma covers
_ROUNDING = 64 * np.finfo(np.float64).eps  # relative error of tr(U A) that counts as none


class Examples:
    """A stream of examples: blocks of instances of one kind, squares (m, d) or matrices (m, d, d)."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self._blocks: list[tuple[NDArray[Any], Array, Array, Array]] = []

    def add(self, instances: NDArray[Any], y: Array, rates: Array, extents: Array) -> None:
        """Rates, and the largest range of eigenvalues up to each example."""
        self._blocks.append((_compact(instances), y, rates, extents))

    def bound(self, U: NDArray[Any], divergence: float, extent: float | None) -> float:
        """The bound, with the range `extent` for all examples, or with the largest up to each."""
        total, least = divergence, math.inf
        for instances, y, rates, extents in self._blocks:
            values, sizes = self._values(U, instances)
            errors = values - y
            errors[np.abs(errors) <= _ROUNDING * self.dimension * (sizes + np.abs(y))] = 0.0
            spare = 2.0 - rates * np.square(extents if extent is None else extent)
            if np.any(spare < -_AT_THE_LIMIT):
                return math.inf
            wrong = errors != 0.0
            if np.any(spare[wrong] <= _AT_THE_LIMIT):
                return math.inf
            total += float(np.sum(2.0 * rates[wrong] / spare[wrong] * np.square(errors[wrong])))
            least = min(least, float(rates.min(initial=math.inf)))
        return total / least if self._blocks else 0.0

    def _values(self, U: NDArray[Any], instances: NDArray[Any]) -> tuple[Array, Array]:
        """tr(U A) of every instance, and a size that its rounding error is relative to."""
        if instances.dtype.kind == "i":  # pairs
            i, j = instances.T
            diagonal = np.diagonal(U).real
            return (diagonal[i] + diagonal[j]) / 2 - U[i, j].real, (diagonal[i] + diagonal[j]) / 2
        if instances.ndim == 2:
            values = np.einsum("ti,ij,tj->t", instances.conj(), U, instances, optimize=True).real
            return values, np.square(np.abs(instances)).sum(axis=1) * np.abs(U).max()
        values = np.einsum("tij,ji->t", instances, U, optimize=True).real
        return values, np.abs(instances).sum(axis=(1, 2)) * np.abs(U).max()


def _compact(instances: NDArray[Any]) -> NDArray[Any]:
    """Pairs as two numbers each, where all instances are pairs; else a copy."""
    if instances.ndim == 2 and not np.iscomplexobj(instances) and np.count_nonzero(instances[:1]) == 2:
        half = math.sqrt(0.5)
        is_pair = (np.count_nonzero(instances, axis=1) == 2).all()
        if is_pair and (instances.max(axis=1) == half).all() and (instances.min(axis=1) == -half).all():
            return np.stack([instances.argmax(axis=1), instances.argmin(axis=1)], axis=1)
    return np.array(instances)
