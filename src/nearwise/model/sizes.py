"""How large general rows are: the magnitudes of the eigenvalues of M^1/2 A M^1/2 for a diagonal M, added up.

Those of squares of one sign add up to the traces of the squares, so that only rows of both signs are here.
"""

from __future__ import annotations

import numpy as np

from nearwise._common.types import Array
from nearwise.linalg.dense import eigenvalues
from nearwise.model.atoms import Atoms


def size_of_both_signs(sizes: Array, features: Array, atoms: Atoms, root: Array) -> None:
    """Write the sizes of such rows, inf if too large; `root` is that of the diagonal of M."""
    in_row = np.bincount(atoms.row, minlength=atoms.n_rows)
    negative = np.bincount(atoms.row[atoms.coefficient < 0], minlength=atoms.n_rows)[atoms.general]
    mixed = atoms.general[(negative > 0) & (negative < in_row[atoms.general])]
    ends = in_row.cumsum()[mixed].tolist()
    for row, end, count in zip(mixed.tolist(), ends, in_row[mixed].tolist(), strict=True):
        chosen = atoms.in_order[end - count : end]
        X = features.take(atoms.first[chosen], axis=0) * root
        core = (X.T * atoms.coefficient[chosen]).dot(X)
        is_finite = np.count_nonzero(np.isfinite(core)) == core.size
        sizes[row] = np.add.reduce(np.abs(eigenvalues(core))) if is_finite else np.inf
