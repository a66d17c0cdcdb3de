"""Runs one random problem and judges the answer by the definition, see `_definition`.

An answer that says SOLVED is wrong if its gap or the violation of a hard row, recomputed, exceeds ten times
the tolerance by more than what rounding its numbers, or those of a full prior, to double precision explains.
An answer that says INFEASIBLE is false if its proof does not hold, or if the bounds were made to fit a
matrix.
"""

from __future__ import annotations

import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import numpy as np

import nearwise as nw
from benchmarks._definition import Definition, Truth
from benchmarks._random_problems import MODERATE, Case, Family, draw
from nearwise._common.types import Array

TOL = 1e-6  # the default of `solve`
MARGIN = 10.0  # times the tolerance: what counts as wrong
LIMIT = 20.0  # seconds of CPU for one problem
SLOW = 2.0
_ULP = 2.0**-53
_LEAKAGE = 1e-8  # relative part of a factor that may lie outside the prior's range
_SAMPLES = 3  # of numbers that round to the ones that were given


@dataclass(frozen=True)
class Outcome:
    """What became of one problem.

    Attributes
    ----------
    ending : the status, "refused", "out of time", or the name of an exception
    seconds : of CPU, for Problem and solve
    fault : why the answer is wrong, empty if it is not
    gap, violation : recomputed, of an answer that says SOLVED
    is_loose : whether one of these exceeds the tolerance itself
    is_rounding : whether only rounding of the given numbers excuses them
    warned : the warnings, as text
    has_nan : whether matrix, dual or certificate hold a NaN
    text : the message of the result or of the exception
    """

    number: int
    family: Family
    name: str
    divergence: str
    ending: str
    seconds: float
    fault: str = ""
    gap: float = 0.0
    violation: float = 0.0
    is_loose: bool = False
    is_rounding: bool = False
    warned: tuple[str, ...] = ()
    has_nan: bool = False
    text: str = ""

    @property
    def label(self) -> str:
        """As the option --only takes it."""
        return f"{self.family.prefix}{self.number}"

    @property
    def is_decided(self) -> bool:
        return self.ending in ("SOLVED", "INFEASIBLE")


class _OutOfTime(BaseException):
    """Not an Exception, so that nothing on the way catches it."""


def run(seed: int, number: int, family: Family = MODERATE) -> Outcome:
    """Draw the problem, solve it with default settings, and judge what comes back."""
    case = draw(seed, number, family)
    result, bare = attempt(case, number, family)
    return bare if result is None else judged(case, result, bare)


def attempt(case: Case, number: int = 0, family: Family = MODERATE) -> tuple[nw.Result | None, Outcome]:
    """Build and solve a problem with default settings; the result, if any, is not yet judged."""
    bare = Outcome(number, family, case.name, type(case.divergence).__name__, "", 0.0)
    start = time.process_time()
    result: nw.Result | None = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        problem: nw.Problem | None = None
        try:
            with _limited():
                problem = case.problem()
                result = nw.solve(problem)
            ending, text = result.status.name, result.message
        except _OutOfTime:
            ending, text = "out of time", ""
        except Exception as error:  # the campaign counts them all
            # LinAlgError derives from ValueError, and is none
            refused = (
                problem is None
                and isinstance(error, ValueError)
                and not isinstance(error, np.linalg.LinAlgError)
            )
            ending, text = "refused" if refused else type(error).__name__, str(error)
    warned = tuple(f"{type(w.message).__name__}: {w.message}" for w in caught)
    seconds = time.process_time() - start
    return result, replace(bare, ending=ending, text=text, warned=warned, seconds=seconds)


