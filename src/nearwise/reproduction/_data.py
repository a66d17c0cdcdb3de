"""Data sets of the experiments; quick runs make do with one that comes with scikit-learn."""

from __future__ import annotations

import nearwise as nw
from nearwise.data.datasets import Dataset, DatasetUnavailable


def load(name: str, quick: bool, stand_in: str) -> tuple[Dataset, tuple[str, ...]]:
    """The set, or in a quick run where its file is missing another one, and a remark that says so."""
    try:
        return nw.datasets.load(name), ()
    except DatasetUnavailable:
        if not quick:
            raise
    return nw.datasets.load(stand_in), (f"{name} is not here: these are figures of {stand_in} instead.",)
