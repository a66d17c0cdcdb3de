"""Formulations that are small and well scaled, with the way back: units once, then the span of the rows.

`scaled`: where congruences change nothing, the prior moves into the rows and becomes I (KSD09 proposition
12); this rounds, once. Then M and the rows change their units by powers of four, so that prior and median row
have size about one. That is exact: data in any unit take the same path, and none of them over- or underflow.

`spanned`: where the rows measure nothing outside a subspace and the prior is a multiple of I, M equals the
prior outside (the representer theorem, JKDD12 theorem 1). Objective, bound and gap are those of the subspace.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nearwise._common.types import Array

if TYPE_CHECKING:
    from nearwise.core.formulation import Formulation

# Singular values of unit vectors, relative to the largest. Directions below the first are none, but only if
# no others lie below the second: duplicates and indicators of few classes leave 1e-16, and features of low
# rank that were computed leave up to 1e-14 (bench decide). Directions between the two may be all that some
# row measures.
NONE, CLEAR = 1e-13, 1e-8

# Rows whose sizes decide the unit: their median is good to some percent, and decides a power of four.
SAMPLED = 10_000


@dataclass(frozen=True, eq=False)
class Scaled:
    """A formulation in other units, with M' and y': M = matrix root M' root, y = dual y'.

    Attributes
    ----------
    form : in these units
    root : a diagonal, of ones where the prior stays
    matrix, dual, value : as above
    """

    form: Formulation
    root: Array
    matrix: float
    dual: float
    value: float

    def lift(self, factor: Array) -> Array:
        """A factor of M from one of M'."""
        return np.asarray(math.sqrt(self.matrix) * (self.root[:, None] * factor))

    def lower(self, factor: Array) -> Array:
        """A factor of M' from one of M."""
        return np.asarray(factor / (math.sqrt(self.matrix) * self.root[:, None]))


class Spanned(NamedTuple):
    """A formulation on a subspace: M = span M' span^T + outside^2 P, where P projects on what is outside.

    Multipliers, values and certificates are the same.

    Attributes
    ----------
    form : on the subspace
    span : its orthonormal basis; None where it is everything, and then M = M'
    outside : the root of the prior, a multiple of I, outside of it
    """

    form: Formulation
    span: Array | None = None
    outside: float = 0.0

    def lift(self, factor: Array) -> Array:
        """A factor of M from one of M'; that of the prior for that of the prior, to the last digit."""
        if self.span is None:
            return factor
        rank, columns = factor.shape
        if columns > rank:
            return np.hstack([self.span @ factor, self.outside * self._complement])
        square = np.pad(factor, ((0, 0), (0, rank - columns)))
        square.flat[:: rank + 1] -= self.outside
        lifted = self.span @ square @ self.span.T
        lifted.flat[:: len(lifted) + 1] += self.outside
        return np.asarray(lifted)

    @property
    def _complement(self) -> Array:
        """An orthonormal basis of what is outside the span."""
        assert self.span is not None
        return np.asarray(np.linalg.qr(self.span, mode="complete")[0][:, self.span.shape[1] :])

    def lower(self, factor: Array) -> Array:
        """A factor of the part of M that M' describes."""
        return factor if self.span is None else np.asarray(self.span.T @ factor)


@np.errstate(over="ignore")
def scaled(form: Formulation) -> Scaled:
    """In units in which the prior and the median row have size about one, as far as the divergence allows."""
    divergence, prior, measured = form.divergence, form.prior, form.measured
    degree, invariant = divergence.degree, divergence.congruence_invariant
    root = np.sqrt(prior) if invariant else np.ones(len(prior))
    matrix = of_rows = 1.0
    if degree is not None:
        matrix = 1.0 if invariant else power_of_four(float(np.abs(prior).sum()) / max(len(prior), 1))
        numbers = np.arange(0, measured.n_rows, max(measured.n_rows // SAMPLED, 1))
        sizes = measured.sample(numbers).loss.sizes
        of_rows = power_of_four(float(np.median(sizes)) / matrix) if len(sizes) else 1.0
    unit, power = of_rows * matrix, degree or 0.0
    stiffening = float(np.power(of_rows, power))
    small = replace(
        form,
        prior=np.ones(len(prior)) if invariant else prior / matrix,
        measured=measured.transformed(root / math.sqrt(of_rows), unit, stiffening),
    )
    dual = float(np.power(matrix, power - 1.0)) / of_rows
    return Scaled(small, root, matrix, dual, float(np.power(matrix, power)))


def power_of_four(size: float) -> float:
    """The one next to a positive number, so that it and its root scale without rounding."""
    return 4.0 ** round(math.log2(size) / 2) if 0 < size < math.inf else 1.0


def spanned(form: Formulation) -> Spanned:
    """On the span of rows in memory, where it is clearly smaller than the whole.

    A negative multiple of I as a prior stays as it is: outside the span M would be 0, not the prior.
    """
    prior = form.prior
    if not form.measured.is_in_memory or not (len(prior) and prior[0] >= 0 and (prior == prior[0]).all()):
        return Spanned(form)
    span = clear_span(form.rows.span())
    if span is None:
        return Spanned(form)
    rank = span.shape[1]
    measured = form.measured.transformed(span, 1.0, 1.0)
    small = replace(form, prior=prior[:rank], measured=measured)
    return Spanned(small, span, math.sqrt(prior[0]))


def clear_span(vectors: Array) -> Array | None:
    """An orthonormal basis of the span of vectors, or None where that is everything or cannot be told.

    All vectors count alike, because a short one may be all that some row measures. Many are looked at only
    where some of them span too little.
    """
    n, r = vectors.shape
    if n > 4 * r and clear_span(vectors[:: n // (2 * r)]) is None:
        return None
    norms = np.linalg.norm(vectors, axis=1)
    if not np.isfinite(norms.sum()):
        return None
    vectors = vectors[norms > 0] / norms[norms > 0, None]
    if not len(vectors):  # nothing is measured; one dimension is kept so that there is a matrix
        return np.eye(r, 1) if r > 1 else None
    _, s, Vt = np.linalg.svd(np.linalg.qr(vectors, mode="r"), full_matrices=False)
    rank = int((s > NONE * s[0]).sum())
    rank = rank if s[rank - 1] > CLEAR * s[0] else len(s)
    return np.asarray(Vt[:rank].T) if rank < r else None
