"""One digest of values and arrays, by which a fit, a table or a loop is known again."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import numpy as np
from scipy import sparse

from nearwise._common.columns import Constant, Stored

SHORT = 16  # characters that are shown to people


def digest(*parts: Any) -> str:
    """64 hexadecimal digits of values, arrays, dense, sparse or in files, and lists, tuples and dataclasses.

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
    if isinstance(value, np.ndarray | Stored | Constant):
        found.update(f"{value.dtype.kind}{value.dtype.itemsize} {value.shape};".encode())
        parts = [value] if isinstance(value, np.ndarray) else (np.asarray(part) for _, part in value.chunks())
        for part in parts:
            little = part.astype(part.dtype.newbyteorder("<"), copy=False)
            found.update(repr(part.tolist()).encode() if part.dtype.hasobject else little.tobytes())
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
