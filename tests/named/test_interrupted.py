"""Ctrl-C in the middle of a named problem hands back what there is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nearwise as nw


def correlations(n: int = 12) -> np.ndarray:
    noise = np.random.default_rng(1).normal(size=(n, n))
    A = np.clip(0.3 + 0.6 * (noise + noise.T), -1, 1)
    np.fill_diagonal(A, 1.0)
    return A


def path(n: int = 8) -> np.ndarray:
    return np.eye(n, k=1) + np.eye(n, k=-1) + 0.1 * (1 - np.eye(n))


def boosted() -> nw.BoostResult:
    C = [np.diag([1.0, -1.0, 0.5]), np.diag([-0.5, 1.0, -2.0]), np.diag([-1.0, 0.3, 0.4])]
    return nw.definite_boost(C, projections="approximate")


def symmetric(n: int, m: int, seed: int) -> np.ndarray:
    C = np.random.default_rng(seed).normal(size=(m, n, n))
    return C + C.swapaxes(1, 2)


WEIGHTS = 1 + np.abs(np.subtract.outer(np.arange(40), np.arange(40))) % 3  # many: augmented Lagrangian
PROBLEMS: dict[str, Callable[[], Any]] = {
    "semismooth": lambda: nw.nearest_correlation(correlations(40)),
    "unit rows": lambda: nw.nearest_correlation(correlations(), rank=3),
    "weighted": lambda: nw.nearest_correlation(correlations(40), weights=WEIGHTS),
    "few weights": lambda: nw.nearest_correlation(correlations(), weights=WEIGHTS[:12, :12]),
    "cut": lambda: nw.balanced_cut(path(), refine=False),
    "boosting": boosted,
    "minimax": lambda: nw.minimax_sdp(symmetric(5, 4, 3)),
}


def calls_of(solve: Callable[[], Any], interrupted_at: int | None = None) -> tuple[int, Any]:
    """How many calls of Python functions there were, and the result; at one of them comes Ctrl-C."""
    count = 0

    def counted(_: object, event: str, __: object) -> None:
        nonlocal count
        if event == "call":
            count += 1
            if count == interrupted_at:
                raise KeyboardInterrupt

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        found = solve()
    finally:
        sys.setprofile(before)
    return count, found


@pytest.mark.parametrize("share", [0.4, 0.5])
@pytest.mark.parametrize("name", PROBLEMS)
def test_an_interrupted_method_hands_back_what_it_has(name: str, share: float) -> None:
    solve = PROBLEMS[name]
    whole = solve()
    assert whole.status in (nw.Status.SOLVED, nw.Status.STATIONARY)
    count, _ = calls_of(solve)
    _, found = calls_of(solve, int(share * count))
    assert found.status is nw.Status.INTERRUPTED
    assert "Interrupted" in found.message
    assert np.isfinite(found.certificate.primal)
    assert found.n_iter <= whole.n_iter
