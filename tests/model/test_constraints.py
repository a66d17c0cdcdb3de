"""Constraints are checked against their definitions: what was put in, row by row, is what is stored."""

from __future__ import annotations

import copy
import dataclasses
import doctest
import pickle
import sys
from collections.abc import Callable
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.model_selection import cross_validate
from sklearn.utils import check_array

from nearwise import constraints as c

DISTANCES = [(c.at_most, -1), (c.at_least, 1), (c.equal, 0)]


# Distances, comparisons, similarities


@pytest.mark.parametrize(("make", "relation"), [(c.similar, -1), (c.dissimilar, 1)])
def test_similar_and_dissimilar_leave_the_bound_to_the_data(make, relation):
    side = make([(3, 1), (1, 2), (3, 1)])
    (block,) = side.blocks
    assert (block.kind, block.relation, block.matrices) == ("distance", relation, ())
    assert block.ids.dtype == np.int64
    assert block.ids.tolist() == [[3, 1], [1, 2], [3, 1]]
    assert np.isnan(side.bounds).all()
    assert side.relations.tolist() == [relation] * 3


@pytest.mark.parametrize(("make", "relation"), DISTANCES)
def test_measured_distances(make, relation):
    assert make([(0, 1), (1, 2)], 0.5).bounds.tolist() == [0.5, 0.5]
    side = make([(0, 1), (1, 2)], [1, 2])
    assert side.bounds.tolist() == [1.0, 2.0]
    assert side.bounds.dtype == np.float64
    assert side.relations.tolist() == [relation, relation]
    assert side.relations.dtype == np.int8


def test_comparisons_are_differences_of_two_distances():
    (triplets,) = c.closer([("a", "p", "n")], margin=2).blocks
    assert triplets.ids.tolist() == [["a", "p", "a", "n"]]
    assert (triplets.kind, triplets.relation, triplets.bounds.tolist()) == ("comparison", -1, [-2.0])
    (quadruplets,) = c.closer([(0, 1, 2, 3), (0, 1, 0, 2)], margin=[0.0, 1.0]).blocks
    assert quadruplets.ids.tolist() == [[0, 1, 2, 3], [0, 1, 0, 2]]
    assert quadruplets.bounds.tolist() == [0.0, -1.0]
    assert not np.signbit(quadruplets.bounds[0])


def test_similarities_allow_diagonal_entries_and_negative_bounds():
    (block,) = c.similarity([(0, 1), (2, 2)], [-1.0, 1.0], "==").blocks
    assert (block.kind, block.relation) == ("similarity", 0)
    assert block.ids.tolist() == [[0, 1], [2, 2]]
    assert c.similarity([(2, 2)], -1.0, ">=").relations.tolist() == [1]


@pytest.mark.parametrize(
    "pairs",
    [
        [(0, 1), (1, 2)],
        ((0, 1), (1, 2)),
        [[0.0, 1.0], [1.0, 2.0]],
        np.array([[0, 1], [1, 2]], dtype=np.uint8),
        np.array([[0, 1], [1, 2]], dtype=object),
        np.array([[0, 1], [1, 2]], dtype=np.float32),
        {(0, 1): "keys", (1, 2): "of a dict"},
    ],
)
def test_integer_ids_in_any_container(pairs):
    (block,) = c.similar(pairs).blocks
    assert block.ids.dtype == np.int64
    assert block.ids.tolist() == [[0, 1], [1, 2]]


def test_pairs_from_an_iterator():
    (block,) = c.similar(zip([0, 1], [1, 2], strict=True)).blocks
    assert block.ids.tolist() == [[0, 1], [1, 2]]


@pytest.mark.parametrize(
    "as_array",
    [list, np.array, lambda rows: np.array(rows, dtype=object), lambda rows: np.array(rows, dtype="T")],
)
def test_string_ids_keep_their_text(as_array):
    (block,) = c.similar(as_array([["a", "longer name"], ["1", "é"]])).blocks
    assert block.ids.tolist() == [["a", "longer name"], ["1", "é"]]
    assert block.ids.dtype.kind == "U"


def test_negative_ids_are_legal_until_they_are_row_numbers():
    side = c.similar([(-1, 2)])
    assert side.resolve(2, sample_ids=[2, -1])[0].ids.tolist() == [[1, 0]]
    with pytest.raises(ValueError, match=r"row 0: d\(-1, 2\).*the id -1 is not a row number below 3"):
        side.resolve(3)


@pytest.mark.parametrize("nothing", [[], (), np.empty((0, 2)), np.empty((0, 2), dtype=object), set()])
def test_nothing_is_no_constraint(nothing):
    for side in (c.similar(nothing), c.at_most(nothing, 1.0), c.similarity(nothing, [], ">=")):
        assert len(side) == 0
        assert side.blocks == ()
    assert len(c.closer([])) == len(c.linear([], [], "<=")) == 0
    empty = c.Constraints()
    assert (empty.bounds.shape, empty.relations.shape, empty.resolve(0)) == ((0,), (0,), ())
    assert repr(empty) == "<Constraints: none>"


# Wrong arguments


@pytest.mark.parametrize("make", [c.similar, c.dissimilar, *(lambda p, f=f: f(p, 1.0) for f, _ in DISTANCES)])
def test_an_object_paired_with_itself_is_refused(make):
    with pytest.raises(ValueError, match=r"row 1: the object 7 is paired with itself"):
        make([(0, 1), (7, 7)])
    with pytest.raises(ValueError, match=r"row 0: the object 'x' is paired with itself"):
        make([("x", "x")])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(0, 1, 2), (3, 3, 4)], "row 1: the object 3 is paired with itself"),
        ([(0, 1, 2), (3, 4, 3)], "row 1: the object 3 is paired with itself"),
        ([(0, 1, 2), (3, 4, 4)], r"row 1: d\(3, 4\) is compared with itself"),
        ([(0, 1, 2, 2)], "row 0: the object 2 is paired with itself"),
        ([(0, 1, 2, 3), (0, 1, 1, 0)], r"row 1: d\(0, 1\) is compared with itself"),
        ([("a", "b", "a", "b")], r"row 0: d\('a', 'b'\) is compared with itself"),
        ([(0, 1, 2), (0, 1, 2, 3)], "row 1 has 4 entries, expected 3 ids"),
        ([(0, 1)], r"rows of 3 or 4 ids, got an array of shape \(1, 2\)"),
    ],
)
def test_wrong_comparisons(rows, message):
    with pytest.raises(ValueError, match=message):
        c.closer(rows)


