"""First points of the interior-point method: far inside, beyond everything that rows ask for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from nearwise._common.types import Array
from nearwise.core.formulation import Formulation
from nearwise.methods.interior_system import RowState

INSIDE = 10.0  # by which the first M and Z exceed what prior and bounds ask of them; 1 to 100 do alike
SOFT = (
    0.1  # of the largest multiplier of a soft row at the first M, for Z; 1e-3 to 1 do alike, 0 decides fewer
)
LARGER = ((1.0, 1.0), (1.0, 1e4), (1e9, 1e8))  # M and Z of the three starts; a fourth decides no more
LARGEST = 1e200  # Z, so that its products with M stay in range
MARGIN = 0.9  # of the largest multiplier that has a reply
LEAST = 1e-3  # of the bound: replies that have to be positive


class First(NamedTuple):
    """M = L L^T, Z = N N^T, and the rows."""

    L: Array
    N: Array
    rows: RowState


def first_points(form: Formulation) -> Iterator[First]:
    """Three starts, each from larger M and Z than the one before.

    Small multiples of what is asked lead to the end in the fewest steps, where nothing is in the way.
    """
    sizes = form.rows.magnitudes(np.ones(form.order))
    sizes = np.where(sizes > 0, sizes, 1.0)
    of_M, of_Z = _asked(form, np.abs(form.loss.bounds) / sizes)
    two_sided = replace(form.loss, relations=np.zeros_like(form.loss.relations))
    multipliers = np.abs(two_sided.at(of_M * sizes).slopes) * sizes
    of_soft_rows = min(SOFT * float(np.fmax.reduce(multipliers, initial=0.0)), LARGEST)
    for larger_M, larger_Z in LARGER:
        least = of_soft_rows if larger_Z == 1.0 else 0.0
        yield _first(form, sizes, of_M * larger_M, max(of_Z * larger_Z, least))


def _asked(form: Formulation, of_rows: Array) -> tuple[float, float]:
    """Multiples of I for M and Z, from the sizes of the prior and of M that rows ask for, and phi' there."""
    asked = np.concatenate([np.abs(form.prior), of_rows])
    asked = np.minimum(asked[asked > 0], 1e100)
    largest = float(asked.max(initial=0.0)) or 1.0
    gradients = np.abs(form.divergence.gradient(asked))
    return INSIDE * largest, INSIDE * float(gradients.max(initial=1.0))


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
