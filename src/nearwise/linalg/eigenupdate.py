"""Rank-one updates of an eigendecomposition: from W diag(theta) W^T to that plus rho x x^T, in O(r^2).

`rank_one_update` finds the eigenvalues of diag(theta) + rho v v^T, where v = W^T x, and its eigenvectors U in
the form of a few vectors of numbers. `RankOneUpdate` applies them: to vectors in O(r^2), to W by a product
that is dense for small r and hierarchical from `FAST_FROM` on (`cauchy`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from nearwise._common.threads import blas_threads
from nearwise._common.types import Array
from nearwise.linalg.cauchy import cauchy_product

if TYPE_CHECKING:
    from nearwise.linalg.loops.secular import Workspace


FAST_FROM = (
    576  # poles from which on the hierarchical product wins with one BLAS thread; twice as many with two
)


@dataclass(frozen=True, eq=False)
class RankOneUpdate:
    """The eigendecomposition U diag(values) U^T of diag(theta) + rho v v^T.

    Attributes
    ----------
    workspace : poles, roots and weights, with `loops.secular.complete` done
    """

    workspace: Workspace

    @property
    def values(self) -> Array:
        """The eigenvalues, ascending."""
        return self.workspace.value[self.workspace.order]

    def transposed(self, x: ArrayLike) -> Array:
        """U^T x for a vector."""
        from nearwise.linalg.loops.secular import transform

        vector = np.ascontiguousarray(x, dtype=np.float64)
        out = np.empty_like(vector)
        transform(self.workspace, vector, out)
        return out

    def applied(self, vectors: Array, out: Array | None = None) -> Array:
        """The new eigenvectors (W U)^T, one per row, where `vectors` holds the old ones, W^T.

        `out`, if given, is where they are written. `vectors` may be overwritten then.
        """
        from nearwise.linalg.loops.secular import ACTIVE, rotate_rows

        ws = self.workspace
        n, r = int(ws.counts[ACTIVE]), len(vectors)
        if out is None:
            vectors, out = np.array(vectors, dtype=np.float64), np.empty((r, r))
        rotate_rows(ws, vectors)
        if n == r:
            self._multiply(vectors, out)
            return out
        new = np.empty((n, r))
        self._multiply(vectors[ws.place[:n]], new)
        active = ws.order < n
        out[active] = new[ws.order[active]]
        out[~active] = vectors[ws.place[ws.order[~active]]]
        return out

    def _multiply(self, B: Array, out: Array) -> None:
        """out = the active part of U^T, times B."""
        if len(B) >= (FAST_FROM if blas_threads() == 1 else 2 * FAST_FROM):
            cauchy_product(self.workspace, B, out)
            return
        from nearwise.linalg.loops.secular import fill_block

        U = np.empty((len(B), len(B)))
        fill_block(self.workspace, 0, 0, U)
        np.matmul(U, B, out=out)


def rank_one_update(theta: ArrayLike, v: ArrayLike, rho: float) -> RankOneUpdate:
    """The eigendecomposition of diag(theta) + rho v v^T, theta ascending, rho of either sign."""
    from nearwise.linalg.loops.secular import complete, decompose, workspace

    values = np.ascontiguousarray(theta, dtype=np.float64)
    ws = workspace(len(values))
    decompose(values, np.ascontiguousarray(v, dtype=np.float64), float(rho), ws)
    complete(ws)
    return RankOneUpdate(ws)
