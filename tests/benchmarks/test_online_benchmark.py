"""The benchmark of online learners: its references are right, its tables produced. Nothing is timed."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from benchmarks import _extended, online

TINY = dataclasses.replace(
    online.QUICK, dimension=6, pairs=200, steps=5, kernel_steps=400, updates=300, reference_steps=30
)


def test_eigenvectors_in_extended_precision_are_orthonormal_and_diagonalise() -> None:
    G = np.random.default_rng(0).standard_normal((6, 6))
    A = (G @ G.T).astype(np.longdouble)
    values, V = _extended.eigen(A.copy())
    eps = float(np.finfo(np.longdouble).eps)
    assert float(np.abs(V.T @ V - np.eye(6)).max()) < 50 * eps
    assert float(np.abs((V * values) @ V.T - A).max()) < 100 * eps * float(np.abs(A).max())


@pytest.mark.long
@pytest.mark.parametrize("name", _extended.CASES)
def test_updates_agree_with_extended_precision(name: str) -> None:
    case = _extended.CASES[name]
    x, y = _extended.examples(120, 7)
    learner = case.make(7)
    _extended.in_chunks(case, learner, x, y)
    exact = case.reference(x, y).astype(np.float64)
    np.testing.assert_allclose(learner.matrix, exact, rtol=0, atol=1e-13 * np.abs(exact).max())


@pytest.mark.parametrize("section", ["speed", "bound", "rounding"])
def test_every_section_gives_its_tables(section: str) -> None:
    tables = [table for measure in online.SECTIONS[section] for table in measure(TINY)]
    assert all(table.rows for table in tables)
    cells = [cell for table in tables for row in table.rows for cell in row.values()]
    assert all(np.isfinite(cell) for cell in cells if isinstance(cell, float))


def test_the_kernel_to_learn_has_trace_one_and_three_classes() -> None:
    kernel, labels = online._three_classes(52, 3, np.random.default_rng(0))
    assert np.trace(kernel) == pytest.approx(1.0)
    assert np.linalg.eigvalsh(kernel).min() > 0
    assert np.unique(labels).tolist() == [0, 1, 2]
    assert online._neighbour_error(np.equal.outer(labels, labels).astype(float), labels) == 0.0


@pytest.mark.long
def test_pendigits(load_dataset: object) -> None:
    load_dataset("pendigits")  # type: ignore[operator]
    (table,) = online.pendigits(TINY)
    assert [row["learner"] for row in table.rows][:3] == ["Euclidean", "MetricLearner", "logdet"]
