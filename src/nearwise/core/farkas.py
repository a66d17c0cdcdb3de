"""The only judge of Farkas certificates: multipliers y of hard rows with sum_i y_i A_i >= 0 and y^T b < 0.

Let S = sum_i y_i A_i. No M >= 0 meets rows with such multipliers, since 0 <= <S, M> <= y^T b; where the
divergence is infinite at singular matrices, S >= 0 other than zero proves it with b = 0 too. A search finds y
to some digits only, and the terms of S may cancel. So S is judged relative to W = sum_i |y_i| |A_i|, where
|A_i| is the sum of the magnitudes of its atoms: c is the smallest number >= 0 with S >= -c W, the same in
every basis and unit, and a feasible M has <W, M> >= |y^T b| / c. A proof holds if c is at most what the last
digits of features explain, and M would have to be 1e7 times as large as the bounds.

`proof` makes one of a suspicion: it leaves out rows of small share, which are errors of the search, corrects
multipliers where S has to be singular, and then looks for a proof of fewer rows (`contradictions`).
"""

from __future__ import annotations

from itertools import islice

import numpy as np

from nearwise._common.types import Array
from nearwise.core.certificate import InfeasibilityCheck
from nearwise.core.contradictions import EPS, Whitened, of_one_or_two, sparsest, whitened
from nearwise.core.divergences import SpectralDivergence
from nearwise.core.losses import Loss
from nearwise.core.rows import Rows

# What S may lack, relative to the bounds: a feasible M would be 1e7 times as large as they are. On random
# problems (bench decide) searches end at 1e-9 and less; with 1e-6, problems that barely have a solution are
# called infeasible.
LACKING = 1e-7

# y^T b relative to sum_i |y_i b_i|: less is a sum of zero, to the digits that searches know.
LEAST_BOUND = 1e-9

# Size of a row as a part of W, below which rounding of the others hides it: its bound proves nothing.
VISIBLE = 1e-10

# Shares of rows beside the largest, below which they are left out. Those of rows that have no part in the
# contradiction are errors of the search, and the smallest may spoil a proof: nothing outweighs it where such
# a row alone measures. A finer ladder proves no more (bench decide).
SHARES = (0.3, 0.1, 0.03, 0.01, 1e-3, 1e-4, 1e-5, 1e-7, 0.0)

# Eigenvalues of S, where W = I, that count as zero while multipliers are corrected: searches know them to
# some of these digits. Where all of them fail, a suspicion stays one.
ALMOST_ZERO = (1e-3, 1e-5, 1e-7, 1e-9)

# Newton steps of that correction, which converges quadratically.
CORRECTIONS = 4

# Rows up to which each is tried to be left out; more would take longer than to find the proof.
FEW = 100

# Of the largest share: where a program for few rows charges half for a row. Beside 1, the largest pay for
# all.
CHEAP = 0.01

# Proofs of one or two rows that are tried: the clearest of them hold (bench decide).
TRIED = 20

# Relative share of multipliers beside the sum from which on rows are named.
NAMED = 1e-6


def check(rows: Rows, loss: Loss, divergence: SpectralDivergence, multipliers: Array) -> InfeasibilityCheck:
    """What multipliers prove about the hard rows; those of soft rows and of the wrong sign count as zero."""
    return _Judge(rows, loss, divergence).check(_signed(loss, multipliers))[0]


def proof(rows: Rows, loss: Loss, divergence: SpectralDivergence, multipliers: Array) -> Array | None:
    """A proof near these multipliers or of fewer rows, the largest of size 1; or None."""
    y = _signed(loss, multipliers)
    judge = _Judge(rows, loss, divergence)
    if not y @ judge.bounds < 0:
        y = np.where(judge.bounds == 0, y, 0.0)
        if not divergence.is_infinite_at_zero:
            return None
    found = judge.proof_near(y)
    if found is None:
        return None
    found = judge.with_fewer(found)
    return found / np.abs(found).max()


