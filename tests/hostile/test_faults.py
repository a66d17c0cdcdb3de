"""Full disks, folders that cannot be written, too little memory, forks and threads."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from outcomes import LABELS, LEARNERS, ROWS, numbers
from threadpoolctl import threadpool_limits

import nearwise as nw
from nearwise import tables
from nearwise._common import memory
from nearwise._common.files import write_whole

LARGE = np.random.default_rng(0).normal(size=(200, 50))


# everything that nearwise writes, as it is written a second time
WRITERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "model": ("model.safetensors", lambda path: nw.save(nw.Metric(LARGE), path)),
    "CSV": ("table.csv", lambda path: tables.write(str(path), _names(), LARGE, force=True)),
    "Parquet": ("table.parquet", lambda path: tables.write(str(path), _names(), LARGE, force=True)),
    "NumPy": ("table.npz", lambda path: tables.write(str(path), _names(), LARGE, force=True)),
    "bytes": ("page.html", lambda path: write_whole(path, bytes(100_000))),
}


def _names() -> list[str]:
    return [f"x{k}" for k in range(LARGE.shape[1])]


def full(*_: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def failing_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of what is written goes to the disk."""

    @contextmanager
    def opened(path: Path, mode: str) -> Iterator[Any]:
        with open(path, mode) as file:

            def write(content: bytes) -> None:
                file.write(content[: len(content) // 2])
                full()

            yield SimpleNamespace(write=write)

    monkeypatch.setattr("nearwise._common.files.open", opened, raising=False)


# where the disk turns out to be full
MOMENTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "writing": failing_write,
    "flushing to the disk": lambda monkeypatch: monkeypatch.setattr(os, "fsync", full),
    "copying permissions": lambda monkeypatch: monkeypatch.setattr(shutil, "copymode", full),
    "moving into place": lambda monkeypatch: monkeypatch.setattr(os, "replace", full),
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("writer", WRITERS)
def test_a_full_disk_leaves_the_old_file_and_no_other(writer: str, moment: str, tmp_path: Path) -> None:
    name, write = WRITERS[writer]
    path = tmp_path / name
    write(path)
    before = path.read_bytes()
    with pytest.MonkeyPatch.context() as monkeypatch:
        MOMENTS[moment](monkeypatch)
        with pytest.raises(OSError, match=r"No space left on device: .*" + name):
            write(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [name]


def in_a_child(work: Callable[[], None]) -> int:
    """The exit status of some work in a process of its own: 0 where it did what was expected."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads, of which none runs
        child = os.fork()
    if child == 0:  # pragma: no cover
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("writer", WRITERS)
def test_a_file_size_limit_leaves_the_old_file_and_no_other(writer: str, tmp_path: Path) -> None:
    """A limit of the system, not of a monkey."""
    name, write = WRITERS[writer]
    path = tmp_path / name
    write(path)
    before = path.read_bytes()

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))  # Python ignores SIGXFSZ
        with pytest.raises(OSError, match="File too large"):
            write(path)

    assert in_a_child(work) == 0
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_a_small_disk_that_is_really_full(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a file system cannot be mounted here")
    try:
        path = disk / "model.safetensors"
        nw.save(nw.Metric(np.eye(20)), path)
        before = path.read_bytes()
        with pytest.raises(OSError, match=r"No space left on device: .*model\.safetensors"):
            nw.save(nw.Metric(LARGE), path)
        assert path.read_bytes() == before
        assert [file.name for file in disk.iterdir()] == ["model.safetensors"]
        np.testing.assert_array_equal(nw.load(path).factor, np.eye(20))
    finally:
        subprocess.run(["umount", str(disk)], check=True, capture_output=True)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_folder_that_cannot_be_written_is_named(writer: str, tmp_path: Path) -> None:
    name, write = WRITERS[writer]
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(0o500)
    if os.geteuid() == 0:  # whom permissions do not bind
        folder = Path("/proc/self")
    with pytest.raises(OSError, match=str(folder / name)):
        write(folder / name)


def test_a_checkpoint_that_cannot_be_written_is_refused_before_any_work(tmp_path: Path) -> None:
    def calls(record: object) -> None:
        raise AssertionError("work was done")

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(os, "fsync", full)
        learner = nw.MetricLearner(random_state=0, checkpoint=tmp_path / "fit", callback=calls)
        with pytest.raises(OSError, match=r"No space left on device: .*fit"):
            learner.fit(ROWS, LABELS)
    assert list(tmp_path.iterdir()) == []


FITTED = nw.MetricLearner(penalty=1.0, random_state=0)
TOO_LARGE: dict[str, tuple[Callable[[], Any], str]] = {
    "distances": (
        lambda: FITTED.fit(ROWS, LABELS).distances(np.zeros((400, 3)), np.zeros((500, 3))),
        r"the matrix of distances between 400 and 500 objects needs 0\.0 GB of memory, and 0\.0 GB are free",
    ),
    "a kernel": (
        lambda: nw.KernelLearner(basis="full", penalty=1.0).fit(LARGE, np.arange(200) % 2),
        "the kernel matrix of 200 by 200 objects needs",
    ),
    "a matrix of many features": (
        lambda: nw.Metric(np.eye(2), np.eye(400, 2)).matrix,
        "the matrix of 400 features needs",
    ),
}


@pytest.mark.parametrize("case", TOO_LARGE)
def test_too_little_memory_is_foreseen(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, text = TOO_LARGE[case]
    monkeypatch.setattr(memory, "free_bytes", lambda: 100_000)
    monkeypatch.setattr(memory, "_SMALL", 0)
    with pytest.raises(MemoryError, match=text):
        make()


def test_memory_of_the_machine_and_of_a_limit() -> None:
    """What is said to be free is about what a process can have."""
    assert memory.free_bytes() is None or memory.free_bytes() > 0

    def work() -> None:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + 2 * 10**8, used + 2 * 10**8))
        assert 1.5 * 10**8 < memory.free_bytes() <= 2 * 10**8
        rows = np.random.default_rng(0).normal(size=(20_000, 2))
        text = r"of 20,000 by 20,000 objects needs 3\.2 GB of memory, and 0\.\d GB"
        with pytest.raises(MemoryError, match=text):
            nw.KernelLearner(basis="full", penalty=1.0).fit(rows, (rows[:, 0] > 0).astype(int))

    if Path("/proc/self/statm").exists():
        assert in_a_child(work) == 0


SHARED = (
    "metric",
    "kernel",
    "fixed rank",
    "online LogDet",
    "regressor",
    "automatic",
    "diagonal",
    "neighbors",
)


@pytest.mark.parametrize("learner", SHARED)
def test_threads_that_use_one_model_get_the_same(learner: str) -> None:
    model = LEARNERS[learner]().fit(ROWS, LABELS)
    expected = numbers(model, ROWS)
    found: list[Any] = []

    def work() -> None:
        for _ in range(10):
            found.append(numbers(model, ROWS))

    _together([work] * 4)
    assert len(found) == 40
    for one in found:
        for a, b in zip(one, expected, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("learner", SHARED)
def test_threads_that_fit_models_of_their_own_get_the_same(learner: str) -> None:
    expected = numbers(LEARNERS[learner]().fit(ROWS, LABELS), ROWS)
    found: list[Any] = []

    def work() -> None:
        found.append(numbers(LEARNERS[learner]().fit(ROWS, LABELS), ROWS))

    _together([work] * 4)
    assert len(found) == 4
    for one in found:
        for a, b in zip(one, expected, strict=True):
            np.testing.assert_array_equal(a, b)


def _together(works: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("learner", SHARED)
def test_a_forked_process_gets_the_same(learner: str) -> None:
    model = LEARNERS[learner]().fit(ROWS, LABELS)
    expected = numbers(model, ROWS)

    def work() -> None:
        for found in (numbers(model, ROWS), numbers(LEARNERS[learner]().fit(ROWS, LABELS), ROWS)):
            for a, b in zip(found, expected, strict=True):
                np.testing.assert_array_equal(a, b)

    assert in_a_child(work) == 0


@pytest.mark.parametrize("learner", SHARED)
def test_one_seed_gives_the_same_bits(learner: str) -> None:
    first, second = (numbers(LEARNERS[learner]().fit(ROWS, LABELS), ROWS) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "learner", ["subspace", *(pytest.param(name, marks=pytest.mark.slow) for name in LEARNERS)]
)
def test_the_number_of_threads_changes_rounding_only(learner: str) -> None:
    X = np.random.default_rng(0).normal(size=(150, 40))
    y = (X[:, 0] + 0.2 * X[:, 1] > 0).astype(int)
    found = []
    for count in (1, 2, 4):
        with threadpool_limits(count):
            found.append(numbers(LEARNERS[learner]().fit(X, y), X))
    for other in found[1:]:
        for a, b in zip(other, found[0], strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-10 * np.abs(b).max())
