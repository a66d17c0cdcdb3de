"""Data in pieces: vectors and tables of pairs on disk or on a Dask cluster, and what runs over them.

`__all__` names what is for users. Other rooms import what stands here, and nothing else of this room.
"""

from nearwise.distributed.files import open_vectors, titles_of as titles_of
from nearwise.distributed.on_dask import ClusterError as ClusterError
from nearwise.distributed.pairs import PairTable, is_large as is_large, open_pairs
from nearwise.distributed.vectors import (
    NotFiniteError as NotFiniteError,
    Stacked as Stacked,
    Vectors,
    finite_rows as finite_rows,
    is_dask as is_dask,
    refuse_not_finite as refuse_not_finite,
    vectors_of,
)

__all__ = ["PairTable", "Vectors", "open_pairs", "open_vectors", "vectors_of"]
