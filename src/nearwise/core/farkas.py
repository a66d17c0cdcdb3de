"""The only judge of Farkas certificates: multipliers y of hard rows with sum_i y_i A_i >= 0 and y^T b < 0.

Let S = sum_i y_i A_i. No M >= 0 meets rows with such multipliers, since 0 <= <S, M> <= y^T b; where the
divergence is infinite at singular matrices, S >= 0 other than zero proves it with b = 0 too. A search finds y
to some digits only, and the terms of S may cancel. So S is judged relative to W = sum_i |y_i| |A_i|, where
|A_i| is the sum of the magnitudes of its atoms: c is the largest number with S >= -c W, the same in every
basis and unit, and a feasible M has

    <S, M> >= -c <W, M>,     so that     <W, M> >= |y^T b| / c.

A proof holds if c is at most what the last digits of features explain and M would have to be 1e7 times as
large as the bounds. `whitened` computes c in coordinates in which W = I. `Whitened.balanced` corrects
multipliers whose rows almost add up to zero where they have to, and `proof` leaves out the rows that a proof
does not need.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearwise._common.types import Array, Index
from nearwise.core.certificate import InfeasibilityCheck
from nearwise.core.divergences import SpectralDivergence
from nearwise.core.losses import Loss
from nearwise.core.rows import Rows

EPS = float(np.finfo(np.float64).eps)

# What S may lack, relative to the bounds: a feasible M would be 1e7 times as large as they are. On random
# problems (bench decide) searches end at 1e-9 and less; with 1e-6, problems that barely have a solution are
# called infeasible.
LACKING = 1e-7

# y^T b relative to sum_i |y_i b_i|: less is a sum of zero, to the digits that searches know.
LEAST_BOUND = 1e-9

# Shares of rows beside the largest, below which they are left out. Those of rows that have no part in the
# contradiction are errors of the search, and the smallest may spoil a proof: nothing outweighs it where such
# a row alone measures. A finer ladder proves no more (bench decide).
SHARES = (0.3, 0.1, 0.03, 0.01, 1e-3, 1e-4, 1e-5, 1e-7, 0.0)

# Rows up to which each is tried to be left out; more would take longer than to find the proof.
FEW = 100

# Eigenvalues of S in the coordinates of W that a search leaves where it means zero; `balanced` does not look
# at others.
ALMOST_ZERO = 1e-3

# Relative change of multipliers that `balanced` may need: with more, they are those of another proof.
LARGEST_CHANGE = 0.5

# Numbers in the equations of `balanced`, which take about a second.
MOST_BALANCED = 5_000_000

# Relative share of multipliers beside the sum from which on rows are named.
NAMED = 1e-6


def check(rows: Rows, loss: Loss, divergence: SpectralDivergence, multipliers: Array) -> InfeasibilityCheck:
    """What multipliers prove about the hard rows; those of soft rows and of the wrong sign count as zero."""
    return _Judge(rows, loss, divergence).check(_signed(loss, multipliers))[0]


def proof(rows: Rows, loss: Loss, divergence: SpectralDivergence, multipliers: Array) -> Array | None:
    """As few of the multipliers as prove the hard rows contradictory, the largest of them 1; or None."""
    y = _signed(loss, multipliers)
    judge = _Judge(rows, loss, divergence)
    if not y @ judge.bounds < 0:
        y = np.where(judge.bounds == 0, y, 0.0)
        if not divergence.is_infinite_at_zero:
            return None
    share = np.abs(y) * loss.references
    if not share.any():
        return None
    count = 0
    for level in SHARES:
        kept = share >= level * share.max()
        if kept.sum() == count:
            continue
        count = kept.sum()
        found = judge.proof_near(np.where(kept, y, 0.0))
        if found is not None:
            found = judge.with_fewer(found)
            return found / np.abs(found).max()
    return None


def _signed(loss: Loss, multipliers: Array) -> Array:
    """Multipliers of hard rows with the right sign, the largest of size 1; zeros if they are not finite."""
    y = np.where(loss.is_hard, loss.signed(multipliers), 0.0)
    largest = np.abs(y).max(initial=0.0)
    return y / largest if 0 < largest < np.inf else np.zeros_like(y)


class _Judge:
    """Hard rows, with the bounds on the part of their values that depends on M."""

    def __init__(self, rows: Rows, loss: Loss, divergence: SpectralDivergence) -> None:
        self.rows, self.loss = rows, loss
        self.bounds = loss.bounds if rows.offsets is None else loss.bounds - rows.offsets
        self.is_definite = divergence.is_infinite_at_zero

    def check(self, y: Array) -> tuple[InfeasibilityCheck, Whitened | None]:
        """What multipliers of the right sign prove."""
        share = np.abs(y) * self.loss.references
        total = float(share.sum())
        if not 0 < total < np.inf:
            return InfeasibilityCheck(False, -np.inf, 0.0, ()), None
        order = np.argsort(-share, kind="stable")
        named = tuple(int(row) for row in order[: np.count_nonzero(share > NAMED * total)])
        bound, magnitude = float(y @ self.bounds), float(np.abs(y) @ np.abs(self.bounds))
        if magnitude == 0 and self.is_definite:
            white = whitened(self.rows, y)
            smallest = -1.0 if white is None else white.smallest
            return InfeasibilityCheck(smallest == 0, smallest, 0.0, named), white
        if not bound < -LEAST_BOUND * magnitude:
            return InfeasibilityCheck(False, -np.inf, bound / magnitude if magnitude else 0.0, named), None
        white = whitened(self.rows, y)
        smallest, noise = (0.0, 0.0) if white is None else (white.smallest, white.noise)
        # bounds may be small beside what they limit, as margins are: then 1e7 times them is not much
        explained = 2 * noise + 8 * self.rows.order * EPS
        valid = smallest * magnitude >= LACKING * bound and smallest >= -explained
        return InfeasibilityCheck(valid, smallest, bound / magnitude, named), white

    def proof_near(self, y: Array) -> Array | None:
        """These multipliers where they are a proof, or the proof next to them."""
        for _ in range(3):
            found, white = self.check(y)
            if found.valid:
                return y
            if white is None or not -ALMOST_ZERO < found.smallest_eigenvalue < 0:
                return None
            change = white.balanced()
            if change is None:
                return None
            y = y.copy()
            y[white.rows] *= 1 + change
        return None

    def with_fewer(self, proof: Array) -> Array:
        """The same without the rows that it holds without, tried one by one, those of small share first."""
        rows = np.flatnonzero(proof)
        share = np.abs(proof[rows]) * self.loss.references[rows]
        for row in rows[np.argsort(share, kind="stable")] if len(rows) <= FEW else ():
            without = proof.copy()
            without[row] = 0.0
            if self.check(without)[0].valid:
                proof = without
        return proof


class Whitened(NamedTuple):
    """Signed atoms of rows times their multipliers, in coordinates in which W = sum_i |y_i| |A_i| is I.

    Attributes
    ----------
    rows : their numbers
    row : that of every atom among these
    sign, x, y : of every atom, and its vectors; the same object where all are squares
    total : S
    noise : what rounding may have added to the eigenvalues of S
    """

    rows: Index
    row: Index
    sign: Array
    x: Array
    y: Array
    total: Array
    noise: float

    @property
    def smallest(self) -> float:
        """-c: the smallest eigenvalue of S, less what rounding may have added to it; at most 0."""
        return min(float(np.linalg.eigvalsh(self.total)[0]) - self.noise, 0.0)

    def balanced(self) -> Array | None:
        """By how much multipliers are to change, relatively, so that S is zero where it almost is.

        A search knows them to some digits only: what is left of an S that has to be zero may be negative.
        None where nothing is almost zero, or only other multipliers make it zero.
        """
        values, V = np.linalg.eigh(self.total)
        N = V[:, np.abs(values) <= ALMOST_ZERO]
        if not N.size or len(self.x) * N.size > MOST_BALANCED:
            return None
        first, second = (self.sign[:, None] * self.x) @ N, (self.sign[:, None] * self.y) @ N
        parts = first[:, :, None] * (self.y @ V)[:, None] + second[:, :, None] * (self.x @ V)[:, None]
        of_rows = np.zeros((len(self.rows), N.size))
        np.add.at(of_rows, self.row, parts.reshape(len(parts), -1))
        change: Array = np.linalg.lstsq(of_rows.T, -of_rows.sum(axis=0), rcond=1e-10)[0]
        return change if np.abs(change).max() < LARGEST_CHANGE else None


def whitened(rows: Rows, y: Array) -> Whitened | None:
    """The coordinates of W, from the singular values of its vectors: eigenvalues would lose the small ones.

    Columns in different units are brought to one before, so that none is lost beside the others. None where
    the rows measure nothing.
    """
    numbers = np.flatnonzero(y)
    few = rows.subset(numbers)
    x, z = few.vectors()
    square = z is x
    largest = np.maximum(np.abs(x).max(axis=0, initial=0.0), np.abs(z).max(axis=0, initial=0.0))
    even = np.exp2(-np.frexp(np.where(largest > 0, largest, 1.0))[1])
    weight = few.coefficient * y[numbers][few.row_of_atoms]
    root = np.sqrt(np.abs(weight))[:, None]
    x = root * (x * even)
    z = x if square else root * (z * even)
    vectors = x if square else np.sqrt(0.5) * np.vstack([x, z])
    _, s, Vt = np.linalg.svd(np.linalg.qr(vectors, mode="r"), full_matrices=False)
    kept = s > 4 * len(s) * EPS * s.max(initial=0.0)
    if not kept.any():
        return None
    white = Vt[kept].T / s[kept]
    x = x @ white
    z = x if square else z @ white
    total = x.T @ (np.sign(weight)[:, None] * z)
    noise = 4 * EPS * float(s[0] / s[kept][-1])  # of vectors that are nearly parallel
    return Whitened(numbers, few.row_of_atoms, np.sign(weight), x, z, (total + total.T) / 2, noise)
