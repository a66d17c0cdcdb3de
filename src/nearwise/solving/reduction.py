"""Makes a formulation small and well scaled before it is solved, and undoes that afterwards.

Three steps, each exact. A prior is moved into the features where the divergence allows it (KSD09
proposition 12), so that it becomes the identity. Features, bounds, prior and penalties are scaled by powers
of two so that the median row has size about 1: without rounding, and so that data in any unit take the same
path. Where the constraints span fewer than r dimensions, only that span is kept: outside it M equals the
prior (the representer theorem, JKDD12 theorem 1), which needs a prior that is a multiple of the identity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from nearwise._common.types import Array
from nearwise.model.formulation import Formulation
from nearwise.model.measurements import Measurements

_WORTH_LOOKING = 16  # order of matrices from which on a smaller span is looked for among many vectors
_QUICK = 10_000_000  # multiplications that this takes at most
_NONE, _CLEAR = 1e-13, 1e-8  # relative size of a direction that is none, and of one that is


@dataclass(frozen=True, eq=False)
class Reduction:
    """A smaller formulation with the way back.

    M = matrix_scale * T (c (I - U U^T) + U M' U^T) T for the reduced solution M', where T = diag(root_prior),
    c is the reduced prior and U spans the constraints; y = dual_scale * y'.
    """

    formulation: Formulation
    root_prior: Array
    matrix_scale: float
    dual_scale: float
    span: Array | None

    def lift(self, factor: Array) -> Array:
        """A factor of M in the coordinates of the original formulation, from one of M'."""
        if self.span is not None:
            c, U = self.formulation.prior[0], self.span
            if c > 0:  # where nothing is measured M is the prior, or 0 where that is negative (Frobenius)
                inside = U @ factor @ U.T[: factor.shape[1]]
                factor = math.sqrt(c) * (np.eye(len(U)) - U @ U.T) + inside
            else:
                factor = U @ factor
        lifted: Array = math.sqrt(self.matrix_scale) * (self.root_prior[:, None] * factor)
        return lifted

    def lower(self, factor: Array) -> Array:
        """A factor of the part of M that M' describes, from a factor of M: the inverse of `lift`."""
        lowered: Array = factor / (np.sqrt(self.matrix_scale) * self.root_prior[:, None])
        return lowered if self.span is None else self.span.T @ lowered


def reduced(form: Formulation) -> Reduction:
    """The three steps, as far as the divergence allows them."""
    divergence, prior, losses = form.divergence, form.prior, form.losses
    measured = form.measurements.n_rows > 0
    invariant, degree = divergence.congruence_invariant, divergence.degree
    matrix_scale = feature_scale = 1.0
    ones = np.ones(len(prior))
    root = np.sqrt(prior) if invariant else ones
    if degree is not None:
        matrix_scale = 1.0 if invariant else _power_of_four(form.prior_size)
        feature_scale = _power_of_four(losses.median_size / matrix_scale) if measured else 1.0
    new_prior = ones if invariant else prior / matrix_scale
    unit = feature_scale * matrix_scale
    measurements, span = _spanned(form.measurements, root / math.sqrt(feature_scale), new_prior, unit)
    new_losses = losses.in_unit(unit, _power(feature_scale, degree))
    small = Formulation(divergence, new_prior[: measurements.rank], measurements, new_losses)
    dual_scale = _power(matrix_scale, degree) / matrix_scale / feature_scale  # whose product may vanish
    return Reduction(small, root, matrix_scale, dual_scale, span)


def _spanned(
    measurements: Measurements, scaling: Array, prior: Array, unit: float
) -> tuple[Measurements, Array | None]:
    """The measurements with scaled features, in a basis of their span where that is small."""
    scaled = measurements.in_coordinates(scaling, unit, own_workspace=True)
    if np.count_nonzero(prior == prior[0]) < len(prior):
        return scaled, None
    rows = scaled.spanning_rows()
    if len(rows) >= scaled.rank:
        U = _clear_span(rows)
        return (scaled, None) if U is None else (scaled.in_coordinates(U, own_workspace=True), U)
    _, s, Vt = np.linalg.svd(rows, full_matrices=False)
    U = Vt[s > 1e-14 * s.max(initial=0.0) * max(rows.shape)].T
    if U.shape[1] == 0:  # nothing is measured; one dimension is kept so that there is a matrix
        U = np.eye(scaled.rank, 1)
    return scaled.in_coordinates(U, own_workspace=True), U


def _clear_span(rows: Array) -> Array | None:
    """A basis of the span of many vectors, where it is small beyond doubt and that saves more than it costs.

    As with duplicates, indicators of few classes, or features of low rank. All vectors count alike, because a
    short one may be all that some constraint measures.
    """
    n, r = rows.shape
    if r < _WORTH_LOOKING or n * r * r > _QUICK:
        return None
    norms = np.linalg.norm(rows, axis=1)
    if not np.isfinite(norms.sum()):
        return None
    _, s, Vt = np.linalg.svd(rows[norms > 0] / norms[norms > 0, None], full_matrices=False)
    count = int(np.sum(s > _NONE * s.max(initial=0.0)))
    return Vt[:count].T if 0 < count < r and s[count - 1] > _CLEAR * s[0] else None


def _power(scale: float, degree: float | None) -> float:
    """By what a scale multiplies divergences; infinite where that is too large for a number."""
    try:
        return scale ** (degree or 0.0)
    except OverflowError:
        return math.inf


def _power_of_four(size: float) -> float:
    """The power of four next to a positive number, so that it and its root scale without rounding."""
    return 4.0 ** round(math.log2(size) / 2) if 0 < size < math.inf else 1.0
