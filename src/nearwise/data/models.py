"""Model files: `save` and `load` a fitted estimator or a metric. Never pickle.

A file is in the safetensors format: the arrays as tensors, bit by bit, and in its header, as JSON text, a
schema version and a tree that says what the arrays belong to. The tree holds numbers, texts, lists, dicts,
arrays, and objects of the classes in `_CLASSES`; a class that is to be saved needs its line there. Of an
estimator these are its parameters and what its `_stored` lists, with the defaults of its `_absent` for what a
file of an older version lacks; of scikit-learn's classes `_storable` lists the attributes. A file cannot
name any other class, nor run code. Equal models give equal files, and a file that was damaged, by one bit or
more, is refused.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import json
import math
import os
import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from nearwise import __version__
from nearwise._common.errors import one_line
from nearwise._common.files import DamagedFile, OtherFormat, read_sealed, to_bytes, write_whole
from nearwise._common.memory import foresee
from nearwise._common.warning import warn
from nearwise.core import Violation
from nearwise.data._storable import SKLEARN, attributes, state as sklearn_state
from nearwise.methods import Result

SCHEMA = 1

# class name -> the module that defines it
_CLASSES = {
    "MetricLearner": "nearwise.learners.metric_learner",
    "AutoLearner": "nearwise.learners.auto_learner",
    "KernelLearner": "nearwise.learners.kernel_learner",
    "FixedRankEmbedding": "nearwise.learners.fixed_rank_embedding",
    "FixedRankLearner": "nearwise.learners.fixed_rank_learner",
    "FixedRankRegressor": "nearwise.learners.fixed_rank_regressor",
    "FixedRankResult": "nearwise.fixed_rank.driver",
    "FixedRankRecord": "nearwise.fixed_rank.driver",
    "HeldOutScores": "nearwise.learners.fixed_rank_learner",
    "Schedule": "nearwise.fixed_rank.online",
    "Units": "nearwise.learners.fixed_rank",
    "Calibration": "nearwise.learners.calibration",
    "IsotonicProbability": "nearwise.learners.calibration",
    "PlattProbability": "nearwise.learners.calibration",
    "KernelFeatures": "nearwise.learners.coordinate_metrics",
    "LowRankKernelMetric": "nearwise.learners.coordinate_metrics",
    "NeighborLearner": "nearwise.learners.neighbor_learner",
    "OnlineLearner": "nearwise.learners.online_learner",
    "KernelReducer": "nearwise.learners.kernel_reducer",
    "Metric": "nearwise.learners.metric",
    "DiagonalMetric": "nearwise.learners.coordinate_metrics",
    "DiagonalResult": "nearwise.methods.diagonal",
    "KernelMetric": "nearwise.learners.metric",
    "JoinedMetric": "nearwise.learners.coordinate_metrics",
    "KernelMap": "nearwise.learners.coordinate_metrics",
    "ObjectSpan": "nearwise.learners.metric",
    "InputKernel": "nearwise.learners.input_kernels",
    "SumKernel": "nearwise.learners.input_kernels",
    "LogDet": "nearwise.core.divergences",
    "VonNeumann": "nearwise.core.divergences",
    "Frobenius": "nearwise.core.divergences",
    "Result": "nearwise.methods.result",
    "Certificate": "nearwise.core.certificate",
    "Violation": "nearwise.core.certificate",
    "Record": "nearwise.methods.result",
    "Status": "nearwise.methods.result",
    "Memory": "nearwise.data.memory",
} | {name: module for name, (module, _) in SKLEARN.items()}
_REMEMBERED = ("memory_", "row_fingerprints_", "n_rows_learned_")  # what `memory` keeps in any learner
_NOT_KEPT = ("callback", "checkpoint")  # parameters of which no file knows
_TENSOR_KINDS = "biuf"
_SCALARS = (bool, int, str, type(None))
_DTYPE_KINDS = "biufOU"


class ModelFileError(ValueError):
    """A file that holds no model, or none that can be read; the message names the file and the reason."""


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator, or a metric, to a file.

    The file is written beside its destination and then moved there, so that no reader sees half of it.
    Everything is stored but callbacks, checkpoints, and inside `result_` the training features and the
    multipliers of constraints in pieces, which are computed from them. A parameter that is a function or a
    random state cannot be stored and is refused.

    Parameters
    ----------
    model : an estimator of nearwise, a `Metric` or `KernelMetric`, or a scikit-learn `Pipeline` of an
        estimator of nearwise and steps before it that scikit-learn has: scalers, `SimpleImputer`,
        `OneHotEncoder`, `OrdinalEncoder`, `ColumnTransformer`, `PCA` and others, see `docs/learners.md`
    path : where to write; the customary suffix is .safetensors
    """
    if type(model).__name__ not in _CLASSES or not _is_known(type(model)):
        kinds = "not an estimator or metric of nearwise, nor a Pipeline of one"
        raise TypeError(f"cannot save a {type(model).__name__}: {kinds}")
    writer = _Writer()
    tree = writer.encoded(model, type(model).__name__)
    header = {
        "format": "nearwise",
        "schema": str(SCHEMA),
        "version": __version__,
        "model": json.dumps(tree, allow_nan=False),
    }
    write_whole(path, to_bytes(writer.tensors, header))


