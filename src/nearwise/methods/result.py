"""What `solve` hands back: status, certificate, history, the learned matrix."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from nearwise._common.markup import fact_table
from nearwise._common.types import Array, Limit
from nearwise.core.certificate import Certificate
from nearwise.core.tolerance import Tolerance

CONTRADICTION = "No matrix meets these hard constraints together: "


class Status(enum.Enum):
    """How a run ended."""

    SOLVED = "solved"  # the certificate is within the tolerance
    STATIONARY = "stationary"  # the solver stopped by a rule of its own, which proves nothing
    INFEASIBLE = "infeasible"  # the multipliers prove that no matrix meets the hard constraints
    LIMIT = "limit"  # max_iter or max_seconds was reached; `Result.limit` says which
    INTERRUPTED = "interrupted"  # Ctrl-C, or the callback asked to stop
    STALLED = "stalled"  # rounding errors allow no further progress


_ENDS = {
    Status.SOLVED: "Solved within {tol}",
    Status.LIMIT: "Stopped at the limit of {why}",
    Status.STATIONARY: "Stopped by the solver's own rule, which proves nothing",
    Status.INTERRUPTED: "Interrupted",
    Status.STALLED: "No further progress; the tolerance {tol} was not reached",
}


@dataclass(frozen=True)
class Record:
    """One iteration, as the callback and `Result.history` show it. Units as in `Certificate`."""

    iteration: int
    seconds: float
    primal: float
    dual: float
    gap: float
    violation: float
    hard_violation: float = 0.0
    satisfied: float = 1.0


@dataclass(frozen=True)
class Result:
    """The learned matrix M, with everything needed to trust it.

    Attributes
    ----------
    matrix : M, r x r
    factor : B with M = B B^T; r rows, and as many columns as the prior has rank
    dual : one multiplier per constraint, the derivative of its loss: >= 0 for "<=", <= 0 for ">=". When the
        status is INFEASIBLE, the multipliers that `check_infeasibility` accepts as proof. Where constraints
        are in chunks, `np.asarray(dual)` computes them chunk by chunk.
    status : how the run ended
    certificate : objective, lower bound, gap and violations of `matrix` and `dual`
    history : one record per iteration
    solver : the name of the solver that ran
    message : one sentence on the outcome
    features : the rows to which `kernel_factor` refers
    limit : "time" or "iterations" where the status is LIMIT, else None
    """

    matrix: Array
    factor: Array
    dual: Array
    status: Status
    certificate: Certificate
    history: tuple[Record, ...]
    solver: str
    message: str
    features: Array = field(repr=False)
    limit: Limit | None = None

    @property
    def objective(self) -> float:
        """Divergence plus the loss of the soft constraints, `certificate.primal`."""
        return self.certificate.primal

    @property
    def kernel_factor(self) -> Array:
        """G B, so that the learned kernel of the objects is (G B)(G B)^T."""
        return self.features @ self.factor

    @property
    def n_iter(self) -> int:
        """The number of iterations; the starting point is the first."""
        return len(self.history)

    @property
    def n_sweeps(self) -> int:
        """The number of iterations after the starting point: the cycles of projections that papers count."""
        return len(self.history) - 1

    def __repr__(self) -> str:
        m = len(self.dual)
        met = f"{round(self.certificate.satisfied * m)} of {m} constraints met"
        return (
            f"<Result: {self.status.name}, {self.n_iter} iterations of {self.solver}, "
            f"objective {self.objective:.6g}, gap {self.certificate.gap:.1e}, {met}>"
        )

    def _repr_html_(self) -> str:
        about = {
            "status": self.status.name,
            "iterations": f"{self.n_iter:,} of {self.solver}",
            **self.certificate.as_texts(),
            "message": self.message,
        }
        return fact_table("Result", about)


def outcome_message(status: Status, certificate: Certificate, tol: Tolerance, why: str, note: str) -> str:
    """One sentence on how a run ended."""
    if status is Status.INFEASIBLE:
        rows = "; ".join(violation.name for violation in certificate.worst)
        return f"{CONTRADICTION}{rows}"
    reached = f"{certificate.gap_in_words}, hard violation {certificate.hard_violation:.1e}"
    return f"{_ENDS[status].format(tol=tol, why=why)}: {reached}." + (f" {note}." if note else "")