@pytest.mark.parametrize("make", [make for make, _ in DISTANCES])
@pytest.mark.parametrize("bound", [0.0, -1.0, np.nan, np.inf, -np.inf])
def test_distance_bounds_are_positive_and_finite(make, bound):
    with pytest.raises(ValueError, match=f"^row 1: bound is {bound}, expected a finite number > 0"):
        make([(0, 1), (1, 2)], [1.0, bound])
    with pytest.raises(ValueError, match=f"^bound is {bound}, expected a finite number > 0"):
        make([], bound)


@pytest.mark.parametrize(
    ("bound", "error", "message"),
    [
        ([1.0, 2.0, 3.0], ValueError, r"one per row, 2 in all, got shape \(3,\)"),
        ([[1.0, 2.0]], ValueError, r"got shape \(1, 2\)"),
        ([1.0, [2.0, 3.0]], ValueError, "bound must be a regular array"),
        ([1.0, None], ValueError, "row 1: bound is nan"),
        ("1", TypeError, "bound must be real numbers"),
        ([1j, 2j], TypeError, "bound must be real numbers, got complex128"),
        ([1.0, {}], TypeError, "bound must be real numbers, got object"),
    ],
)
def test_bounds_of_the_wrong_shape_or_type(bound, error, message):
    with pytest.raises(error, match=message):
        c.at_most([(0, 1), (1, 2)], bound)


@pytest.mark.parametrize("margin", [-0.5, np.nan, np.inf])
def test_margins_are_finite_and_not_negative(margin):
    with pytest.raises(ValueError, match=f"row 1: margin is {margin}, expected a finite number >= 0"):
        c.closer([(0, 1, 2), (0, 1, 3)], [0.0, margin])
    with pytest.raises(ValueError, match="margin must be one number or one per row, 1 in all"):
        c.closer([(0, 1, 2)], [0.0, 1.0])


@pytest.mark.parametrize("relation", ["<=", "=="])
@pytest.mark.parametrize("bound", [0.0, -2.0])
def test_a_diagonal_entry_is_not_bounded_by_zero_or_less(relation, bound):
    with pytest.raises(ValueError, match=rf"row 1: K\('b', 'b'\) {relation} {bound} is impossible"):
        c.similarity([("a", "b"), ("b", "b")], bound, relation)


@pytest.mark.parametrize("bound", [np.nan, np.inf])
def test_similarity_bounds_are_finite(bound):
    with pytest.raises(ValueError, match=f"row 1: bound is {bound}, expected a finite number"):
        c.similarity([(0, 1), (0, 2)], [1.0, bound], "<=")


@pytest.mark.parametrize("relation", ["<", "=", "", None, -1])
def test_unknown_relations(relation):
    with pytest.raises(ValueError, match="relation must be '<=', '>=' or '==', got"):
        c.similarity([(0, 1)], 1.0, relation)
    with pytest.raises(ValueError, match="relation must be '<=', '>=' or '==', got"):
        c.linear(np.eye(2), 1.0, relation)


@pytest.mark.parametrize(
    ("pairs", "error", "message"),
    [
        ([(0, 1), (2,)], ValueError, r"row 1 has 1 entries, expected 2 ids: \(2,\)"),
        ([(0, 1), (2, 3), (4, 5, 6)], ValueError, "row 2 has 3 entries, expected 2 ids"),
        ([(0, 1), 5], ValueError, "row 1 is not a row, expected 2 ids: 5"),
        ([(0, 1), (2, [3])], ValueError, "rows of 2 ids"),
        ([(0, 1, 2)], ValueError, r"rows of 2 ids, got an array of shape \(1, 3\)"),
        ((0, 1), ValueError, r"rows of 2 ids, got an array of shape \(2,\)"),
        (5, ValueError, r"rows of 2 ids, got an array of shape \(\)"),
        (np.zeros((0, 3)), ValueError, r"got an array of shape \(0, 3\)"),
        ([(0, 1), (2, 3.5)], ValueError, "row 1: the id 3.5 is not a whole number"),
        ([(0, 1), (2, np.nan)], ValueError, "row 1: the id nan is not a whole number"),
        ([(0, 1), (2, np.inf)], ValueError, "row 1: the id inf is not a whole number"),
        ([(0, 1), (2, 1e17)], ValueError, r"row 1: the id 1e\+17 is not .* too large"),
        (
            np.array([[0, 1], [2, 2**63]], dtype=np.uint64),
            ValueError,
            "row 1: the id 9223372036854775808 does not fit",
        ),
        ([(0, 1), (2, 2**64)], ValueError, "row 1: the id 18446744073709551616 does not fit"),
        ([(0, 1), (2, None)], TypeError, "row 1: the id None is of type NoneType"),
        ([("a", "b"), ("c", None)], TypeError, "row 1: the id None is of type NoneType"),
        ([("a", "b"), ("c", np.nan)], TypeError, "row 1: the id nan is of type float"),
        ([("a", "b"), ("c", 1)], TypeError, "row 1: the id 1 is of type int; ids must be all"),
        ([(1, 2), (3, "c")], TypeError, "row 1: the id 'c' is of type str; ids must be all"),
        (np.array([[0, 1], [2, True]], dtype=object), TypeError, "row 1: the id True is of type bool"),
        ([(b"a", b"b")], TypeError, "ids must be all integers or all strings, got |S1"),
        ([(True, False)], TypeError, "ids must be all integers or all strings, got bool"),
    ],
)
def test_wrong_ids(pairs, error, message):
    with pytest.raises(error, match=message):
        c.similar(pairs)


