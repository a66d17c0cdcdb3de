"""Feedback that looks selected: dissimilar pairs among near neighbours warn, random pairs do not."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import nearwise as nw
from nearwise import cli, constraints as c, distributed

CLASSES, SIZE = 40, 15
RNG = np.random.default_rng(0)
Y = np.repeat(np.arange(CLASSES), SIZE)
X = (1.5 * RNG.normal(size=(CLASSES, 8)))[Y] + RNG.normal(size=(len(Y), 8))
NEAREST = np.argsort(((X[:, None] - X) ** 2).sum(axis=2), axis=1)[:, 1:]

LEARNERS: dict[str, Any] = {
    "metric": nw.MetricLearner(penalty=1.0),
    "covariance": nw.MetricLearner(penalty=1.0, prior="covariance"),
    "rank": nw.MetricLearner(penalty=1.0, rank=3),
    "diagonal": nw.MetricLearner(penalty=1.0, structure="diagonal"),
    "blocks": nw.MetricLearner(penalty=1.0, structure="blocks", groups=[[0, 1, 2], [3, 4]]),
    "chosen": nw.MetricLearner(random_state=0),
    "auto": nw.AutoLearner(penalty=1.0),
    "kernel": nw.KernelLearner("rbf", penalty=1.0, rank=20, random_state=0),
    "reducer": nw.KernelReducer(2, "rbf", rank=20, random_state=0),
    "fixed rank": nw.FixedRankLearner(3, check=False, random_state=0),
    "online": nw.OnlineLearner(random_state=0),
}


def pairs_of(rng: np.random.Generator, m: int, same: bool) -> np.ndarray:
    """Drawn at random."""
    i, j = rng.integers(len(Y), size=(2, 200 * m))
    return np.stack([i, j], axis=1)[(i != j) & ((Y[i] == Y[j]) == same)][:m]


def near_but_different(rng: np.random.Generator, m: int, among: int = 30) -> np.ndarray:
    """An object with one of other classes among its nearest."""
    found = []
    for i in rng.permutation(len(Y)).tolist() * 2:
        others = [j for j in NEAREST[i, :among] if Y[j] != Y[i]]
        if others:
            found.append((i, int(rng.choice(others))))
    return np.array(found[:m])


def from_search_log(seed: int) -> c.Constraints:
    """Similar pairs at random, and dissimilar ones among the nearest."""
    rng = np.random.default_rng(seed)
    return c.similar(pairs_of(rng, 150, True)) + c.dissimilar(near_but_different(rng, 150))


def by_thumbs(seed: int) -> c.Constraints:
    """What the ten nearest of some objects are called: both kinds are near."""
    asking = np.random.default_rng(seed).permutation(len(Y))[:200]
    pairs = np.stack([np.repeat(asking, 10), NEAREST[asking, :10].ravel()], axis=1)
    same = Y[pairs[:, 0]] == Y[pairs[:, 1]]
    return c.similar(pairs[same]) + c.dissimilar(pairs[~same])


def half_and_half(seed: int, m: int = 300) -> c.Constraints:
    rng = np.random.default_rng(seed)
    return c.similar(pairs_of(rng, m // 2, True)) + c.dissimilar(pairs_of(rng, m // 2, False))


def as_they_come(seed: int, m: int = 600) -> c.Constraints:
    i, j = np.random.default_rng(seed).integers(len(Y), size=(2, m))
    pairs = np.stack([i, j], axis=1)[i != j]
    same = Y[pairs[:, 0]] == Y[pairs[:, 1]]
    return c.similar(pairs[same]) + c.dissimilar(pairs[~same])


def is_told(learner: Any, rows: Any, side: c.Constraints, *labels: Any, **given: Any) -> bool:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        learner.fit(rows, *labels, constraints=side, **given)
    told = [w for w in caught if issubclass(w.category, nw.SelectedFeedbackWarning)]
    assert len(told) <= 1
    assert all(w.filename == __file__ for w in told)
    return bool(told)


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_says_where_feedback_looks_selected(name: str) -> None:
    learner = LEARNERS[name]
    for side in (from_search_log(0), by_thumbs(0)):
        assert is_told(learner, X, side)
    assert not is_told(learner, X, half_and_half(0))


def test_rows_elsewhere_are_told_alike(tmp_path: Path) -> None:
    """Sparse, in a file, by other ids, with labels, weighted, and as a precomputed kernel."""
    np.save(tmp_path / "rows.npy", X)
    stored = distributed.open_vectors(tmp_path / "rows.npy")
    ids = np.array([f"o{i}" for i in range(len(X))])
    for side, told in ((from_search_log(1), True), (half_and_half(1), False)):
        similar, dissimilar = (np.asarray(block.ids) for block in side.blocks)
        named = c.similar(ids[similar]) + c.dissimilar(ids[dissimilar])
        metric, kernel = nw.MetricLearner(penalty=1.0), nw.KernelLearner("precomputed", penalty=1.0, rank=20)
        assert is_told(metric, sparse.csr_array(X), side) == told
        assert is_told(metric, stored, side) == told
        assert is_told(metric, X, named, sample_ids=ids) == told
        assert is_told(metric, X, side, Y, sample_weight=1.0 + (Y % 2)) == told
        assert is_told(kernel, X @ X.T, side) == told
        assert is_told(metric, 1e6 + 1e3 * X, side) == told
        tuples, own = c.from_tuples(X[np.concatenate([similar, dissimilar])], np.repeat([1, -1], 150))
        assert is_told(metric, tuples, own) == told


@pytest.mark.parametrize("m", [6, 20, 60, 300])
def test_pairs_drawn_at_random_are_silent(m: int) -> None:
    """Warnings are errors here."""
    learner = nw.OnlineLearner(random_state=0)
    for seed in range(30):
        learner.fit(X, constraints=half_and_half(seed, m))
        learner.fit(X, constraints=as_they_come(seed, 10 * m))


def test_answers_that_mean_nothing_are_silent() -> None:
    learner = nw.OnlineLearner(random_state=0)
    for seed in range(30):
        rng = np.random.default_rng(seed)
        i, j = rng.integers(len(Y), size=(2, 400))
        pairs, said = np.stack([i, j], axis=1)[i != j], rng.random((i != j).sum()) < 0.5
        learner.fit(X, constraints=c.similar(pairs[said]) + c.dissimilar(pairs[~said]))


@pytest.mark.parametrize("draw", ["random", "local"])
def test_pairs_that_nearwise_draws_are_silent(draw: str) -> None:
    side = c.from_labels(Y, X, draw=draw, n_pairs=600, random_state=0)
    learner = nw.OnlineLearner(random_state=0)
    learner.fit(X, constraints=side)
    learner.fit(X, constraints=side.restricted_to(np.arange(len(X)))[0] + half_and_half(0))
    learner.fit(X, Y)
    nw.MetricLearner(penalty=1.0, n_pairs=300, random_state=0).fit(X, Y)


def test_few_pairs_about_few_objects_tell_nothing() -> None:
    """Six pairs, or a hundred about one object, may be near by chance."""
    learner = nw.OnlineLearner(random_state=0)
    for seed in range(10):
        rng = np.random.default_rng(seed)
        similar, near = pairs_of(rng, 6, True), near_but_different(rng, 6)
        learner.fit(X, constraints=c.similar(similar) + c.dissimilar(near))
        one = np.stack([np.full(100, seed), NEAREST[seed, :100]], axis=1)
        learner.fit(X, constraints=c.dissimilar(one[Y[one[:, 1]] != Y[seed]]))


def test_bounds_of_ones_own_are_measurements() -> None:
    pairs = near_but_different(np.random.default_rng(0), 150)
    measured = ((X[pairs[:, 0]] - X[pairs[:, 1]]) ** 2).sum(axis=1)
    nw.OnlineLearner(random_state=0).fit(X, constraints=c.at_least(pairs, measured))


def test_similar_pairs_that_are_farther_than_dissimilar_ones() -> None:
    """An area under the ROC curve below one half, though the dissimilar pairs are random."""
    rng = np.random.default_rng(0)
    i = rng.permutation(len(Y))[:150]
    distant = np.stack([i, NEAREST[i, -1 - rng.integers(60, size=150)]], axis=1)
    side = c.similar(distant) + c.dissimilar(pairs_of(rng, 150, False))
    assert is_told(nw.OnlineLearner(random_state=0), X, side)


@pytest.mark.parametrize("method", ["logdet", "fixed-rank"])
def test_the_command_line_says_it(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savetxt("rows.csv", X, delimiter=",", header=",".join("abcdefgh"), comments="")
    said = []
    for side in (from_search_log(0), half_and_half(0)):
        blocks = ((np.asarray(block.ids), int(block.relation < 0)) for block in side.blocks)
        lines = {(min(i, j), max(i, j)): same for ids, same in blocks for i, j in ids.tolist()}
        text = "".join(f"{i},{j},{same}\n" for (i, j), same in lines.items())
        Path("pairs.csv").write_text(text, encoding="utf-8")
        words = ["--pairs", "pairs.csv", "--method", method, "--json", "--force"]
        assert cli.main(["learn", "rows.csv", *words, "-o", "model"]) == cli.DONE
        notices = json.loads(capsys.readouterr().out)["notices"]
        said.append(sum("selected" in notice for notice in notices))
    assert said == [1, 0]


def test_on_questions_of_a_bank(load_dataset: Any) -> None:
    """Dissimilar pairs among the 50 nearest warn, and random ones do not."""
    data = load_dataset("banking77_minilm")
    rows = np.random.default_rng(0).permutation(len(data.X))[:3000]
    questions, intents = np.asarray(data.X, dtype=np.float64)[rows], np.asarray(data.y)[rows]
    learner = nw.MetricLearner(penalty=1.0, rank=2, basis=np.eye(questions.shape[1])[:, :2])
    for seed in range(5):
        rng = np.random.default_rng(seed)
        i, j = rng.integers(len(rows), size=(2, 60_000))
        pairs, equal = np.stack([i, j], axis=1)[i != j], (intents[i] == intents[j])[i != j]
        similar, random = c.similar(pairs[equal][:300]), c.dissimilar(pairs[~equal][:300])
        asking = rng.permutation(len(rows))[:300]
        likeness = questions[asking] @ questions.T
        nearest = np.argsort(-likeness, axis=1)[:, 1:51]
        chosen = nearest[np.arange(300), rng.integers(50, size=300)]
        other = intents[asking] != intents[chosen]
        near = c.dissimilar(np.stack([asking, chosen], axis=1)[other])
        assert is_told(learner, questions, similar + near)
        assert not is_told(learner, questions, similar + random)
