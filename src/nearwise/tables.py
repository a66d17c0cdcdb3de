"""Data files as tables: CSV, TSV, Parquet, .npy, .npz, standard input, and data sets by name."""

from nearwise.data.tables import Table, TableError, read, write

__all__ = ["Table", "TableError", "read", "write"]
