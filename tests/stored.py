"""The records in `tests/files`: what is asked of a stored model, and its answers in the words of JSON.

A record has `inputs` by name, each an array, a sparse matrix or a table, and `asked`: lines of words. The
first is a method or an attribute, the others are inputs, or keywords with an input or a value.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

FILES = Path(__file__).parent / "files"


def read(stated: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The inputs of a record."""
    return {name: _input(**one) for name, one in stated.items()}


def answers(model: Any, inputs: Mapping[str, Any], asked: Sequence[str]) -> list[Any]:
    """What the model says, question by question, in order."""
    return [_answer(model, inputs, *line.split()) for line in asked]


def assert_same(found: Any, expected: Any, relative: float, what: str) -> None:
    """Numbers agree relative to the largest of their array, anything else exactly."""
    before = np.array(expected)
    if before.dtype.kind != "f":
        assert found == expected, what
        return
    finite = np.abs(before[np.isfinite(before)])
    scale = finite.max() if finite.size else 0.0
    np.testing.assert_allclose(np.array(found), before, rtol=relative, atol=relative * scale, err_msg=what)


def _input(kind: str, values: Any) -> Any:
    if kind == "table":
        import pandas as pd

        return pd.DataFrame(values)
    rows = np.array(values)
    return sparse.csr_array(rows) if kind == "sparse" else rows


def _answer(model: Any, inputs: Mapping[str, Any], name: str, *words: str) -> Any:
    value = model
    for part in name.split("."):
        value = getattr(value, part)
    if callable(value):
        keywords = dict(word.split("=") for word in words if "=" in word)
        value = value(
            *(inputs[word] for word in words if "=" not in word),
            **{key: inputs[text] if text in inputs else json.loads(text) for key, text in keywords.items()},
        )
    return None if value is model else _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.name
    if sparse.issparse(value):
        value = value.toarray()
    if hasattr(value, "to_numpy"):  # a table
        value = value.to_numpy()
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return list(map(_plain, value)) if isinstance(value, list | tuple) else value
