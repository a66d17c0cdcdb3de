"""The steps that make numbers of a table before anything is learned: gaps filled, texts encoded, scaled.

They are scikit-learn's own, fitted on the rows learned from and kept in the model, so that a model file does
to other rows what was done to these, and so that the same pipeline can be written by hand:

>>> from nearwise.data.steps import preparation
>>> preparation(("number", "category"), "impute", scale=True)[0][1].transformers[0]
('numbers', Pipeline(steps=[('impute', SimpleImputer(keep_empty_features=True, strategy='median')),
                ('scale', StandardScaler())]), [0])
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from nearwise._common.errors import Refused
from nearwise.data.tables import CATEGORY, Table

Steps = list[tuple[str, Any]]


def preparation(kinds: Sequence[str], missing: str, scale: bool) -> Steps:
    """The steps, not fitted, for columns of these kinds (`Table.kinds`).

    Numbers are filled by the median and standardised. A category becomes one column of 0 and 1 for each of
    its texts, which is not standardised: two rows that differ in it then have a squared distance of 2, as
    two rows have on average in a standardised number. A text that the rows learned from do not have is 0 in
    all of them.
    """
    numbers: Steps = []
    if missing == "impute":
        from sklearn.impute import SimpleImputer  # slow to import, and rarely needed, as is the next

        numbers.append(("impute", SimpleImputer(strategy="median", keep_empty_features=True)))
    if scale:
        numbers.append(("scale", StandardScaler()))
    texts = [k for k, kind in enumerate(kinds) if kind == CATEGORY]
    if not texts:
        return numbers
    from sklearn.compose import ColumnTransformer

    encode: Steps = [("encode", OneHotEncoder(handle_unknown="ignore", sparse_output=False))]
    if missing == "impute":
        encode.insert(0, ("impute", SimpleImputer(strategy="most_frequent")))
    others = [k for k, kind in enumerate(kinds) if kind != CATEGORY]
    parts = [("numbers", Pipeline(numbers) if numbers else "passthrough", others)] if others else []
    parts.append(("categories", Pipeline(encode), texts))
    return [("columns", ColumnTransformer(parts, verbose_feature_names_out=False))]


def fitted(steps: Steps, X: Any, names: Sequence[str]) -> tuple[Pipeline | None, Any]:
    """The steps, fitted to rows, and what they make of them; `names` of the columns are for messages."""
    if not steps:
        return None, X
    for name, column in zip(names, X.T, strict=True):
        if all(isinstance(cell, float) and np.isnan(cell) for cell in column.tolist()):
            raise Refused(f"column {name!r} has no value in the rows learned from; leave it out with --drop")
    pipeline = Pipeline(steps)
    rows = pipeline.fit_transform(X)
    return pipeline, np.asarray(rows, dtype=np.float64)


def with_names(steps: Sequence[Any], names: Sequence[str] | None) -> list[Any]:
    """Copies of fitted steps that know the names of their columns, as if a DataFrame had been fitted to.

    With None they know no names, and take arrays without a warning.
    """
    named = [copy.copy(step) for step in steps]
    _name(named[0], None if names is None else np.array(names, dtype=object))
    return named


def unknown_levels(step: Any, table: Table) -> Iterator[str]:
    """A sentence for every category of a table with texts that a fitted step does not know."""
    for name, pipeline, columns in getattr(step, "transformers_", ()):  # of a ColumnTransformer
        if name != "categories":
            continue
        for column, known in zip(columns, pipeline["encode"].categories_, strict=True):
            cells = table.X[:, column]
            strange = [k for k, cell in enumerate(cells) if isinstance(cell, str) and cell not in set(known)]
            if strange:
                rows = "1 row" if len(strange) == 1 else f"{len(strange):,} rows"
                first = f"{cells[strange[0]]!r} in {table.place(strange[0])}"
                new = f"texts in {rows} that the rows learned from do not have, as {first}"
                called = f"{table.source}: column {table.names[column]!r}"
                yield f"{called} has {new}; they count as none of the others"


def _name(step: Any, names: NDArray[np.object_] | None) -> None:
    """Let a fitted step, and the first ones inside it, know the names of its columns, or none."""
    if isinstance(step, Pipeline):
        step.steps = [(name, copy.copy(part)) for name, part in step.steps]
        _name(step.steps[0][1], names)
        return
    if names is not None:
        step.feature_names_in_ = names
    elif hasattr(step, "feature_names_in_"):
        del step.feature_names_in_
    if hasattr(step, "transformers_"):  # of a ColumnTransformer
        parts = []
        for name, part, columns in step.transformers_:
            part = copy.copy(part)
            if not isinstance(part, str):
                _name(part, None if names is None else names[list(columns)])
            parts.append((name, part, columns))
        step.transformers_ = parts
