"""Proofs that hard rows contradict each other: multipliers of few of them."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace

import numpy as np

from nearwise._common.types import Array, Index
from nearwise.model.divergences import Frobenius, LogDet
from nearwise.model.formulation import Formulation
from nearwise.model.losses import Losses
from nearwise.solving._interior_run import WINDOW, Run
from nearwise.solving._interior_starts import STARTS, WORK, enlargement, equalising
from nearwise.solving._written import WrittenForm, packing

_SEARCHES = 24  # for a proof of fewer rows
_FEASIBLE = 1e-7  # violation of rows that are not contradictory
_CONVERGED = 1e-10  # mu of a search that has come to its end without a proof
_MOST_PAIRED = 1000  # rows that are compared with each other
_PARALLEL = 1 - 1e-12  # cosine of matrices that are multiples of each other
_EQUAL = 1e-14  # distance of such matrices, of size 1, that are equal but for rounding
_PAIRS_TRIED = 3
_INDEFINITE = 1e-3  # of the size of a row: a negative eigenvalue of one that proves nothing alone
_SMALLEST = 1e-300
_DEAR = 1e10  # penalty on violations where only feasibility matters, in units of the rows
_LEAST_BOUND = 1e-6  # of the largest bound, for rows of one size: what a smaller bound counts as
_STRETCHED_STARTS = 3


def contradiction(
    written: WrittenForm, form: Formulation, is_stretched: bool = False
) -> Iterator[Array | None]:
    """Multipliers of few rows that prove the hard ones contradictory, if there are any; None while it looks.

    Once there is a proof, rows of small share in it are made cheaper, so that they give theirs up. Then rows
    are left out as long as the others still have a proof: half of them, then fewer, at last one by one. Where
    that is no proof to whoever looks closer, those of more rows follow.

    Parameters
    ----------
    written, form : the problem
    is_stretched : whether the search starts from a matrix that is as large in directions in which all rows
        measure little. It finds contradictions of small distances between objects far from the origin with
        inner products of these, which are larger by many orders of magnitude; it takes longer.
    """
    search = _Search(written, form, is_stretched)
    if not is_stretched:
        for ray in _small_rays(written, form):
            with np.errstate(all="ignore"):  # of rows that hardly measure anything, which prove nothing
                small = form.proof(ray)
            if small is not None:
                yield small
    hard = np.flatnonzero(form.losses.is_hard)
    starts = _STRETCHED_STARTS if is_stretched else STARTS
    proof = yield from search.proof(hard, np.ones(len(hard)), starts)
    if proof is None:
        return
    proofs, (rows, share) = [proof], search.shares(proof)
    fewer = yield from search.proof(rows, share, 1)
    while fewer is not None and np.count_nonzero(fewer) < len(rows):
        proofs, (rows, share) = [fewer, *proofs], search.shares(fewer)
        fewer = yield from search.proof(rows, share, 1)
    many, at = len(rows) // 2, 0
    for _ in range(_SEARCHES):
        if not many:
            break
        kept = np.sort(np.delete(rows[np.argsort(share, kind="stable")], slice(at, at + many)))
        fewer = yield from search.proof(kept, np.ones(len(kept)), 1)
        if fewer is None:
            at += many
        else:
            proofs, (rows, share) = [fewer, *proofs], search.shares(fewer)
            many, at = min(many, len(rows) // 2), 0
        if at >= len(rows):
            many, at = many // 2, 0
    yield from proofs


@np.errstate(all="ignore")
def _small_rays(written: WrittenForm, form: Formulation) -> list[Array]:
    """Multipliers of one or two hard rows that may contradict themselves or each other, the clearest first.

    Such as a distance that is less than itself, or two bounds on one distance: beside bounds that are larger
    by many orders of magnitude, a search among all rows at once misses them.
    """
    losses, rows = form.losses, np.flatnonzero(form.losses.is_hard)[:_MOST_PAIRED]
    offsets = form.measurements.offsets
    b = (losses.bounds if offsets is None else losses.bounds - offsets)[rows]
    relation, definite = losses.relations[rows], losses.is_definite[rows]
    forbids_zero = np.where(relation == 0, b != 0, b * relation > 0)
    few = written.rows.only(rows)
    matrices = few.in_basis(np.eye(few.order))
    norms = np.maximum(np.linalg.norm(matrices, axis=0), _SMALLEST)
    unit = np.nan_to_num(matrices / norms)
    alone = np.flatnonzero(forbids_zero & ~(definite & (b > 0)))
    # what proves something by itself is semidefinite, and most rows are far from that
    signed = [packing(few.order).unpacked(-np.sign(b[place]) * unit[:, place]) for place in alone]
    smallest = np.linalg.eigvalsh(np.reshape(signed, (-1, few.order, few.order)))[:, 0] * norms[alone]
    alone = alone[~(smallest < -_INDEFINITE * few.sizes[alone])]
    rays = [_ray(form, [rows[place]], [-np.sign(b[place])]) for place in alone]
    likeness = unit.T @ unit
    first, second = np.nonzero(np.triu(np.abs(likeness) > _PARALLEL, 1))
    same, scaled = np.sign(likeness[first, second]), b / norms
    # With a common offset of the features all inner products are nearly parallel: those that are equal come
    # first, by some numbers that only equal ones have in common.
    told = np.random.default_rng(0).normal(size=(2, len(unit))) @ unit
    apart = (np.abs(told[:, first] - same * told[:, second]) > _EQUAL).any(axis=0)
    found = []
    for sign in (1.0, -1.0):  # of the first multiplier; the second one makes the sum of both matrices zero
        other = -sign * same
        allowed = (relation[first] * sign <= 0) & (relation[second] * other <= 0)
        total = sign * scaled[first] + other * scaled[second]
        share = total / np.maximum(np.abs(scaled[first]) + np.abs(scaled[second]), _SMALLEST)
        places = np.flatnonzero(allowed & (total < 0))
        found += [(apart[k], share[k], first[k], sign, second[k], other[k]) for k in places]
    for _, _, i, at_i, j, at_j in sorted(found)[:_PAIRS_TRIED]:
        rays.append(_ray(form, [rows[i], rows[j]], [at_i / norms[i], at_j / norms[j]]))
    return rays


def _ray(form: Formulation, rows: list[int], multipliers: list[float]) -> Array:
    ray = np.zeros(len(form.losses.bounds))
    ray[rows] = multipliers
    return ray


@dataclass(frozen=True, eq=False)
class _Search:
    """A search for proofs among some of the hard rows of a problem."""

    written: WrittenForm
    form: Formulation
    is_stretched: bool

    def shares(self, proof: Array) -> tuple[Index, Array]:
        """The rows of a proof, and the share of each beside the largest."""
        share = np.abs(proof) * self.form.losses.references
        rows = np.flatnonzero(share)
        return rows, share[rows] / share.max()

    def proof(self, rows: Index, share: Array, starts: int) -> Generator[None, None, Array | None]:
        """A proof that these hard rows contradict each other, of those of large share at best, or None.

        It has the multipliers of the least squares of the violations, which LogDet, the natural barrier of
        the cone, finds from a prior that is larger than all bounds ask for. They depend neither on the
        divergence nor on the prior.
        """
        feasibility, losses = self._feasibility(rows, share)
        larger = enlargement(feasibility)
        for start in range(starts):
            run = Run(feasibility, larger**start, orthogonal=WORK if self.is_stretched else 0.0)
            while run.is_promising and run.advance():
                if run.count % 4 == 3:
                    ray = np.zeros(len(self.form.losses.bounds))
                    ray[rows] = run.slacks.y
                    if (proof := self.form.proof(ray)) is not None:
                        return proof
                if run.mu <= _CONVERGED or np.max(losses.violations(run.values)) <= _FEASIBLE:
                    return None
                if run.count % WINDOW == 0:
                    yield None  # so that limits are looked at
        return None

    @np.errstate(all="ignore")
    def _feasibility(self, rows: Index, share: Array) -> tuple[WrittenForm, Losses]:
        """The least squares of the violations of some rows, as a problem, and the rows' own losses."""
        few = self.written.rows.only(rows)
        turned = few.turned(equalising(few, alike=not self.is_stretched))
        losses = self.form.losses.only(rows)
        sizes = _or_one((few if self.is_stretched else turned).sizes)
        largest = float(np.max(np.abs(losses.bounds) / sizes, initial=0.0)) or 1.0
        unit = np.maximum(np.abs(losses.bounds), _LEAST_BOUND * largest * sizes)
        soft = replace(losses, divergence=Frobenius(), penalties=np.maximum(_DEAR * share, 1.0) / unit / unit)
        wanted = float(np.max(np.abs(losses.bounds) / _or_one(turned.sizes), initial=0.0)) or 1.0
        feasibility = WrittenForm(LogDet(), np.full_like(self.form.prior, 100 * wanted), turned, soft)
        return feasibility, losses


def _or_one(sizes: Array) -> Array:
    """With 1 for what is not positive."""
    return np.where(sizes > 0, sizes, 1.0)
