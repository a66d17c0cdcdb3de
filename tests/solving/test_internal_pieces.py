"""Measurements in pieces: solvers that see rows in blocks find in pieces what they find in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import cases
import nearwise as nw
from nearwise.model.local import LocalAtoms
from nearwise.model.measurements import InMemory, Measurements, bind
from nearwise.solvers import Formulation
from nearwise.solving.reduction import reduced

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Pieces:
    """Rows in several maps, one after the other; nothing but the protocol is used of each."""

    parts: tuple[Measurements, ...]

    @property
    def n_rows(self) -> int:
        return sum(part.n_rows for part in self.parts)

    @property
    def rank(self) -> int:
        return self.parts[0].rank

    @property
    def is_definite(self) -> Array:
        return np.concatenate([part.is_definite for part in self.parts])

    def values(self, M: Array) -> Array:
        return np.concatenate([part.values(M) for part in self.parts])

    def values_of_factor(self, B: Array) -> Array:
        return np.concatenate([part.values_of_factor(B) for part in self.parts])

    def adjoint(self, weights: Array) -> Array:
        return np.sum(
            [part.adjoint(w) for part, w in zip(self.parts, self._split(weights), strict=True)], axis=0
        )

    def local(self, rows: Array, basis: Array, dtype: type) -> LocalAtoms:
        found, offset, chosen = [], 0, []
        for part in self.parts:
            inside = (rows >= offset) & (rows < offset + part.n_rows)
            chosen.append(np.flatnonzero(inside))
            found.append(part.local(rows[inside] - offset, basis, dtype))
            offset += part.n_rows
        row = np.concatenate(
            [
                own[np.arange(len(atoms.x)) if atoms.row is None else atoms.row]
                for own, atoms in zip(chosen, found, strict=True)
            ]
        )
        x, y, coefficient = (
            np.concatenate([getattr(atoms, name) for atoms in found]) for name in ("x", "y", "coefficient")
        )
        return LocalAtoms(x, x if np.array_equal(x, y) else y, coefficient, row, len(rows))

    def curved(self, *arguments: Any, single: bool) -> tuple[LocalAtoms, Array, bool]:
        return InMemory.curved(self, *arguments, single)

    def weight(self, dual: Array, B: Array, values: Array | None = None) -> float:
        return float(np.abs(dual) @ self.parts_of_factor(B))

    def sizes(self, diagonal: Array) -> Array:
        return np.concatenate([part.sizes(diagonal) for part in self.parts])

    def parts_of_factor(self, B: Array) -> Array:
        return np.concatenate([part.parts_of_factor(B) for part in self.parts])

    def spanning_rows(self) -> Array:
        return np.concatenate([part.spanning_rows() for part in self.parts])

    def in_coordinates(self, T: Array, unit: float = 1.0, own_workspace: bool = False) -> Pieces:
        return Pieces(tuple(part.in_coordinates(T, unit, own_workspace) for part in self.parts))

    @property
    def offsets(self) -> Array | None:
        return None

    def shifted(self, values: Array) -> Array:
        return values

    def _split(self, weights: Array) -> list[Array]:
        return np.split(weights, np.cumsum([part.n_rows for part in self.parts])[:-1])


def in_pieces(problem: nw.Problem) -> Formulation:
    """The problem's formulation with a map of its own for every block of constraints."""
    form = problem.formulation
    assert isinstance(form.measurements, InMemory)
    blocks, G = problem.constraints.blocks, problem.features
    whole = bind(blocks, G)
    parts = tuple(bind((block,), G) for block in blocks)
    np.testing.assert_allclose(  # features are in the prior's eigenbasis, which these cases leave as it is
        whole.values(np.eye(whole.rank)), form.measurements.values(np.eye(whole.rank)), atol=1e-12
    )
    return replace(form, measurements=Pieces(parts))


def problem(divergence: nw.Divergence, penalty: float) -> nw.Problem:
    [case] = [
        case for case in cases.GRID if case.name == f"all kinds, r = 4, identity prior, penalty {penalty:g}"
    ]
    return case.problem(divergence)


@pytest.mark.parametrize("penalty", [1.0, np.inf])
@pytest.mark.parametrize("divergence", cases.DIVERGENCES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(
    "solver", [nw.solvers.Newton(), nw.solvers.InteriorPoint()], ids=lambda s: type(s).__name__
)
def test_solvers_find_the_same_in_pieces(solver: object, divergence: nw.Divergence, penalty: float) -> None:
    stated = problem(divergence, penalty)
    form = reduced(in_pieces(stated)).formulation
    assert isinstance(form.measurements, Pieces)
    assert len(form.measurements.parts) > 1
    best = min(
        (form.certificate(point) for point, _ in zip(solver.iterates(form), range(60), strict=False)),
        key=lambda g: max(g.gap, g.hard_violation),
    )
    assert max(best.gap, best.hard_violation) <= 1e-8
    unit = stated.formulation.unit / form.unit
    expected = nw.solve(stated, tol=1e-9).certificate.primal
    assert best.primal * unit == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    "solver", [nw.solvers.CyclicProjections(), nw.solvers.ThinFactor()], ids=lambda s: type(s).__name__
)
def test_what_goes_row_by_row_says_that_it_needs_them_in_memory(solver: object) -> None:
    divergence = nw.Frobenius() if isinstance(solver, nw.solvers.ThinFactor) else nw.LogDet()
    form = in_pieces(problem(divergence, 1.0))
    with pytest.raises(TypeError, match=f"{type(solver).__name__} goes over .* got Pieces"):
        next(solver.iterates(form))
