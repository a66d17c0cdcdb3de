"""Rows and pieces on a Dask cluster.

`Chunked` are the rows of a Dask array or dataframe; they stay where they are, and each piece of the
constraints gets the rows that it names, once. `OnDask` keeps pieces as tasks that Dask can compute again:
where a worker dies, what it held is computed anew from the source, and a run goes on.
"""

from __future__ import annotations

import copy
import itertools
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from nearwise import __version__
from nearwise._common.threads import threads, worker_threads
from nearwise._common.types import Index
from nearwise.distributed.running import BUNDLE, Each, InThreads, Runner, Sum, bundled
from nearwise.distributed.vectors import Stacked, Vectors

R = TypeVar("R")

_OTHER = "worker {} has {}, and the client has nearwise {}: install the same version everywhere"
_TASKS_PER_THREAD = 8  # of a pass, so that no worker waits long for another
_ROWS_OF_TASK = 1 << 20  # at most, however few workers there are, so that what is lost with one is not much


class ClusterError(RuntimeError):
    """Something is wrong with a cluster, and not with what was asked of it."""


class LostSchedulerError(ClusterError):
    """The Dask scheduler does not answer any more."""


class LostWorkersError(ClusterError):
    """One worker after the other died at the same task."""


class UnseenFileError(ClusterError):
    """A worker does not see a file of which it shall read rows."""


class VersionError(ClusterError):
    """A worker has another version of nearwise than the client."""