# Linear constraints


def dense(matrix):
    return matrix.toarray() if sparse.issparse(matrix) else matrix


def value_of(item):
    """A, from either of the two forms that it is stored in."""
    return dense(item.matrix) if item.factor is None else item.factor @ np.diag(item.weights) @ item.factor.T


A = np.array([[2.0, -1.0, 0.0], [-1.0, 3.0, 0.5], [0.0, 0.5, 0.0]])
U, WEIGHTS = np.array([[1.0, 0.0], [2.0, 1.0], [0.0, -1.0]]), np.array([2.0, -3.0])
LOW_RANK = U @ np.diag(WEIGHTS) @ U.T


@pytest.mark.parametrize(
    ("given_as", "expected"),
    [
        (A, [A]),
        (A.tolist(), [A]),
        (tuple(map(tuple, A)), [A]),
        (A.astype(int), [A.astype(int)]),
        (sparse.csr_array(A), [A]),
        (sparse.coo_matrix(A), [A]),
        ((U, WEIGHTS), [LOW_RANK]),
        ((U.tolist(), WEIGHTS.tolist()), [LOW_RANK]),
        ((sparse.csc_array(U), WEIGHTS), [LOW_RANK]),
        (np.stack([A, 2 * A]), [A, 2 * A]),
        ((A, 2 * A), [A, 2 * A]),
        ([A.tolist(), 2 * A], [A, 2 * A]),
        ([(U, WEIGHTS), A, sparse.csr_array(A)], [LOW_RANK, A, A]),
        ([(sparse.csr_array(U), WEIGHTS)], [LOW_RANK]),
    ],
)
def test_linear_reads_every_form_of_a_matrix(given_as, expected):
    side = c.linear(given_as, 1.5, "<=")
    (block,) = side.blocks
    assert (block.kind, block.relation, block.ids) == ("linear", -1, None)
    assert side.bounds.tolist() == [1.5] * len(expected)
    assert len(block.matrices) == len(expected)
    for item, matrix in zip(block.matrices, expected, strict=True):
        assert item.size == 3
        np.testing.assert_array_equal(value_of(item), matrix)


def test_linear_keeps_sparse_and_low_rank_matrices_as_they_are():
    rounded = A + np.triu(np.full((3, 3), 1e-14), 1)
    for item in c.linear([sparse.coo_array(A), sparse.csc_array(rounded)], 1.0, "==").blocks[0].matrices:
        assert isinstance(item.matrix, sparse.csr_array)
        assert item.factor is item.weights is None
    (item,) = c.linear((U, WEIGHTS), 1.0, "==").blocks[0].matrices
    assert item.matrix is None
    assert (item.factor.tolist(), item.weights.tolist()) == (U.tolist(), WEIGHTS.tolist())


@pytest.mark.parametrize("form", [np.array, sparse.csr_array])
def test_rounding_errors_in_a_symmetric_matrix_are_averaged(form):
    rounded = 1e-200 * A
    rounded[0, 1] *= 1 + 1e-15
    (item,) = c.linear(form(rounded), 1.0, "==").blocks[0].matrices
    stored = dense(item.matrix)
    np.testing.assert_array_equal(stored, stored.T)
    np.testing.assert_allclose(stored, 1e-200 * A, rtol=1e-14)


def with_entry(row, column, value):
    changed = A.copy()
    changed[row, column] = value
    return changed


@pytest.mark.parametrize("form", [np.array, sparse.csr_array])
@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (
            with_entry(0, 2, 4.0),
            r"matrix 1 must be symmetric, or .*: A\[0, 2\] is 4.0, but A\[2, 0\] is 0.0",
        ),
        (with_entry(0, 2, np.nan), r"matrix 1: A\[0, 2\] is nan"),
        (with_entry(1, 1, -np.inf), r"matrix 1: A\[1, 1\] is -inf"),
        (np.ones((3, 2)), r"matrix 1 must be a square matrix or a tuple \(U, weights\), got .* \(3, 2\)"),
        (np.ones((2, 2)), "matrix 1 has 2 rows, but matrix 0 has 3"),
        (1j * A, "matrix 1 must be real numbers"),
    ],
)
def test_wrong_matrices(form, matrix, message):
    with pytest.raises((ValueError, TypeError), match=message):
        c.linear([A, form(matrix)], 1.0, "<=")


@pytest.mark.parametrize(
    ("matrices", "message"),
    [
        ((U, WEIGHTS[:1]), "matrix 0: the factor has 2 columns, but there are 1 weights"),
        ((np.where(U == 2.0, np.inf, U), WEIGHTS), r"matrix 0: factor\[1, 0\] is inf"),
        ([A, (U, [1.0, np.nan])], r"matrix 1: weights\[1\] is nan"),
        (np.empty((0, 0)), "matrix 0 must be a square matrix"),
        (3.0, r"matrix 0 must be a square matrix .* shape \(\)"),
        ([U, WEIGHTS], r"matrix 0 must be a square matrix or a tuple \(U, weights\)"),
        ([[1.0, 2.0], [1.0]], "matrix 0 must be a regular array"),
        (1e308 * np.array([[0.0, 1.0], [-1.0, 0.0]]), "matrix 0 must be symmetric"),
    ],
)
def test_wrong_factors_and_shapes(matrices, message):
    with pytest.raises(ValueError, match=message):
        c.linear(matrices, 1.0, "<=")


