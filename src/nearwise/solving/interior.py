"""A primal-dual interior-point method, which decides small problems however far the prior is from the bounds.

Every row has a slack (`_slacks`), the matrix a scaling (`_scalings`); a step is a predictor and a corrector
on the same factorised system (Mehrotra). It starts far inside and need not be feasible before the end, so
neither the distance of the prior nor penalties of very different sizes matter much: 10 to 40 steps are usual.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from nearwise._common.types import Array, Index, Mask
from nearwise.model.divergences import Frobenius, LogDet, VonNeumann
from nearwise.model.formulation import Formulation, Iterate, bare_prior_point
from nearwise.model.losses import Losses
from nearwise.solving._interior_run import WINDOW, Run
from nearwise.solving._relaxation import ROOM, Relaxed
from nearwise.solving._scalings import start_sizes
from nearwise.solving._written import WrittenForm, WrittenRows, packing
from nearwise.solving.dual import polished

_LARGER = 1e4  # how much further inside each start is, at least
_LARGEST = 1e200
_STARTS = 5
_LARGER_MATRIX = 1e9
_LAST = _STARTS - 1
_PUSHED = 1e-3  # of what soft rows may push: the multiplier of the first start
# where further runs start: whether from a larger matrix, how often the multiplier is enlarged, and whether
# the matrix suits the rows; all solve their systems by an orthogonal factorisation, and in the first of them
# conditions and M Z fall together
_FROM = (
    (True, _LAST, False),
    (False, 0, True),
    (False, 0, False),
    (False, 1, False),
    (False, 1, True),
    (True, _LAST, True),
    *((False, start, False) for start in range(2, _STARTS)),
)
_TOGETHER = 4  # further runs
_UNRELAXED = 2  # runs before hard rows are given room
_RELAXED = 3  # runs with it
_WEIGHTLESS = 1e-40  # what a soft row costs in units of the objective, below which it is left out
_SEARCHES = 24  # for a proof of fewer rows
_FLATTEST = 1e-12  # relative size of a direction of the rows that is one, and is stretched to equal size
_FEASIBLE = 1e-7  # violation of rows that are not contradictory
_CONVERGED = 1e-10  # mu of a search that has come to its end without a proof
_MOST_PAIRED = 1000  # rows that are compared with each other
_PARALLEL = 1 - 1e-12  # cosine of matrices that are multiples of each other
_PAIRS_TRIED = 3
_INDEFINITE = 1e-3  # of the size of a row: a negative eigenvalue of one that proves nothing alone
_SMALLEST = 1e-300
_DEAR = 1e10  # penalty on violations where only feasibility matters, in units of the rows


@dataclass(frozen=True)
class InteriorPoint:
    """A primal-dual interior-point method for LogDet, von Neumann and Frobenius.

    It writes the constraints out as vectors of all r (r + 1) / 2 unknowns, so it is for small problems: r up
    to 60 and a few thousand rows. There it decides what other methods cannot: hard rows far from the prior,
    rows that contradict each other, penalties that differ by many orders of magnitude.

    Parameters
    ----------
    tol : the tolerance of the run. Points that cannot be that good yet are kept back, because to certify one
        takes as long as one or two steps.
    """

    tol: float = 1e-6

    def iterates(self, form: Formulation) -> Iterator[Iterate]:
        """The prior, then points whose gap and violation fall together."""
        if not isinstance(form.divergence, LogDet | VonNeumann | Frobenius):
            raise TypeError(
                f"InteriorPoint knows LogDet, VonNeumann and Frobenius, not {form.divergence!r}; use Newton()"
            )
        yield bare_prior_point(form)
        yield from self.points(form)

    def points(self, form: Formulation) -> Iterator[Iterate]:
        """The same without the prior."""
        losses = form.losses
        written = WrittenForm(form.divergence, form.prior, WrittenRows.of(form.measurements), losses)
        rows = np.flatnonzero(_has_weight(form))
        unchecked, all_rows = losses.any_hard, len(rows) == len(losses.bounds)

        def point(run: Run) -> Iterate:
            return run.point() if all_rows else _with_all_rows(run.point(), rows, written.rows)

        weighty = written if all_rows else written.only(rows)
        for place, run in enumerate(_runs(weighty)):
            if place == _UNRELAXED and losses.any_hard:
                for found in self._relaxed_points(weighty, form.unit):
                    yield found if all_rows else _with_all_rows(found, rows, written.rows)
            while run.is_promising and run.advance():
                if run.is_worth_a_look(self.tol, form.unit):
                    yield point(run)
                if unchecked and run.is_stuck:
                    break
            if unchecked:
                unchecked, here = False, point(run)
                if form.is_strict:  # rows that only singular matrices meet have bounds of 0
                    yield replace(here, ray=np.where(form.losses.bounds == 0, here.dual, 0.0))
                for proof in _contradiction(written, form):
                    yield replace(here, ray=proof)
                while run.is_promising and run.advance():
                    if run.is_worth_a_look(self.tol, form.unit):
                        yield point(run)
            # where M is nearly singular, its values are known better from the multipliers than by themselves
            for found in polished(weighty, run.slacks.y, self.tol):
                yield found if all_rows else _with_all_rows(found, rows, written.rows)

    def _relaxed_points(self, form: WrittenForm, unit: float) -> Iterator[Iterate]:
        """Points of the problem with room at its hard rows."""
        relaxed = Relaxed.of(form, ROOM * self.tol)
        for run in itertools.islice(_runs(relaxed.form), _RELAXED):
            while run.is_promising and run.advance():
                if run.is_worth_a_look(self.tol, unit):
                    yield relaxed.point(run.point())
            yield relaxed.point(run.point())
            for found in polished(relaxed.form, run.slacks.y, self.tol):
                yield relaxed.point(found)


@np.errstate(all="ignore")
def _has_weight(form: Formulation) -> Mask:
    """The rows that can move the optimum; what the others cost is far below rounding, and they get y = 0."""
    losses = form.losses
    sizes = np.maximum(losses.sizes, np.abs(losses.bounds))
    weight = losses.penalties * sizes ** (form.divergence.degree or 0.0)
    return losses.is_hard | ~(weight < _WEIGHTLESS * form.unit)


def _with_all_rows(point: Iterate, rows: Index, written: WrittenRows) -> Iterate:
    dual = np.zeros(written.n_rows)
    dual[rows] = point.dual
    return replace(point, values=written.values(point.factor), dual=dual)


def _runs(form: WrittenForm) -> Iterator[Run]:
    """Runs from further and further inside the cone, from a multiple of I or from one that suits the rows.

    Stiff soft rows that cannot all be met have large multipliers, so the first run starts with one as large.
    A path along which M grows by many orders of magnitude is narrow and bent, one along which it shrinks is
    not; so some start from a matrix that is much larger than it seems to have to be.
    """
    with suppress(np.linalg.LinAlgError):
        yield Run(form, max(_PUSHED * _push(form), 1.0))
    larger = _enlargement(form)
    for place, (primal, dual, turned) in enumerate(_FROM):
        turn, size = _equalising(form.rows) if turned else None, _LARGER_MATRIX if primal else 1.0
        with suppress(np.linalg.LinAlgError):
            yield Run(form, larger**dual, turn, size, orthogonal=True, together=place < _TOGETHER)


def _equalising(rows: WrittenRows) -> Array:
    """T such that the vectors T^T x of the rows have about the same size in all directions that they have."""
    vectors = rows.x.T if rows.x is rows.y else np.vstack([rows.x.T, rows.y.T])
    norms = np.linalg.norm(vectors, axis=1)
    unit = vectors[norms > 0] / norms[norms > 0, None]
    _, s, Vt = np.linalg.svd(np.vstack([unit, np.zeros((rows.order, rows.order))]), full_matrices=False)
    largest = max(s[0], _FLATTEST)
    return np.asarray(Vt.T / np.where(s > _FLATTEST * largest, s, largest))


def _enlargement(form: WrittenForm) -> float:
    """By how much the multipliers grow from one start to the next: at last, as far as soft rows can push."""
    return max(_LARGER, _push(form) ** (1 / (_STARTS - 1)))


@np.errstate(all="ignore")
def _push(form: WrittenForm) -> float:
    """What soft rows may ask of the matrix's multiplier, in units of that of the usual first point."""
    losses, sizes = form.losses, form.rows.sizes
    primal, dual = start_sizes(form, sizes)
    on_both_sides = replace(losses, relations=np.zeros_like(losses.relations))
    push = np.abs(on_both_sides.slopes(primal * sizes)) * sizes / dual
    return float(np.fmin(np.fmax.reduce(push, initial=0.0), _LARGEST))


