"""A model, what it says of itself, and the data that it is applied to: loading, columns, coordinates."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.pipeline import make_pipeline

from nearwise._common.errors import Refused
from nearwise._common.types import Array
from nearwise.data import models, tables
from nearwise.data.memory import Memory, Seen
from nearwise.data.steps import unknown_levels, with_names
from nearwise.data.tables import Table, some_of
from nearwise.learners.metric import Missing

_BLOCK = 4096  # rows that are transformed at a time: a kernel with many points needs memory for each
_FILLED = {
    "impute": "filled: numbers by the median, categories by the most frequent text",
    "drop": "rows with one are left out",
    "refuse": "refused",
}


@dataclass(frozen=True, eq=False)
class Fitted:
    """A model that knows coordinates and distances of new objects.

    Attributes
    ----------
    path : its file
    scaler : what is done to the data before, a Pipeline of all steps before the learner, or None
    learner : the estimator, or the metric itself
    metric : what measures
    n_features : the number of columns that it needs, or None where it cannot tell
    names : of these columns, or ()
    memory : what it remembers of the data learned from, or None
    """

    path: str
    scaler: Any
    learner: Any
    metric: Any
    n_features: int | None
    names: tuple[str, ...]
    memory: Memory | None = None

    def read(
        self,
        source: str | os.PathLike[str],
        *,
        features: Sequence[str] = (),
        least: int = 1,
        remembered_ids: bool = False,
        **columns: Any,
    ) -> Table:
        """A data file with the columns of the model, in its order, read as those of the data learned from.

        Parameters as in `tables.read`, also labels, ids, ids_optional, drop, decimal and thousands; with
        `remembered_ids`, ids are those of the column that had them there, where none is named and the file
        has it.
        """
        memory = self.memory
        table = tables.read(
            source,
            ids_hint=memory.id_column if memory is not None and remembered_ids else None,
            features=features,
            known=() if features else self.columns,
            least=least,
            missing="refuse" if memory is None else memory.missing,
            kinds=dict.fromkeys(self.names, "number") if memory is None else memory.kind_of,
            **columns,
        )
        return self._matched(table)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a file that it needs, by name: those of its numbers, or the one of its vectors."""
        vectors = None if self.memory is None else self.memory.vector_column
        return self.names if vectors is None else (vectors,)

    def entered(self, X: Array) -> Array:
        """The data as the learner sees them."""
        return X if self.scaler is None else np.asarray(self.scaler.transform(X))

    def transform(self, X: Array, whole: bool = False) -> Array:
        """Coordinates, block by block; `whole` for those of the whole distance, also outside a subspace."""
        coordinates_of = self.metric.isometric if whole else self.metric.transform
        blocks = (X[start : start + _BLOCK] for start in range(0, len(X), _BLOCK))
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                coordinates = np.concatenate([coordinates_of(self.entered(block)) for block in blocks])
        except Missing as error:
            raise self.refusal(error) from None
        wrong = np.flatnonzero(~np.isfinite(coordinates).all(axis=1))
        if wrong.size:
            raise Refused(f"row {wrong[0]} of the data has numbers so large that the coordinates overflow")
        return coordinates

    def refusal(self, error: Missing) -> Refused:
        """What the model lacks, with its name."""
        text = str(error).rstrip(".")
        return Refused(f"{self.path}: {text[:1].lower()}{text[1:]}")

    def names_of(self, coordinates: Array) -> list[str]:
        """What the columns of coordinates are called in a file."""
        return [f"{type(self.learner).__name__.lower()}{k}" for k in range(coordinates.shape[1])]

    def _matched(self, table: Table) -> Table:
        """The table with its columns in the model's order; columns that are not the model's are refused."""
        if self.names and table.named and table.scalars:
            missing = [name for name in self.names if name not in table.names]
            others = [name for name in table.names if name not in self.names]
            if missing or others:
                wrong = f"lacks {some_of(missing, 8)}" if missing else f"has {some_of(others, 8)} too"
                learned = f"{self.path} was learned with {some_of(self.names, 8)}"
                raise Refused(f"{table.source} {wrong}; {learned}")
            order = [table.names.index(name) for name in self.names]
            kinds = tuple(table.kinds[k] for k in order) if table.kinds else ()
            table = replace(table, X=table.X[:, order], names=self.names, kinds=kinds)
        if self.n_features is not None and table.X.shape[1] != self.n_features:
            count = table.X.shape[1]
            found = "1 column of numbers" if count == 1 else f"{count} columns of numbers"
            raise Refused(
                f"{table.source} has {found}, but {self.path} was learned with "
                f"{self.n_features}; leave out the columns that are no features"
            )
        if self.scaler is None:
            return table
        return replace(table, notices=(*table.notices, *unknown_levels(self.scaler[0], table)))


