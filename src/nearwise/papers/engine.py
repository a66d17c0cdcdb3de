"""What engines of projections have in common: constraints as squares, when a row is optimal, and a sweep.

An engine keeps M in step with its multipliers y: phi'(M) = phi'(M0) - sum_i y_i A_i. A projection changes one
multiplier so that its row is optimal given all others (KSD09 (7) and (9)).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from nearwise._common.types import Array, Index, Mask
from nearwise.core.formulation import Formulation
from nearwise.core.losses import Loss
from nearwise.core.rows import Rows

FEW = 2  # squares of a row, at most, for which compiled loops have formulas


class Engine(ABC):
    """M and its multipliers, changed by one projection after the other.

    M starts at the prior, with multipliers zero. `refresh` takes it to any others that are written to `dual`.

    Attributes
    ----------
    form : what is solved
    squares : its constraints
    dual : the multipliers y, changed in place
    """

    solver: ClassVar[str] = "CyclicProjections"

    def __init__(self, form: Formulation) -> None:
        if form.rows.offsets is not None:
            raise ValueError(f"{self.solver} knows no values with a fixed part; use Newton() for them")
        self.form = form
        self.squares = Squares.of(form.rows)
        self.dual = np.zeros(form.rows.n_rows)

    def sweep(self, rows: Index) -> None:
        """Project onto these rows, in this order."""
        rows = rows[self.squares.counts[rows] > 0]
        are_few = self.squares.counts[rows] <= FEW
        for run in np.split(rows, np.flatnonzero(np.diff(are_few)) + 1):
            if len(run) and self.squares.counts[run[0]] <= FEW:
                self._project_few(np.ascontiguousarray(run, dtype=np.int64))
            else:
                for row in run:
                    self._project_many(int(row))

    def tracked(self, row: int, values: Array) -> Array:
        """Project onto one row; the values of all rows after that, from those before."""
        before = self.dual[row]
        self.sweep(np.array([row]))
        return values if self.dual[row] == before else self.form.rows.values(self.factor())

    @property
    @abstractmethod
    def note(self) -> str:
        """What was done so far, for the message of the result."""

    @abstractmethod
    def factor(self) -> Array:
        """B with M = B B^T."""

    @abstractmethod
    def drift(self, adjoint: Array) -> float:
        """How far rounding has taken M from its multipliers, whose sum_i y_i A_i is `adjoint`; relative."""

    @abstractmethod
    def refresh(self, adjoint: Array) -> None:
        """Compute M from its multipliers, which removes all drift."""

    @abstractmethod
    def _project_few(self, rows: Index) -> None:
        """Project onto rows of one or two squares, in this order."""

    @abstractmethod
    def _project_many(self, row: int) -> None:
        """Project onto a row of any number of squares."""


@dataclass(frozen=True, eq=False)
class Squares:
    """Signed squares by row: A_i is the sum of coefficient_t x_t x_t^T for start_i <= t < start_{i+1}.

    x_t = features[first_t] + sign_t features[second_t]. A product sym(x y^T) is a quarter of the square of
    x + y less a quarter of that of x - y.

    Attributes
    ----------
    sign : -1 for a difference, +1 for a sum, 0 for one row of the features alone
    """

    features: Array
    start: Index
    first: Index
    second: Index
    sign: Array
    coefficient: Array

    @classmethod
    def of(cls, rows: Rows) -> Squares:
        """Those of rows in either form."""
        atoms, edges, c = np.arange(rows.n_atoms), rows.edges, rows.coefficient
        if edges is None:
            features = rows.x if rows.y is rows.x else np.concatenate([rows.x, rows.y])
            first, second = atoms, atoms + (len(features) - len(atoms))
            is_difference = np.zeros(len(atoms), dtype=bool)
            is_product = (rows.x != rows.y).any(axis=1) if rows.y is not rows.x else is_difference
        else:
            features, first, second = rows.x, edges.first, edges.second
            is_difference = np.ones(len(atoms), bool) if edges.is_product is None else ~edges.is_product
            is_product = ~is_difference & (first != second)
        products = np.flatnonzero(is_product)
        atom = np.concatenate([atoms, products])
        sign = np.concatenate([np.where(is_difference | is_product, -1.0, 0.0), np.ones(len(products))])
        coefficient = np.concatenate([np.where(is_product, -c / 4, c), c[products] / 4])
        row = rows.row_of_atoms[atom]
        used = np.flatnonzero(coefficient)
        used = used[np.argsort(row[used], kind="stable")]
        start = np.zeros(rows.n_rows + 1, dtype=np.int64)
        np.cumsum(np.bincount(row[used], minlength=rows.n_rows), out=start[1:])
        return cls(
            np.ascontiguousarray(features, dtype=np.float64),
            start,
            first[atom[used]],
            second[atom[used]],
            sign[used],
            coefficient[used],
        )

    @cached_property
    def counts(self) -> Index:
        """How many squares every row has."""
        return np.diff(self.start)

    def of_row(self, row: int) -> tuple[Array, Array]:
        """One row as A = X^T diag(c) X: X and c."""
        part, F = slice(int(self.start[row]), int(self.start[row + 1])), self.features
        return F[self.first[part]] + self.sign[part, None] * F[self.second[part]], self.coefficient[part]


def slack_laws(loss: Loss) -> tuple[Mask, Array]:
    """How rows reply to their multipliers y: by the p with g(p) = g(b) + compliance * y.

    Returns
    -------
    is_bregman : whether g is phi', as for Bregman slack; else g is the identity
    compliance : 0 for a hard row
    """
    compliance = np.zeros(len(loss.bounds))
    for rows, slack in loss.groups:
        compliance[rows] = 1 / (slack.penalties if slack.is_positive else slack.curvature(slack.bounds))
    return loss.is_positive, compliance
