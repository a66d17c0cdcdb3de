"""Checks of single arguments: what passes, and that a refusal names the argument and the value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nearwise._common import checks

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("check", "good", "bad", "expected"),
    [
        (checks.whole_number, [1, 7, np.int32(3)], [0, 1.0, True, None, "1"], "a whole number >= 1"),
        (
            lambda value, name: checks.whole_number(value, name, least=0, most=4),
            [0, 4],
            [-1, 5],
            "a whole number from 0 to 4",
        ),
        (checks.whole_number_or_none, [1, None], [0, False, 2.5], "a whole number >= 1 or None"),
        (checks.positive, [1, 1e-300, np.float32(2)], [0, -1, INF, NAN, True, "1"], "a finite number > 0"),
        (checks.not_negative, [0, 2.5], [-1e-9, INF, NAN, None], "a finite number >= 0"),
        (checks.positive_or_infinite, [1, INF], [0, NAN, True, "auto"], "a number > 0 or inf"),
        (checks.tolerance, [1e-9, 0.5], [0, 1, NAN, "small"], "a number between 0 and 1"),
        (checks.share, [0, 0.5, 1], [-0.1, 1.1, NAN, True], "a number from 0 to 1"),
    ],
)
def test_a_check(check: Callable[[Any, str], Any], good: list[Any], bad: list[Any], expected: str) -> None:
    for value in good:
        assert check(value, "it") == value
    for value in bad:
        with pytest.raises(ValueError, match=r"^it must be ") as caught:
            check(value, "it")
        assert str(caught.value) == f"it must be {expected}, got {value!r}"


def test_one_of_some_texts() -> None:
    assert checks.one_of("a", "it", ("a", "b")) == "a"
    for value in ("c", 1, None):
        with pytest.raises(ValueError, match=f"it must be one of 'a', 'b', got {value!r}"):
            checks.one_of(value, "it", ("a", "b"))
