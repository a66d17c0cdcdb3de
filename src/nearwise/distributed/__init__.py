"""Data in pieces: rows of vectors on disk or on a Dask cluster, and what runs over pieces of them."""

from nearwise.distributed.files import open_vectors
from nearwise.distributed.vectors import Vectors, vectors_of

__all__ = ["Vectors", "open_vectors", "vectors_of"]