class Chunked:
    """`Vectors` in the chunks of a Dask array.

    Parameters
    ----------
    array : (n, d), with known sizes of its chunks
    client : whose workers do the work; None for Dask's own threads
    """

    def __init__(self, array: Any, client: Any) -> None:
        self.array, self.client = array.rechunk({1: -1}), client
        self.ids: NDArray[Any] | None = None
        self.shape: tuple[int, int] = (int(array.shape[0]), int(array.shape[1]))
        self.dtype: np.dtype[Any] = array.dtype
        self._ends = np.cumsum([0, *self.array.chunks[0]])

    def take(self, rows: Index, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Some of the rows, in that order, here; never in `out`."""
        return np.asarray(compute([self.gathered(np.asarray(rows))], self.client)[0])

    def place(self, row: int) -> str:
        """Its number."""
        return f"row {row}"

    def runner(self, pieces: Sequence[Any]) -> Runner:
        """The pieces, each with the rows that it names, on the workers."""
        from dask.delayed import delayed

        files = list(dict.fromkeys(file for piece in pieces for file in piece.files()))
        if files and self.client is not None:
            refuse_unseen(self.client, files)
        groups, tasks = grouped(pieces, self.client, sum(map(len, pieces))), []
        for group in groups:
            if files:  # who works on pieces reads them, and this process does not
                bare = [piece.holding(Stacked([np.empty((0, self.shape[1]))])) for piece in group]
                rows = delayed(_objects_of)(bare)
                tasks.append(delayed(_read)(bare, rows, self._among(rows), self.dtype, __version__))
            else:
                rows = _objects_of(group)
                small = [piece.renumbered(rows) for piece in group]
                tasks.append(delayed(_holding)(small, self.gathered(rows), __version__))
        if self.client is None:
            return InThreads([piece for group in compute(tasks, None) for piece in group])
        return OnDask(self.client, tasks, [len(group) for group in groups])

    def over_rows(self, job: Callable[..., R], *arguments: Any, beside: Index) -> list[R]:
        """job(first row, rows, their part of `beside`, *arguments) of every chunk, in order."""
        from dask.delayed import delayed

        shared = delayed((job, arguments), pure=False, traverse=False)
        tasks = [
            delayed(_on_chunk)(__version__, shared, low, chunk, beside[low:high])
            for low, high, chunk in self._chunks()
        ]
        return compute(tasks, self.client)

    def gathered(self, rows: Index) -> Any:
        """A task that makes an array of some rows."""
        from dask.delayed import delayed

        order = np.argsort(rows, kind="stable")
        ends = np.searchsorted(rows[order], self._ends)
        blocks = self.array.to_delayed().ravel()
        parts = []
        for k in np.flatnonzero(np.diff(ends)):
            own = rows[order[ends[k] : ends[k + 1]]] - self._ends[k]
            parts.append(delayed(_some)(blocks[k], own))
        return delayed(_assembled)(parts, order, self.shape[1], self.dtype)

    def _among(self, rows: Any) -> list[Any]:
        """Tasks that make arrays of some rows, in order, where a task tells which."""
        from dask.delayed import delayed

        return [delayed(_between)(chunk, rows, low, high) for low, high, chunk in self._chunks()]

    def _chunks(self) -> Iterator[tuple[int, int, Any]]:
        """The chunks that have rows, with the numbers of the first row and of the one after the last."""
        parts = zip(itertools.pairwise(self._ends.tolist()), self.array.to_delayed().ravel(), strict=True)
        return ((low, high, chunk) for (low, high), chunk in parts if low < high)

    def __len__(self) -> int:
        return self.shape[0]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "client": None}

    def __repr__(self) -> str:
        n, d = self.shape
        return f"<Chunked: {n} rows of {d} {self.dtype} in {len(self._ends) - 1} chunks>"


class OnDask:
    """Pieces as tasks of a cluster, several neighbours each: every task costs three processes milliseconds.

    Parameters
    ----------
    client : a `distributed.Client`
    groups : tasks that make a list of pieces each, or such lists
    sizes : how many pieces they have
    """

    def __init__(self, client: Any, groups: Sequence[Any], sizes: Sequence[int]) -> None:
        from dask.delayed import delayed

        self.client, self.address = client, _address(client)
        refuse_other_versions(client)
        tasks = [
            group if hasattr(group, "dask") else delayed(group, pure=False, traverse=False)
            for group in groups
        ]
        with warnings.catch_warnings():  # pairs travel once, with the tasks, so that these can be done again
            warnings.filterwarnings("ignore", message="Sending large graph")
            self._groups = _guarded(client, lambda: client.compute(tasks), self.address)
        firsts = np.cumsum([0, *sizes])
        self._pieces = [
            _Place(group, first + k, k)
            for group, (first, size) in enumerate(zip(firsts.tolist(), sizes, strict=False))
            for k in range(size)
        ]

    def some(self, places: Sequence[int]) -> OnDask:
        """The same for some of the pieces."""
        found = copy.copy(self)
        found._pieces = [self._pieces[k] for k in places]
        return found

    def run(self, job: Callable[..., R], *arguments: Any, each: Each = None, added: Sum = None) -> list[R]:
        """job(piece, *arguments) of every piece, in order."""
        wanted = [k for k in range(len(self._pieces)) if each is None or each[k] is not None]
        by_group = itertools.groupby(wanted, lambda k: self._pieces[k].group)
        parts = [(group, list(own)) for group, own in by_group]

        def asked() -> list[list[R]]:
            submit = self.client.submit
            shared = submit(_as_it_is, (job, arguments, added), pure=False)  # travels once to each worker
            tasks = []
            for group, own in parts:
                places = [self._pieces[k] for k in own]
                more = None if each is None else [each[k] for k in own]
                tasks.append(
                    submit(_several, __version__, shared, self._groups[group], places, more, pure=False)
                )
            answers: list[list[R]] = self.client.gather(tasks)
            return answers

        found = [one for own in _guarded(self.client, asked, self.address) for one in own]
        if added is not None:
            return found
        results: list[Any] = [None] * len(self._pieces)
        for k, value in zip(wanted, found, strict=True):
            results[k] = value
        return results


class _Place(NamedTuple):
    """Of a piece: its group, its number among all pieces, and its number in the group."""

    group: int
    number: int
    within: int


def grouped(pieces: Sequence[Any], client: Any, n_rows: int) -> list[list[Any]]:
    """Neighbours that are one task together; bundles whose results are added are not torn apart."""
    threads = worker_threads()
    if client is not None:
        threads = sum(_guarded(client, client.nthreads, _address(client)).values())
    n_bundles = -(-len(pieces) // BUNDLE)
    wanted = max(_TASKS_PER_THREAD * threads, n_rows // _ROWS_OF_TASK, 1)
    ends = (np.linspace(0, n_bundles, min(wanted, n_bundles) + 1).astype(int) * BUNDLE).tolist()
    return [list(pieces[low:high]) for low, high in itertools.pairwise(ends)]


def chunked(data: Any, client: Any = None) -> Chunked:
    """The rows of a Dask array or dataframe; chunks of unknown size are counted."""
    for name, kind in getattr(data, "dtypes", {}).items():  # of a dataframe
        if getattr(kind, "kind", "O") not in "fiu":
            raise TypeError(f"column {name!r} of the dataframe holds {kind}, not real numbers; leave it out")
    array = data.to_dask_array(lengths=True) if hasattr(data, "to_dask_array") else data
    if getattr(array, "ndim", 0) != 2:
        raise ValueError(f"a Dask array must have rows and columns, got {data!r}")
    if array.dtype.kind not in "fiu":
        raise TypeError(f"a Dask array must hold real numbers, got {array.dtype}")
    array = array if array.dtype.kind == "f" else array.astype(np.float64)
    if np.isnan(array.shape).any():
        array = array.compute_chunk_sizes()
    return Chunked(array, current_client() if client is None else client)


def current_client() -> Any:
    """The client that Dask would use; None where there is none."""
    try:
        from distributed import get_client
    except ImportError:  # dask alone has threads only
        return None
    try:
        return get_client()
    except ValueError:
        return None


def compute(tasks: Sequence[Any], client: Any) -> list[Any]:
    """The results of tasks, here."""
    if client is None:
        from dask.base import compute as computed

        return list(computed(*tasks, scheduler="threads"))
    return list(_guarded(client, lambda: client.gather(client.compute(list(tasks))), _address(client)))


def taken_with(pieces: list[Any], vectors: Vectors) -> list[Any]:
    """Pieces with the rows that they name, which travel with them."""
    rows = _objects_of(pieces)
    return _holding([piece.renumbered(rows) for piece in pieces], vectors.take(rows), __version__)


def refuse_unseen(client: Any, files: list[str]) -> None:
    """An error for the first worker that does not see a file."""
    found = _guarded(client, lambda: client.run(_first_unseen, files), _address(client))
    for worker, unseen in found.items():
        if unseen is not None:
            raise UnseenFileError(
                f"worker {worker} does not see {unseen}: put the files, and what Parquet is copied to "
                "(scratch=, or TMPDIR), where all workers see them, or read them with Dask"
            )


def refuse_other_versions(client: Any) -> None:
    """An error for the first worker without this version of nearwise, before anything is asked of it."""

    def installed() -> str:  # a nested function travels as it is, and not by its name in a module
        try:
            from nearwise.distributed import on_dask
        except ImportError:
            return "no nearwise"
        return f"nearwise {on_dask._theirs()}"

    found = _guarded(client, lambda: client.run(installed), _address(client))
    for worker, what in sorted(found.items()):
        if what != f"nearwise {__version__}":
            raise VersionError(_OTHER.format(worker, what, __version__))


def _first_unseen(files: list[str]) -> str | None:
    return next((file for file in files if not os.path.exists(file)), None)


def _guarded(client: Any, ask: Callable[[], R], address: str) -> R:
    """What is asked of the cluster, or a clear error where it is gone."""
    from asyncio import CancelledError  # which is no Exception

    try:
        return ask()
    except (Exception, CancelledError) as error:
        if client.status != "running":
            raise LostSchedulerError(
                f"the Dask scheduler at {address} does not answer any more; start it and fit again: with a "
                "checkpoint, a fit goes on where it was"
            ) from error
        if type(error).__name__ == "KilledWorker":  # whose message is about Dask's own names
            raise LostWorkersError(
                f"one worker after the other died at one task of the scheduler at {address}: it may need "
                "more memory than a worker has; with a checkpoint, a fit goes on where it was"
            ) from error
        raise


def _address(client: Any) -> str:
    """Of the scheduler, which a client that lost it does not know any more."""
    return str(getattr(client.scheduler, "address", "an unknown address"))


def _as_it_is(value: Any) -> Any:
    return value


def _several(
    version: str, shared: Any, pieces: list[Any], places: list[_Place], each: list[Any] | None
) -> list[Any]:
    """One job on some pieces of a group; runs on a worker."""
    _refuse_other(version)
    job, arguments, added = shared
    own = [()] * len(places) if each is None else [(one,) for one in each]
    with threads(1):
        found = [job(pieces[at.within], *arguments, *more) for at, more in zip(places, own, strict=True)]
    return bundled(found, [at.number for at in places], added)


def _on_chunk(version: str, shared: Any, start: int, chunk: Any, beside: Index) -> Any:
    _refuse_other(version)
    job, arguments = shared
    return job(start, np.asarray(chunk), beside, *arguments)


def _refuse_other(version: str) -> None:
    if version == _theirs():
        return
    from distributed import get_worker

    raise VersionError(_OTHER.format(get_worker().address, f"nearwise {_theirs()}", version))


def _theirs() -> str:
    """The version of nearwise where this runs."""
    return __version__


def _holding(pieces: list[Any], rows: NDArray[Any], version: str) -> list[Any]:
    _refuse_other(version)
    vectors = Stacked([rows])
    return [piece.holding(vectors) for piece in pieces]


def _objects_of(pieces: list[Any]) -> Index:
    """The rows that they name, in order."""
    return np.unique(np.concatenate([np.empty(0, np.int64), *(piece.objects() for piece in pieces)]))


def _between(chunk: Any, rows: Index, low: int, high: int) -> NDArray[Any]:
    """Those of some rows that are in a chunk of the rows from `low` to `high`."""
    begin, end = np.searchsorted(rows, [low, high])
    return np.asarray(chunk)[rows[begin:end] - low]


def _read(pieces: list[Any], rows: Index, parts: list[NDArray[Any]], dtype: Any, version: str) -> list[Any]:
    """Pieces that are in files with the vectors that they name, which come in order."""
    found = np.concatenate(parts, dtype=dtype) if parts else np.empty((0, 0), dtype)
    return _holding([piece.renumbered(rows) for piece in pieces], found, version)


def _some(chunk: Any, rows: Index) -> NDArray[Any]:
    return np.asarray(chunk)[rows]


def _assembled(parts: list[NDArray[Any]], order: Index, width: int, dtype: Any) -> NDArray[Any]:
    out = np.empty((len(order), width), dtype)
    if parts:
        out[order] = np.concatenate(parts)
    return out