def test_wrong_bounds_and_ids_of_linear():
    with pytest.raises(ValueError, match="one number or one per matrix, 2 in all"):
        c.linear([A, A], [1.0, 2.0, 3.0], "<=")
    with pytest.raises(ValueError, match="matrix 1: bound is nan, expected a finite number"):
        c.linear([A, A], [1.0, np.nan], "<=")
    with pytest.raises(ValueError, match="ids has 2 entries, but matrix 0 has 3 rows"):
        c.linear(A, 1.0, "<=", ids=["a", "b"])
    with pytest.raises(ValueError, match="ids: the id 'a' occurs twice, in entries 0 and 2"):
        c.linear(A, 1.0, "<=", ids=["a", "b", "a"])
    with pytest.raises(TypeError, match="ids, entry 1: the id None is of type NoneType"):
        c.linear(A, 1.0, "<=", ids=["a", None, "b"])


# Constraints as a whole


def example():
    return (
        c.at_most([(12, 57), (0, 1)], [0.25, 1 / 3])
        + c.dissimilar([("a", "b")])
        + c.closer([(0, 1, 2), (0, 1, 3)], margin=[0.0, 0.5])
        + c.similarity([(1, 1)], 2.0, ">=")
        + c.linear([A, A], [1.0, 2.0], "==")
    )


def test_describe():
    side = example()
    assert [side.describe(row) for row in range(len(side))] == [
        "row 0: d(12, 57) <= 0.25",
        "row 1: d(0, 1) <= 0.333333",
        "row 2: d('a', 'b') >= a bound filled from the data",
        "row 3: d(0, 1) <= d(0, 2)",
        "row 4: d(0, 1) + 0.5 <= d(0, 3)",
        "row 5: K(1, 1) >= 2",
        "row 6: tr(A[0] X) == 1",
        "row 7: tr(A[1] X) == 2",
    ]
    for row in (-1, 8):
        with pytest.raises(IndexError, match=f"no row {row}"):
            side.describe(row)


def test_joining_keeps_the_order_of_the_rows():
    side = example()
    assert len(side) == 8
    assert side.relations.tolist() == [-1, -1, 1, -1, -1, 1, 0, 0]
    np.testing.assert_array_equal(side.bounds, [0.25, 1 / 3, np.nan, 0.0, -0.5, 2.0, 1.0, 2.0])
    assert sum([c.similar([(0, 1)]), c.similar([(1, 2)])], c.Constraints()).blocks[1].ids.tolist() == [[1, 2]]
    with pytest.raises(TypeError):
        side + 1


def test_repr_counts_the_rows():
    assert repr(example()) == (
        "<Constraints: 2 distances <=, 1 distance >=, 2 comparisons <=, 1 similarity >=, 2 linear ==>"
    )
    joined = c.similar([(0, 1)]) + c.dissimilar([(0, 2)]) + c.similar([(1, 3), (2, 3)])
    assert repr(joined) == "<Constraints: 3 distances <=, 1 distance >=>"
    assert repr(c.similarity([(0, 1), (0, 2)], 0.0, "<=")) == "<Constraints: 2 similarities <=>"


def arrays_of(side):
    for block in side.blocks:
        found = [block.ids, block.bounds]
        for item in block.matrices:
            in_sparse_form = sparse.issparse(item.matrix)
            found += (
                [item.matrix.data, item.matrix.indices, item.matrix.indptr]
                if in_sparse_form
                else [item.matrix]
            )
            found += [item.factor, item.weights]
        yield from (array for array in found if array is not None)


@pytest.mark.parametrize(
    "passed_on",
    [lambda side: side, copy.copy, copy.deepcopy, lambda side: pickle.loads(pickle.dumps(side))],
)
def test_constraints_are_immutable(passed_on):
    side = example() + c.linear([sparse.csr_array(A), (U, WEIGHTS)], 1.0, "<=")
    received = passed_on(side)
    assert repr(received) == repr(side)
    arrays = list(arrays_of(received))
    assert len(arrays) == 17
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[...] = array.flat[0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        received.blocks = ()
    with pytest.raises(dataclasses.FrozenInstanceError):
        received.blocks[0].relation = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        received.blocks[-1].matrices[0].matrix = A


def test_later_changes_of_the_arguments_have_no_effect():
    pairs, bounds, matrix, factor = np.array([[0, 1]]), np.array([1.0]), A.copy(), U.copy()
    in_sparse_form, names = sparse.csr_array(A), np.array([["a", "b"]])
    named = c.similar(names)
    names[:] = "z"
    assert named.blocks[0].ids.tolist() == [["a", "b"]]
    side = c.at_most(pairs, bounds) + c.linear([matrix, (factor, WEIGHTS), in_sparse_form], 1.0, "<=")
    for array in (pairs, bounds, matrix, factor, in_sparse_form.data):
        array += 1
    assert side.describe(0) == "row 0: d(0, 1) <= 1"
    for item, expected in zip(side.blocks[1].matrices, (A, LOW_RANK, A), strict=True):
        np.testing.assert_array_equal(value_of(item), expected)


def test_equality_is_identity():
    side, twin = c.similar([(0, 1)]), c.similar([(0, 1)])
    assert side != twin
    assert len({side, twin, side}) == 2


class Recorder(BaseEstimator):
    received: list = []  # noqa: RUF012 (shared on purpose: scikit-learn fits clones)

    def fit(self, X, y=None, constraints=None):
        self.received.append(constraints)
        return self

    def score(self, X, y=None):
        return 0.0


def test_scikit_learn_passes_constraints_through_whole(monkeypatch):
    """Also where there are as many constraints as samples, so that they might be taken for a column."""
    monkeypatch.setattr(Recorder, "received", [])
    X = np.arange(12.0).reshape(6, 2)
    for m in (5, 6, 7):
        side = c.similar([(k, k + 1) for k in range(m)])
        cross_validate(Recorder(), X, cv=3, params={"constraints": side}, error_score="raise")
        assert Recorder.received[-3:] == [side] * 3


def test_constraints_are_no_array():
    side = c.similar([(0, 1), (1, 2)])
    assert len(side) == 2
    for name in ("__array__", "shape", "__getitem__", "__iter__", "__len__"):
        assert not hasattr(side, name)
    assert np.asarray(side).shape == ()
    with pytest.raises((TypeError, ValueError)):
        check_array(side)


# Ids to row numbers


def test_resolve_gives_the_row_number_of_every_id():
    names = np.array(["zoe", "ann", "bob", "eve"])
    side = (
        c.similar([("ann", "zoe"), ("bob", "eve")])
        + c.closer([("eve", "ann", "bob")])
        + c.similarity([("bob", "bob")], 1.0, "<=")
        + c.linear(A, 1.0, "<=", ids=["eve", "zoe", "ann"])
    )
    blocks = side.resolve(4, names)
    assert [block.kind for block in blocks] == ["distance", "comparison", "similarity", "linear"]
    for block, resolved in zip(side.blocks, blocks, strict=True):
        assert resolved.ids.dtype == np.int64
        np.testing.assert_array_equal(names[resolved.ids], block.ids)
        np.testing.assert_array_equal(resolved.bounds, block.bounds)
        assert resolved.matrices == block.matrices
        assert resolved.relation == block.relation


@pytest.mark.long
@given(st.data())
def test_resolve_inverts_any_numbering(data):
    sample_ids = data.draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=8, unique=True))
    row = st.integers(0, len(sample_ids) - 1)
    rows = data.draw(st.lists(st.tuples(row, row).filter(lambda pair: pair[0] != pair[1]), min_size=1))
    (block,) = c.similar([(sample_ids[i], sample_ids[j]) for i, j in rows]).resolve(
        len(sample_ids), sample_ids
    )
    assert block.ids.tolist() == [list(pair) for pair in rows]


