"""Symmetric matrices of general linear constraints, and what sets the arrays of a dataclass read-only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from nearwise._common.types import Array


class ReadOnly:
    """Sets the arrays of a dataclass read-only, in a copy and after unpickling too."""

    def __post_init__(self) -> None:
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)
            elif isinstance(value, sparse.csr_array):
                for array in (value.data, value.indices, value.indptr):
                    array.setflags(write=False)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.__post_init__()


@dataclass(frozen=True, eq=False)
class Linear(ReadOnly):
    """A symmetric matrix A: `matrix`, or else `factor @ diag(weights) @ factor.T`.

    Attributes
    ----------
    matrix : (size, size) float64 array, `scipy.sparse.csr_array`, or None
    factor : (size, k) float64 array or None
    weights : (k,) float64 array or None
    """

    matrix: Any = None
    factor: Array | None = None
    weights: Array | None = None

    @property
    def size(self) -> int:
        """The number of rows of A."""
        rows: int = (self.matrix if self.factor is None else self.factor).shape[0]
        return rows

    @property
    def norm(self) -> float:
        """A bound on the Frobenius norm of A and of what it is a sum of."""
        if self.factor is not None and self.weights is not None:
            return float(np.abs(self.weights) @ np.einsum("ij,ij->j", self.factor, self.factor))
        entries = self.matrix.data if sparse.issparse(self.matrix) else self.matrix
        return math.sqrt(np.vdot(entries, entries))
