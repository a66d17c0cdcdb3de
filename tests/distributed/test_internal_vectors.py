"""A file is mapped once in a process, and pairs in files have the digest of those in arrays."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np

from nearwise import constraints as c
from nearwise._common.digest import digest
from nearwise.distributed import open_pairs, vectors_of
from nearwise.distributed.vectors import MappedRows, Stacked


def test_memory_mapped_rows_that_travelled_share_one_mapping(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((100_000, 3)))
    mapped = vectors_of(np.load(tmp_path / "x.npy", mmap_mode="r"))
    assert isinstance(mapped, Stacked)
    again = pickle.loads(pickle.dumps(mapped))
    parts = [again.parts[0], mapped.parts[0]]
    assert all(isinstance(part, MappedRows) for part in parts)
    assert np.shares_memory(*(part.opened() for part in parts))


def test_pairs_in_files_have_the_digest_of_those_in_arrays(tmp_path: Path) -> None:
    pairs = np.stack([np.arange(500), np.arange(1, 501)], axis=1)
    np.save(tmp_path / "p.npy", pairs)
    stored, given = (c.at_most(source, 10.0, 2.0) for source in (open_pairs(tmp_path / "p.npy"), pairs))
    assert digest(stored.blocks) == digest(given.blocks)
