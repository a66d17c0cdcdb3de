"""Sums over rows against their definitions, in all forms of rows and on both sides of sizes of blocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crossing import crossed
from nearwise.core import edges, rows as rows_module
from nearwise.core.divergences import Frobenius, LogDet, SpectralDivergence, VonNeumann
from nearwise.core.losses import SATISFIED
from nearwise.core.measured import WORST, InMemory, Sums
from nearwise.core.rows import Rows
from written import Written, distances

ORDERS = (1, 2, 8, 13, 16, 33, 80)
BLOCKS = {"one block": 10**9, "blocks of a row": 1, "blocks": 700}


@pytest.fixture
def in_form(monkeypatch: pytest.MonkeyPatch):
    """Makes rows written out or over a graph, in NumPy or compiled, gathered in blocks of a size."""

    def made(form: str, block: int, **arguments) -> Written:
        monkeypatch.setattr(edges, "BLOCK", block)
        monkeypatch.setattr(rows_module, "BLOCK", block)
        if form != "written":
            monkeypatch.setattr(rows_module, "_takes_less", lambda n_atoms, features: False)
        if form == "compiled":
            monkeypatch.setattr(edges, "LARGE", 0)
        found = distances(**arguments)
        assert found.rows.is_written == (form == "written")
        return found

    return made


def a_factor(order: int) -> np.ndarray:
    return np.eye(order) + np.random.default_rng(3).normal(size=(order, order)) / (3 * np.sqrt(order))


def check(found: Sums, written: Written, B: np.ndarray, rtol: float = 1e-10) -> None:
    """Sums against the losses' own definitions and dense matrices."""
    loss, p = written.loss, np.einsum("kij,ij->k", written.A, B @ B.T)
    losses = loss.at(p)
    scale = np.abs(losses.slopes) @ np.abs(written.A).reshape(len(p), -1) if len(p) else np.zeros(1)
    assert found.n_rows == len(p)
    assert found.cost == pytest.approx(losses.total, rel=rtol)
    np.testing.assert_allclose(
        found.adjoint, np.einsum("k,kij->ij", losses.slopes, written.A), atol=rtol * (1 + scale.max())
    )
    assert found.curved == np.count_nonzero(losses.curvatures)
    assert found.satisfied == np.count_nonzero(losses.violations <= SATISFIED)
    order = np.argsort(-losses.violations, kind="stable")[:WORST]
    order = order[losses.violations[order] > 0]
    np.testing.assert_allclose(found.worst[:, 0], losses.violations[order], rtol=100 * rtol)
    np.testing.assert_array_equal(found.worst[:, 1], order)
    np.testing.assert_allclose(found.worst[:, 2], p[order], rtol=100 * rtol)


@crossed(
    order=ORDERS,
    form=("written", "graph", "compiled"),
    block=BLOCKS,
    comparisons=(False, True),
    divergence=(LogDet(), Frobenius()),
)
def test_a_pass_adds_up_what_rows_say(
    in_form, order: int, form: str, block: int, comparisons: bool, divergence: SpectralDivergence
) -> None:
    written = in_form(form, block, divergence=divergence, order=order, m=61, comparisons=comparisons)
    B = a_factor(order)
    measured = InMemory(written.rows, written.loss)
    found = measured.measure(B)
    check(found, written, B)
    assert not found.is_single
    np.testing.assert_allclose(measured.slopes(B), written.loss.at(written.rows.values(B)).slopes)


def test_few_objects_and_many_rows() -> None:
    written = distances(VonNeumann(), 13, 400, objects=6)
    check(InMemory(written.rows, written.loss).measure(a_factor(13)), written, a_factor(13))


@pytest.mark.parametrize("form", ["written", "graph", "compiled"])
@pytest.mark.parametrize("order", ORDERS)
def test_single_precision_where_rows_are_many(
    in_form, monkeypatch: pytest.MonkeyPatch, form: str, order: int
) -> None:
    monkeypatch.setattr(rows_module, "LARGE", 0)
    written = in_form(form, 700, divergence=LogDet(), order=order, m=61)
    B = a_factor(order)
    measured = InMemory(written.rows, written.loss)
    rough, exact = measured.measure(B, single=True), measured.measure(B)
    assert rough.is_single
    assert not exact.is_single
    assert rough.cost == pytest.approx(exact.cost, rel=1e-4)
    assert rough.adjoint.dtype == np.float64
    np.testing.assert_allclose(rough.adjoint, exact.adjoint, atol=1e-4 * np.abs(exact.adjoint).max())
    assert (rough + exact).is_single


