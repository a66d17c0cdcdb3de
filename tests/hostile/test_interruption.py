"""Ctrl-C at any call of a fit, and processes that are ended while they write: all or nothing."""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from outcomes import LABELS, LEARNERS, QUICK, ROWS, numbers

import nearwise as nw
from nearwise.learners import _checkpoint

OTHER = np.random.default_rng(5).normal(size=(12, 4))
OTHER_LABELS = np.arange(12) % 2
PACKAGE = str(Path(nw.__file__).parent)


@contextmanager
def interrupted_at(call: int | None, count: list[int]) -> Iterator[None]:
    """Raise KeyboardInterrupt at the given call of a function of the package; count the calls."""

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            count[0] += 1
            if count[0] == call:
                raise KeyboardInterrupt

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(before)


INTERRUPTED = [
    *(pytest.param(name, 4) for name in ("metric", *QUICK)),
    *(pytest.param(name, 60, marks=pytest.mark.slow) for name in LEARNERS),
]


# Python drops what is raised in a generator that is being closed, with a note on standard error
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:KernelReducer returns kernel PCA. W was 0 when it ended")
@pytest.mark.parametrize(("learner", "times"), INTERRUPTED)
def test_ctrl_c_at_any_call_leaves_the_old_model_or_a_new_one(learner: str, times: int) -> None:
    model = LEARNERS[learner]().fit(ROWS, LABELS)
    before, attributes = numbers(model, ROWS), dict(vars(model))
    count = [0]
    with interrupted_at(None, count):
        whole = LEARNERS[learner]().fit(OTHER, OTHER_LABELS)
    fresh, calls = numbers(whole, OTHER), count[0]
    rng = np.random.default_rng(0)
    untouched = 0
    for call in rng.integers(1, calls + 1, size=times):
        try:
            with interrupted_at(int(call), [0]):
                model.fit(OTHER, OTHER_LABELS)
        except KeyboardInterrupt:
            untouched += 1
            assert vars(model).keys() == attributes.keys()
            assert all(vars(model)[name] is attributes[name] for name in attributes)
            for found, wanted in zip(numbers(model, ROWS), before, strict=True):
                np.testing.assert_array_equal(found, wanted)
        else:
            assert getattr(model, "status_", None) is nw.Status.INTERRUPTED or all(
                np.array_equal(a, b) for a, b in zip(numbers(model, OTHER), fresh, strict=True)
            )
            assert all(np.isfinite(found).all() for found in numbers(model, OTHER))
            model = LEARNERS[learner]().fit(ROWS, LABELS)
            attributes = dict(vars(model))
    assert untouched or times < 10


def ended(work: Callable[[], None], how: int, seconds: float) -> None:
    """Run some work in a process of its own, and end it after a while."""
    with warnings.catch_warnings():
        # Python warns of forks beside threads; here no thread of Python runs
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:  # pragma: no cover
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            work()
        finally:
            os._exit(0)
    time.sleep(seconds)
    os.kill(child, how)
    os.waitpid(child, 0)


def forever(write: Callable[[int], None]) -> Callable[[], None]:
    def work() -> None:
        turn = 0
        while True:
            turn += 1
            write(turn)

    return work


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
ENDS = [signal.SIGKILL, signal.SIGTERM]


@pytest.mark.long
@needs_fork
@pytest.mark.parametrize("how", ENDS, ids=lambda how: how.name)
@pytest.mark.parametrize("times", [12, pytest.param(300, marks=pytest.mark.slow)])
def test_a_process_that_is_ended_while_it_saves_leaves_a_whole_model(
    how: signal.Signals, times: int, tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    models = [nw.Metric(np.eye(k)) for k in (60, 90)]
    nw.save(models[0], path)
    rng = np.random.default_rng(1)
    for _ in range(times):
        ended(forever(lambda turn: nw.save(models[turn % 2], path)), how, rng.uniform(0.0, 0.03))
        loaded = nw.load(path)
        np.testing.assert_array_equal(loaded.factor, np.eye(loaded.n_features))
        assert {file.suffix for file in tmp_path.iterdir()} <= {".safetensors", ".part"}


@pytest.mark.long
@needs_fork
@pytest.mark.parametrize("how", ENDS, ids=lambda how: how.name)
@pytest.mark.parametrize("times", [12, pytest.param(300, marks=pytest.mark.slow)])
def test_a_process_that_is_ended_while_it_writes_a_checkpoint_leaves_a_whole_one(
    how: signal.Signals, times: int, tmp_path: Path
) -> None:
    path = tmp_path / "fit.checkpoint"
    memory = _checkpoint.Checkpoint(path, "job")

    def write(turn: int) -> None:
        memory.finished = [np.full((50, 50), float(k)) for k in range(turn % 3)]
        memory.n_iterations = turn
        memory._write()

    rng = np.random.default_rng(2)
    for _ in range(times):
        ended(forever(write), how, rng.uniform(0.0, 0.03))
        found = _checkpoint.Checkpoint(path, "job")
        assert len(found.finished) == found.n_iterations % 3
        for k, factor in enumerate(found.finished):
            np.testing.assert_array_equal(factor, np.full((50, 50), float(k)))


@pytest.mark.long
@needs_fork
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("times", [3, pytest.param(45, marks=pytest.mark.slow)])
def test_a_fit_that_was_ended_goes_on_from_its_checkpoint_to_the_same_bits(
    times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_checkpoint, "FIRST_LEG", 2)  # so that a small fit has several
    X = np.random.default_rng(3).normal(size=(60, 4))
    y = (X[:, 0] + 0.3 * X[:, 1] > 0).astype(int)

    def fitted(path: Path) -> Any:
        learner = nw.MetricLearner("vonneumann", penalty=30.0, tol=1e-9, random_state=0, checkpoint=path)
        return learner.set_params(callback=lambda record: time.sleep(0.01)).fit(X, y)

    began = time.perf_counter()
    straight = fitted(tmp_path / "other").transform(X)
    seconds = time.perf_counter() - began
    path, rng, kept = tmp_path / "fit", np.random.default_rng(4), 0
    for turn in range(times):
        how = [signal.SIGKILL, signal.SIGTERM, signal.SIGINT][turn % 3]
        ended(lambda: fitted(path) and None, how, rng.uniform(0.0, seconds))  # type: ignore[func-returns-value]
        kept += path.exists()
        if turn % 3 == 2:
            np.testing.assert_array_equal(fitted(path).transform(X), straight)
            assert not path.exists()
    assert kept


def test_what_an_error_interrupts_is_untouched_too() -> None:
    """A second fit that fails leaves the first."""
    model = nw.MetricLearner(penalty=1.0, random_state=0).fit(ROWS, LABELS)
    before = model.transform(ROWS)

    def stop(record: object) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        model.set_params(callback=stop).fit(OTHER, OTHER_LABELS)
    np.testing.assert_array_equal(model.transform(ROWS), before)
    assert model.n_features_in_ == 3
