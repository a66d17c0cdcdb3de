"""A search for Farkas multipliers of hard rows: the least squares of their violations.

    minimise LogDet(M, c I) + sum_i k_i / 2 violation_i^2,      c and the k_i large.

At the optimum the multipliers are y_i = k_i violation_i, and sum_i y_i A_i = M^-1 - I / c. Where rows
contradict each other, the violations cannot vanish, so y is large and I / c nothing beside it: all but a tiny
share of S = sum_i y_i A_i is positive semidefinite and y^T b < 0, which is a Farkas certificate.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearwise._common.types import Array, Index
from nearwise.core.divergences import LogDet
from nearwise.core.formulation import Formulation
from nearwise.core.losses import Loss
from nearwise.core.rows import Rows

FEASIBLE = 1e-7  # relative violation of rows that do not contradict each other
STIFF = 1e10  # k_i times the square of the bound
FAR = 100.0  # c, in sizes of M that the rows ask for
LEAST = 1e-6  # of the largest bound, for rows of one size: what a smaller bound counts as
NO_DIRECTION = 1e-12  # relative singular value of a direction that no row measures


class Search(NamedTuple):
    """The least squares in M = transform M' transform^T, with the numbers and losses of the hard rows."""

    form: Formulation
    transform: Array
    hard: Index
    loss: Loss


def least_violation(form: Formulation) -> Search:
    """The problem above, in coordinates in which the rows measure all directions alike.

    In others, multipliers of a contradiction in directions that rows hardly measure have no digits.
    """
    hard = np.flatnonzero(form.loss.is_hard)
    rows, loss = form.rows.subset(hard), form.loss.subset(hard)
    transform = _equalising(rows)
    rows = rows.transformed(transform)
    sizes = rows.magnitudes(np.ones(form.order))
    sizes = np.where(sizes > 0, sizes, 1.0)
    bounds = np.abs(loss.bounds)
    largest = float((bounds / sizes).max(initial=0.0)) or 1.0
    unit = np.maximum(bounds, LEAST * largest * sizes)
    squares = loss.augmented(np.zeros(len(hard)), STIFF / unit / unit)
    prior = np.full(form.order, FAR * largest)
    return Search(Formulation.of(LogDet(), prior, rows, squares), transform, hard, loss)


def _equalising(rows: Rows) -> Array:
    """T such that the rows' unit vectors, as T^T x, are of one size in all directions that they have."""
    vectors = rows.span()
    norms = np.linalg.norm(vectors, axis=1)
    vectors = vectors[norms > 0] / norms[norms > 0, None]
    _, s, Vt = np.linalg.svd(np.vstack([vectors, np.zeros((rows.order, rows.order))]), full_matrices=False)
    largest = s[0] if s[0] > 0 else 1.0
    return np.asarray(Vt.T / np.where(s > NO_DIRECTION * largest, s, largest))
