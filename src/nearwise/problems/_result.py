"""`NearestMatrix`: what the nearest-matrix functions hand back."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nearwise.result import Certificate, Status

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class NearestMatrix:
    """A positive semidefinite matrix X with a given diagonal, and what is known about how near it is.

    Attributes
    ----------
    diagonal : the diagonal of X, exactly
    dual : one multiplier per diagonal entry, then one per fixed entry (i < j, row by row): the slope of the
        optimum, so that it changes by -dual[i] for every unit by which that entry is raised
    status : SOLVED when the certificate holds; STATIONARY for a matrix of given rank that no small change
        improves and that the certificate does not prove to be the best; INFEASIBLE when the fixed entries
        fit into no positive semidefinite matrix; LIMIT or STALLED otherwise
    certificate : the distance reached (`primal`, the divergence of X from A), a bound that no admissible
        matrix can fall below (`dual`), their relative difference (`gap`), and the worst violation
    n_iter : iterations
    n_decompositions : eigendecompositions in all
    solver : the name of the method
    message : one sentence on the outcome
    """

    diagonal: Array
    dual: Array
    status: Status
    certificate: Certificate
    n_iter: int
    n_decompositions: int
    solver: str
    message: str
    stored_matrix: Array | None = field(default=None)
    stored_factor: Array | None = field(default=None)

    @cached_property
    def matrix(self) -> Array:
        """X, n x n; computed from the factor where only that exists."""
        if self.stored_matrix is not None:
            return self.stored_matrix
        assert self.stored_factor is not None
        X = self.stored_factor @ self.stored_factor.T
        X = (X + X.T) / 2
        np.fill_diagonal(X, self.diagonal)
        return X

    @cached_property
    def factor(self) -> Array:
        """F with X = F F^T, n rows; for a matrix that was computed without one, an eigendecomposition."""
        if self.stored_factor is not None:
            return self.stored_factor
        values, vectors = np.linalg.eigh(self.matrix)
        kept = values > len(values) * np.finfo(np.float64).eps * max(values[-1], 0.0)
        F = vectors[:, kept] * np.sqrt(values[kept])
        return F * np.sqrt(self.diagonal / np.einsum("ij,ij->i", F, F))[:, None]

    def __repr__(self) -> str:
        c = self.certificate
        n = len(self.diagonal)
        return (
            f"<NearestMatrix: {n} x {n}, {self.status.name}, {self.n_iter} iterations of {self.solver}, "
            f"divergence {c.primal:.6g}, gap {c.gap:.1e}>"
        )