def test_few_rows_stay_in_double_precision() -> None:
    written = distances(LogDet(), 5, 30)
    B = a_factor(5)
    found = InMemory(written.rows, written.loss).measure(B, single=True)
    assert not found.is_single
    check(found, written, B)


def test_sums_of_parts_add_up_in_any_grouping() -> None:
    written = distances(VonNeumann(), 4, 90, comparisons=True)
    B, measured = a_factor(4), InMemory(written.rows, written.loss)
    parts = [
        replace(found, worst=found.worst + np.array([0, low, 0]))
        for low in range(0, 90, 30)
        for found in [measured.sample(np.arange(low, low + 30)).measure(B)]
    ]
    for total in (parts[0] + parts[1] + parts[2], parts[2] + (Sums.zero(4) + parts[1]) + parts[0]):
        check(total, written, B)


def test_a_sample_is_these_rows_alone() -> None:
    written, numbers = distances(LogDet(), 6, 50, comparisons=True), np.array([1, 4, 5, 30, 49])
    measured = InMemory(written.rows, written.loss)
    sample = measured.sample(numbers)
    B = a_factor(6)
    check(sample.measure(B), Written(sample.rows, written.loss.subset(numbers), written.A[numbers]), B)
    assert measured.sample(np.arange(50)) is measured
    assert measured.sample(np.arange(0)).measure(B).n_rows == 0


def test_rows_without_atoms_and_no_rows() -> None:
    written = distances(Frobenius(), 3, 5)
    nothing = Rows.written(np.empty((0, 3)), np.empty((0, 3)), np.empty(0), np.empty(0, np.int64), 5)
    check(
        InMemory(nothing, written.loss).measure(np.eye(3)),
        Written(nothing, written.loss, np.zeros((5, 3, 3))),
        np.eye(3),
    )
    none = InMemory(written.rows, written.loss).sample(np.arange(0))
    assert none.measure(np.eye(3)).cost == 0
    assert none.median_size == 1
    np.testing.assert_array_equal(none.measure(np.eye(3)).adjoint, np.zeros((3, 3)))


def test_in_other_coordinates_values_stay() -> None:
    written = distances(VonNeumann(), 4, 40)
    measured = InMemory(written.rows, written.loss)
    T, B = np.diag([1.0, 2.0, 0.5, 3.0]) + 0.1, a_factor(4)
    moved = Written(written.rows, written.loss, T.T @ written.A @ T)
    check(measured.transformed(T).measure(np.linalg.solve(T, B)), moved, np.linalg.solve(T, B), rtol=1e-9)
    unit = 4.0  # costs are of degree 1
    in_units = measured.transformed(np.full(4, 1 / np.sqrt(unit)), unit, unit).measure(B)
    assert in_units.cost == pytest.approx(measured.measure(B).cost, rel=1e-12)


def test_shares_of_penalties_are_shares_of_costs() -> None:
    written = distances(LogDet(), 4, 40, comparisons=True)
    measured, B = InMemory(written.rows, written.loss), a_factor(4)
    part, whole = measured.times(0.25).measure(B), measured.measure(B)
    assert part.cost == pytest.approx(whole.cost / 4)
    np.testing.assert_allclose(part.adjoint, whole.adjoint / 4)
    assert (part.curved, part.satisfied) == (whole.curved, whole.satisfied)


def test_hard_rows_cost_nothing_and_are_violated() -> None:
    written = distances(LogDet(), 4, 40)
    penalties = np.where(np.arange(40) < 20, np.inf, 1.0)
    loss = replace(written.loss, penalties=penalties)
    measured, B = InMemory(written.rows, loss), a_factor(4)
    check(measured.measure(B), Written(written.rows, loss, written.A), B)
    violations = loss.violations(written.rows.values(B))
    assert measured.measure(B).hard_violation == pytest.approx(violations[:20].max())
    assert measured.any_hard
    assert measured.penalty_sum == 20
    assert measured.median_size == pytest.approx(np.median(loss.sizes))
    assert (measured.order, measured.n_rows) == (4, 40)