def test_row_numbers_resolve_to_themselves():
    (block,) = c.similar([(0, 3), (2, 1)]).resolve(4)
    assert block.ids.tolist() == [[0, 3], [2, 1]]


@pytest.mark.parametrize(
    ("n_objects", "sample_ids", "message"),
    [
        (3, None, r"row 2: d\(1, 3\) <= .*: the id 3 is not a row number below 3"),
        (0, None, r"row 0: .*: the id 0 is not a row number below 0"),
        (4, [10, 11, 12, 0], r"row 0: .*: the id 1 is not in sample_ids"),
        (4, ["0", "1", "2", "3"], r"row 0: .*: the id 0 is not in sample_ids"),
        (4, [0, 1, 2, 1], "sample_ids: the id 1 occurs twice, in entries 1 and 3"),
        (4, [0, 1, 2], "sample_ids has 3 entries, but there are 4 objects"),
        (4, [[0, 1, 2, 3]], r"sample_ids must be a list of ids, got an array of shape \(1, 4\)"),
        (4, [0, 1, 2, 3.5], "sample_ids, entry 3: the id 3.5 is not a whole number"),
        (4, [0, [1], 2, 3], "sample_ids must be a regular array"),
    ],
)
def test_ids_that_cannot_be_resolved(n_objects, sample_ids, message):
    with pytest.raises(ValueError, match=message):
        (c.similar([(0, 1), (0, 2)]) + c.similar([(1, 3)])).resolve(n_objects, sample_ids)


def test_names_need_sample_ids():
    side = c.similar([(0, 1)]) + c.closer([("a", "b", "c")])
    with pytest.raises(ValueError, match=r"row 1: d\('a', 'b'\) .*: the id 'a' is not a row number below 9"):
        side.resolve(9)


def test_matrices_resolve_to_all_rows_or_to_their_objects():
    assert c.linear(A, 1.0, "<=").resolve(3)[0].ids is None
    assert c.linear(A, 1.0, "<=", ids=[0, 1, 2]).resolve(3)[0].ids is None
    assert c.linear(A, 1.0, "<=", ids=[0, 1, 2]).resolve(4)[0].ids.tolist() == [0, 1, 2]
    assert c.linear(A, 1.0, "<=", ids=[2, 0, 1]).resolve(3)[0].ids.tolist() == [2, 0, 1]
    assert c.linear(A, 1.0, "<=").resolve(3, [2, 1, 0])[0].ids.tolist() == [2, 1, 0]


def test_matrices_that_do_not_fit():
    side = c.similar([(0, 1)]) + c.linear([A, A], 1.0, "<=")
    with pytest.raises(ValueError, match="row 1: the matrix A has 3 rows, but there are 4 objects"):
        side.resolve(4)
    with pytest.raises(ValueError, match=r"row 0: tr\(A\[0\] X\) <= 1: the id 0 is not in sample_ids"):
        c.linear(A, 1.0, "<=").resolve(3, ["a", "b", "c"])
    with pytest.raises(ValueError, match=r"row 0: .*: the id 7 is not a row number below 4"):
        c.linear(A, 1.0, "<=", ids=[0, 1, 7]).resolve(4)


def test_restricted_to_keeps_the_rows_whose_objects_are_all_there():
    side = (
        c.at_most([("a", "b"), ("b", "c"), ("c", "a")], [1.0, 2.0, 3.0])
        + c.closer([("a", "c", "d"), ("a", "b", "c")])
        + c.linear(A, 1.0, "<=", ids=["c", "b", "a"])
        + c.linear([A, A], 1.0, "<=", ids=["a", "b", "d"])
        + c.similar([(0, 1)])
    )
    kept, dropped = side.restricted_to(["c", "a", "b"])
    assert (len(kept), dropped) == (5, 4)
    assert kept.describe(1) == "row 1: d('b', 'c') <= 2"
    assert kept.describe(3) == "row 3: d('a', 'b') <= d('a', 'c')"
    assert kept.describe(4) == "row 4: tr(A[0] X) <= 1"
    assert [len(block) for block in kept.blocks] == [3, 1, 1]
    kept.resolve(3, ["c", "a", "b"])

    kept, dropped = side.restricted_to(["a", "c"])
    assert (kept.bounds.tolist(), dropped) == ([3.0], 8)
    assert side.restricted_to([])[1] == len(side)


