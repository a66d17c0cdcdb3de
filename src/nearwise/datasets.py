"""Data sets by name: four that come with scikit-learn, and those in the folder that NEARWISE_DATA names."""

from nearwise.data.datasets import (
    FETCH_VARIABLE,
    VARIABLE,
    Dataset,
    DatasetUnavailable,
    available,
    load,
)

__all__ = [
    "FETCH_VARIABLE",
    "VARIABLE",
    "Dataset",
    "DatasetUnavailable",
    "available",
    "load",
]