def load(path: str | os.PathLike[str]) -> Any:
    """The model in a file that `save` has written; it transforms as the saved one did, bit by bit.

    In `result_` the training features are missing: `features` has no rows, and where the constraints were in
    pieces, `dual` has none.
    """
    header, tensors = _read(Path(path))
    schema = header.get("schema", "")
    if not re.fullmatch("[1-9][0-9]{0,5}", schema):
        raise ModelFileError(f"{path}: the schema version {schema!r} makes no sense")
    if int(schema) > SCHEMA:
        writer = header.get("version", "unknown")
        raise ModelFileError(
            f"{path} was written by a newer nearwise ({writer}, schema {schema}); this one, {__version__}, "
            f"reads schema {SCHEMA}: upgrade nearwise"
        )
    try:
        tree = json.loads(header["model"])
    except (KeyError, ValueError, RecursionError) as error:
        raise ModelFileError(f"{path}: the description of the model is missing or damaged") from error
    return _Reader(str(path), tensors).decoded(tree)


def written_by(path: str | os.PathLike[str]) -> str:
    """The version of nearwise that wrote a model file."""
    return _read(Path(path))[0].get("version", "unknown")


class _Writer:
    """Turns values into JSON, setting arrays aside by name."""

    def __init__(self) -> None:
        self.tensors: dict[str, Any] = {}

    def encoded(self, value: Any, place: str) -> Any:
        if isinstance(value, np.generic) and value.dtype.kind in "biufU":
            value = value.item()
        if isinstance(value, enum.Enum) and _is_known(type(value)):
            return {"enum": type(value).__name__, "member": value.name}
        if isinstance(value, _SCALARS):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, np.ndarray):
            return self._array(value, place)
        if isinstance(value, slice):
            return {"slice": [value.start, value.stop, value.step]}
        if isinstance(value, np.dtype) and value.kind in _DTYPE_KINDS:
            return {"dtype": value.str, "type": False}
        if isinstance(value, type) and issubclass(value, np.generic) and np.dtype(value).kind in _DTYPE_KINDS:
            return {"dtype": np.dtype(value).str, "type": True}
        if sparse.issparse(value):
            rows = sparse.csr_array(value)
            parts = {"data": rows.data, "indices": rows.indices, "indptr": rows.indptr}
            return {"sparse": list(rows.shape)} | {
                name: self.encoded(part, f"{place}.{name}") for name, part in parts.items()
            }
        if isinstance(value, list | tuple):
            items = [self.encoded(item, f"{place}[{k}]") for k, item in enumerate(value)]
            return {"list" if isinstance(value, list) else "tuple": items}
        if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
            return {"dict": {key: self.encoded(item, f"{place}.{key}") for key, item in value.items()}}
        if _is_known(type(value)):
            state = {name: self.encoded(item, f"{place}.{name}") for name, item in _state(value).items()}
            return {"object": type(value).__name__, "state": state}
        raise TypeError(
            f"{place} is {value!r}, which a model file cannot hold; it holds numbers, texts, arrays, the "
            "divergences, kernels, metrics and estimators of nearwise, and of scikit-learn "
            f"{', '.join(SKLEARN)}"
        )

    def _array(self, value: np.ndarray[Any, Any], place: str) -> Any:
        if value.dtype.kind in _TENSOR_KINDS and value.dtype.itemsize <= 8:
            self.tensors[place] = np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("="))
            return {"tensor": place}
        if value.dtype.kind in "UO" and value.ndim == 1:
            items = [self.encoded(item, f"{place}[{k}]") for k, item in enumerate(value.tolist())]
            return {"array": items, "kind": value.dtype.kind}
        raise TypeError(f"{place} is an array of {value.dtype}, which a model file cannot hold")