def test_a_matrix_without_ids_stays_only_where_all_its_rows_stay():
    side = c.linear(A, 1.0, "<=")
    assert side.restricted_to([0, 2])[1] == 1
    kept, dropped = side.restricted_to([2, 5, 0, 1])
    assert dropped == 0
    assert kept.resolve(4, [2, 5, 0, 1])[0].ids.tolist() == [2, 3, 0]


# Labels


def pairs_of(side):
    """Similar and dissimilar pairs as lists of tuples (low, high)."""
    pairs = {-1: [], 1: []}
    for block in side.blocks:
        assert block.kind == "distance"
        assert np.isnan(block.bounds).all()
        pairs[block.relation] += [(min(pair), max(pair)) for pair in block.ids.tolist()]
    return pairs[-1], pairs[1]


labels = st.lists(st.sampled_from([None, 0, 1, 2]), min_size=2, max_size=12) | st.lists(
    st.sampled_from(["red", "green", "blue"]), min_size=2, max_size=12
)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:no dissimilar pairs")
@settings(deadline=None)
@given(
    y=labels,
    draw=st.sampled_from(["random", "local"]),
    n_pairs=st.none() | st.integers(1, 40),
    seed=st.integers(0, 99),
)
def test_drawn_pairs_agree_with_the_labels(y, draw, n_pairs, seed):
    X = np.random.default_rng(seed).integers(0, 3, size=(len(y), 2))  # with ties and duplicates
    side = c.from_labels(y, X, draw=draw, n_pairs=n_pairs, random_state=seed)
    same, different = pairs_of(side)
    assert all(y[i] == y[j] for i, j in same)
    assert all(y[i] != y[j] for i, j in different)
    everything = same + different
    assert all(y[i] is not None and y[j] is not None for i, j in everything)
    assert all(i < j for i, j in everything)
    assert len(set(everything)) == len(everything)
    again = c.from_labels(y, X, draw=draw, n_pairs=n_pairs, random_state=seed)
    assert [block.ids.tolist() for block in again.blocks] == [block.ids.tolist() for block in side.blocks]
    if draw == "random":
        possible = list(combinations([row for row, label in enumerate(y) if label is not None], 2))
        n_same = sum(y[i] == y[j] for i, j in possible)
        n_pairs = min(40 * len(set(y) - {None}) ** 2 if n_pairs is None else n_pairs, len(possible))
        assert len(everything) == n_pairs
        fair = min(n_pairs // 2, n_same), min(n_pairs // 2, len(possible) - n_same)
        assert len(same) >= fair[0]
        assert len(different) >= fair[1]
    elif n_pairs is not None:
        assert len(everything) <= n_pairs


def test_the_default_number_of_random_pairs():
    y = np.repeat([0, 1, 2], 50)
    same, different = pairs_of(c.from_labels(y, random_state=0))
    assert (len(same), len(different)) == (180, 180)


@pytest.mark.parametrize("draw", ["random", "local"])
def test_one_class_gives_similar_pairs_and_all_distinct_labels_give_dissimilar_ones(draw):
    X = np.arange(8.0).reshape(-1, 1)
    with pytest.warns(UserWarning, match="no dissimilar pairs: all 8 labels are 'a', and one class does not"):
        same, different = pairs_of(c.from_labels(["a"] * 8, X, draw=draw, random_state=0))
    assert same
    assert not different
    same, different = pairs_of(c.from_labels(range(8), X, draw=draw, random_state=0))
    assert not same
    assert different


@pytest.mark.long
@pytest.mark.parametrize("n_pairs", [3, 12])
def test_every_random_pair_is_equally_likely(n_pairs):
    """Both ways to draw distinct numbers; 4000 draws, each count within 5 standard deviations."""
    y = [0, 1, 0, 2, 0, 1, 1, 3]
    counts = dict.fromkeys(combinations(range(8), 2), 0)
    rng = np.random.RandomState(0)
    for _ in range(4000):
        same, different = pairs_of(c.from_labels(y, n_pairs=n_pairs, random_state=rng))
        for pair in same + different:
            counts[pair] += 1
    for same_label in (True, False):
        group = np.array([n for (i, j), n in counts.items() if (y[i] == y[j]) == same_label])
        share = group.sum() / (4000 * group.size)
        assert np.abs(group - group.mean()).max() <= 5.0 * np.sqrt(4000 * share * (1.0 - share)) + 1e-9


def test_every_class_says_as_much_as_the_others():
    """JKDD12 6: 100 pairs within each class and 100 of its objects with others; small classes have fewer."""
    y = np.repeat([0, 1, -1], [55, 5, 3])
    y = np.where(y < 0, None, y)
    same, different = map(np.array, pairs_of(c.from_labels(y, per_class=100, random_state=0)))
    assert np.sum(y[same[:, 0]] == 0) == 100
    assert np.sum(y[same[:, 0]] == 1) == 10
    assert (y[same[:, 0]] == y[same[:, 1]]).all()
    assert (y[different[:, 0]] != y[different[:, 1]]).all()
    assert 100 <= len(different) <= 200
    for pairs in (same, different):
        assert len({frozenset(pair) for pair in pairs.tolist()}) == len(pairs)
        assert pairs.max() < 60


@pytest.mark.long
def test_many_pairs_of_many_objects_are_drawn_without_listing_all_pairs():
    y = np.random.default_rng(0).integers(10, size=60_000)  # 1.8e9 pairs
    side = c.from_labels(y, n_pairs=200_000, random_state=0)
    for block in side.blocks:
        first, second = block.ids.T
        assert np.array_equal(y[first] == y[second], np.full(100_000, block.relation == -1))
        assert len(np.unique(np.sort(block.ids, axis=1), axis=0)) == 100_000


def local_pairs_by_sorting(X, y, k=5):
    same, different = set(), set()
    for i in range(len(y)):
        order = [j for j in np.argsort(((X - X[i]) ** 2).sum(axis=1)).tolist() if j != i]
        same |= {(min(i, j), max(i, j)) for j in [j for j in order if y[j] == y[i]][:k]}
        different |= {(min(i, j), max(i, j)) for j in [j for j in order if y[j] != y[i]][:k]}
    return same, different


@pytest.mark.parametrize("share", [[0.2] * 5, [0.5, 0.3, 0.1, 0.07, 0.03]], ids=["alike", "unlike"])
@pytest.mark.parametrize("n", [60, 400])
def test_local_pairs_are_the_nearest_neighbours(n, share):
    """Classes of 2 to 200 objects."""
    rng = np.random.default_rng(1)
    y = rng.choice(5, p=share, size=n)
    X = rng.normal(size=(n, 3))
    same, different = pairs_of(c.from_labels(y, X, draw="local"))
    assert (set(same), set(different)) == local_pairs_by_sorting(X, y)

    fewer_same, fewer_different = pairs_of(c.from_labels(y, X, draw="local", n_pairs=50, random_state=0))
    assert (len(fewer_same), len(fewer_different)) == (25, 25)
    assert set(fewer_same) < set(same)
    assert set(fewer_different) < set(different)


def test_local_pairs_of_sparse_data():
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(40, 3)), rng.integers(2, size=40)
    assert list(map(set, pairs_of(c.from_labels(y, sparse.coo_array(X), draw="local")))) == list(
        local_pairs_by_sorting(X, y)
    )


