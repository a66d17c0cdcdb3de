"""`NearestMatrix`: what the nearest-matrix functions hand back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from nearwise._common.types import Array, Index
from nearwise.core import Certificate, relative_gap
from nearwise.methods import Status

_NO_PAIRS = np.empty((0, 2), np.int64)
_ENDS = {
    Status.SOLVED: "Solved",
    Status.STATIONARY: "No small change of the factor comes nearer; whether another one does is not known",
    Status.LIMIT: "Stopped after the largest number of iterations",
    Status.STALLED: "No further progress",
    Status.INTERRUPTED: "Interrupted",
}


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
        fit into no positive semidefinite matrix; LIMIT, STALLED or INTERRUPTED otherwise
    certificate : the distance reached (`primal`, the divergence of X from A), a bound that no admissible
        matrix can fall below (`dual`), their relative difference (`gap`), and the worst violation
    n_iter : iterations
    n_decompositions : eigendecompositions in all
    solver : the name of the method
    message : one sentence on the outcome
    filled : (m, 2) the entries (i, j), i < j, that A says nothing about: missing ones, or of weight zero
    """

    diagonal: Array
    dual: Array
    status: Status
    certificate: Certificate
    n_iter: int
    n_decompositions: int
    solver: str
    message: str
    stored_matrix: Array | None = None
    stored_factor: Array | None = None
    filled: Index = field(default_factory=lambda: _NO_PAIRS)
    frame: Callable[[Array], Any] | None = None

    @cached_property
    def matrix(self) -> Any:
        """X, n x n; where A was a pandas frame, a frame with the same labels."""
        return self.array if self.frame is None else self.frame(self.array)

    @cached_property
    def array(self) -> Array:
        """X as an array; computed from the factor where only that exists."""
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
        values, vectors = np.linalg.eigh(self.array)
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


def certified(primal: float, gap: float, violation: float, floor: float) -> Certificate:
    """With the gap relative to the objective, or to `floor`, below which differences do not count."""
    relative = relative_gap(gap, primal, max(floor, 1e-300))
    return Certificate(primal, primal - gap, relative, violation, violation)


def message(status: Status, certificate: Certificate, min_eigenvalue: float = 0.0, note: str = "") -> str:
    """How it ended, and then the note."""
    kind = "positive semidefinite matrix"
    if min_eigenvalue > 0:
        kind = f"matrix with all eigenvalues at least {min_eigenvalue:g}"
    end = f"No {kind} has the fixed entries" if status is Status.INFEASIBLE else _ENDS[status]
    reached = f"relative gap {certificate.gap:.1e}, violation {certificate.violation:.1e}"
    return f"{end}: {reached}." + (f" {note}." if note else "")
