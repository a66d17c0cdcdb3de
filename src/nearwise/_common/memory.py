"""Memory foreseen, and memory used again.

Linux grants memory that it does not have, and ends the process that uses it. So what is large by the square
of something is compared with what is free first, and refused before any work on it, with its size.

Dask's workers give memory back to the system at once, and asking for it anew for every few rows takes longer
than the products that are written into it. So `scratch` keeps some for a thread.
"""

from __future__ import annotations

import math
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_own = threading.local()
_GIGABYTE = 1e9
_SMALL = 1 << 24  # bytes that are not worth the time that it takes to ask what is free
_UNLIMITED = 1 << 60  # how control groups and limits write that there is none, or more


def foresee(n_bytes: float, what: str) -> None:
    """Raise a MemoryError where so many bytes for the named thing are more than what is free."""
    free = free_bytes() if n_bytes > _SMALL else None
    if free is not None and n_bytes > free:
        raise MemoryError(
            f"{what} needs {n_bytes / _GIGABYTE:,.1f} GB of memory, and {free / _GIGABYTE:,.1f} GB are free"
        )


def free_bytes() -> int | None:
    """Bytes that this process can still have, by machine, control group and limit; None where unknown."""
    known = [found for found in (_of_machine(), _of_group(), _of_limit()) if found is not None]
    return max(min(known), 0) if known else None


def scratch(name: str, shape: tuple[int, ...], dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """An array of this thread, with anything in it, until the next one of the same name is asked for."""
    kept: dict[str, NDArray[Any]] = _own.__dict__
    size, found = math.prod(shape), kept.get(name)
    if found is None or found.size < size or found.dtype != dtype:
        found = kept[name] = np.empty(size, dtype)
    return found[:size].reshape(shape)


def _of_machine() -> int | None:
    for line in _lines(Path("/proc/meminfo")):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _of_group() -> int | None:
    folder = Path("/sys/fs/cgroup")
    limit, used = _lines(folder / "memory.max"), _lines(folder / "memory.current")
    if not limit or not used or not limit[0].isdecimal() or int(limit[0]) >= _UNLIMITED:
        return None
    return int(limit[0]) - int(used[0])


def _of_limit() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    used = _lines(Path("/proc/self/statm"))
    if limit == resource.RLIM_INFINITY or limit >= _UNLIMITED or not used:
        return None
    return limit - int(used[0].split()[0]) * os.sysconf("SC_PAGE_SIZE")


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return []