@pytest.mark.parametrize(
    "y",
    [
        ["b", "a", "b", "c"],
        np.array(["b", "a", "b", "c"]),
        np.array(["b", "a", "b", "c"], dtype=object),
        [5, -2, 5, 0],
        np.array([5.0, -2.0, 5.0, 0.0]),
        [1, "1", 1, 2],
        np.array(["2024-02-01", "2024-01-01", "2024-02-01", "2025-01-01"], dtype="datetime64[D]"),
        [True, False, True, "x"],
    ],
)
def test_labels_of_any_type(y):
    same, different = pairs_of(c.from_labels(y, random_state=0))
    assert same == [(0, 2)]
    assert set(different) == {(0, 1), (0, 3), (1, 2), (1, 3), (2, 3)}


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([1], r"at least two labels, got shape \(1,\)"),
        ([], r"at least two labels, got shape \(0,\)"),
        ([[1, 2]], r"at least two labels, got shape \(1, 2\)"),
        ([1, [1, 2]], "y must be a regular array"),
    ],
)
def test_wrong_labels(y, message):
    with pytest.raises(ValueError, match=message):
        c.from_labels(y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"draw": "nearest"}, "draw must be 'random' or 'local', got 'nearest'"),
        ({"draw": "local"}, "draw='local' needs X"),
        ({"per_class": 0}, "per_class must be a whole number >= 1 or None, got 0"),
        ({"per_class": 3, "n_pairs": 5}, "per_class is how many pairs draw='random' takes of each class"),
        ({"n_pairs": 0}, "n_pairs must be a whole number >= 1 or None, got 0"),
        ({"n_pairs": 2.5}, "n_pairs must be a whole number >= 1 or None, got 2.5"),
        ({"n_pairs": True}, "n_pairs must be a whole number >= 1 or None, got True"),
        ({"X": [[0.0], [1.0]]}, "X has 2 rows, but there are 3 labels"),
        ({"X": [[0.0], [1.0], [np.nan]], "draw": "local"}, "X contains NaN"),
        ({"random_state": "seed"}, "seed"),
    ],
)
def test_wrong_options_of_from_labels(options, message):
    with pytest.raises(ValueError, match=message):
        c.from_labels([0, 1, 1], **options)


# Tuples in the layout of metric-learn


def squared(a, b):
    return ((a - b) ** 2).sum(axis=-1)


