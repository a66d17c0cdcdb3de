"""Rows in pieces, brought to memory: for methods that write all of them out, where they are few."""

from __future__ import annotations

from typing import Any

import numpy as np

from nearwise.model import pieces
from nearwise.model.atoms import Atoms
from nearwise.model.formulation import Formulation
from nearwise.model.in_blocks import InBlocks, LossesInBlocks
from nearwise.model.losses import Losses
from nearwise.model.measurements import InMemory
from nearwise.model.parts import joined_atoms


def loaded(form: Formulation) -> Formulation:
    """The same problem with its rows in memory; its values and multipliers are numbers, one per row."""
    rows, given = form.measurements, form.losses
    assert isinstance(rows, InBlocks)
    assert isinstance(given, LossesInBlocks)
    found = rows.runner.run(pieces.written_out, given.terms, rows.coordinates)
    atoms = joined_atoms([atoms for atoms, _ in found], rows.rank, np.float64)
    place = np.arange(len(atoms.x))
    is_square = (atoms.x == atoms.y).all(axis=1)
    features = atoms.x if is_square.all() else np.concatenate([atoms.x, atoms.y])
    second = np.where(is_square, place, place + len(place))
    row = place if atoms.row is None else atoms.row
    # a difference is written out, and the product with itself
    bound = Atoms(place, second, atoms.coefficient, row, 0, atoms.n_rows)
    losses = [own for _, part in found for own in part]
    numbers: dict[str, Any] = {
        name: np.concatenate([getattr(own, name) for own in losses])
        for name in ("relations", "bounds", "penalties", "sizes", "is_definite")
    }
    together = Losses(form.divergence, **numbers).times(given.share)
    return Formulation(form.divergence, form.prior, InMemory(features, bound), together)
