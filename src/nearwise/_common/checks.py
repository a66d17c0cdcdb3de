"""Checks of single arguments: one for each sort, so that every refusal reads alike and names the value."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np


def whole_number(value: Any, name: str, least: int = 1, most: float = math.inf, others: str = "") -> int:
    """A whole number within bounds; `others` says what else it could have been, as in " or None"."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= int(value) <= most:
        bounds = f">= {least}" if most == math.inf else f"from {least} to {most}"
        raise ValueError(f"{name} must be a whole number {bounds}{others}, got {value!r}")
    return int(value)


def whole_number_or_none(value: Any, name: str, most: float = math.inf) -> int | None:
    """The same, or None."""
    return None if value is None else whole_number(value, name, most=most, others=" or None")


def finite(value: Any, name: str) -> float:
    """A finite number."""
    return _real(value, name, math.isfinite, "a finite number")


def positive(value: Any, name: str, others: str = "") -> float:
    """A finite number > 0; `others` as above."""
    return _real(value, name, lambda x: 0.0 < x < math.inf, f"a finite number > 0{others}")


def not_negative(value: Any, name: str) -> float:
    """A finite number >= 0."""
    return _real(value, name, lambda x: 0.0 <= x < math.inf, "a finite number >= 0")


def positive_or_infinite(value: Any, name: str, others: str = "") -> float:
    """A number > 0, or inf; `others` as in "'auto', "."""
    return _real(value, name, lambda x: x > 0.0, f"{others}a number > 0 or inf")


def seed(value: Any) -> int:
    """That of a `numpy.random.RandomState`."""
    return whole_number(value, "seed", least=0, most=2**32 - 1)


def tolerance(value: Any, name: str = "tol") -> float:
    """A number between 0 and 1, which are none."""
    return _real(value, name, lambda x: 0.0 < x < 1.0, "a number between 0 and 1")


def share(value: Any, name: str, others: str = "") -> float:
    """A number from 0 to 1."""
    return _real(value, name, lambda x: 0.0 <= x <= 1.0, f"a number from 0 to 1{others}")


def one_of(value: Any, name: str, allowed: tuple[str, ...]) -> str:
    """One of some texts."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
    return value


def yes_or_no(value: Any, name: str) -> bool:
    """True or False, of Python or NumPy."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def callable_or_none(value: Any, name: str) -> None:
    """A function, or None."""
    if value is not None and not callable(value):
        raise TypeError(f"{name} must be callable, got {type(value).__name__}")


def _real(value: Any, name: str, holds: Callable[[float], bool], expected: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not holds(float(value)):
        raise ValueError(f"{name} must be {expected}, got {value!r}")
    return float(value)