def _contradiction(written: WrittenForm, form: Formulation) -> Iterator[Array | None]:
    """Multipliers of few rows that prove the hard ones contradictory, if there are any; None while it looks.

    Once there is a proof, rows of small share in it are made cheaper, so that they give theirs up. Then rows
    are left out as long as the others still have a proof: half of them, then fewer, at last one by one.
    """
    for ray in _small_proofs(written, form):
        with np.errstate(all="ignore"):  # of rows that hardly measure anything, which prove nothing
            proof = form.proof(ray)
        if proof is not None:
            yield proof
            return
    hard = np.flatnonzero(form.losses.is_hard)
    proof = yield from _proof_from(written, form, hard, np.ones(len(hard)), _STARTS)
    if proof is None:
        return
    rows, share = _shares(proof, form)
    fewer = yield from _proof_from(written, form, rows, share, 1)
    while fewer is not None and np.count_nonzero(fewer) < len(rows):
        proof, (rows, share) = fewer, _shares(fewer, form)
        fewer = yield from _proof_from(written, form, rows, share, 1)
    many, at = len(rows) // 2, 0
    for _ in range(_SEARCHES):
        if not many:
            break
        kept = np.sort(np.delete(rows[np.argsort(share, kind="stable")], slice(at, at + many)))
        fewer = yield from _proof_from(written, form, kept, np.ones(len(kept)), 1)
        if fewer is None:
            at += many
        else:
            proof, (rows, share) = fewer, _shares(fewer, form)
            many, at = min(many, len(rows) // 2), 0
        if at >= len(rows):
            many, at = many // 2, 0
    yield proof


@np.errstate(all="ignore")
def _small_proofs(written: WrittenForm, form: Formulation) -> list[Array]:
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
    found = []
    for sign in (1.0, -1.0):  # of the first multiplier; the second one makes the sum of both matrices zero
        other = -sign * same
        allowed = (relation[first] * sign <= 0) & (relation[second] * other <= 0)
        total = sign * scaled[first] + other * scaled[second]
        share = total / np.maximum(np.abs(scaled[first]) + np.abs(scaled[second]), _SMALLEST)
        places = np.flatnonzero(allowed & (total < 0))
        found += [(share[k], first[k], sign, second[k], other[k]) for k in places]
    for _, i, at_i, j, at_j in sorted(found)[:_PAIRS_TRIED]:
        rays.append(_ray(form, [rows[i], rows[j]], [at_i / norms[i], at_j / norms[j]]))
    return rays


def _ray(form: Formulation, rows: list[int], multipliers: list[float]) -> Array:
    ray = np.zeros(len(form.losses.bounds))
    ray[rows] = multipliers
    return ray


def _shares(proof: Array, form: Formulation) -> tuple[Index, Array]:
    """The rows of a proof, and the share of each beside the largest."""
    share = np.abs(proof) * form.losses.references
    rows = np.flatnonzero(share)
    return rows, share[rows] / share.max()


def _proof_from(
    written: WrittenForm, form: Formulation, rows: Index, share: Array, starts: int
) -> Generator[None, None, Array | None]:
    """A proof that these hard rows contradict each other, of those of large share at best, or None.

    It has the multipliers of the least squares of the violations, which LogDet, the natural barrier of the
    cone, finds from a prior that is larger than all bounds ask for. They depend neither on the divergence nor
    on the prior.
    """
    feasibility, losses = _feasibility(written, form, rows, share)
    larger = _enlargement(feasibility)
    for start in range(starts):
        run = Run(feasibility, larger**start)
        while run.is_promising and run.advance():
            if run.count % 4 == 3:
                ray = np.zeros(len(form.losses.bounds))
                ray[rows] = run.slacks.y
                if (proof := form.proof(ray)) is not None:
                    return proof
            if run.mu <= _CONVERGED or np.max(losses.violations(run.values)) <= _FEASIBLE:
                return None
            if run.count % WINDOW == 0:
                yield None  # so that limits are looked at
    return None


@np.errstate(all="ignore")
def _feasibility(
    written: WrittenForm, form: Formulation, rows: Index, share: Array
) -> tuple[WrittenForm, Losses]:
    """The least squares of the violations of some rows, as a problem, and the rows' own losses."""
    few = written.rows.only(rows)
    turned = few.turned(_equalising(few))
    losses, sizes = form.losses.only(rows), np.where(turned.sizes > 0, turned.sizes, 1.0)
    largest = float(np.max(np.abs(losses.bounds) / sizes, initial=0.0)) or 1.0
    unit = np.maximum(np.abs(losses.bounds), 1e-6 * largest * sizes)
    soft = replace(losses, divergence=Frobenius(), penalties=np.maximum(_DEAR * share, 1.0) / unit / unit)
    feasibility = WrittenForm(LogDet(), np.full_like(form.prior, 100 * largest), turned, soft)
    return feasibility, losses
