"""OnlineLearner: what it learns from every kind of feedback, cut anywhere, stored and continued."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize, sparse
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError

import nearwise as nw
from crossing import crossed
from nearwise import constraints as c
from nearwise.linalg import eigenupdate

Array = NDArray[np.float64]

UPDATES = ("logdet", "exponentiated_gradient", "pola")
every_update = pytest.mark.parametrize("update", UPDATES)
X, y = load_iris(return_X_y=True)
rng = np.random.default_rng(0)
D = 5
M = 230  # more than bounds are calibrated on
VECTORS = rng.standard_normal((M, 4, D))
SIGNS = rng.choice([-1.0, 1.0], M)
TRUTH = np.diag([4.0, 1.0, 1.0, 0.2, 0.05])


def true_distances(pairs: Array) -> Array:
    z = pairs[:, 0] - pairs[:, 1]
    return np.einsum("ti,ij,tj->t", z, TRUTH, z)


def nearer_first(tuples: Array) -> Array:
    """Triplets (a, p, n) ordered by the true distances."""
    swap = true_distances(tuples[:, [0, 1]]) > true_distances(tuples[:, [0, 2]])
    return np.where(swap[:, None, None], tuples[:, [0, 2, 1]], tuples[:, :3])


def batches(kind: str) -> tuple[Array, dict[str, Any]]:
    """Tuples and what belongs to them row by row."""
    return {
        "pairs": (VECTORS[:, :2], {"y": SIGNS}),
        "distances": (VECTORS[:, :2], {"squared_distances": true_distances(VECTORS[:, :2])}),
        "triplets": (nearer_first(VECTORS), {}),
        "quadruplets": (VECTORS, {"y": SIGNS}),
    }[kind]


def fed(learner: nw.OnlineLearner, kind: str, cuts: list[int]) -> nw.OnlineLearner:
    tuples, extra = batches(kind)
    for part in np.split(np.arange(len(tuples)), cuts):
        learner.partial_fit(tuples[part], **{name: values[part] for name, values in extra.items()})
    return learner


def same_state(first: nw.OnlineLearner, second: nw.OnlineLearner) -> None:
    assert first.state_.keys() == second.state_.keys()
    for name in first.state_:
        np.testing.assert_array_equal(first.state_[name], second.state_[name])
    np.testing.assert_array_equal(first.get_mahalanobis_matrix(), second.get_mahalanobis_matrix())
    assert first.n_feedback_ == second.n_feedback_
    assert first.n_violated_ == second.n_violated_
    assert first.pola_threshold_ == second.pola_threshold_


@crossed(
    update=UPDATES, kind=["pairs", "distances", "triplets", "quadruplets"], rank=[None, 3], fast=[False, True]
)
def test_a_stream_may_be_cut_anywhere(
    update: str, kind: str, rank: int | None, fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fast:
        monkeypatch.setattr(eigenupdate, "FAST_FROM", 2)
    learner = nw.OnlineLearner(update, rank=rank, random_state=0)
    whole = fed(clone(learner), kind, [])
    same_state(whole, fed(clone(learner), kind, [1, 2, 150, 151, M - 1]))
    same_state(whole, fed(clone(learner), kind, list(range(1, M))))
    assert whole.n_feedback_ == M
    assert whole.n_violated_ > 0
    assert np.linalg.eigvalsh(whole.get_mahalanobis_matrix()).min() > -1e-12


@every_update
def test_labels_and_constraints_may_be_cut_anywhere(update: str) -> None:
    order = np.random.default_rng(1).permutation(150)
    rows, labels = X[order], y[order]
    learner = nw.OnlineLearner(update)
    whole = clone(learner).partial_fit(rows, labels)
    parts = clone(learner)
    for part in np.split(np.arange(150), [1, 2, 70]):
        parts.partial_fit(rows[part], labels[part])
    same_state(whole, parts)
    assert whole.n_feedback_ == 149 + 150 - 3
    side = [
        c.at_most([(0, 1)], 0.5),
        c.closer([(2, 3, 99)]),
        c.dissimilar([(4, 120)]),
        c.equal([(5, 6)], 2.0),
    ]
    whole.partial_fit(X, constraints=side[0] + side[1] + side[2] + side[3])
    for piece in side:
        parts.partial_fit(X, constraints=piece)
    same_state(whole, parts)
    both = clone(learner).partial_fit(rows, labels, constraints=side[0])
    apart = clone(learner).partial_fit(rows, labels).partial_fit(rows, constraints=side[0])
    same_state(both, apart)


@pytest.mark.parametrize("labels", [["a", "b", "a", "c"], [1, "1", 1, "1"], [True, False, True, False]])
def test_each_row_is_compared_with_the_latest_of_its_class_and_of_another(labels: list[Any]) -> None:
    rows = X[[0, 60, 1, 120]]
    learner = nw.OnlineLearner(bounds=(0.1, 9.0)).partial_fit(rows, labels)
    other = [1, 0] if labels[3] == labels[1] else [2]
    expected = c.at_least([(0, 1)], 9.0) + c.at_most([(0, 2)], 0.1) + c.at_least([(1, 2)], 9.0)
    if labels[3] == labels[1]:
        expected = expected + c.at_most([(1, 3)], 0.1) + c.at_least([(2, 3)], 9.0)
    else:
        expected = expected + c.at_least([(other[0], 3)], 9.0)
    same_state(learner, nw.OnlineLearner(bounds=(0.1, 9.0)).partial_fit(rows, constraints=expected))


@every_update
def test_arrays_and_constraints_say_the_same(update: str) -> None:
    pairs, triplets = VECTORS[:50, :2], nearer_first(VECTORS)[:50]
    flat, numbers = pairs.reshape(-1, D), np.arange(100).reshape(-1, 2)
    arrays = nw.OnlineLearner(update).partial_fit(pairs, squared_distances=true_distances(pairs))
    arrays.partial_fit(triplets)
    blocks = nw.OnlineLearner(update)
    blocks.partial_fit(flat, constraints=c.equal(numbers, true_distances(pairs)))
    blocks.partial_fit(triplets.reshape(-1, D), constraints=c.closer(np.arange(150).reshape(-1, 3)))
    same_state(arrays, blocks)


def test_logdet_pieces_are_the_minimisers_of_their_objective() -> None:
    """LogDet divergence plus rate / 2 times the squared relative error, by a general minimiser."""
    tuples = nearer_first(
        np.random.default_rng(5).standard_normal((1, 3, 3))[:, :, [0, 1, 2]].repeat(2, 2)[..., :5]
    )
    side = [
        ("distance", {"squared_distances": 0.3}, tuples[:, :2]),
        ("distance", {"squared_distances": 30.0}, tuples[:, :2]),
        ("comparison", {}, tuples[:, [0, 2, 1]]),
    ]
    for kind, extra, rows in side:
        learner = nw.OnlineLearner(learning_rate=2.0).partial_fit(rows, **extra)
        z = rows[0, 0] - rows[0, 1]
        other = rows[0, 0] - rows[0, 2] if kind == "comparison" else np.zeros(D)
        target = extra.get("squared_distances", 0.0)
        unit = z @ z + other @ other + target

        def objective(
            entries: Array, z: Array = z, other: Array = other, t: float = target, u: float = unit
        ) -> float:
            B = np.zeros((D, D))
            B[np.tril_indices(D)] = entries
            M = B @ B.T
            sign, logdet = np.linalg.slogdet(M)
            error = max(z @ M @ z - other @ M @ other - t, 0.0) if other.any() else z @ M @ z - t
            return math.inf if sign <= 0 else np.trace(M) - logdet - D + (error / u) ** 2

        start = np.eye(D)[np.tril_indices(D)]
        best = optimize.minimize(objective, start, method="BFGS", options={"gtol": 1e-10})
        B = np.zeros((D, D))
        B[np.tril_indices(D)] = best.x
        np.testing.assert_allclose(learner.get_mahalanobis_matrix(), B @ B.T, atol=1e-5)
        assert np.abs(learner.get_mahalanobis_matrix() - np.eye(D)).max() > 1e-2


@every_update
@pytest.mark.parametrize("unit", [1e-60, 1e60])
def test_units_do_not_matter(update: str, unit: float) -> None:
    plain = nw.OnlineLearner(update).partial_fit(VECTORS[:, :2], SIGNS)
    scaled = nw.OnlineLearner(update).partial_fit(unit * VECTORS[:, :2], SIGNS)
    M = plain.get_mahalanobis_matrix()
    np.testing.assert_allclose(scaled.get_mahalanobis_matrix(), M, atol=1e-8 * np.abs(M).max())
    if update == "pola":
        assert scaled.pola_threshold_ == pytest.approx(plain.pola_threshold_ * unit**2)


@every_update
def test_it_learns_distances_and_orders(update: str) -> None:
    rng = np.random.default_rng(7)
    pairs = rng.standard_normal((4000, 2, D))
    rate = {"logdet": 10.0, "exponentiated_gradient": 0.5, "pola": 1.0}[update]
    learner = nw.OnlineLearner(update, rate, decay=0.0)
    learner.partial_fit(pairs, squared_distances=true_distances(pairs))
    np.testing.assert_allclose(learner.get_mahalanobis_matrix(), TRUTH, atol=0.02)
    triplets = nearer_first(rng.standard_normal((4000, 3, D)))
    learner = nw.OnlineLearner(update, rate, decay=0.0).partial_fit(triplets[:3000])
    ordered = learner.pair_distance(triplets[3000:, :2]) < learner.pair_distance(triplets[3000:, [0, 2]])
    assert ordered.mean() > 0.95


@every_update
def test_a_bad_batch_leaves_the_learner_as_it_was(update: str) -> None:
    bad = VECTORS[:, :2].copy()
    bad[7, 1, 2] = np.nan
    fresh = nw.OnlineLearner(update)
    before = dict(vars(fresh))
    with pytest.raises(ValueError, match="row 7"):
        fresh.partial_fit(bad, SIGNS)
    assert vars(fresh) == before
    with pytest.raises(ValueError, match=r"row 7 .* too large"):
        fresh.partial_fit(np.where(np.isnan(bad), 1e200, bad), SIGNS)
    assert vars(fresh) == before
    with pytest.raises(NotFittedError):
        fresh.transform(X)
    learner = nw.OnlineLearner(update).partial_fit(VECTORS[:, :2], SIGNS)
    untouched = copy.deepcopy(learner)
    refused: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        ((bad, SIGNS), {}, "row 7"),
        ((np.where(np.isnan(bad), 1e200, bad), SIGNS), {}, "row 7 .* too large"),
        ((VECTORS[:, :2], np.where(np.arange(M) == 9, 0.5, SIGNS)), {}, "row 9"),
        ((VECTORS[:, :2],), {}, "pairs need y"),
        ((VECTORS[:, :2, :3], SIGNS), {}, "features"),
        ((VECTORS[:, :2],), {"squared_distances": np.zeros(M)}, "row 0: squared distance is 0"),
        ((VECTORS[:, :2], SIGNS), {"squared_distances": 1.0}, "one of them"),
        ((VECTORS[:, :3],), {"squared_distances": 1.0}, "belong to pairs"),
        ((VECTORS[:, 0],), {}, "no feedback"),
        ((VECTORS[:, 0], SIGNS[:9]), {}, f"{M} labels"),
        ((VECTORS[:, 0],), {"squared_distances": 1.0}, "belong to pairs"),
        ((VECTORS[:3, 0], [1.0, 0.25, 2.0]), {}, "row 1: 0.25 is a measurement, not the label of a class"),
        ((VECTORS[:, 0],), {"constraints": c.similar([(0, M)])}, f"id {M} is not"),
        ((VECTORS[:, 0],), {"constraints": c.similarity([(0, 1)], 1.0, "==")}, "row 0: .* no bound on dist"),
        ((VECTORS[:, :2], SIGNS), {"constraints": c.similar([(0, 1)])}, "not to tuples"),
    ]
    for arguments, extra, message in refused:
        with pytest.raises(ValueError, match=message):
            learner.partial_fit(*arguments, **extra)
        same_state(learner, untouched)
    same_state(
        learner.partial_fit(VECTORS[:9, :2], SIGNS[:9]), untouched.partial_fit(VECTORS[:9, :2], SIGNS[:9])
    )


@every_update
@pytest.mark.parametrize("rank", [None, 2])
def test_a_stored_learner_goes_on_with_the_same_results(
    update: str, rank: int | None, tmp_path: Path
) -> None:
    order = np.random.default_rng(2).permutation(150)
    rows, labels = X[order], np.array(["setosa", "versicolor", "virginica"])[y[order]]
    learner = nw.OnlineLearner(update, rank=rank, random_state=0).partial_fit(rows[:70], labels[:70])
    learner.transform(rows)
    nw.save(learner, tmp_path / "model")
    loaded = nw.load(tmp_path / "model")
    same_state(loaded, learner)
    for part in (slice(70, 71), slice(71, 150)):
        same_state(
            loaded.partial_fit(rows[part], labels[part]), learner.partial_fit(rows[part], labels[part])
        )
    np.testing.assert_array_equal(loaded.transform(X), learner.transform(X))


@every_update
def test_warm_start_from_a_fitted_learner(update: str) -> None:
    batch = nw.MetricLearner(penalty=1.0, random_state=0).fit(X, y)
    for prior in (batch, batch.metric_, batch.get_mahalanobis_matrix()):
        learner = nw.OnlineLearner(update, prior=prior).partial_fit(X[:0].reshape(0, 2, 4), np.empty(0))
        np.testing.assert_allclose(
            learner.get_mahalanobis_matrix(), batch.get_mahalanobis_matrix(), rtol=1e-9
        )
        pair = X[[0, 100]][None]
        learner.bounds = (batch.pair_distance(pair, squared=True)[0] / 4, 1e3)  # the pair is far beyond it
        learner.partial_fit(pair, [1])
        assert learner.pair_distance(pair) < 0.98 * batch.pair_distance(pair)
    narrow = nw.MetricLearner(rank=2, basis="svd", penalty=1.0, random_state=0).fit(X, y)
    learner = nw.OnlineLearner(update, prior=narrow.metric_).partial_fit(X[:0].reshape(0, 2, 4), np.empty(0))
    np.testing.assert_allclose(
        learner.distances(X, squared=True), narrow.distances(X, squared=True), atol=1e-11
    )  # a root of what rounding leaves between equal rows would be 1e-7
    assert learner.rank_ == 2
    with pytest.raises(ValueError, match="not fitted"):
        nw.OnlineLearner(prior=clone(batch)).partial_fit(X, y)
    with pytest.raises(ValueError, match="4 features, but X has 3"):
        nw.OnlineLearner(prior=batch.metric_).partial_fit(X[:, :3], y)
    assert np.array_equal(clone(nw.OnlineLearner(prior=batch.metric_)).prior.factor, batch.metric_.factor)


def test_a_learner_whose_prior_is_a_learner_can_be_stored(tmp_path: Path) -> None:
    batch = nw.MetricLearner(penalty=1.0, random_state=0).fit(X, y)
    learner = nw.OnlineLearner(prior=batch, learning_rate=2.0).partial_fit(X[::7], y[::7])
    nw.save(learner, tmp_path / "model")
    loaded = nw.load(tmp_path / "model")
    same_state(loaded.partial_fit(X[::5], y[::5]), learner.partial_fit(X[::5], y[::5]))
    assert not np.allclose(loaded.get_mahalanobis_matrix(), batch.get_mahalanobis_matrix())


def test_constraints_on_other_objects_are_dropped_and_counted() -> None:
    side = c.similar([("a", "b"), ("a", "z")]) + c.closer([("a", "b", "c")])
    with pytest.warns(nw.UnknownIdsWarning, match="1 of 3 constraints are left out.*: 'z'; where"):
        learner = nw.OnlineLearner().partial_fit(X[[0, 1, 60]], constraints=side, sample_ids=["a", "b", "c"])
    assert (learner.n_feedback_, learner.n_constraints_dropped_) == (2, 1)


def test_logdet_does_not_depend_on_how_the_prior_is_split() -> None:
    """From the prior M0, or on features X B0 from the identity: the same metric."""
    B0 = np.random.default_rng(1).standard_normal((D, D))
    pairs = VECTORS[:60, :2]
    target = true_distances(pairs)
    first = nw.OnlineLearner(prior=B0 @ B0.T).partial_fit(pairs, squared_distances=target)
    second = nw.OnlineLearner().partial_fit(pairs @ B0, squared_distances=target)
    expected = B0 @ second.get_mahalanobis_matrix() @ B0.T
    np.testing.assert_allclose(first.get_mahalanobis_matrix(), expected, rtol=1e-9, atol=1e-9)


def test_in_a_subspace_the_rest_of_a_distance_is_fixed() -> None:
    basis = np.linalg.qr(np.random.default_rng(3).standard_normal((D, 2))).Q
    pairs = np.random.default_rng(4).standard_normal((3000, 2, D))
    z = pairs[:, 0] - pairs[:, 1]
    inside = z @ basis
    target = np.square(z).sum(axis=1) - np.square(inside).sum(axis=1) + inside**2 @ [3.0, 0.2]
    learner = nw.OnlineLearner(basis=basis, decay=0.0).partial_fit(pairs, squared_distances=target)
    np.testing.assert_allclose(learner.pair_distance(pairs, squared=True), target, rtol=1e-3)
    rows = sparse.csr_array(pairs.reshape(-1, D))
    numbers = np.arange(len(rows.indptr) - 1).reshape(-1, 2)
    sparsely = nw.OnlineLearner(basis=basis, decay=0.0).partial_fit(
        rows, constraints=c.equal(numbers, target)
    )
    np.testing.assert_allclose(
        sparsely.get_mahalanobis_matrix(), learner.get_mahalanobis_matrix(), rtol=1e-9, atol=1e-9
    )


@every_update
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("prior", ["identity", np.diag([9.0, 1.0, 0.5, 2.0, 1.0])])
def test_the_first_pair_teaches_and_so_does_every_repetition(update: str, sign: int, prior: Any) -> None:
    pair = VECTORS[:1, :2]
    learner = nw.OnlineLearner(update, prior=prior).partial_fit(pair[:0], [])
    distances = [learner.pair_distance(pair, squared=True)[0]]
    for _ in range(4):
        learner.partial_fit(pair, [sign])
        distances.append(learner.pair_distance(pair, squared=True)[0])
    taught = -sign * np.diff(distances)
    # POLA learns a threshold beside, and may be done at once
    assert ((taught[:1] if update == "pola" else taught) > 1e-3 * distances[0]).all()
    assert learner.n_violated_ > 0
    same_state(
        learner,
        nw.OnlineLearner(update, prior=prior).partial_fit(pair.repeat(4, axis=0), np.full(4, sign)),
    )


@pytest.mark.parametrize("update", ["logdet", "exponentiated_gradient"])
def test_a_pair_that_is_repeated_ends_at_half_or_twice_its_distance(update: str) -> None:
    pair = VECTORS[:1, :2].repeat(5_000, axis=0)
    before = np.square(pair[0, 0] - pair[0, 1]).sum()
    for sign, factor in ((1, 0.5), (-1, 2.0)):
        learner = nw.OnlineLearner(update, decay=0.0).partial_fit(pair, np.full(len(pair), sign))
        assert learner.pair_distance(pair[:1], squared=True)[0] == pytest.approx(factor * before, rel=1e-6)


def test_open_bounds_are_percentiles_of_the_distances_so_far() -> None:
    from nearwise.online.feedback import CALIBRATED, calibrated

    distances = np.random.default_rng(0).exponential(size=CALIBRATED + 30)
    distances[4] = 0.0
    found, known = calibrated(distances, np.empty(0))
    positive = distances[distances > 0]
    for k in (0, 1, 10, CALIBRATED - 1, CALIBRATED + 20):
        so_far = positive[: min(k + (k < 4), CALIBRATED)]
        low, middle, high = np.percentile(so_far, [5, 50, 95])
        np.testing.assert_allclose(
            found[k], [min(low, middle / 2), middle, max(high, 2 * middle)], rtol=1e-13
        )
    np.testing.assert_array_equal(known, np.sort(positive[:CALIBRATED]))


@pytest.mark.long
def test_many_features_are_learned_in_a_subspace() -> None:
    rows = sparse.random_array((40, 3000), density=0.02, rng=0, format="csr")
    labels = np.arange(40) % 2
    learner = (
        nw.OnlineLearner(random_state=0)
        .partial_fit(rows[:30], labels[:30])
        .partial_fit(rows[30:], labels[30:])
    )
    same_state(learner, nw.OnlineLearner(random_state=0).partial_fit(rows, labels))
    assert learner.rank_ == 100
    assert learner.transform(rows).shape == (40, 100)
    assert learner.fit(rows, labels).rank_ <= 40


def test_fit_starts_anew_and_improves_the_order_of_flowers() -> None:
    plain = nw.OnlineLearner(learning_rate=1e-12, random_state=0).fit(X, y)
    for update in UPDATES:
        learner = nw.OnlineLearner(update, random_state=0).fit(X, y)
        assert learner.score(X, y) > plain.score(X, y) + 0.02
        again = learner.n_feedback_
        assert learner.fit(X, y).n_feedback_ == again
        assert nw.OnlineLearner(update, rank=2, basis="svd", random_state=0).fit(X, y).rank_ == 2
    with pytest.warns(nw.PriorKeptWarning):
        nw.OnlineLearner().fit(X)
    with pytest.raises(ValueError, match="n_pairs"):
        nw.OnlineLearner(n_pairs=0).fit(X, y)


def test_settings_are_refused_by_name() -> None:
    for settings, message in (
        ({"update": "newton"}, "update must be one of"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"decay": 2.0}, "decay"),
        ({"bounds": (1.0, -1.0)}, "bounds"),
        ({"prior": "covariance"}, "prior"),
        ({"prior": -np.eye(4)}, "positive semidefinite"),
        ({"prior": np.eye(3)}, "shape"),
        ({"basis": "svd", "rank": 2}, "needs the data of a fit"),
        ({"prior": np.eye(4), "rank": 2}, "rank and basis"),
    ):
        with pytest.raises(ValueError, match=message):
            nw.OnlineLearner(**settings).partial_fit(X, y)


def test_exponentiated_pieces_are_explicit_steps_of_the_exponent() -> None:
    """exp(log M - rate * relative error / largest eigenvalue of A * A), by dense algebra."""
    learner, exponent = nw.OnlineLearner("exponentiated_gradient", 0.4, decay=0.0), np.zeros((D, D))
    triplets = nearer_first(VECTORS)[:60, [0, 2, 1]]
    distances = true_distances(VECTORS[:60, :2])
    for t in range(60):
        for rows, target in ((VECTORS[t, :2], distances[t]), (triplets[t], 0.0)):
            values, V = np.linalg.eigh(exponent)
            M = (V * np.exp(values)) @ V.T
            z, other = rows[0] - rows[1], (rows[0] - rows[2] if len(rows) == 3 else np.zeros(D))
            near, far = z @ M @ z, other @ M @ other
            error = near - far - target
            if len(rows) == 2 or error > 0:
                step = 0.4 * error / (near + far + target) / max(z @ z, other @ other)
                exponent -= step * (np.outer(z, z) - np.outer(other, other))
            extra = {"squared_distances": target} if len(rows) == 2 else {}
            learner.partial_fit(rows[np.newaxis], **extra)
    values, V = np.linalg.eigh(exponent)
    np.testing.assert_allclose(
        learner.get_mahalanobis_matrix(), (V * np.exp(values)) @ V.T, rtol=1e-9, atol=1e-9
    )


def test_pola_pieces_are_projections() -> None:
    """Onto half spaces, with a margin, and hyperplanes of M alone; then onto the cone."""
    learner, M = nw.OnlineLearner("pola"), np.eye(D)
    clipped = 0
    for t in range(80):
        rows = VECTORS[t]
        z, other = rows[0] - rows[1], rows[2] - rows[3]
        for A, target, side in (
            (np.outer(z, z) - np.outer(other, other), -0.5, c.closer([(0, 1, 2, 3)], margin=0.5)),
            (np.outer(z, z), 0.7, c.equal([(0, 1)], 0.7)),
            (np.outer(other, other), 0.2, c.at_most([(2, 3)], 0.2)),
        ):
            error = np.sum(A * M) - target
            if error > 0 or side.relations[0] == 0:
                values, V = np.linalg.eigh(M - error / np.sum(A * A) * A)
                assert np.sum(values < -1e-12) <= 1
                clipped += int(values[0] < -1e-12)
                M = (V * np.maximum(values, 0.0)) @ V.T
            learner.partial_fit(rows, constraints=side)
            np.testing.assert_allclose(learner.get_mahalanobis_matrix(), M, atol=1e-11)
    assert clipped > 5
