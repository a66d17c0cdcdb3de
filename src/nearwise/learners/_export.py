"""A learned linear map for other programs: in front of a faiss index, as a torch module, as an ONNX file."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from nearwise._common.checks import yes_or_no
from nearwise._common.files import write_whole
from nearwise._common.types import Array

_OPSET, _IR = 13, 8  # of ONNX: what every runtime since 2021 reads
_ROWS = "rows"


class Exports:
    """Methods of learners whose `transform` is a linear map; those of a kernel say what to do instead."""

    def to_faiss(self, index: Any, *, whole: bool = True) -> Any:
        """A faiss index that takes raw vectors, maps them, and keeps them in the given index.

        Its distances are the learned ones, those of `distances`. Needs the extra `ann`.

        Parameters
        ----------
        index : a faiss index with the Euclidean metric, and with as many dimensions as there are features;
            for a learner of a map to fewer, which drops the others, with `rank_` dimensions
        whole : False for the coordinates in a learned subspace alone, `rank_` of them: fewer numbers, but
            other neighbours, since what differs outside the subspace is dropped
        """
        components = self._map_to_export(yes_or_no(whole, "whole"))
        try:
            import faiss
        except ImportError as error:
            raise ImportError("to_faiss needs faiss: pip install 'nearwise[ann]'") from error
        n_out, n_in = components.shape
        if not isinstance(index, faiss.Index):
            raise TypeError(f"index must be a faiss index, got {type(index).__name__}")
        if index.d != n_out:
            raise ValueError(self._wrong_width(index.d, n_out, whole))
        if index.metric_type not in (faiss.METRIC_L2, faiss.METRIC_INNER_PRODUCT):
            raise ValueError("the index must compare by Euclidean distance or inner product")
        linear = faiss.LinearTransform(n_in, n_out, False)
        faiss.copy_array_to_vector(np.ascontiguousarray(components, dtype=np.float32).ravel(), linear.A)
        linear.is_trained = True
        linear.set_is_orthonormal()
        return faiss.IndexPreTransform(linear, index)

    def to_torch(self) -> Any:
        """`transform` as a `torch.nn.Linear` without a bias, in single precision. Needs torch."""
        components = self._map_to_export()
        try:
            import torch
        except ImportError as error:
            raise ImportError("to_torch needs torch: pip install torch") from error
        n_out, n_in = components.shape
        linear = torch.nn.Linear(n_in, n_out, bias=False)
        with torch.no_grad():
            linear.weight.copy_(torch.as_tensor(components, dtype=torch.float32))
        return linear

    def to_onnx(self, path: str | os.PathLike[str]) -> None:
        """Write `transform` as an ONNX file: input "X", (rows, d), output "coordinates". Needs onnx.

        In single precision, as runtimes expect it.
        """
        components = self._map_to_export()
        try:
            from onnx import TensorProto, helper, numpy_helper
        except ImportError as error:
            raise ImportError("to_onnx needs onnx: pip install onnx") from error
        n_out, n_in = components.shape
        weights = np.ascontiguousarray(components.T, dtype=np.float32)
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["X", "weights"], ["coordinates"])],
            type(self).__name__,
            [helper.make_tensor_value_info("X", TensorProto.FLOAT, [_ROWS, n_in])],
            [helper.make_tensor_value_info("coordinates", TensorProto.FLOAT, [_ROWS, n_out])],
            [numpy_helper.from_array(weights, "weights")],
        )
        opset = [helper.make_opsetid("", _OPSET)]
        model = helper.make_model(graph, producer_name="nearwise", opset_imports=opset, ir_version=_IR)
        write_whole(path, model.SerializeToString())

    def _wrong_width(self, given: int, right: int, whole: bool) -> str:
        """What is wrong about the dimensions of an index, and what to do."""
        learner: Any = self
        said = f"the index has {given} dimensions, but the learned distance is one of {right}: "
        said += f"make an index of {right} dimensions, such as faiss.IndexFlatL2({right})"
        inside = learner._fitted_metric().components.shape[0]
        if not whole:
            return f"{said}, or leave out whole=False"
        if given == inside != right:
            said += f"; whole=False takes the {inside} learned dimensions alone, which finds other neighbours"
        return said

    def _map_to_export(self, whole: bool | None = None) -> Array:
        """The map of `transform`, or that of the whole distance, or that of a subspace alone."""
        learner: Any = self
        metric = learner._fitted_metric()
        if not metric.is_linear:
            raise TypeError(
                f"the map of this {type(self).__name__} is not linear, and no matrix stands for it; store "
                "transform(X) in the index, and search with transform(queries)"
            )
        if whole is None:
            found: Array = learner._linear_map()
            return found
        return metric.isometric(np.eye(metric.n_features)).T if whole else metric.components
