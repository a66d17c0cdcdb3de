"""Learning from files that are larger than memory, and applying a model to them a part at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearwise._common.errors import Refused
from nearwise._common.files import whole_file
from nearwise._common.types import Array
from nearwise.data.memory import Memory
from nearwise.data.side_files import READERS, Objects, Reading, read_many_pairs
from nearwise.data.steps import with_names
from nearwise.distributed import NotFiniteError, Stacked, is_large, open_vectors, refuse_not_finite, titles_of
from nearwise.side import Constraints, labelling
from nearwise.study.fitted import Fitted
from nearwise.study.fitting import Fit, Settings, Watch, estimator, facts_of, forget_times, watched

_NUMBERS = 1 << 22  # of vectors that are transformed at a time


def open_files(
    paths: Sequence[str],
    *,
    labels: str | None = None,
    ids: str | None = None,
    features: Sequence[str] = (),
    known: Sequence[str] = (),
    client: Any = None,
) -> Stacked:
    """Rows of Parquet or `.npy` files, or of folders of them; parameters as in `open_vectors`.

    Of Parquet files, the columns are `features`, or those that a model knows, or all.
    """
    try:
        columns = list(features) or (list(known) if titles_of(list(paths)) else []) or None
        return open_vectors(list(paths), ids=ids, labels=labels, columns=columns, client=client)
    except (ValueError, OSError) as error:
        raise Refused(str(error)) from error


def side_information(
    vectors: Stacked, files: Mapping[str, str | None], how: Reading
) -> tuple[Constraints, tuple[str, ...]]:
    """What files say about the rows, by id or row number, and notices; `files` by the names of `READERS`."""
    objects = Objects(len(vectors), vectors.ids)
    found, notices = Constraints(), tuple[str, ...]()
    for kind, source in files.items():
        if source is not None:
            read = read_many_pairs if kind == "pairs" and is_large(source) else READERS[kind]
            side = read(source, objects, how)
            found, notices = found + side.constraints, notices + side.notices
    return found, notices


def write_coordinates(fitted: Fitted, vectors: Stacked, target: str, whole: bool = False) -> list[str]:
    """Write the coordinates of all rows to a `.npy` or Parquet file, in parts, and return their names."""
    if fitted.n_features is not None and vectors.shape[1] != fitted.n_features:
        raise Refused(
            f"the data have {vectors.shape[1]} columns of numbers, but {fitted.path} was learned with "
            f"{fitted.n_features}; leave out the columns that are no features"
        )
    n = len(vectors)
    step = max(_NUMBERS // vectors.shape[1], 1)
    starts = range(0, n, step)
    blocks = ((low, fitted.transform(_part(vectors, low, low + step), whole)) for low in starts)
    first = next(blocks)
    width = first[1].shape[1]
    names = fitted.names_of(first[1])
    with whole_file(target) as path:
        if target.lower().endswith(".npy"):
            _write_npy(path, (n, width), itertools.chain([first], blocks))
        else:
            _write_parquet(path, names, itertools.chain([first], blocks), vectors.ids)
    return names


def _part(vectors: Stacked, low: int, high: int) -> Array:
    """Consecutive rows in double precision; an error names one that is no finite number."""
    rows = vectors.between(low, high).astype(np.float64)
    try:
        refuse_not_finite(rows, np.arange(low, low + len(rows)))
    except NotFiniteError as error:
        raise Refused(str(error.at(vectors))) from None
    return rows


def _write_npy(path: Path, shape: tuple[int, int], blocks: Iterable[tuple[int, Array]]) -> None:
    """One part after the other: pages of a memory-mapped file would count as memory."""
    header = {"descr": np.dtype(np.float64).str, "fortran_order": False, "shape": shape}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for _, coordinates in blocks:
            file.write(np.ascontiguousarray(coordinates, dtype=np.float64).data)


def _write_parquet(
    path: Path, names: list[str], blocks: Iterable[tuple[int, Array]], ids: NDArray[Any] | None
) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    writer = None
    try:
        for low, coordinates in blocks:
            own = None if ids is None else ids[low : low + len(coordinates)]
            columns: dict[str, Any] = {} if own is None else {"id": own.astype(str).tolist()}
            table = pa.table(columns | dict(zip(names, coordinates.T, strict=True)))
            # numbers that never repeat need no dictionary, and the search for one takes long
            writer = writer or parquet.ParquetWriter(path, table.schema, use_dictionary=False)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


def fit_in_pieces(vectors: Stacked, constraints: Constraints, settings: Settings, watch: Watch) -> Fit:
    """Learn from the labels that were read with the rows and from constraints, by row number.

    Nothing is held out and nothing standardised: that needs all rows at once.
    """
    every = np.arange(len(vectors))

    def learned() -> Any:
        watch.show(watch.phase)
        n_classes = _labelled(vectors)[1] if settings.method == "fixed-rank" else 0
        learner = estimator(settings, vectors.shape[1], n_classes).set_params(callback=watch)
        given, ids = (constraints, every) if len(constraints) else (None, None)
        learner.fit(vectors, vectors.labels, constraints=given, sample_ids=ids)
        return learner.set_params(callback=None, checkpoint=None)

    return watched(learned, every, settings, watch, vectors.labels is not None)


def story(
    fit: Fit, vectors: Stacked, constraints: Constraints, settings: Settings, source: str
) -> dict[str, Any]:
    """What there is to tell of a fit, by the names that `Outcome.as_json` has for it."""
    learner = fit.learner
    count, n_classes = _labelled(vectors)
    parts = [f"{count:,} labelled rows in {n_classes:,} classes"] if count else []
    parts += [constraints.counted()] if len(constraints) else []
    return {
        "data": source,
        "fingerprint": None,
        "rows": len(vectors),
        "features": vectors.shape[1],
        "constraints": learner.n_constraints_used_,
        "learned_from": " and ".join(parts),
        "measured_on": "",
        "method": settings.method,
        "rank": int(learner.rank_),
        "kernel": None,
        "scaled": False,
        "seed": settings.seed,
        **facts_of(learner, learner.status_.name),
    }


def remembering(
    learner: Any, vectors: Stacked, told: dict[str, Any], ids: str | None, labels: str | None
) -> Any:
    """The learner as it is stored: with the names of its columns, and what it was learned from and how."""
    memory = Memory(
        source=told["data"],
        columns=vectors.names,
        named=bool(vectors.names),
        kinds=("number",) * len(vectors.names),
        missing="refuse",
        vector_column=vectors.vector_column,
        id_column=ids,
        label_column=labels,
        study=told | {"figures_as_text": []},
    )
    memory.keep(learner)
    forget_times(learner)
    return with_names([learner], vectors.names)[0] if vectors.names else learner


def _labelled(vectors: Stacked) -> tuple[int, int]:
    """How many rows have a label, and how many classes there are."""
    if vectors.labels is None:
        return 0, 0
    found = labelling.read(vectors.labels)
    return int(np.count_nonzero(found.codes >= 0)), len(found.classes)
