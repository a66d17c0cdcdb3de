"""What a row costs, and the conjugate of that, in extended precision: the losses of docs/problem.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import nearwise as nw
from nearwise.benchmarks._exact import Exact


@dataclass(frozen=True, eq=False)
class Row:
    """One constraint: its objects or its matrix on them, and what its loss needs.

    `is_definite` is None where rounding hides whether A >= 0; `vanishes` if A is zero on the prior's range.
    """

    kind: str
    relation: int
    ids: tuple[int, ...]
    matrix: Exact | None
    bound: Any
    penalty: float
    size: Any
    is_definite: bool | None
    vanishes: bool

    def has_slack(self, positive: bool) -> bool:
        """Whether the loss is the divergence's own slack, not its quadratic expansion."""
        return bool(self.bound > 0 and (positive or self.relation < 0))


class ExactLosses:
    """The losses of rows, and what they are under LogDet, von Neumann and Frobenius.

    `positive` says of a row whether its A >= 0, which decides whether it has the divergence's own slack.
    """

    def __init__(self, mp: Any, divergence: Any) -> None:
        self.mp = mp
        self.is_logdet = isinstance(divergence, nw.LogDet)
        self.is_frobenius = isinstance(divergence, nw.Frobenius)

    def is_positive(self, row: Row, p: Any, y: Any) -> bool:
        """Whether A >= 0; where rounding hides it, what suits the value p and the multiplier y better."""
        if row.is_definite is not None:
            return row.is_definite

        def lack(positive: bool) -> Any:
            if np.isinf(row.penalty):
                return self.violation(row, positive, p)
            return self.loss(row, positive, p) + self.conjugate(row, positive, y) - y * p

        return bool(lack(True) <= lack(False))

    def _excess(self, row: Row, p: Any) -> Any:
        """How far p is on the wrong side."""
        return (
            abs(p - row.bound) if row.relation == 0 else max((row.bound - p) * row.relation, self.mp.mpf(0))
        )

    def violation(self, row: Row, positive: bool, p: Any) -> Any:
        return self._excess(row, p) / (row.bound if positive and row.bound > 0 else row.size)

    def _stiffness(self, row: Row) -> Any:
        """penalty * phi''(s) of a row with quadratic loss."""
        curvature = row.size**-2 if self.is_logdet else self.mp.mpf(2) if self.is_frobenius else 1 / row.size
        return self.mp.mpf(row.penalty) * curvature

    def loss(self, row: Row, positive: bool, p: Any) -> Any:
        excess, b = self._excess(row, p), row.bound
        if np.isinf(row.penalty) or excess == 0:
            return self.mp.mpf(0)
        if not row.has_slack(positive):
            return self._stiffness(row) * excess**2 / 2
        if self.is_frobenius:
            return row.penalty * excess**2
        if p <= 0:
            return self.mp.inf if self.is_logdet or p < 0 else row.penalty * b
        log = self.mp.log(p / b)
        return row.penalty * (p / b - log - 1 if self.is_logdet else p * log - p + b)

    def conjugate(self, row: Row, positive: bool, y: Any) -> Any:
        """sup_p y p - loss(p) for y of the right sign."""
        b = row.bound
        if np.isinf(row.penalty) or y == 0:
            return y * b
        gamma = self.mp.mpf(row.penalty)
        if not row.has_slack(positive):
            return y * b + y**2 / (2 * self._stiffness(row))
        if self.is_frobenius:
            stops = positive and b + y / (2 * gamma) < 0
            return -gamma * b**2 if stops else y * b + y**2 / (4 * gamma)
        if self.is_logdet:
            return -gamma * self.mp.log(1 - y * b / gamma) if y * b < gamma else self.mp.inf
        return gamma * b * self.mp.expm1(y / gamma)
