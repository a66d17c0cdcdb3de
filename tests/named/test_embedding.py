"""Isometric embedding: a rolled-up sheet is unrolled, neighbours keep their distances, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.decomposition import PCA

import nearwise as nw


def swiss_roll(length: int = 45, width: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """A sheet rolled up, sampled evenly along its length; and the place along it."""
    angles = np.linspace(1.5 * np.pi, 4.5 * np.pi, 2000)
    arc = np.concatenate(
        [[0], np.cumsum(np.hypot(*np.diff([angles * np.cos(angles), angles * np.sin(angles)])))]
    )
    place = np.repeat(np.linspace(0, arc[-1], length), width)
    turn = np.interp(place, arc, angles)
    across = np.tile(np.arange(width) * 2.0, length)
    jitter = np.random.default_rng(0).normal(size=(length * width, 3)) * 0.05
    return np.column_stack([turn * np.cos(turn), across, turn * np.sin(turn)]) + jitter, place


@pytest.mark.parametrize("divergence", ["logdet", "vonneumann"])
@pytest.mark.parametrize("start", ["paths", "centring"])
def test_a_swiss_roll_is_unrolled(divergence: str, start: str) -> None:
    X, place = swiss_roll()
    found = nw.isometric_embedding(X, n_neighbors=4, divergence=divergence, start=start)
    rolled = abs(spearmanr(PCA(1).fit_transform(X)[:, 0], place)[0])
    unrolled = abs(spearmanr(found.coordinates[:, 0], place)[0])
    assert rolled < 0.5
    assert unrolled > 0.98
    assert found.result.status is nw.Status.SOLVED
    assert found.coordinates.mean(axis=0) == pytest.approx(0.0, abs=1e-8)
    assert found.variances[0] == pytest.approx(found.coordinates[:, 0].var())


@pytest.mark.long
def test_the_length_of_a_roll_sampled_at_random_is_recovered() -> None:
    rng = np.random.default_rng(3)
    turn = 1.5 * np.pi * (1 + 2 * rng.random(140))
    X = np.column_stack([turn * np.cos(turn), 5 * rng.random(140), turn * np.sin(turn)])
    length = (turn * np.sqrt(1 + turn**2) + np.arcsinh(turn)) / 2
    found = nw.isometric_embedding(X, n_neighbors=6)
    centred = nw.isometric_embedding(X, n_neighbors=6, start="centring")
    by_paths, by_centring = (abs(np.corrcoef(e.coordinates[:, 0], length)[0, 1]) for e in (found, centred))
    assert by_paths > 0.998 > by_centring
    assert found.variances[0] > 0.9 * found.variances.sum() > centred.variances[0]
    assert found.distortion < 0.2


def test_neighbours_keep_their_distances_better_under_a_larger_penalty() -> None:
    X, _ = swiss_roll(20, 2)
    loose, tight = (nw.isometric_embedding(X, n_neighbors=3, penalty=penalty) for penalty in (10.0, 1000.0))
    assert tight.distortion < 0.05 < loose.distortion
    F = tight.result.kernel_factor
    i, j = tight.pairs.T
    before, after = np.sum((X[i] - X[j]) ** 2, axis=1), np.sum((F[i] - F[j]) ** 2, axis=1)
    assert np.abs(after / before - 1).max() == pytest.approx(tight.distortion)
    assert "40 objects in 2 dimensions" in repr(tight)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"X": [[0.0], [1.0], [100.0], [101.0]], "n_neighbors": 1}, "2 parts"),
        ({"X": [[0.0], [0.0], [1.0]], "n_neighbors": 1, "n_components": 1}, "rows 0 and 1 of X are equal"),
        ({"n_components": 0}, "n_components"),
        ({"n_neighbors": 99}, "n_neighbors"),
        ({"divergence": "frobenius"}, "'frobenius'"),
        ({"penalty": 0}, "penalty"),
        ({"start": "trace"}, "'trace'"),
    ],
)
def test_what_is_refused(arguments: dict[str, object], error: str) -> None:
    settings: dict[str, object] = {"X": swiss_roll(20, 2)[0]} | arguments
    with pytest.raises(ValueError, match=error):
        nw.isometric_embedding(**settings)


def test_more_coordinates_begin_with_the_same_ones_and_a_smaller_tol_is_met() -> None:
    X = np.random.default_rng(0).normal(size=(25, 3)) * [3.0, 1.0, 0.1]
    loose, tight = (
        nw.isometric_embedding(X, n_components=count, n_neighbors=4, tol=tol)
        for count, tol in ((1, 1e-5), (24, 1e-9))
    )
    assert loose.coordinates.shape == (25, 1)
    assert tight.coordinates.shape == (25, 24)
    np.testing.assert_allclose(tight.coordinates[:, :1], loose.coordinates, atol=0.05)
    np.testing.assert_allclose(np.square(tight.coordinates).mean(axis=0), tight.variances[:24], atol=1e-9)
    assert tight.result.certificate.gap <= 1e-9
