"""How a value is bounded: "<=", ">=" or "==", as text and as the sign that arrays hold."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Relation = Literal["<=", ">=", "=="]

SIGNS: dict[str, int] = {"<=": -1, ">=": 1, "==": 0}
SYMBOLS: dict[int, str] = {sign: symbol for symbol, sign in SIGNS.items()}
_ALSO_WRITTEN = {"≤": "<=", "≥": ">=", "=": "=="}
_EXPECTED = "'<=', '>=' or '=='"


def sign_of(relation: Any, name: str = "relation") -> int:
    """-1 for "<=", +1 for ">=", 0 for "=="."""
    if not isinstance(relation, str) or relation not in SIGNS:
        raise ValueError(f"{name} must be {_EXPECTED}, got {relation!r}")
    return SIGNS[relation]


def signs_of(relations: Any, n: int) -> NDArray[np.int8]:
    """The same for n samples, from one relation for all of them or one for each."""
    names = np.asarray(relations)
    if names.shape not in ((), (n,)):
        raise ValueError(f"relations must be one text or one per sample, {n} in all, got shape {names.shape}")
    if names.ndim == 0:
        return np.full(n, sign_of(names.item(), "relations"), dtype=np.int8)
    found = [sign_of(name, f"relations[{k}]") for k, name in enumerate(names.tolist())]
    return np.array(found, dtype=np.int8)


def sign_written(text: str | None) -> int | None:
    """The sign that a cell of a file means, which may say ≤, ≥ or =; None for one that means no relation."""
    return SIGNS.get(_ALSO_WRITTEN.get(text or "", text or ""))
