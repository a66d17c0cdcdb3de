"""A learned linear map in front of a faiss index, which then is filled and searched with raw vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def with_linear_map(index: Any, components: NDArray[np.float64]) -> Any:
    """`faiss.IndexPreTransform` of the map x -> components x, and the index."""
    try:
        import faiss
    except ImportError as error:
        raise ImportError("to_faiss needs faiss: pip install 'nearwise[ann]'") from error
    n_out, n_in = components.shape
    if not isinstance(index, faiss.Index):
        raise TypeError(f"index must be a faiss index, got {type(index).__name__}")
    if index.d != n_out:
        raise ValueError(f"the index has {index.d} dimensions, but transform gives {n_out}")
    if index.metric_type not in (faiss.METRIC_L2, faiss.METRIC_INNER_PRODUCT):
        raise ValueError("the index must compare by Euclidean distance or inner product")
    linear = faiss.LinearTransform(n_in, n_out, False)
    faiss.copy_array_to_vector(np.ascontiguousarray(components, dtype=np.float32).ravel(), linear.A)
    linear.is_trained = True
    linear.set_is_orthonormal()
    return faiss.IndexPreTransform(linear, index)
