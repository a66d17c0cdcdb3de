"""The map M -> <A_i, M> in all its forms, against matrices A_i that are written out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import nearwise as nw
from crossing import crossed
from nearwise.core import edges as edges_module, rows as rows_module
from nearwise.core.rows import Rows, is_written_out
from nearwise.linalg.packing import packing

R = 4  # columns of the features


@dataclass(frozen=True)
class Atoms:
    """Arguments of `Rows.of`."""

    features: np.ndarray
    first: np.ndarray
    second: np.ndarray
    n_differences: int
    coefficient: np.ndarray
    row: np.ndarray
    n_rows: int
    offsets: np.ndarray | None = None

    def rows(self) -> Rows:
        return Rows.of(**self.__dict__)

    def matrices(self) -> np.ndarray:
        """(m, r, r) the A_i by their definition."""
        F, A = self.features.astype(float), np.zeros((self.n_rows, R, R))
        for t, (i, j, c, row) in enumerate(
            zip(self.first, self.second, self.coefficient, self.row, strict=True)
        ):
            x, y = (F[i] - F[j], F[i] - F[j]) if t < self.n_differences else (F[i], F[j])
            A[row] += c * (np.outer(x, y) + np.outer(y, x)) / 2
        return A


def distances(m: int = 30, n: int = 6, dtype: type = float) -> Atoms:
    rng = np.random.default_rng(m)
    F = rng.normal(size=(n, R)).astype(dtype)
    first = rng.integers(n, size=m)
    second = (first + rng.integers(1, n, size=m)) % n
    return Atoms(F, first, second, m, rng.uniform(0.5, 2, m), rng.permutation(m), m)


def comparisons() -> Atoms:
    near = distances(20)
    far = (near.first + 2 * (near.second - near.first)) % len(near.features)
    return Atoms(
        near.features,
        np.tile(near.first, 2),
        np.concatenate([near.second, far]),
        40,
        np.repeat([1.0, -1.0], 20),
        np.tile(np.arange(20), 2),
        20,
    )


def inner_products() -> Atoms:
    found = distances(25)
    return Atoms(found.features, found.first, found.second, 0, found.coefficient, found.row, 25)


def squares() -> Atoms:
    """Differences, and rows of F by themselves."""
    found = distances(28)
    second = np.where(np.arange(28) < 10, found.second, found.first)
    return Atoms(found.features, found.first, second, 10, found.coefficient, found.row, 28)


def of_all_kinds(with_empty_rows: bool = True) -> Atoms:
    """Several atoms of both kinds and signs per row, in any order, with offsets; some rows have no atoms."""
    rng, found = np.random.default_rng(1), distances(60)
    rows = rng.integers(1, 14, size=60)
    if not with_empty_rows:
        rows[:15] = np.arange(15)
    return Atoms(
        found.features, found.first, found.second, 35, rng.normal(size=60), rows, 15, rng.normal(size=15)
    )


ATOMS = {
    "distances": distances(),
    "float32": distances(dtype=np.float32),
    "comparisons": comparisons(),
    "inner products": inner_products(),
    "squares": squares(),
    "all kinds": of_all_kinds(with_empty_rows=False),
    "all kinds, empty rows": of_all_kinds(),
    "one row": distances(1, 3),
    "no rows": Atoms(np.ones((2, R)), *np.zeros((2, 0), int), 0, np.ones(0), np.zeros(0, int), 0),
    "only empty rows": Atoms(np.ones((2, R)), *np.zeros((2, 0), int), 0, np.ones(0), np.zeros(0, int), 3),
}
FORMS = ("written", "graph", "compiled")


@pytest.fixture
def as_form(monkeypatch: pytest.MonkeyPatch):
    """Makes the rows of some atoms in one of the forms, whatever their number."""

    def made(atoms: Atoms, form: str) -> Rows:
        if form != "written":
            monkeypatch.setattr(rows_module, "_takes_less", lambda n_atoms, features: False)
        if form == "compiled":
            monkeypatch.setattr(edges_module, "LARGE", 0)
            monkeypatch.setattr(rows_module, "LARGE", 0)
        found = atoms.rows()
        assert found.is_written == (form == "written")
        return found

    return made


def tolerance(rows: Rows) -> dict[str, float]:
    single = rows.x.dtype == np.float32
    return {"rtol": 2e-5, "atol": 2e-5} if single else {"rtol": 1e-11, "atol": 1e-11}


def check(rows: Rows, A: np.ndarray, offsets: np.ndarray | None) -> None:
    """Every method against its definition."""
    rng, m, r = np.random.default_rng(5), len(A), rows.order
    near, offset = tolerance(rows), 0.0 if offsets is None else offsets
    B, D, G = rng.normal(size=(r, 3)), rng.normal(size=(r, r)), rng.normal(size=(r, 2))
    D += D.T
    assert (rows.n_rows, rows.row_of_atoms.shape) == (m, (rows.n_atoms,))
    assert (np.diff(rows.row_of_atoms) >= 0).all()
    np.testing.assert_allclose(rows.values(B), np.einsum("kij,ij->k", A, B @ B.T) + offset, **near)
    np.testing.assert_allclose(rows.of_matrix(D), np.einsum("kij,ij->k", A, D), **near)
    for share in (0.0, 0.2, 1.0):  # few weights are summed up by their squares, many by the graph
        w = np.where(rng.random(m) < share, rng.normal(size=m), 0.0)
        found = rows.adjoint(w)
        np.testing.assert_allclose(found, np.einsum("kij,k->ij", A, w), **near)
        np.testing.assert_array_equal(found, found.T)
        assert found.dtype == np.float64
    packed = np.array([packing(2).pack(G.T @ one @ G) for one in A]).reshape(m, 3).T
    np.testing.assert_allclose(rows.packed(G), packed, **near)
    np.testing.assert_allclose(rows.gram(), np.einsum("kij,lij->kl", A, A), **near)
    x, y = rows.vectors()
    written, c = np.zeros_like(A), rows.coefficient
    np.add.at(written, rows.row_of_atoms, c[:, None, None] * (x[:, :, None] * y[:, None] / 2))
    np.testing.assert_allclose(written + written.transpose(0, 2, 1), A, **near)
    for T in (B, np.abs(B[:, 0])):
        image_x, image_y = (x @ T, y @ T) if T.ndim == 2 else (x * T, y * T)
        of_atoms = np.abs(c) * np.linalg.norm(image_x, axis=1) * np.linalg.norm(image_y, axis=1)
        np.testing.assert_allclose(rows.magnitudes(T), np.bincount(rows.row_of_atoms, of_atoms, m), **near)
    basis = np.linalg.svd(rows.span().T.astype(float), full_matrices=False)
    inside = basis[0][:, basis[1] > 1e-6]
    np.testing.assert_allclose(inside @ (inside.T @ A @ inside) @ inside.T, A, **near)


@crossed(atoms=ATOMS, form=FORMS)
def test_every_method_is_what_it_is_defined_as(atoms: Atoms, form: str, as_form) -> None:
    rows = as_form(atoms, form)
    check(rows, atoms.matrices(), atoms.offsets)


@crossed(atoms=ATOMS, form=FORMS, how=["matrix", "thin", "diagonal"])
def test_transformed(atoms: Atoms, form: str, how: str, as_form) -> None:
    rng, rows = np.random.default_rng(2), as_form(atoms, form)
    T = {"matrix": rng.normal(size=(R, R)), "thin": rng.normal(size=(R, 2)), "diagonal": rng.random(R)}[how]
    whole = np.diag(T) if T.ndim == 1 else T
    found = rows.transformed(T, unit=4.0)
    assert found.order == whole.shape[1]
    check(found, whole.T @ atoms.matrices() @ whole, None if atoms.offsets is None else atoms.offsets / 4)


@crossed(atoms=ATOMS, form=FORMS, chosen=["numbers", "mask", "all", "none"])
def test_subset(atoms: Atoms, form: str, chosen: str, as_form) -> None:
    rows = as_form(atoms, form)
    mask = {"all": np.ones(atoms.n_rows, bool), "none": np.zeros(atoms.n_rows, bool)}.get(
        chosen, np.random.default_rng(3).random(atoms.n_rows) < 0.5
    )
    found = rows.subset(mask if chosen == "mask" else np.flatnonzero(mask))
    check(found, atoms.matrices()[mask], None if atoms.offsets is None else atoms.offsets[mask])


@crossed(atoms=ATOMS, form=FORMS)
def test_by_groups_keeps_the_blocks_of_a_matrix(atoms: Atoms, form: str, as_form) -> None:
    rows, groups = as_form(atoms, form), np.array([1, 0, 2, 1])
    found = rows.by_groups(groups)
    assert found.n_atoms == 3 * rows.n_atoms
    check(found, atoms.matrices() * (groups[:, None] == groups), atoms.offsets)


@pytest.mark.parametrize("form", FORMS)
def test_squares_are_one_object(form: str, as_form) -> None:
    rows = as_form(squares(), form)
    x, y = rows.vectors()
    assert y is x
    rows = as_form(inner_products(), form)
    x, y = rows.vectors(np.array([3, 5]))
    assert y is not x
    assert x.shape == (2, R)


@crossed(form=FORMS, dtype=[np.float32, np.float64])
def test_vectors_of_some_atoms_in_a_precision(form: str, dtype: type, as_form) -> None:
    rows = as_form(comparisons(), form)
    x, y = rows.vectors(dtype=dtype)
    assert x.dtype == dtype
    assert y is x
    for some in (slice(3, 8), np.array([1, 1, 4])):
        np.testing.assert_allclose(rows.vectors(some, dtype)[0], x[some], rtol=1e-6)


def test_vectors_are_written_out_up_to_a_size() -> None:
    assert is_written_out(rows_module.WRITTEN // R, R)
    assert not is_written_out(rows_module.WRITTEN // R + 1, R)
    limit = rows_module.WRITTEN // R
    assert distances(limit).rows().is_written
    assert not distances(limit + 1).rows().is_written
    assert distances(limit + 1, limit + 1).rows().is_written  # no more vectors than features


def test_both_sides_of_the_size_agree() -> None:
    limit = rows_module.WRITTEN // R
    atoms, rng = distances(limit + 1, 200), np.random.default_rng(0)
    graph, keep = atoms.rows(), np.arange(limit)
    written, same = graph.subset(keep), graph.subset(np.arange(limit + 1))
    assert (written.is_written, same.is_written) == (True, False)
    B, w = rng.normal(size=(R, R)), rng.normal(size=limit + 1)
    np.testing.assert_allclose(written.values(B), graph.values(B)[keep], rtol=1e-12)
    w[-1] = 0.0
    np.testing.assert_allclose(written.adjoint(w[keep]), graph.adjoint(w), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(same.adjoint(w), graph.adjoint(w), rtol=1e-12)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("form", ["graph", "compiled"])
def test_blocks_and_threads_change_nothing(
    form: str, workers: int, as_form, monkeypatch: pytest.MonkeyPatch
) -> None:
    atoms = of_all_kinds()
    rows = as_form(atoms, form)
    monkeypatch.setattr(edges_module, "BLOCK", 3 * R)
    monkeypatch.setattr(edges_module, "LARGE", 1)
    with nw.threads(workers):
        check(rows, atoms.matrices(), atoms.offsets)
        check(as_form(comparisons(), form), comparisons().matrices(), None)


@pytest.mark.parametrize("form", FORMS)
def test_weights_that_are_no_numbers_show(form: str, as_form) -> None:
    for atoms in (distances(), inner_products()):
        w = np.zeros(atoms.n_rows)
        w[3] = np.nan
        assert np.isnan(as_form(atoms, form).adjoint(w)).all()


def test_differences_written_out_keep_their_digits() -> None:
    atoms = distances()
    far = Atoms(**atoms.__dict__ | {"features": np.round(atoms.features * 1024) / 1024 + 2.0**40})
    near = Atoms(**atoms.__dict__ | {"features": far.features - 2.0**40})
    B = np.random.default_rng(0).normal(size=(R, R))
    np.testing.assert_array_equal(far.rows().values(B), near.rows().values(B))
    found = far.rows().transformed(B).values(np.eye(R))
    np.testing.assert_allclose(found, near.rows().values(B), rtol=1e-12)


def test_values_of_squares_cancel_nothing() -> None:
    rows = distances().rows()
    B = np.diag([1.0, 1e-5, 1e-9, 1e-12])
    only_small = rows.transformed(np.array([0.0, 1.0, 1.0, 1.0]))
    exact = np.array([float(np.sum((B.T @ x) ** 2)) for x in only_small.vectors()[0]])
    np.testing.assert_allclose(only_small.values(B), exact * rows.coefficient, rtol=1e-14)
    assert (rows.values(B) > 0).all()


@crossed(sort=[False, True], both=[False, True])
def test_written_sorts_atoms_by_row(sort: bool, both: bool) -> None:
    rng = np.random.default_rng(4)
    x, c = rng.normal(size=(9, R)), rng.normal(size=9)
    y = rng.normal(size=(9, R)) if both else x
    row = np.array([2, 0, 2, 4, 1, 0, 4, 4, 1])
    if sort:
        row = np.sort(row)
    A = np.zeros((5, R, R))
    np.add.at(A, row, c[:, None, None] * (x[:, :, None] * y[:, None] + y[:, :, None] * x[:, None]) / 2)
    rows = Rows.written(x, y, c, row, 5)
    assert (rows.y is rows.x) == (not both)
    check(rows, A, None)
    shifted = Rows.written(x, y, c, row, 5, np.full(5, 1.0))
    np.testing.assert_allclose(shifted.values(np.eye(R)), rows.values(np.eye(R)) + 1)


def large(n: int = 300, offset: float = 0.0) -> Atoms:
    found = distances(edges_module.LARGE // R, n)
    return Atoms(**found.__dict__ | {"features": found.features + offset})


def test_single_precision_of_a_graph() -> None:
    rows = large(offset=1e6).rows()  # what all features have in common costs no digits
    single = rows.in_single()
    assert single is not None
    assert single.x.dtype == np.float32
    rng = np.random.default_rng(0)
    B, w = rng.normal(size=(R, R)), rng.normal(size=rows.n_rows)
    np.testing.assert_allclose(single.values(B), rows.values(B), rtol=2e-4)
    np.testing.assert_allclose(
        single.adjoint(w), rows.adjoint(w), atol=1e-4 * np.abs(rows.adjoint(abs(w))).max()
    )
    assert single.transformed(B).x.dtype == np.float32


def test_single_precision_of_written_vectors() -> None:
    rows = large(edges_module.LARGE // R).rows()
    assert rows.is_written
    single = rows.in_single()
    assert single is not None
    assert single.y is single.x
    np.testing.assert_allclose(single.values(np.eye(R)), rows.values(np.eye(R)), rtol=1e-5)


def test_no_single_precision_where_it_gains_little_or_loses_digits() -> None:
    assert distances().rows().in_single() is None
    atoms = large()
    close = atoms.features * 1e-7
    close[::2] += np.arange(R)
    two_clusters = Atoms(**atoms.__dict__ | {"features": close})
    assert two_clusters.rows().in_single() is None
    with_products = Atoms(**atoms.__dict__ | {"n_differences": atoms.n_differences - 1})
    assert with_products.rows().in_single() is None
