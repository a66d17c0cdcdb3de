"""First points of the interior-point method: far inside, beyond everything that rows ask for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from nearwise._common.types import Array
from nearwise.core.formulation import Formulation
from nearwise.methods.interior_system import RowState

# Measured on 1,800 random problems (bench decide); a range means that results are alike in it.
INSIDE = 10.0  # by which the first M and Z exceed what prior and bounds ask for: 1 to 100
SOFT = 0.1  # of the largest multiplier of a soft row at the first M, for Z: 1e-2 to 1; 0 decides 0.5 % less
LARGER = ((1.0, 1.0), (1.0, 1e4), (1e9, 1e8))  # M and Z of the starts; one decides 1.5 % less, four no more
MOST_M, MOST_Z = 1e100, 1e200  # so that products stay in range
MARGIN = 0.9  # of the largest multiplier to which a row has a reply
LEAST = 1e-3  # of the bound, for replies that have to be positive


class First(NamedTuple):
    """M = L L^T, Z = N N^T, and the rows."""

    L: Array
    N: Array
    rows: RowState


def first_points(form: Formulation) -> Iterator[First]:
    """Three starts: just beyond what prior, bounds and soft rows ask for, then from larger M and Z.

    Soft rows with large penalties ask for multipliers that M never gets to, so only the first start heeds them.
    """
    sizes = form.rows.magnitudes(np.ones(form.order))
    sizes = np.where(sizes > 0, sizes, 1.0)
    of_M, of_Z = _asked(form, np.abs(form.loss.bounds) / sizes)
    for larger_M, larger_Z in LARGER:
        least = _asked_by_soft_rows(form, sizes, of_M) if larger_Z == 1.0 else 0.0
        yield _first(form, sizes, of_M * larger_M, max(of_Z * larger_Z, least))


def _asked(form: Formulation, of_rows: Array) -> tuple[float, float]:
    """Multiples of I for M and Z: the sizes of the prior and of M that rows ask for, and phi' there."""
    asked = np.concatenate([np.abs(form.prior), of_rows])
    asked = np.minimum(asked[asked > 0], MOST_M)
    largest = float(asked.max(initial=0.0)) or 1.0
    gradients = np.abs(form.divergence.gradient(asked))
    return INSIDE * largest, INSIDE * float(gradients.max(initial=1.0))


def _asked_by_soft_rows(form: Formulation, sizes: Array, of_M: float) -> float:
    """A multiple of I for Z: the largest multiplier at M, on whichever side the bounds are."""
    two_sided = replace(form.loss, relations=np.zeros_like(form.loss.relations))
    multipliers = np.abs(two_sided.at(of_M * sizes).slopes) * sizes
    return min(SOFT * float(np.fmax.reduce(multipliers, initial=0.0)), MOST_Z)


def _first(form: Formulation, sizes: Array, of_M: float, of_Z: float) -> First:
    """Rows on the central path, unless that takes multipliers of the size of Z or more."""
    loss, unit, mu = form.loss, np.eye(form.order), of_M * of_Z
    sign = -loss.relations.astype(np.float64)
    values = form.rows.values(np.sqrt(of_M) * unit)
    slack = np.where(loss.is_hard, sign * (loss.bounds - values), loss.central(values, mu, sign))
    slack = np.where(sign == 0, 1.0, np.maximum(slack, of_M * sizes))
    dual = np.minimum(sign * mu / slack, MARGIN * loss.largest)
    _, residual = loss.compliance(dual, loss.bounds, loss.largest - dual)
    reply = loss.bounds + residual(mu)
    reply = np.where(loss.is_positive, np.maximum(reply, LEAST * loss.bounds), reply)
    return First(np.sqrt(of_M) * unit, np.sqrt(of_Z) * unit, RowState(slack, dual, reply))
