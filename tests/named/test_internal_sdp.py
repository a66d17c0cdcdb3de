"""Ctrl-C between and inside the problems of which minimax_sdp solves one after the other."""

from __future__ import annotations

import numpy as np
import pytest

import nearwise as nw
from nearwise.named import sdp


def symmetric(m: int, d: int, seed: int) -> np.ndarray:
    C = np.random.default_rng(seed).normal(size=(m, d, d))
    return (C + C.swapaxes(1, 2)) / 2


@pytest.mark.parametrize("place", ["between", "inside"])
def test_ctrl_c_ends_the_search_with_the_best_so_far(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also inside a problem for one theta, which ends with a result of its own then."""
    C, calls = symmetric(4, 5, 3), 0

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def interrupted(problem: nw.Problem, **settings: object) -> nw.Result:
        nonlocal calls
        calls += 1
        if calls == 3:
            if place == "between":
                interrupt()
            settings["callback"] = interrupt
        return nw.solve(problem, **settings)

    monkeypatch.setattr(sdp, "solve", interrupted)
    found = nw.minimax_sdp(C)
    assert calls == 3
    assert found.status is nw.Status.INTERRUPTED
    assert found.message.startswith("Interrupted: gap ")
    whole = nw.minimax_sdp(C, tol=1e-9).certificate
    assert found.certificate.dual <= whole.primal
    assert whole.dual <= found.certificate.primal
    assert np.einsum("jab,ab->j", C, found.matrix).max() == pytest.approx(found.certificate.primal)