def tuples_of(m, width, seed=0):
    """Random tuples in which vectors recur, but never within a tuple."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(9, 4))
    return vectors[np.array([rng.choice(9, size=width, replace=False) for _ in range(m)])]


def test_pairs_of_vectors():
    tuples, y = tuples_of(30, 2), np.random.default_rng(1).choice([-1, 1], size=30)
    X, side = c.from_tuples(tuples, y)
    assert len(X) == len(np.unique(X, axis=0)) == 9
    similar, dissimilar = side.blocks
    assert (similar.relation, dissimilar.relation) == (-1, 1)
    np.testing.assert_array_equal(X[similar.ids], tuples[y == 1])
    np.testing.assert_array_equal(X[dissimilar.ids], tuples[y == -1])


def test_triplets_of_vectors():
    tuples = tuples_of(30, 3)
    X, side = c.from_tuples(tuples)
    i, j, k, m = side.blocks[0].ids.T
    anchor, near, far = tuples.transpose(1, 0, 2)
    np.testing.assert_array_equal(squared(X[i], X[j]), squared(anchor, near))
    np.testing.assert_array_equal(squared(X[k], X[m]), squared(anchor, far))
    assert side.bounds.tolist() == [0.0] * 30


@pytest.mark.parametrize("y", [None, np.random.default_rng(3).choice([-1, 1], size=30)])
def test_quadruplets_of_vectors(y):
    tuples = tuples_of(30, 4)
    X, side = c.from_tuples(tuples, y)
    i, j, k, m = side.blocks[0].ids.T
    sign = 1 if y is None else y
    difference = squared(tuples[:, 0], tuples[:, 1]) - squared(tuples[:, 2], tuples[:, 3])
    np.testing.assert_array_equal(squared(X[i], X[j]) - squared(X[k], X[m]), sign * difference)


@pytest.mark.parametrize("width", [2, 3, 4])
def test_equal_vectors_that_are_compared_are_two_objects(width):
    """All tuples over three vectors, in every way in which they can recur."""
    rows = np.array(list(product(range(3), repeat=width)))
    tuples = np.array([[0.0, 1.0], [2.0, 3.0], [5.0, 5.0]])[rows]
    y = np.where(np.arange(len(tuples)) % 2, 1, -1) if width != 3 else None
    X, side = c.from_tuples(tuples, y)
    sign = np.ones(len(tuples)) if y is None else y
    if width == 2:
        np.testing.assert_array_equal(
            X[np.concatenate([b.ids for b in side.blocks])], tuples[np.argsort(-sign, kind="stable")]
        )
    else:
        first, second = ([0, 1], [0, 2]) if width == 3 else ([0, 1], [2, 3])
        one, two = tuples[:, first], tuples[:, second]
        swap = (sign < 0)[:, None, None]
        near, far = np.where(swap, two, one), np.where(swap, one, two)
        np.testing.assert_array_equal(X[side.blocks[0].ids[:, :2]], near)
        np.testing.assert_array_equal(X[side.blocks[0].ids[:, 2:]], far)
    assert len(X) <= 9
    np.testing.assert_array_equal(X[:3], np.unique(tuples.reshape(-1, 2), axis=0))  # the others come after
    side.resolve(len(X))


def test_equal_vectors_of_different_pairs_are_one_object():
    X, side = c.from_tuples([[[0.0], [1.0], [0.0], [2.0]], [[1.0], [0.0], [1.0], [2.0]]])
    assert X.tolist() == [[0.0], [1.0], [2.0]]
    assert side.blocks[0].ids.tolist() == [[0, 1, 0, 2], [1, 0, 1, 2]]


def test_no_tuples():
    X, side = c.from_tuples(np.empty((0, 3, 5)))
    assert (X.shape, len(side)) == ((0, 5), 0)


@pytest.mark.parametrize(
    ("tuples", "y", "message"),
    [
        (np.zeros((2, 5, 3)), None, r"shape \(m, 2, d\), \(m, 3, d\) or \(m, 4, d\), got \(2, 5, 3\)"),
        (np.zeros((2, 3)), None, r"got \(2, 3\)"),
        (np.zeros((2, 3, 0)), None, r"got \(2, 3, 0\)"),
        ([[[0.0], [1.0]], [[0.0]]], [1, 1], "tuples must be a regular array"),
        ([[[0.0], [1.0]], [[0.0], [np.inf]]], [1, 1], "row 1: the tuple contains inf"),
        ([[[0.0], [1.0]], [[0.0], [2.0]]], None, "pairs need y"),
        ([[[0.0], [1.0]], [[0.0], [2.0]]], [-1, 0], r"row 1: y is 0.0, expected \+1 or -1"),
        ([[[0.0], [1.0]], [[0.0], [2.0]]], [1, 1, 1], "y must be one number or one per row, 2 in all"),
        ([[[0.0], [1.0], [2.0]]], [1], r"triplets \(a, p, n\) .* y must be None"),
    ],
)
def test_wrong_tuples(tuples, y, message):
    with pytest.raises(ValueError, match=message):
        c.from_tuples(tuples, y)


# Speed, and the examples of the docstrings


def lines_run(function: Callable[[], None]) -> int:
    """How many lines and calls of Python a function takes, which no load of the machine changes."""
    count = 0

    def trace(*_: object) -> object:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.long
def test_a_million_pairs():
    """Array operations only, and no loop over the rows in Python."""
    rng = np.random.default_rng(0)
    n, m = 200_000, 1_000_000
    first = rng.integers(n, size=m)
    pairs = np.stack([first, (first + rng.integers(1, n, size=m)) % n], axis=1)
    sample_ids = rng.permutation(n) + 10

    def build() -> None:
        side = c.at_most(pairs, np.ones(m))
        (block,) = side.resolve(n)
        (renumbered,) = c.similar(sample_ids[pairs]).resolve(n, sample_ids)
        kept, dropped = side.restricted_to(np.arange(n // 2))
        assert len(side) == m
        assert np.array_equal(block.ids, pairs)
        assert np.array_equal(renumbered.ids, pairs)
        assert len(kept) == m - dropped == (pairs < n // 2).all(axis=1).sum()

    def loop() -> None:
        for _ in range(10_000):
            pass

    assert lines_run(build) < 10_000 < lines_run(loop)


def test_the_examples_in_the_docstrings_are_true():
    examples = [test for name in c.__all__ for test in doctest.DocTestFinder().find(getattr(c, name), name)]
    done = [doctest.DocTestRunner().run(test) for test in examples]
    assert sum(results.attempted for results in done) >= 8
    assert not any(results.failed for results in done)


def test_bounds_as_multiples_of_the_pairs_own_distances():
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(30, 3)), rng.integers(0, 3, 30)
    X[1] = X[0]
    y[1] = y[0]
    open_pairs = c.from_labels(y, n_pairs=60, random_state=4)
    for data in (X, sparse.csr_array(X)):
        bounded = c.from_labels(y, data, n_pairs=60, random_state=4, bounds=(0.75, 1.25))
        for block, factor in zip(bounded.blocks, (0.75, 1.25), strict=True):
            squares = ((X[block.ids[:, 0]] - X[block.ids[:, 1]]) ** 2).sum(axis=1)
            assert_allclose(block.bounds, factor * squares)
            assert (squares > 0).all()
        drawn = {tuple(pair) for block in open_pairs.blocks for pair in block.ids}
        assert {tuple(pair) for block in bounded.blocks for pair in block.ids} == drawn - {(0, 1)}
    with pytest.raises(ValueError, match="give X"):
        c.from_labels(y, bounds=(0.75, 1.25))
    with pytest.raises(ValueError, match="bounds"):
        c.from_labels(y, X, bounds=(0.75, -1.0))


def test_a_matrix_that_is_not_symmetric_counts_as_its_symmetric_part():
    x, z = np.array([1.0, 2.0, 0.0]), np.array([0.0, 1.0, 3.0])
    side = c.linear([np.outer(x, z)], 1.0, "<=", symmetrise=True)
    assert_allclose(side.blocks[0].matrices[0].matrix, (np.outer(x, z) + np.outer(z, x)) / 2)
