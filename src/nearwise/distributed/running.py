"""Runs one function over all pieces of some data, in order: with threads here, or as tasks of a Dask cluster.

What a run returns does not depend on how many workers there are: a piece is always cut the same, one piece
is the work of one thread, and results come in the order of the pieces. What only their sum is wanted of is
added in bundles of neighbours where it was found, so that less of it travels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any, Protocol, TypeVar

from nearwise._common.threads import one_blas_thread, worker_threads

R = TypeVar("R")
Each = Sequence[Any] | None
Sum = Callable[[list[Any]], Any] | None

BUNDLE = 4  # neighbouring pieces whose results are added at once


class Runner(Protocol):
    """Pieces, and what works on them."""

    def run(self, job: Callable[..., R], *arguments: Any, each: Each = None, added: Sum = None) -> list[R]:
        """job(piece, *arguments) of every piece, in order; with `each`, one more argument for each piece.

        A piece whose argument in `each` is None is left out, and its result is None. With `added`, the
        results are sums, one for each bundle.
        """

    def some(self, places: Sequence[int]) -> Runner:
        """The same for some of the pieces."""


class InThreads:
    """Pieces in this process, some of them side by side; `places` are their numbers among all."""

    def __init__(self, pieces: Sequence[Any], places: Sequence[int] | None = None) -> None:
        self.pieces = list(pieces)
        self.places = list(range(len(self.pieces)) if places is None else places)

    def some(self, places: Sequence[int]) -> InThreads:
        """The same for some of the pieces."""
        return InThreads([self.pieces[k] for k in places], [self.places[k] for k in places])

    def run(self, job: Callable[..., R], *arguments: Any, each: Each = None, added: Sum = None) -> list[R]:
        """job(piece, *arguments) of every piece, in order."""

        def one(place: int) -> Any:
            if each is None:
                return job(self.pieces[place], *arguments)
            return None if each[place] is None else job(self.pieces[place], *arguments, each[place])

        places, count = range(len(self.pieces)), min(worker_threads(), len(self.pieces))
        with one_blas_thread():
            if count <= 1:
                found = [one(place) for place in places]
            else:
                with ThreadPoolExecutor(count) as pool:
                    found = list(pool.map(one, places))
        return bundled(found, self.places, added)


def bundled(found: list[R], places: Sequence[int], added: Sum) -> list[R]:
    """Results of pieces with these numbers, added in bundles where that is wanted."""
    if added is None:
        return found
    pairs = groupby(zip(places, found, strict=True), lambda pair: pair[0] // BUNDLE)
    return [added([one for _, one in own]) for _, own in pairs]
