"""How loops are compiled: when first called, and kept on disk where some folder for that is writable.

numba keeps compiled code beside the file, or else in the user's cache folder, or where NUMBA_CACHE_DIR says.
It looks at the file of the function alone to see whether that code is out of date, while a loop contains all
that it calls; so the stamp here is made of the text of all files of the folder, and of the versions of what
makes code of it. The processor and the version of Python are part of numba's own key. What an older version
of a loop left is removed when the new one is kept. So nobody has to delete anything by hand. Where nothing
can be kept, numba gives up; here every process compiles for itself then, and says so once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from numba.core.caching import FunctionCache, IndexDataCacheFile, NullCache

from nearwise._common.digest import digest
from nearwise._common.warning import warn
from nearwise.linalg import loops

_UNKEPT = (
    "compiled loops cannot be kept, so every process compiles them anew, for some seconds: {}; the "
    "environment variable NUMBA_CACHE_DIR names a folder for them"
)

_told: set[str] = set()  # what was said in this process


def compiled(*, reassociate: bool = False, error_model: str = "numpy") -> Callable[[Any], Any]:
    """A decorator that compiles a loop.

    Parameters
    ----------
    reassociate : whether sums may be reordered and products contracted, which is faster
    error_model : "numpy" for divisions by zero as NumPy has them, "python" for an error
    """

    def decorate(function: Any) -> Any:
        njit: Any = numba.njit  # its types know no option for wrappers
        loop = njit(
            nogil=True,
            fastmath={"contract", "reassoc"} if reassociate else False,
            error_model=error_model,
            no_cfunc_wrapper=True,  # nobody calls loops by address, and the wrapper takes a tenth of the time
        )(function)
        if loop is not function:  # as it is with NUMBA_DISABLE_JIT
            loop._cache = _cache_of(function)
        return loop

    return decorate


def _cache_of(function: Any) -> Any:
    try:
        return _Kept(function)
    except (OSError, RuntimeError):
        _tell_unkept("no folder for them is writable")
        return _Unkept()


class _Kept(FunctionCache):
    """On disk, unless that fails in the end, as it does on a full disk."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._cache_file = IndexDataCacheFile(
            cache_path=self._cache_path,
            filename_base=self._impl.filename_base,
            source_stamp=_stamp(Path(function.__code__.co_filename)),
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = super().load_overload(sig, target_context)
        if found is None:
            _announce()
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            if not self._cache_file._load_index():
                self._remove_older()
            super().save_overload(sig, data)
        except OSError as error:
            _tell_unkept(f"{self.cache_path}: {error.strerror or error}")

    def _remove_older(self) -> None:
        """Remove the files of this loop: those of an older version, which may have begun in another line."""
        name, line_and_python = self._impl.filename_base.rsplit("-", 1)
        python = line_and_python.partition(".")[2]
        own = re.compile(rf"{re.escape(name)}-\d+\.{re.escape(python)}\.(nbi|\d+\.nbc)")
        for file in Path(self.cache_path).iterdir():
            if own.fullmatch(file.name):
                file.unlink(missing_ok=True)


class _Unkept(NullCache):
    """Nowhere."""

    def load_overload(self, sig: Any, target_context: Any) -> None:
        _announce()


@cache
def _stamp(file: Path) -> str:
    """A digest of what decides a loop's code: the file, the loops of this folder, and who compiles them."""
    files = {file, *Path(__file__).parent.glob("*.py")}
    config: Any = numba.config  # its types know none of its settings
    settings = config.OPT, config.BOUNDSCHECK
    versions = numba.__version__, llvmlite.__version__, np.__version__
    # in a zip file there is none, and numba's own key, with the bytecode, must do
    texts = ((source.name, source.read_bytes()) for source in sorted(files) if source.is_file())
    return digest(versions, settings, *texts)


def _announce() -> None:
    if loops.announce is not None and "compiling" not in _told:
        _told.add("compiling")
        loops.announce()


def _tell_unkept(reason: str) -> None:
    if "unkept" not in _told:
        _told.add("unkept")
        warn(_UNKEPT.format(reason), RuntimeWarning)
