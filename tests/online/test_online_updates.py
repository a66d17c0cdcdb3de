"""Online updates of a matrix: against their definitions, in extended precision, cut anywhere, and bounded."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray
from scipy import optimize

import nearwise as nw
from nearwise.linalg import eigenupdate
from nearwise.online import ExponentiatedGradient, LogDetOnline, OnlinePCA, Pola, _states

Array = NDArray[np.float64]
seeds = st.integers(0, 10_000)


def expm(A: NDArray[Any]) -> NDArray[Any]:
    values, V = np.linalg.eigh(A)
    return (V * np.exp(values)) @ V.conj().T


def random_density(d: int, seed: int) -> Array:
    G = np.random.default_rng(seed).standard_normal((d, d))
    return G @ G.T / np.trace(G @ G.T)


# LogDet


def logdet_objective(M: Array, old: Array, z: Array, y: float, eta: float) -> float:
    return nw.LogDet().value(M, old) + eta / 2 * (z @ M @ z - y) ** 2


@pytest.mark.parametrize("y", [-3.0, 0.0, 0.4, 25.0])
@pytest.mark.parametrize("eta", [0.01, 1.0, 50.0])
def test_logdet_update_minimises_its_objective(y: float, eta: float) -> None:
    rng = np.random.default_rng(1)
    start = random_density(3, 2) * 5 + 0.1 * np.eye(3)
    z = rng.standard_normal(3)
    learner = LogDetOnline(3, eta, start=start)
    assert learner.update(z, y) == pytest.approx(z @ start @ z, rel=1e-13)

    def objective(entries: Array) -> float:
        B = np.zeros((3, 3))
        B[np.tril_indices(3)] = entries
        return logdet_objective(B @ B.T + 1e-300 * np.eye(3), start, z, y, eta)

    best = optimize.minimize(
        objective, np.linalg.cholesky(start)[np.tril_indices(3)], method="BFGS", options={"gtol": 1e-9}
    )
    B = np.zeros((3, 3))
    B[np.tril_indices(3)] = best.x
    np.testing.assert_allclose(learner.matrix, B @ B.T, rtol=2e-4, atol=2e-5)
    assert logdet_objective(learner.matrix, start, z, y, eta) <= best.fun + 1e-12 * abs(best.fun)


@given(seeds, st.floats(1e-6, 1e6), st.floats(-1e6, 1e6), st.floats(1e-3, 1e3))
def test_the_new_distance_solves_its_equation(seed: int, eta: float, y: float, scale: float) -> None:
    z = scale * np.random.default_rng(seed).standard_normal(4)
    learner = LogDetOnline(4, eta)
    p = learner.update(z, y)
    q = learner.predict(z)
    assert q > 0
    # q (1 + eta p (q - y)) = p; what rounding of q makes of the left-hand side is the tolerance
    terms = np.array([q, eta * p * q * q, -eta * p * q * y, -p])
    assert abs(math.fsum(terms)) <= 1e-12 * np.abs(terms).max()
    assert min(p, y) - 1e-9 * p <= q <= max(p, y) * (1 + 1e-9)


@pytest.mark.parametrize("y", [-1e12, 0.0, 1e12])
def test_logdet_stays_positive_where_targets_are_out_of_reach(y: float) -> None:
    learner = LogDetOnline(5, 1e6)
    rng = np.random.default_rng(0)
    learner.update(1e6 * rng.standard_normal((2000, 5)), y)
    M = learner.matrix
    assert np.isfinite(M).all()
    assert np.all(np.diagonal(learner.factor) != 0.0)
    assert learner.predict(rng.standard_normal(5)) > 0


# matrix exponentiated gradient


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("kind", ["matrix", "square", "pair", "rank one"])
def test_exponentiated_gradient_is_its_definition(kind: str, normalised: bool, is_complex: bool) -> None:
    rng = np.random.default_rng(3)
    d, eta = 6, 0.2 if normalised else 0.05
    learner = ExponentiatedGradient(d, eta, normalised=normalised)
    exponent = -math.log(d) * np.eye(d) + 0j

    def noise(*shape: int) -> NDArray[Any]:
        return rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if is_complex else 0)

    def definition() -> NDArray[Any]:
        W = expm(exponent)
        return W / np.trace(W).real if normalised else W

    if is_complex and kind == "pair":  # pairs after a complex instance
        G = noise(d, d)
        exponent -= 2 * eta * (learner.update(G, 0.1) - 0.1) * (G + G.conj().T) / 2
    for _ in range(25):
        x, y = noise(d), rng.uniform(-1, 1)
        i, j = rng.choice(d, 2, replace=False).tolist()
        e = np.eye(d)[i] - np.eye(d)[j]
        square, G = np.outer(x, x.conj()), noise(d, d)
        instance, A = {
            "matrix": (G, G),
            "square": (x, square),
            "pair": ((i, j), np.outer(e, e) / 2),
            "rank one": (square, square),
        }[kind]
        S = (A + A.conj().T) / 2
        value = np.trace(definition() @ S).real
        assert learner.predict(instance) == pytest.approx(value, rel=1e-10, abs=1e-12)
        assert learner.update(instance, y) == pytest.approx(value, rel=1e-10, abs=1e-12)
        exponent -= 2 * eta * (value - y) * S
        W = definition()
        np.testing.assert_allclose(
            learner.matrix, W if is_complex else W.real, rtol=0, atol=1e-11 * np.abs(W).max()
        )
    assert np.array_equal(learner.matrix, learner.matrix.conj().T)


def lemma(U: Array, stream: list[tuple[Array, float]], eta: float, d: int) -> float:
    """TRW05 (3.7) as it is printed."""
    r = max(np.ptp(np.linalg.eigvalsh((A + A.T) / 2)) for A, _ in stream)
    c = 2 * eta * r**2 / (2 - eta * r**2)
    loss = sum((np.trace(U @ A) - y) ** 2 for A, y in stream)
    u = np.linalg.eigvalsh(U)
    return (1 + c / 2) * loss + (0.5 + 1 / c) * r**2 * (u @ np.log(u) + math.log(d))


@pytest.mark.long
@given(seeds, st.integers(2, 6), st.floats(0.05, 1.9), st.floats(0.0, 1.0))
def test_the_loss_bound_is_lemma_3_2_and_holds(seed: int, d: int, fraction: float, noise: float) -> None:
    rng = np.random.default_rng(seed)
    U = random_density(d, seed)
    stream = []
    for _ in range(30):
        A = rng.standard_normal((d, d)) * rng.uniform(0.1, 1.0)
        stream.append((A, float(np.trace(U @ A) + noise * rng.standard_normal())))
    r = max(np.ptp(np.linalg.eigvalsh((A + A.T) / 2)) for A, _ in stream)
    learner = ExponentiatedGradient(d, fraction / r**2)
    total = sum((learner.update(A, y) - y) ** 2 for A, y in stream)
    assert learner.total_loss == pytest.approx(total, rel=1e-12)
    bound = learner.loss_bound(U)
    assert bound == pytest.approx(lemma(U, stream, fraction / r**2, d), rel=1e-8)
    assert learner.total_loss <= bound


@pytest.mark.long
@given(seeds, st.just(0.0) | st.floats(0.01, 10.0))
def test_the_default_rate_keeps_the_bound_though_ranges_grow(seed: int, comparator_loss: float) -> None:
    rng = np.random.default_rng(seed)
    d = 4
    U = random_density(d, seed + 1)
    learner = ExponentiatedGradient(d, comparator_loss=comparator_loss)
    for _ in range(40):
        x = rng.standard_normal(d) * rng.uniform(0.1, 3.0)
        y = x @ U @ x + (0.3 * rng.standard_normal() if comparator_loss else 0.0)
        learner.update(x, float(y))
    bound = learner.loss_bound(U)
    assert math.isfinite(bound)
    assert learner.total_loss <= bound


def test_rates_without_a_bound_say_so() -> None:
    learner = ExponentiatedGradient(4, 2.1)
    learner.update((0, 1), 0.3)
    assert learner.loss_bound(np.eye(4) / 4) == math.inf
    at_limit = ExponentiatedGradient(4, 2.0)
    at_limit.update((0, 1), 0.25)
    assert at_limit.loss_bound(np.eye(4) / 4) == pytest.approx(0.0, abs=1e-14)
    at_limit.update((0, 1), 0.3)
    assert at_limit.loss_bound(np.eye(4) / 4) == math.inf
    assert ExponentiatedGradient(4)._rates(np.ones(1)) == 2.0


# POLA


@pytest.mark.parametrize("seed", range(5))
def test_pola_projects_onto_half_space_and_cone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    learner = Pola(5)
    W, b = np.zeros((5, 5)), 1.0
    clipped = 0
    for _ in range(60):
        z, y = rng.standard_normal(5), rng.choice([-1.0, 1.0])
        loss = max(0.0, 1 - y * (b - z @ W @ z))
        assert learner.update(z, y) == pytest.approx(z @ W @ z, abs=1e-10)
        # the nearest point (W', b') of {y (b' - <z z^T, W'>) >= 1}
        normal = np.append(np.outer(z, z).ravel(), -1.0) * y
        point = np.append(W.ravel(), b) - loss * normal / (normal @ normal)
        values, V = np.linalg.eigh(point[:-1].reshape(5, 5))
        assert np.sum(values < -1e-12) <= 1
        clipped += int(np.sum(values < -1e-12))
        W, b = (V * np.maximum(values, 0)) @ V.T, max(point[-1], 1.0)
        np.testing.assert_allclose(learner.matrix, W, atol=1e-11)
        assert learner.threshold == pytest.approx(b, rel=1e-12)
    assert clipped > 3


def test_pola_separates_what_can_be_separated() -> None:
    rng = np.random.default_rng(0)
    learner = Pola(6)
    z = rng.standard_normal((4000, 6)) / 3
    y = np.where(np.abs(z[:, 0]) < 0.4, 1.0, -1.0)
    kept = np.abs(np.abs(z[:, 0]) - 0.4) > 0.1
    for _ in range(5):
        learner.update(z[kept], y[kept])
    predicted = np.where(learner.predict(z[kept]) < learner.threshold, 1.0, -1.0)
    assert np.mean(predicted == y[kept]) > 0.97


# online PCA


def capped(w: Array, cap: float) -> Array:
    """The relative-entropy projection, by a general solver on its dual: w_k = min(cap, scale w_k)."""
    scale = optimize.brentq(
        lambda s: np.minimum(cap, s * w).sum() - 1, 0.5, 1e9, xtol=1e-15, rtol=1e-14, maxiter=1000
    )
    return np.minimum(cap, scale * w)


@pytest.mark.parametrize(("d", "k"), [(2, 1), (6, 2), (6, 5), (7, 1)])
def test_online_pca_is_its_definition(d: int, k: int) -> None:
    rng = np.random.default_rng(d + k)
    learner = OnlinePCA(d, k, learning_rate=0.7)
    w, V = np.full(d, 1 / d), np.eye(d)
    W = np.eye(d) / d
    for _ in range(40):
        x = rng.standard_normal(d) * np.linspace(1.0, 0.1, d)
        assert learner.update(x) == pytest.approx((d - k) * x @ W @ x, rel=1e-9)
        values, V = np.linalg.eigh((V * np.log(w)) @ V.T - 0.7 * np.outer(x, x))
        w = capped(np.exp(values) / np.exp(values).sum(), 1 / (d - k))
        W = (V * w) @ V.T
        np.testing.assert_allclose(learner.matrix, W, atol=1e-10)
        assert np.trace(learner.matrix) == pytest.approx(1.0, abs=1e-13)
        assert np.trace(learner.projection) == pytest.approx(k, abs=1e-11)


@given(seeds, st.integers(2, 6), st.floats(0.05, 3.0))
def test_online_pca_keeps_its_bound(seed: int, d: int, rate: float) -> None:
    rng = np.random.default_rng(seed)
    k = int(rng.integers(1, d))
    learner = OnlinePCA(d, k, rate)
    x = rng.standard_normal((60, d)) @ rng.standard_normal((d, d)) * rng.uniform(0.1, 1.0)
    learner.update(x)
    assert learner.best_loss() == pytest.approx(
        np.square(np.linalg.svd(x, compute_uv=False))[k:].sum(), rel=1e-9, abs=1e-9
    )
    assert learner.total_loss <= learner.loss_bound() * (1 + 1e-12)


def test_online_pca_finds_the_subspace() -> None:
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((20, 3)))[0]
    x = rng.standard_normal((3000, 3)) @ basis.T + 0.02 * rng.standard_normal((3000, 20))
    learner = OnlinePCA(20, 3)
    learner.update(x)
    overlap = np.linalg.svd(learner.components @ basis, compute_uv=False)
    assert overlap.min() > 0.99


# what all of them share

LEARNERS: dict[str, Callable[[int], Any]] = {
    "logdet": lambda d: LogDetOnline(d, 0.05),
    "exponentiated": lambda d: ExponentiatedGradient(d, 0.05),
    "default rate": lambda d: ExponentiatedGradient(d, comparator_loss=3.0),
    "unnormalised": lambda d: ExponentiatedGradient(d, 0.005, normalised=False),
    "pola": lambda d: Pola(d),
    "pca": lambda d: OnlinePCA(d, 2),
}


def feed(learner: Any, x: Array, y: Array) -> Array:
    if isinstance(learner, OnlinePCA):
        return learner.update(x)
    if isinstance(learner, ExponentiatedGradient):
        return learner.update_many(x, y)
    return learner.update(x, np.sign(y) if isinstance(learner, Pola) else y)


def stream(m: int, d: int, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((m, d)), rng.uniform(0.5, 2.0, m) * rng.choice([-1.0, 1.0], m)


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("fast", [False, True])
def test_a_stream_may_be_cut_anywhere(name: str, fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if fast:
        monkeypatch.setattr(eigenupdate, "FAST_FROM", 4)
    x, y = stream(57, 9)
    whole, parts, single = (LEARNERS[name](9) for _ in range(3))
    values = feed(whole, x, y)
    cuts = np.split(np.arange(57), [1, 2, 20, 21, 50])
    np.testing.assert_array_equal(values, np.concatenate([feed(parts, x[c], y[c]) for c in cuts]))
    for k in range(57):
        feed(single, x[k : k + 1], y[k : k + 1])
    for other in (parts, single):
        np.testing.assert_array_equal(whole.matrix, other.matrix)
        assert whole.total_loss == other.total_loss
        assert whole.n_updates == other.n_updates == 57


@pytest.mark.parametrize("name", LEARNERS)
def test_the_fast_product_of_eigenvectors_changes_nothing_but_rounding(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = stream(40, 12)
    dense = LEARNERS[name](12)
    feed(dense, x, y)
    monkeypatch.setattr(eigenupdate, "FAST_FROM", 4)
    fast = LEARNERS[name](12)
    feed(fast, x, y)
    np.testing.assert_allclose(fast.matrix, dense.matrix, rtol=0, atol=1e-12 * np.abs(dense.matrix).max())


@pytest.mark.parametrize("name", LEARNERS)
def test_a_bad_batch_changes_nothing(name: str) -> None:
    x, y = stream(10, 4)
    learner = LEARNERS[name](4)
    feed(learner, x, y)
    before = learner.matrix, learner.total_loss, learner.n_updates
    bad = x.copy()
    bad[7, 2] = np.nan
    with pytest.raises(ValueError, match="row 7"):
        feed(learner, bad, y)
    bad[7, 2] = 1e200
    with pytest.raises(ValueError, match="row 7"):
        feed(learner, bad, y)
    with pytest.raises(ValueError, match=r"shape|length"):
        feed(learner, x[:, :3], y)
    if name != "pca":
        with pytest.raises(ValueError, match="row 3"):
            feed(learner, x, np.where(np.arange(10) == 3, np.nan, y))
    np.testing.assert_array_equal(learner.matrix, before[0])
    assert (learner.total_loss, learner.n_updates) == before[1:]


@pytest.mark.parametrize("name", ["exponentiated", "pca", "pola"])
def test_lost_orthogonality_is_measured_and_repaired(name: str) -> None:
    x, y = stream(200, 8)
    learner = LEARNERS[name](8)
    learner._state.vectors *= 1 + 1e-7
    feed(learner, x, y)
    vectors = learner._state.vectors
    assert learner._state.counts[1] > 0
    assert np.abs(vectors @ vectors.T - np.eye(8)).max() < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNERS)
def test_a_million_updates_leave_a_positive_semidefinite_matrix(name: str) -> None:
    learner = LEARNERS[name](5)
    if isinstance(learner, ExponentiatedGradient):
        learner._examples = None
    for seed in range(10):
        x, y = stream(100_000, 5, seed)
        feed(learner, x, np.abs(y) if name == "unnormalised" else y)
    M = learner.matrix
    assert np.array_equal(M, M.T)
    assert np.linalg.eigvalsh(M).min() >= -1e-14 * np.abs(M).max()
    if name in ("exponentiated", "default rate", "pca"):
        assert abs(np.trace(M) - 1.0) < 1e-9


@pytest.mark.long
def test_long_streams_agree_with_extended_precision() -> None:
    mpmath = pytest.importorskip("mpmath")
    d, m = 3, 150
    x, y = stream(m, d, seed=5)
    with mpmath.workdps(50):
        G, eta = mpmath.zeros(d), mpmath.mpf(0.05)
        M, rate = mpmath.eye(d), mpmath.mpf(0.05)
        for t in range(m):
            z, target = mpmath.matrix(x[t].tolist()), mpmath.mpf(float(y[t]))
            E = mpmath.expm(G)
            W = E / sum(E[k, k] for k in range(d))
            G = G - 2 * eta * ((z.T * W * z)[0] - target) * (z * z.T)
            p = (z.T * M * z)[0]
            b = 1 - rate * p * target
            q = (-b + mpmath.sqrt(b * b + 4 * rate * p * p)) / (2 * rate * p)
            image = M * z
            M = M + (q - p) / (p * p) * (image * image.T)
        E = mpmath.expm(G)
        W = E / sum(E[k, k] for k in range(d))
        expected = {"exponentiated": W, "logdet": M}
        expected = {name: np.array(found.tolist(), dtype=np.float64) for name, found in expected.items()}
    for name, reference in expected.items():
        learner = LEARNERS[name](d)
        feed(learner, x, y)
        np.testing.assert_allclose(learner.matrix, reference, rtol=0, atol=1e-12 * np.abs(reference).max())


def test_arguments_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="dimension"):
        ExponentiatedGradient(0)
    with pytest.raises(ValueError, match="learning_rate"):
        LogDetOnline(3, 0.0)
    with pytest.raises(ValueError, match="start must be positive definite"):
        LogDetOnline(2, start=np.diag([1.0, 0.0]))
    with pytest.raises(ValueError, match="trace one"):
        ExponentiatedGradient(2, start=np.eye(2))
    with pytest.raises(ValueError, match="n_components"):
        OnlinePCA(3, 3)
    with pytest.raises(ValueError, match="threshold"):
        Pola(3, threshold=0.5)
    meg = ExponentiatedGradient(3, 0.1)
    with pytest.raises(ValueError, match="index 3"):
        meg.update((0, 3), 1.0)
    with pytest.raises(ValueError, match="paired with itself"):
        meg.update((1, 1), 1.0)
    with pytest.raises(ValueError, match=r"\[0, 1\] is nan"):
        meg.update(np.array([[0, np.nan, 0], [0, 0, 0], [0, 0, 0]]), 1.0)
    with pytest.raises(ValueError, match=r"\+1 or -1"):
        Pola(3).update(np.ones(3), 0.5)
    with pytest.raises(ValueError, match="normalised"):
        ExponentiatedGradient(3, 0.1, normalised=False).loss_bound(np.eye(3) / 3)
    with pytest.raises(ValueError, match="keep_examples"):
        ExponentiatedGradient(3, 0.1, keep_examples=False).loss_bound(np.eye(3) / 3)
    with pytest.raises(ValueError, match="leave the range"):
        ExponentiatedGradient(3, 1e6, normalised=False).update(np.ones(3), 9.0)


def test_triangular_start_is_a_factor_of_the_matrix() -> None:
    M = random_density(6, 0)
    state = _states.FactorState.of(M)
    np.testing.assert_allclose(state.matrix, M, atol=1e-15)
    assert np.array_equal(state.factor, np.triu(state.factor))
