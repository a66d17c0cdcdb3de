"""What a model is, and what it remembers: for people as lines, for programs as JSON."""

from __future__ import annotations

from typing import Any

from nearwise.data.memory import Memory, Seen
from nearwise.study.fitted import Fitted

_FILLED = {
    "impute": "filled: numbers by the median, categories by the most frequent text",
    "drop": "rows with one are left out",
    "refuse": "refused",
}


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
    said["how"] = _how(memory)
    said["outcome"] = _outcome(memory)
    said["measured on"] = study["measured_on"] or "nothing"
    return said


def _columns(fitted: Fitted) -> str:
    memory = fitted.memory
    if memory is not None and memory.vector_column is not None:
        return f"vectors of {fitted.n_features:,} numbers in column {memory.vector_column!r}"
    names = fitted.names if memory is None else memory.columns
    if not names:
        return (
            f"{fitted.n_features:,} numbers without names" if fitted.n_features is not None else "not known"
        )
    kinds = [""] * len(names) if memory is None else memory.kinds
    listed = (
        f"{name!r}{f' ({kind})' if kind not in ('', 'number') else ''}"
        for name, kind in zip(names, kinds, strict=True)
    )
    return f"{len(names):,}: {', '.join(listed)}"


def _how(memory: Memory) -> str:
    study = memory.study
    parts = [f"method {study['method']}"]
    if study["kernel"] is not None:
        chosen = f" ({study['choice']})" if study.get("choice") else ""
        parts.append(f"kernel {study['kernel']}{chosen}")
    if study["penalty"] is not None:
        parts.append(f"penalty {study['penalty']:.3g}")
    parts += [f"{study['rank']:,} dimensions", "standardised" if study["scaled"] else "not scaled"]
    return ", ".join([*parts, f"seed {study['seed']}"])


def _outcome(memory: Memory) -> str:
    study = memory.study
    kept = "; the distance before is kept" if study["kept_prior"] else ""
    gap = "" if study["gap"] is None else f", relative gap {study['gap']:.1e}"
    return f"{study['status']} after {study['iterations']:,} iterations{gap}{kept}"
