"""One digest of values and arrays, by which a fit, a table or a loop is known again."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import numpy as np
from scipy import sparse

SHORT = 16  # characters that are shown to people


def digest(*parts: Any) -> str:
    """64 hexadecimal digits of values, arrays, dense or sparse, and lists, tuples and dataclasses of them.

    Equal values have equal digests on all machines; an array differs from a list, and 1 from 1.0.
    """
    found = hashlib.sha256()
    for part in parts:
        _add(found, part)
    return found.hexdigest()


def _add(found: Any, value: Any) -> None:
    if sparse.issparse(value):
        rows = sparse.csr_array(value)
        value = (rows.shape, rows.data, rows.indices, rows.indptr)
    if isinstance(value, np.ndarray):
        found.update(f"{value.dtype.kind}{value.dtype.itemsize} {value.shape};".encode())
        little = value.astype(value.dtype.newbyteorder("<"), copy=False)
        found.update(repr(value.tolist()).encode() if value.dtype.hasobject else little.tobytes())
    elif isinstance(value, list | tuple):
        found.update(f"{len(value)};".encode())
        for item in value:
            _add(found, item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        found.update(f"{type(value).__name__};".encode())
        for field in dataclasses.fields(value):
            _add(found, getattr(value, field.name))
    else:
        found.update(f"{type(value).__name__} {value!r};".encode())