def load(model: Any) -> Fitted:
    """A model that can measure new objects: the path of a model file, or the model itself."""
    path = str(model) if isinstance(model, str | os.PathLike) else "the model"
    found = models.load(model) if isinstance(model, str | os.PathLike) else model
    given = [step for _, step in getattr(found, "steps", [("", found)])]
    names = tuple(map(str, getattr(given[0], "feature_names_in_", ())))
    # copies: names of features are compared here, once, and not again with every array, which has none
    steps = with_names(given, None)
    first, learner = steps[0], steps[-1]
    metric = getattr(learner, "metric_", learner)
    if not hasattr(metric, "squared_distances"):
        state = "is not fitted" if hasattr(learner, "transform") else "has no distance for new objects"
        raise Refused(f"{path} holds {called(learner)} that {state}")
    n_features = getattr(first, "n_features_in_", getattr(first, "n_features", None))
    scaler = make_pipeline(*steps[:-1]) if len(steps) > 1 else None
    return Fitted(path, scaler, learner, metric, n_features, names, Memory.in_model(learner))


def called(learner: Any) -> str:
    """What it is, with its article."""
    kind = type(learner).__name__
    return f"{'an' if kind[0] in 'AEIO' else 'a'} {kind}"


def describe(fitted: Fitted) -> dict[str, Any]:
    """Everything that a model says about itself, as numbers and texts; what it does not say is left out."""
    steps = [] if fitted.scaler is None else [type(step).__name__ for _, step in fitted.scaler.steps]
    found: dict[str, Any] = {
        "model": type(fitted.learner).__name__,
        "parameters": repr(fitted.learner),
        "steps": steps,
        "n_features": fitted.n_features,
        "columns": list(fitted.names),
    }
    if (seen := Seen.in_model(fitted.learner)) is not None:
        found["rows_learned_from"] = seen.n_rows
    memory = fitted.memory
    if memory is None:
        return found
    return found | {
        "data": memory.source,
        "columns": list(memory.columns),
        "kinds": list(memory.kinds),
        "missing": memory.missing,
        "vector_column": memory.vector_column,
        "id_column": memory.id_column,
        "label_column": memory.label_column,
        "study": {name: value for name, value in memory.study.items() if name != "figures_as_text"},
    }


def facts(fitted: Fitted) -> dict[str, str]:
    """The same in words, by what they are about."""
    found = describe(fitted)
    before = f" after {', '.join(found['steps'])}" if found["steps"] else ""
    said = {"model": f"{found['model']}{before}"}
    memory = fitted.memory
    if memory is None:
        said["columns"] = _columns(fitted)
        said["remembers"] = "nothing of its data; models of nearwise learn do"
        return said
    study = memory.study
    known_by = "" if study["fingerprint"] is None else f", fingerprint {study['fingerprint']}"
    said["data"] = f"{memory.source}, {study['rows']:,} rows{known_by}"
    said["columns"] = _columns(fitted)
    for name, column in (("ids", memory.id_column), ("labels", memory.label_column)):
        if column is not None:
            said[name] = f"column {column!r}"
    said["missing values"] = _FILLED[memory.missing]
    said["learned from"] = f"{study['learned_from']}"
    said["how"] = _how(study)
    kept = "; the distance before is kept" if study["kept_prior"] else ""
    gap = "" if study["gap"] is None else f", relative gap {study['gap']:.1e}"
    said["outcome"] = f"{study['status']} after {study['iterations']:,} iterations{gap}{kept}"
    said["measured on"] = study["measured_on"] or "nothing"
    return said


def _columns(fitted: Fitted) -> str:
    memory = fitted.memory
    if memory is not None and memory.vector_column is not None:
        return f"vectors of {fitted.n_features:,} numbers in column {memory.vector_column!r}"
    names = fitted.names if memory is None else memory.columns
    if not names:
        return "not known" if fitted.n_features is None else f"{fitted.n_features:,} numbers without names"
    kinds = {} if memory is None else memory.kind_of
    plain = ("", "number")
    called = (f"{n!r} ({k})" if (k := kinds.get(n, "")) not in plain else repr(n) for n in names)
    return f"{len(names):,}: {', '.join(called)}"


def _how(study: Mapping[str, Any]) -> str:
    parts = [f"method {study['method']}"]
    if study["kernel"] is not None:
        chosen = f" ({study['choice']})" if study.get("choice") else ""
        parts.append(f"kernel {study['kernel']}{chosen}")
    if study["penalty"] is not None:
        parts.append(f"penalty {study['penalty']:.3g}")
    parts += [f"{study['rank']:,} dimensions", "standardised" if study["scaled"] else "not scaled"]
    return ", ".join([*parts, f"seed {study['seed']}"])
