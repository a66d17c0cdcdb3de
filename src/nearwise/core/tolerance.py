"""When a run has come near enough to the optimum."""

from __future__ import annotations

from dataclasses import dataclass

from nearwise._common import checks
from nearwise.core.certificate import Certificate


@dataclass(frozen=True)
class Tolerance:
    """How near to the optimum a run must come to end as SOLVED.

    A subclass with another `is_met` is another stopping rule.

    Parameters
    ----------
    gap : the largest relative gap between the objective and its lower bound
    violation : the largest relative violation of a hard constraint
    """

    gap: float = 1e-6
    violation: float = 1e-6

    def __post_init__(self) -> None:
        checks.tolerance(self.gap, "gap")
        checks.tolerance(self.violation, "violation")

    @classmethod
    def of(cls, tol: float | Tolerance) -> Tolerance:
        """The same number for both, or the tolerance itself."""
        return tol if isinstance(tol, Tolerance) else cls(*2 * (checks.tolerance(tol),))

    def is_met(self, certificate: Certificate) -> bool:
        """Whether a certificate is good enough."""
        return certificate.gap <= self.gap and certificate.hard_violation <= self.violation

    def __str__(self) -> str:
        if self.gap == self.violation:
            return f"{self.gap:g}"
        return f"a gap of {self.gap:g} and a violation of {self.violation:g}"
