"""Runs one function over all pieces of some data, in order: with threads here, or as tasks of a Dask cluster.

What a run returns does not depend on how many workers there are: a piece is always cut the same, one piece
is the work of one thread, and results come in the order of the pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from nearwise._common.threads import one_blas_thread, worker_threads

R = TypeVar("R")


class Runner(Protocol):
    """Pieces, and what works on them."""

    def run(self, job: Callable[..., R], *arguments: Any, each: Sequence[Any] | None = None) -> list[R]:
        """job(piece, *arguments) of every piece, in order; with `each`, one more argument for each piece.

        A piece whose argument in `each` is None is left out, and its result is None.
        """

    def some(self, places: Sequence[int]) -> Runner:
        """The same for some of the pieces."""


class InThreads:
    """Pieces in this process, some of them side by side."""

    def __init__(self, pieces: Sequence[Any]) -> None:
        self.pieces = list(pieces)

    def some(self, places: Sequence[int]) -> InThreads:
        """The same for some of the pieces."""
        return InThreads([self.pieces[k] for k in places])

    def run(self, job: Callable[..., R], *arguments: Any, each: Sequence[Any] | None = None) -> list[R]:
        """job(piece, *arguments) of every piece, in order."""

        def one(place: int) -> Any:
            if each is None:
                return job(self.pieces[place], *arguments)
            return None if each[place] is None else job(self.pieces[place], *arguments, each[place])

        places, count = range(len(self.pieces)), min(worker_threads(), len(self.pieces))
        with one_blas_thread():
            if count <= 1:
                return [one(place) for place in places]
            with ThreadPoolExecutor(count) as pool:
                return list(pool.map(one, places))