def _signed(loss: Loss, multipliers: Array) -> Array:
    """Multipliers of hard rows with the right sign, the largest of size 1; zeros if they are not finite."""
    y = np.where(loss.is_hard, loss.signed(multipliers), 0.0)
    largest = np.abs(y).max(initial=0.0)
    return y / largest if 0 < largest < np.inf else np.zeros_like(y)


class _Judge:
    """Hard rows, with the bounds on the part of their values that depends on M."""

    def __init__(self, rows: Rows, loss: Loss, divergence: SpectralDivergence) -> None:
        self.rows, self.references, self.is_equality = rows, loss.references, loss.relations == 0
        self.bounds = loss.bounds if rows.offsets is None else loss.bounds - rows.offsets
        self.is_definite = divergence.is_infinite_at_zero

    def check(self, y: Array) -> tuple[InfeasibilityCheck, Whitened | None]:
        """What multipliers of the right sign prove."""
        share = np.abs(y) * self.references
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
        smallest, noise = 0.0, 0.0
        if white is not None:
            smallest, noise = white.smallest, white.noise
            hidden = white.rows[white.magnitudes < VISIBLE]
            bound -= float(np.minimum(y[hidden] * self.bounds[hidden], 0.0).sum())
        # bounds may be small beside what they limit, as margins are: then 1e7 times them is not much
        explained = 2 * noise + 8 * self.rows.order * EPS
        valid = bound < 0 and smallest * magnitude >= LACKING * bound and smallest >= -explained
        return InfeasibilityCheck(valid, smallest, bound / magnitude, named), white

    def proof_near(self, y: Array) -> Array | None:
        """Of as few rows of large share as possible."""
        share = np.abs(y) * self.references
        count = 0
        for level in SHARES:
            kept = (share > 0) & (share >= level * share.max())
            if kept.sum() > count:
                count = kept.sum()
                found = self._corrected(np.where(kept, y, 0.0))
                if found is not None:
                    return found
        return None

    def _corrected(self, y: Array) -> Array | None:
        """These multipliers where they are a proof, or the proof next to them that makes S singular."""
        found, white = self.check(y)
        if found.valid:
            return y
        if white is None or not -ALMOST_ZERO[0] < found.smallest_eigenvalue < 0:
            return None
        for zero in ALMOST_ZERO:
            near, inside = y.copy(), white
            for _ in range(CORRECTIONS):
                change = inside.towards_singular(zero)
                if change is None:
                    break
                near[inside.rows] *= 1 + change
                found, there = self.check(near)
                if found.valid:
                    return near
                if there is None:
                    break
                inside = there
        return None

    def with_fewer(self, proof: Array) -> Array:
        """A proof of fewer rows, none of which can be left out."""
        proof = self._sparse(proof)
        share = np.abs(proof) * self.references
        rows = np.flatnonzero(proof)
        for row in rows[np.argsort(share[rows], kind="stable")] if len(rows) <= FEW else ():
            without = proof.copy()
            without[row] = 0.0
            if self.check(without)[0].valid:
                proof = without
        return proof

    def _sparse(self, proof: Array) -> Array:
        """A proof of one or two of its rows, or of those left by programs to which small shares are dear."""
        is_first = True
        while (white := whitened(self.rows, proof)) is not None and white.is_small:
            matrices, y = white.matrices(), proof[white.rows]
            c, share = y * self.bounds[white.rows], np.abs(y) * self.references[white.rows]
            candidates = of_one_or_two(matrices, white.magnitudes, c, self.is_equality[white.rows])
            for u in islice(candidates, TRIED if is_first else 0):
                candidate = np.zeros_like(proof)
                candidate[white.rows] = u * y
                if self.check(candidate)[0].valid:
                    return candidate
            if not c.any():
                break
            weights = share / (share + CHEAP * share.max())
            lighter = np.zeros_like(proof)
            lighter[white.rows] = y * sparsest(matrices, c, weights)
            fewer = self.proof_near(lighter)
            if fewer is None or np.count_nonzero(fewer) >= np.count_nonzero(proof):
                break
            proof, is_first = fewer, False
        return proof
