"""What the semidefinite programs are given: symmetric matrices."""

from __future__ import annotations

import numpy as np
import pytest

import nearwise as nw

TWISTED = np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 0.0], [5.0, 0.0, 1.0]])


@pytest.mark.parametrize("container", [list, np.array], ids=["list", "array"])
def test_a_matrix_that_is_not_symmetric_is_refused_with_its_entries(container: type) -> None:
    with pytest.raises(ValueError, match=r"matrices\[1\]\[0, 2\] = 2.0 and matrices\[1\]\[2, 0\] = 5.0"):
        nw.minimax_sdp(container([np.eye(3), TWISTED]))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_what_rounding_leaves_is_symmetric(dtype: type, scale: float) -> None:
    rng = np.random.default_rng(0)
    B = rng.normal(size=(3, 4, 4))
    C = scale * (B + B.swapaxes(1, 2))
    rounded = (C * (1 + rng.uniform(-1, 1, C.shape) * np.finfo(dtype).eps)).astype(dtype)
    assert (rounded != rounded.swapaxes(1, 2)).any()
    found = nw.minimax_sdp(rounded).certificate
    assert found.primal == pytest.approx(nw.minimax_sdp(C).certificate.primal, abs=1e-4 * scale)
