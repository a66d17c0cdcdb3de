"""A digest changes with what it is of, and with nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import sparse

from nearwise._common.digest import digest


@dataclass(frozen=True, eq=False)
class Pair:
    first: object
    second: object


DIFFERENT = [
    (),
    (1,),
    (1.0,),
    ("1",),
    ((1,),),
    (1, 2),
    ((1, 2),),
    ((1,), 2),
    (None,),
    (b"1",),
    (np.array([1, 2]),),
    (np.array([1.0, 2.0]),),
    (np.array([[1, 2]]),),
    (np.array(["1", "2"]),),
    (np.array([1, None], dtype=object),),
    (sparse.csr_array([[1.0, 0.0]]),),
    (sparse.csr_array([[0.0, 1.0]]),),
    (Pair(1, 2),),
    (Pair(2, 1),),
]


def test_different_things_differ() -> None:
    found = [digest(*parts) for parts in DIFFERENT]
    assert len(set(found)) == len(found)
    assert all(len(text) == 64 for text in found)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.arange(6.0).reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3))),
        (np.arange(3, dtype="<i8"), np.arange(3, dtype=">i8")),
        (sparse.csr_array([[0.0, 2.0]]), sparse.csc_array([[0.0, 2.0]])),
        ([1, "a"], (1, "a")),
        (Pair(np.ones(2), "a"), Pair(np.ones(2), "a")),
    ],
)
def test_equal_things_are_equal_however_they_are_stored(one: object, other: object) -> None:
    assert digest(one) == digest(other)