def judged(case: Case, result: nw.Result, bare: Outcome) -> Outcome:
    """The outcome with what the definition says about a result."""
    found = result.certificate
    numbers = [result.matrix, result.factor, result.dual]
    numbers.append(np.array([found.primal, found.dual, found.gap, found.violation, found.hard_violation]))
    if any(np.isnan(part).any() for part in numbers):
        fault = "NaN in an answer that says SOLVED" if result.status is nw.Status.SOLVED else ""
        return replace(bare, has_nan=True, fault=fault)
    if result.status is nw.Status.INFEASIBLE:
        return replace(bare, fault=_fault_of_proof(case, result))
    if result.status is not nw.Status.SOLVED:
        return bare
    if not all(np.isfinite(part).all() for part in numbers[:3]):
        return replace(bare, fault="infinite numbers in an answer that says SOLVED")
    exact = Definition(case)
    B = exact.factor(result)
    truth = exact.certificate(B, result.dual)
    bare = replace(
        bare,
        gap=truth.gap,
        violation=truth.hard_violation,
        is_loose=not max(truth.gap, truth.hard_violation) <= TOL,
    )
    fault = _fault_of_form(exact, result)
    if not fault and not max(truth.gap, truth.hard_violation) <= MARGIN * TOL:
        gap, violation = _beyond_rounding(case, result, truth)
        if max(gap, violation) <= MARGIN * TOL:
            return replace(bare, is_rounding=True)
        fault = (
            f"gap {truth.gap:.2e} and hard violation {truth.hard_violation:.2e}; reported "
            f"{found.gap:.2e} and {found.hard_violation:.2e}"
        )
    return replace(bare, fault=fault)


def _fault_of_proof(case: Case, result: nw.Result) -> str:
    if not np.isfinite(result.dual).all():
        return "infinite multipliers in a proof"
    proof = Definition(case).proof(result.dual)
    if case.is_feasible:
        return f"called infeasible, but its bounds fit a matrix (y^T b is {proof.bound:.1e} of its parts)"
    return "" if proof.valid else f"the proof does not hold (y^T b is {proof.bound:.1e} of its parts)"


def _fault_of_form(exact: Definition, result: nw.Result) -> str:
    """Whether factor and matrix are the same, and in the range of the prior."""
    with np.errstate(all="ignore"):
        size = np.linalg.norm(result.factor, axis=1)
        difference = np.abs(result.matrix - result.factor @ result.factor.T)
        same = bool(np.all(difference <= 1e-12 * size[:, None] * size)) or not np.isfinite(size).all()
    if not same:
        return "the matrix is not factor factor^T"
    leakage = exact.leakage(exact.factor(result))
    return f"{leakage:.1e} of the factor lies outside the prior's range" if leakage > _LEAKAGE else ""


def _beyond_rounding(case: Case, result: nw.Result, truth: Truth) -> tuple[float, float]:
    """Gap and violation less what rounding of factor, multipliers and a full prior explains.

    That is four times the largest change, before it is divided, when these numbers change by a rounding.
    """
    if not np.isfinite(truth.gap):
        return truth.gap, truth.hard_violation
    rng = np.random.default_rng(0)
    difference = abs(truth.primal - truth.dual)
    changes, violations = [0.0 * difference], [0.0]
    for _ in range(_SAMPLES):
        near = replace(case, prior=_rounded(rng, case.prior)) if _has_rounding(case) else case
        exact = Definition(near)
        B = exact.factor(result)
        noise = exact.exact.array(2 * _ULP * rng.uniform(-1, 1, B.shape)) + 1  # which doubles cannot hold
        dual = result.dual * (1.0 + 2 * _ULP * rng.uniform(-1, 1, len(result.dual)))
        found = exact.certificate(B * noise, dual)
        if np.isfinite(found.gap):
            changes.append(abs(abs(found.primal - found.dual) - difference))
            violations.append(abs(found.hard_violation - truth.hard_violation))
    left = max(difference - 4 * max(changes), 0.0 * difference)
    gap = truth.gap * float(left / difference) if difference else 0.0
    return gap, truth.hard_violation - 4 * max(violations)


def _has_rounding(case: Case) -> bool:
    """Whether the prior is a full matrix with rounded entries."""
    if case.prior is None or case.root is not None:
        return False
    return bool(np.any(case.prior != np.diag(np.diag(case.prior))))


def _rounded(rng: np.random.Generator, prior: Array | None) -> Array:
    assert prior is not None
    noise = 2 * _ULP * rng.uniform(-1, 1, prior.shape)
    changed = prior * (1.0 + noise + noise.T)
    return np.asarray((changed + changed.T) / 2, dtype=np.float64)


@contextmanager
def _limited() -> Iterator[None]:
    """Raise `_OutOfTime` after `LIMIT` seconds of CPU."""

    def stop(number: int, frame: FrameType | None) -> Any:
        raise _OutOfTime

    previous = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, previous)
