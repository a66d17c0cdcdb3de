"""Data sets by name: four that come with scikit-learn, and those in the folder that NEARWISE_DATA names."""

from nearwise.data.datasets import (
    VARIABLE,
    Dataset,
    DatasetUnavailable,
    available,
    load,
)

__all__ = [
    "VARIABLE",
    "Dataset",
    "DatasetUnavailable",
    "available",
    "load",
]
