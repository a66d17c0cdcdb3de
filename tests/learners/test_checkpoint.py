"""A fit that was interrupted goes on from its checkpoint and ends with the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nearwise as nw
from nearwise.learners import _checkpoint

LEARNERS: dict[str, Callable[..., Any]] = {
    "logdet": lambda **own: nw.MetricLearner(random_state=0, **own),
    "one penalty": lambda **own: nw.MetricLearner(penalty=4.0, random_state=0, **own),
    "von Neumann": lambda **own: nw.MetricLearner("vonneumann", random_state=0, **own),
    "frobenius, random pairs": lambda **own: nw.MetricLearner(
        "frobenius", penalty=1.0, pairs="random", random_state=0, **own
    ),
    "kernel": lambda **own: nw.KernelLearner(gamma="scale", rank=30, random_state=0, **own),
    "kernel of a chosen gamma": lambda **own: nw.KernelLearner(rank=20, random_state=0, **own),
    "fixed rank": lambda **own: nw.FixedRankLearner(rank=2, random_state=0, **own),
}


@pytest.fixture(scope="module")
def wine() -> tuple[Any, Any]:
    data = nw.datasets.load("wine")
    return (data.X - data.X.mean(axis=0)) / data.X.std(axis=0), data.y


@pytest.fixture(scope="module", autouse=True)
def _short_legs() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_checkpoint, "FIRST_LEG", 2)  # so that a small fit has several
        yield


@pytest.fixture(scope="module")
def straight(wine: tuple[Any, Any], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """A learner by its name, after a fit with a checkpoint that nothing interrupted."""

    @cache
    def fitted(name: str) -> Any:
        file = tmp_path_factory.mktemp("straight") / "fit.checkpoint"
        learner = LEARNERS[name](checkpoint=file).fit(*wine)
        assert not file.exists(), "a finished fit removes its checkpoint"
        return learner

    return fitted


class _StopAfter:
    """A callback that asks to stop once."""

    def __init__(self, iterations: int) -> None:
        self.left = iterations

    def __call__(self, record: object) -> bool:
        self.left -= 1
        return self.left == 0


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("share", [0.0, 0.4, 0.9])
def test_an_interrupted_fit_ends_the_same(
    name: str, share: float, wine: tuple[Any, Any], straight: Callable[[str], Any], tmp_path: Path
) -> None:
    make, file, whole = LEARNERS[name], tmp_path / "fit.checkpoint", straight(name)
    stopped = make(checkpoint=file, callback=_StopAfter(1 + int(share * (whole.n_iter_ - 1)))).fit(*wine)
    assert stopped.status_ is nw.Status.INTERRUPTED
    assert file.exists()
    resumed = make(checkpoint=str(file)).fit(*wine)
    np.testing.assert_array_equal(resumed.transform(wine[0]), whole.transform(wine[0]))
    assert resumed.status_ is whole.status_
    assert resumed.n_iter_ == whole.n_iter_
    assert [r.iteration for r in resumed.result_.history] == [r.iteration for r in whole.result_.history]
    assert not file.exists()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_interruption_of_a_long_fit_can_be_resumed(
    wine: tuple[Any, Any], straight: Callable[[str], Any], tmp_path: Path
) -> None:
    """Interrupted again and again, with more iterations each time, it gets there all the same."""
    make, file, whole = LEARNERS["von Neumann"], tmp_path / "fit.checkpoint", straight("von Neumann")
    for attempt in range(60):
        learner = make(checkpoint=file, callback=_StopAfter(3 + attempt)).fit(*wine)
        if learner.status_ is not nw.Status.INTERRUPTED:
            break
    assert attempt > 1
    np.testing.assert_array_equal(learner.transform(wine[0]), whole.transform(wine[0]))
    assert learner.n_iter_ == whole.n_iter_


def test_it_reaches_the_optimum_of_a_fit_without_checkpoint(wine: tuple[Any, Any], tmp_path: Path) -> None:
    plain = nw.MetricLearner(penalty=4.0, tol=1e-9, random_state=0).fit(*wine)
    kept = nw.MetricLearner(penalty=4.0, tol=1e-9, random_state=0, checkpoint=tmp_path / "fit").fit(*wine)
    assert kept.status_ is nw.Status.SOLVED
    assert kept.result_.certificate.primal == pytest.approx(plain.result_.certificate.primal, rel=1e-8)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_limit_of_iterations_can_be_raised(wine: tuple[Any, Any], tmp_path: Path) -> None:
    file = tmp_path / "fit"
    settings: dict[str, Any] = {"penalty": 4.0, "tol": 1e-9, "random_state": 0, "pairs": "random"}
    straight = nw.MetricLearner(**settings, checkpoint=tmp_path / "other").fit(*wine)
    assert straight.n_iter_ > 3
    limited = nw.MetricLearner(**settings, max_iter=3, checkpoint=file).fit(*wine)
    assert (limited.status_, limited.n_iter_, file.exists()) == (nw.Status.LIMIT, 3, True)


def test_a_checkpoint_of_other_data_or_settings_is_refused(wine: tuple[Any, Any], tmp_path: Path) -> None:
    X, y = wine
    file = tmp_path / "fit"

    def fit(X: Any, y: Any, **own: Any) -> None:
        nw.MetricLearner(**{"random_state": 0, "checkpoint": file} | own).fit(X, y)

    with pytest.warns(match="Interrupted"):
        fit(X, y, callback=_StopAfter(10))
    before = file.read_bytes()
    others: list[Any] = [
        lambda: fit(X * 2, y),
        lambda: fit(X, np.roll(y, 3)),
        lambda: fit(X, y, random_state=1),
        lambda: fit(X, y, penalty=1.0),
        lambda: fit(X, y, divergence="vonneumann"),
        lambda: fit(X, y, tol=1e-5),
    ]
    for other in others:
        with pytest.raises(ValueError, match="belongs to another fit"):
            other()
    assert file.read_bytes() == before


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", ["logdet", "kernel", "kernel of a chosen gamma"])
def test_a_checkpoint_of_shorter_first_rounds_is_refused(
    name: str, wine: tuple[Any, Any], tmp_path: Path
) -> None:
    file = tmp_path / "fit"
    LEARNERS[name](checkpoint=file, max_iter=2, callback=_StopAfter(10)).fit(*wine)
    with pytest.raises(ValueError, match="belongs to another fit"):
        LEARNERS[name](checkpoint=file).fit(*wine)


def test_files_that_are_no_checkpoints_are_refused_and_kept(wine: tuple[Any, Any], tmp_path: Path) -> None:
    model, text = tmp_path / "model.safetensors", tmp_path / "notes.txt"
    nw.save(nw.Metric(np.eye(2)), model)
    text.write_text("mine")
    for file, message in ((model, "another kind of file"), (text, "damaged"), (tmp_path, "damaged")):
        with pytest.raises(ValueError, match=message):
            nw.MetricLearner(random_state=0, checkpoint=file).fit(*wine)
    assert text.read_text() == "mine"


def test_arguments_are_checked_before_any_work(wine: tuple[Any, Any], tmp_path: Path) -> None:
    def calls(record: object) -> None:
        raise AssertionError("work was done")

    with pytest.raises(ValueError, match="random_state must be a whole number, got None"):
        nw.MetricLearner(checkpoint=tmp_path / "fit", callback=calls).fit(*wine)
    with pytest.raises(TypeError, match="checkpoint must be a path or None, got 3"):
        nw.MetricLearner(checkpoint=3, random_state=0, callback=calls).fit(*wine)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        nw.MetricLearner(checkpoint=tmp_path / "no" / "fit", random_state=0, callback=calls).fit(*wine)
    with pytest.raises(ValueError, match="not for solver='online'"):
        nw.FixedRankLearner(solver="online", checkpoint=tmp_path / "fit", random_state=0).fit(*wine)


def test_nothing_to_learn_leaves_no_file(tmp_path: Path) -> None:
    with pytest.warns(nw.PriorKeptWarning):
        nw.MetricLearner(random_state=0, checkpoint=tmp_path / "fit").fit(np.eye(4))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore::nearwise.PriorKeptWarning")
def test_a_kept_prior_removes_the_checkpoint(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), rng.integers(2, size=60)
    for seed in range(20):
        learner = nw.MetricLearner(random_state=seed, checkpoint=tmp_path / "fit").fit(X, y)
        assert list(tmp_path.iterdir()) == []
        if learner.kept_prior_:
            return
    raise AssertionError("labels at random should have kept the prior once")


def test_a_saved_model_does_not_name_the_checkpoint(wine: tuple[Any, Any], tmp_path: Path) -> None:
    learner = nw.MetricLearner(penalty=1.0, random_state=0, checkpoint=tmp_path / "fit").fit(*wine)
    nw.save(learner, tmp_path / "model")
    assert nw.load(tmp_path / "model").checkpoint is None
