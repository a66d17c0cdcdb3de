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
from nearwise.core.contradictions import EPS, TINY, Whitened, of_one_or_two, sparsest, whitened
from nearwise.core.divergences import SpectralDivergence
from nearwise.core.losses import Loss
from nearwise.core.rows import Rows

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

# Eigenvalues of S, where W = I, that count as zero while multipliers are corrected: searches know them to
# some of these digits. Where all of them fail, a suspicion stays one.
ALMOST_ZERO = (1e-3, 1e-5, 1e-7, 1e-9)

# Newton steps of that correction, which converges quadratically.
CORRECTIONS = 4

# Rows up to which each is tried to be left out; more would take longer than to find the proof.
FEW = 100

# Share beside the largest, for which a program for few rows charges half of what the largest costs. With 1
# in its place up to twice as many rows are named (bench decide).
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
    fewest = judge.of_one_or_two(y)
    if fewest is None:
        fewest = judge.minimal(judge.sparse(found))
    return fewest / np.abs(fewest).max()


def _signed(loss: Loss, multipliers: Array) -> Array:
    """Multipliers of hard rows with the right sign, the largest of size 1; zeros if they are not finite."""
    y = np.where(loss.is_hard, loss.signed(multipliers), 0.0)
    largest = np.abs(y).max(initial=0.0)
    return y / largest if 0 < largest < np.inf else np.zeros_like(y)


class _Judge:
    """Hard rows, with the bounds on the part of their values that depends on M."""

    def __init__(self, rows: Rows, loss: Loss, divergence: SpectralDivergence) -> None:
        self.rows, self.references, self.sizes = rows, loss.references, loss.sizes
        self.is_equality = loss.relations == 0
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
        smallest, noise = (0.0, 0.0) if white is None else (white.smallest, white.noise)
        # bounds may be small beside what they limit, as margins are: then 1e7 times them is not much
        explained = 2 * noise + 8 * self.rows.order * EPS
        valid = smallest * self._measured(y) >= LACKING * bound and smallest >= -explained
        return InfeasibilityCheck(valid, smallest, bound / magnitude, named), white

    def _measured(self, y: Array) -> float:
        """What sum_i |y_i| <|A_i|, M> is where M is as large as the bounds ask for.

        Bounds of zero ask for nothing: rows that have them are as large, beside their sizes, as others.
        """
        bounded = self.bounds != 0
        found, sizes = float(np.abs(y) @ np.abs(self.bounds)), np.abs(y) * self.sizes
        return found * (1.0 + float(sizes[~bounded].sum()) / max(float(sizes[bounded].sum()), TINY))

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
        sizes, count = np.abs(np.linalg.eigvalsh(white.total)), 0
        for zero in ALMOST_ZERO:
            count, last = int(np.count_nonzero(sizes <= zero)), count
            if count == last:
                continue
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

    def of_one_or_two(self, y: Array) -> Array | None:
        """A proof of one or two rows that have multipliers; those of equalities may have the other sign."""
        white = whitened(self.rows, y)
        if white is None or not white.is_small:
            return None
        c = y[white.rows] * self.bounds[white.rows]
        candidates = of_one_or_two(white.matrices(), white.magnitudes, c, self.is_equality[white.rows])
        for relative in islice(candidates, TRIED):
            proof = np.zeros_like(y)
            proof[white.rows] = relative * y[white.rows]
            if self.check(proof)[0].valid:
                return proof
        return None

    def sparse(self, proof: Array) -> Array:
        """A proof of fewer rows, by programs to which rows of small share are dear."""
        while (white := whitened(self.rows, proof)) is not None and white.is_small:
            y = proof[white.rows]
            c, share = y * self.bounds[white.rows], np.abs(y) * self.references[white.rows]
            if not c.any():
                break
            weights = share / (share + CHEAP * share.max())
            lighter = np.zeros_like(proof)
            lighter[white.rows] = y * sparsest(white.matrices(), c, weights)
            fewer = self.proof_near(lighter)
            if fewer is None or np.count_nonzero(fewer) >= np.count_nonzero(proof):
                break
            proof = fewer
        return proof

    def minimal(self, proof: Array) -> Array:
        """A proof from which no row can be left out; those of small share are tried first."""
        share = np.abs(proof) * self.references
        rows = np.flatnonzero(proof)
        rows = rows[np.argsort(share[rows], kind="stable")]
        for row in rows if len(rows) <= FEW else ():
            without = proof.copy()
            without[row] = 0.0
            if self.check(without)[0].valid:
                return self.minimal(without)
        return proof
