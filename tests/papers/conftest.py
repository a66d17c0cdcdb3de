"""What tests of engines share: a count of decompositions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[int]]:
    """Start to note the order of every matrix that NumPy decomposes."""

    def start() -> list[int]:
        seen: list[int] = []
        for name in ("eigh", "eigvalsh", "svd", "inv", "cholesky", "qr"):
            plain = getattr(np.linalg, name)

            def noted(A: np.ndarray, *rest: Any, plain: Any = plain, **named: Any) -> Any:
                seen.append(min(A.shape[-2:]))
                return plain(A, *rest, **named)

            monkeypatch.setattr(np.linalg, name, noted)
        return seen

    return start