class _Reader:
    """Turns the JSON of a `_Writer` back into values; whatever does not fit is an error of the file."""

    def __init__(self, path: str, tensors: Mapping[str, Any]) -> None:
        self.path, self.tensors = path, tensors

    def decoded(self, tree: Any) -> Any:
        try:
            return self._decoded(tree)
        except ModelFileError:
            raise
        except Exception as error:  # whatever a constructor says about what it was given
            reason = one_line(error)
            raise ModelFileError(f"{self.path}: the description of the model is damaged: {reason}") from error

    def _decoded(self, tree: Any) -> Any:
        if not isinstance(tree, dict):
            return tree
        if "tensor" in tree:
            if tree["tensor"] not in self.tensors:
                raise ModelFileError(f"{self.path}: the array {tree['tensor']!r} is missing")
            return self.tensors[tree["tensor"]]
        if "array" in tree:
            items = [self._decoded(item) for item in tree["array"]]
            return np.array(items, dtype=object if tree["kind"] == "O" else str)
        if "sparse" in tree:
            parts = tuple(self._decoded(tree[name]) for name in ("data", "indices", "indptr"))
            return sparse.csr_array(parts, shape=tree["sparse"])
        if "float" in tree:
            return float(tree["float"])
        if "list" in tree:
            return [self._decoded(item) for item in tree["list"]]
        if "tuple" in tree:
            return tuple(self._decoded(item) for item in tree["tuple"])
        if "dict" in tree:
            return {key: self._decoded(item) for key, item in tree["dict"].items()}
        if "slice" in tree:
            return slice(*tree["slice"])
        if "dtype" in tree:
            found = np.dtype(str(tree["dtype"]))
            return found.type if tree["type"] else found
        if "enum" in tree:
            return self._class(tree["enum"])[tree["member"]]
        kind = self._class(tree["object"])
        state = {name: self._decoded(item) for name, item in tree["state"].items()}
        if tree["object"] == "KernelMetric" and _lacks_its_span(state):
            warn(
                f"{self.path} was saved by an older nearwise: its distances of a precomputed kernel leave "
                "out what lies outside the basis; fit the model again for whole distances",
            )
        return _restored(kind, state)

    def _class(self, name: str) -> Any:
        if name not in _CLASSES:
            raise ModelFileError(f"{self.path}: holds a {name!r}, which this nearwise does not know")
        return _class_of(name)


def _class_of(name: str) -> Any:
    return getattr(import_module(_CLASSES[name]), name)


def _is_known(kind: type) -> bool:
    return kind.__name__ in _CLASSES and kind is _class_of(kind.__name__)


def _state(value: Any) -> dict[str, Any]:
    """What is stored of an object: parameters and listed attributes, or the fields of a dataclass."""
    kind = type(value)
    if kind.__name__ in SKLEARN:
        return sklearn_state(value)
    if hasattr(kind, "fit"):
        found: dict[str, Any] = value.get_params(deep=False)
        for name in _NOT_KEPT:
            found.pop(name, None)
        return found | {name: vars(value)[name] for name in _attributes(kind) if name in vars(value)}
    found = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if kind is Result:  # the matrix follows from its factor; the features are training data
        del found["matrix"], found["features"]
        if not isinstance(found["dual"], np.ndarray):  # of constraints in pieces, which compute it
            found["dual"] = np.empty(0)
    if kind is Violation:  # of the constraint, its name
        found["name"] = str(found.pop("stated"))
    return found


def _attributes(kind: Any) -> tuple[str, ...]:
    """What is stored of an estimator beside its parameters, where it is there."""
    return attributes(kind.__name__) if kind.__name__ in SKLEARN else (*kind._stored, *_REMEMBERED)


def _restored(kind: Any, state: dict[str, Any]) -> Any:
    if kind is Result:
        factor = state["factor"]
        foresee(8 * len(factor) ** 2, "its matrix")
        return Result(matrix=factor @ factor.T, features=np.empty((0, len(factor))), **state)
    if kind is Violation:
        state["stated"] = state.pop("name")
    if not hasattr(kind, "fit"):
        return kind(**state)
    parameters, listed = inspect.signature(kind).parameters, _attributes(kind)
    model = kind(**{name: state.pop(name) for name in parameters if name in state})
    for name, value in (getattr(kind, "_absent", {}) | state).items():
        if name not in listed:
            raise ValueError(f"{name!r} is not an attribute that a {kind.__name__} stores")
        setattr(model, name, value)
    return model


def _lacks_its_span(state: dict[str, Any]) -> bool:
    """Whether a metric of a precomputed kernel was stored before `KernelMetric.span` was, and needs one.

    With all objects as the basis none is needed: then coordinates are multiples of the weights, column by
    column, by the eigenvalues of the kernel, which are the squared lengths of the columns.
    """
    if "span" in state or not state["kernel"].is_precomputed:
        return False
    training, weights = state["training"], state["weights"]
    if state["points"] is not None:
        return True
    return not np.allclose(
        training, weights * np.square(training).sum(axis=0), atol=1e-6 * np.abs(training).max()
    )


def _read(path: Path) -> tuple[dict[str, str], dict[str, Any]]:
    if not path.is_file():
        raise FileNotFoundError(f"no model file {path}")
    try:
        texts, arrays = read_sealed(path, "nearwise")
    except OtherFormat:
        raise ModelFileError(f"{path} is a safetensors file, but not one that nearwise wrote") from None
    except DamagedFile as error:
        raise ModelFileError(f"{path} is damaged, or not a model file of nearwise: {error}") from error
    if "digest" not in texts:
        warn(f"{path} has no digest, as files of older versions, so damage would not be found: save it again")
    return texts, arrays
