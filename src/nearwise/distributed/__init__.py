"""Data in pieces: vectors and tables of pairs on disk or on a Dask cluster, and what runs over them."""

from nearwise.distributed.files import open_vectors
from nearwise.distributed.pairs import PairTable, open_pairs
from nearwise.distributed.vectors import Vectors, vectors_of

__all__ = ["PairTable", "Vectors", "open_pairs", "open_vectors", "vectors_of"]
