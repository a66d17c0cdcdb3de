"""Compiled loops over arrays, one file per use. Importing a file of this folder imports numba.

Callers import them late and only for large arrays. The loops release the interpreter's lock, so that callers
can run several at once on blocks of their own. `compiling.compiled` is their decorator: it keeps compiled
code on disk, and compiles anew after a change of any file of this folder.
"""

from __future__ import annotations

from collections.abc import Callable

announce: Callable[[], None] | None = None  # called before the first loop of this process is compiled
