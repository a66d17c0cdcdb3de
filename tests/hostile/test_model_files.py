"""Model files and checkpoints that are damaged, or were never any: refused in one line, and nothing runs."""

from __future__ import annotations

import io
import json
import os
import pickle
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from outcomes import LABELS, ROWS
from safetensors.numpy import save_file

import nearwise as nw
from nearwise._common.files import sealed
from nearwise.learners import _checkpoint
from tampering import joined, parts, rewritten


def model_file(path: Path) -> Callable[[], Any]:
    """A saved model, and how it is read."""
    nw.save(nw.MetricLearner(penalty=1.0, random_state=0).fit(ROWS, LABELS), path)
    return lambda: nw.load(path).metric_.factor


def checkpoint_file(path: Path) -> Callable[[], Any]:
    """A checkpoint, and how it is read."""
    memory = _checkpoint.Checkpoint(path, "job")
    memory.finished = [np.arange(30.0).reshape(5, 6), np.eye(4)]
    memory.legs, memory.factor, memory.records = 1, np.ones((4, 3)), [[1.0, 0.1], [2.0, 0.2]]
    memory.passes["7"] = {"values": np.arange(5.0), "sum": np.ones(1)}  # of rows in pieces; it is written
    return lambda: np.concatenate([part.ravel() for part in _checkpoint.Checkpoint(path, "job").finished])


KINDS = {"model": model_file, "checkpoint": checkpoint_file}
every_kind = pytest.mark.parametrize("kind", KINDS)


def refusal(read: Callable[[], Any], path: Path) -> str:
    """What is said about the file: one line that names it."""
    with pytest.raises(ValueError) as error:  # noqa: PT011
        read()
    text = str(error.value)
    assert str(path) in text
    assert len(text.splitlines()) == 1
    return text


@every_kind
def test_files_cut_at_every_percent_of_their_length(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    read = KINDS[kind](path)
    content = path.read_bytes()
    for percent in range(100):
        path.write_bytes(content[: len(content) * percent // 100])
        assert "damaged" in refusal(read, path)
    path.write_bytes(content + b"\0")
    assert "damaged" in refusal(read, path)


@every_kind
@pytest.mark.parametrize("bits", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_thousand_flipped_bits(kind: str, bits: int, tmp_path: Path) -> None:
    """Every one is found; one in the word "digest" makes a file of before there were digests of it."""
    path = tmp_path / "file"
    read = KINDS[kind](path)
    content, expected = path.read_bytes(), read()
    rng = np.random.default_rng(0)
    refused = 0
    for bit in rng.choice(8 * len(content), size=bits, replace=False).tolist():
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        if _without_digest(bytes(changed)):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", ".* has no digest", UserWarning)
                np.testing.assert_array_equal(read(), expected)
            continue
        refusal(read, path)
        refused += 1
    assert refused >= 0.95 * bits


def _without_digest(content: bytes) -> bool:
    """Whether the header can be read, says whose file it is, and has no digest."""
    try:
        texts = parts(content)[0]["__metadata__"]
    except (ValueError, KeyError, MemoryError, OverflowError):
        return False
    return "digest" not in texts and str(texts.get("format")).startswith("nearwise")


def test_a_file_without_a_digest_is_read_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "model"
    read = model_file(path)
    header, arrays = parts(path.read_bytes())
    del header["__metadata__"]["digest"]
    path.write_bytes(joined(header, arrays))
    with pytest.warns(UserWarning, match="has no digest, as files of older versions, .*: save it again"):
        read()


def tensor(dtype: str = "F64", shape: tuple[int, ...] = (2, 2), end: int = 32, begin: int = 0) -> Any:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


TEXTS = {"format": "nearwise", "schema": "1", "version": "0", "model": json.dumps({"tensor": "a"})}
LYING: dict[str, bytes] = {
    "no header": b"",
    "a short length": b"\x01\x02",
    "a header of 2^63 bytes": (1 << 63).to_bytes(8, "little") + b"{}",
    "a header of 100 MB": (10**8).to_bytes(8, "little") + b"{}",
    "a header of 0 bytes": bytes(8),
    "a header that is no text": (4).to_bytes(8, "little") + b"\xff\xfe\xfd\xfc",
    "a header that is a list": joined([1, 2], b""),  # type: ignore[arg-type]
    "a header of brackets": (200_000).to_bytes(8, "little") + b"[" * 200_000,
    "an array beyond the end": joined({"__metadata__": TEXTS, "a": tensor(end=1 << 40)}, bytes(32)),
    "an array of a terabyte": joined(
        {"__metadata__": TEXTS, "a": tensor(shape=(1 << 20, 1 << 17), end=1 << 40)}, bytes(32)
    ),
    "more numbers than bytes": joined({"__metadata__": TEXTS, "a": tensor(shape=(50, 50))}, bytes(32)),
    "a shape that overflows": joined(
        {"__metadata__": TEXTS, "a": tensor(shape=(1 << 62, 1 << 62))}, bytes(32)
    ),
    "a negative shape": joined({"__metadata__": TEXTS, "a": tensor(shape=(-2, -2))}, bytes(32)),
    "an unknown type": joined({"__metadata__": TEXTS, "a": tensor("X99")}, bytes(32)),
    "a type that NumPy has not": joined({"__metadata__": TEXTS, "a": tensor("BF16", (16,))}, bytes(32)),
    "arrays that overlap": joined({"__metadata__": TEXTS, "a": tensor(), "b": tensor()}, bytes(32)),
    "a hole between arrays": joined(
        {"__metadata__": TEXTS, "a": tensor(), "b": tensor(begin=64, end=96)}, bytes(96)
    ),
    "texts that are numbers": joined({"__metadata__": {"format": 1}, "a": tensor()}, bytes(32)),
    "a zip file": b"PK\x03\x04 something else",
}


@every_kind
@pytest.mark.parametrize("case", LYING)
def test_headers_that_lie(case: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    read = KINDS[kind](path)
    content = LYING[case]
    if kind == "checkpoint":
        content = content.replace(b'"format": "nearwise"', b'"format": "nearwise checkpoint"')
        content = content if content == LYING[case] else joined(json.loads(_header(content)), bytes(32))
    path.write_bytes(content)
    tracemalloc.start()
    try:
        assert "damaged, or" in refusal(read, path)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def _header(content: bytes) -> bytes:
    """What stands between the length, which no longer fits, and the arrays."""
    return content[8 : content.rindex(b"}") + 1]


TREES: dict[str, tuple[Any, str]] = {
    "a class that is none of ours": (
        {"object": "Popen", "state": {"args": "ls"}},
        "holds a 'Popen', which this nearwise does not know",
    ),
    "a class by its path": (
        {"object": "os.system", "state": {}},
        "holds a 'os.system', which this nearwise does not know",
    ),
    "a class that is a list": ({"object": ["Metric"], "state": {}}, "description of the model is damaged"),
    "an array that is not there": ({"tensor": "gone"}, "the array 'gone' is missing"),
    "a method": (
        {"object": "MetricLearner", "state": {"transform": 1}},
        "'transform' is not an attribute that a MetricLearner stores",
    ),
    "the class of an object": (
        {"object": "MetricLearner", "state": {"__class__": 1}},
        "'__class__' is not an attribute that a MetricLearner stores",
    ),
    "all attributes of an object": (
        {"object": "MetricLearner", "state": {"__dict__": {"dict": {"transform": 1}}}},
        "'__dict__' is not an attribute that a MetricLearner stores",
    ),
    "an unknown field": (
        {"object": "Metric", "state": {"nonsense": 1}},
        "description of the model is damaged",
    ),
    "a class as an enumeration": (
        {"enum": "Pipeline", "member": "steps"},
        "description of the model is damaged",
    ),
    "an unknown member": ({"enum": "Status", "member": "FINE"}, "description of the model is damaged"),
    "an unknown kind": ({"code": "import os"}, "description of the model is damaged"),
    "a wrong float": ({"float": "one"}, "description of the model is damaged"),
    "a sparse array that is none": (
        {"sparse": [9, 9], "data": 1, "indices": 2, "indptr": 3},
        "description of the model is damaged",
    ),
}


@pytest.mark.parametrize("case", TREES)
def test_descriptions_that_are_wrong(case: str, tmp_path: Path) -> None:
    tree, text = TREES[case]
    read = model_file(tmp_path / "model")
    path = rewritten(tmp_path / "model", model=json.dumps(tree))
    assert text in refusal(read, path)


TEXT_CHANGES: dict[str, tuple[dict[str, str], str]] = {
    "a newer schema": (
        {"schema": "7", "version": "9.0"},
        r"was written by a newer nearwise (9.0, schema 7); this one, ",
    ),
    "a schema of many digits": ({"schema": "9" * 5000}, "makes no sense"),
    "no schema": ({"schema": ""}, "the schema version '' makes no sense"),
    "a negative schema": ({"schema": "-1"}, "the schema version '-1' makes no sense"),
    "a schema in other digits": ({"schema": "\u0661"}, "makes no sense"),
    "no description": ({"model": "{"}, "the description of the model is missing or damaged"),
    "a deep description": ({"model": "[" * 100_000}, "the description of the model is missing or damaged"),
    "a deep tree": (
        {"model": '{"list":[' * 3000 + "1" + "]}" * 3000},
        "the description of the model is",
    ),
    "a long number": ({"model": "1" + "0" * 5000}, "the description of the model is missing or damaged"),
}


@pytest.mark.parametrize("case", TEXT_CHANGES)
def test_texts_that_are_wrong(case: str, tmp_path: Path) -> None:
    changes, text = TEXT_CHANGES[case]
    read = model_file(tmp_path / "model")
    assert text in refusal(read, rewritten(tmp_path / "model", **changes))


CHECKPOINTS: dict[str, Callable[[Any, dict[str, Any]], None]] = {
    "no counts": lambda texts, _: texts.pop("counts"),
    "counts that are no JSON": lambda texts, _: texts.update(counts="{"),
    "counts that are a list": lambda texts, _: texts.update(counts="[1, 2]"),
    "counts that are texts": lambda texts, _: texts.update(counts='{"legs": "one", "n_iterations": 2}'),
    "deep counts": lambda texts, _: texts.update(counts="[" * 100_000),
    "an array of another name": lambda _, arrays: arrays.update(strange=arrays.pop("finished 0")),
    "a pass without a field": lambda _, arrays: arrays.update({"pass 1": arrays.pop("finished 1")}),
}


@pytest.mark.parametrize("case", CHECKPOINTS)
def test_checkpoints_whose_digest_fits_what_is_wrong(case: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    read = checkpoint_file(path)
    header, arrays = parts(path.read_bytes())
    texts = header.pop("__metadata__")
    CHECKPOINTS[case](texts, header)
    path.write_bytes(sealed(joined({"__metadata__": texts, **header}, arrays)))
    assert "is damaged; name another file" in refusal(read, path)


class _Intruder:
    """What, read by pickle, makes a folder."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("intruded",)


def pickled() -> bytes:
    return pickle.dumps(_Intruder())


def zipped(name: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, pickled())
    return buffer.getvalue()


CODE: dict[str, Callable[[], bytes]] = {
    "a pickle": pickled,
    "a pickle in a zip file": lambda: zipped("archive/data.pkl"),
    "a pickle as an array": lambda: zipped("X.npy"),
    "a pickle behind a length": lambda: len(pickled()).to_bytes(8, "little") + pickled(),
}


@every_kind
@pytest.mark.parametrize("case", CODE)
def test_no_file_runs_code(case: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "file"
    read = KINDS[kind](path)
    path.write_bytes(CODE[case]())
    assert "damaged, or" in refusal(read, path)
    for suffix in (".npy", ".npz", ".parquet", ".csv"):
        table = path.with_suffix(suffix)
        table.write_bytes(CODE[case]())
        with pytest.raises(ValueError, match="file"):
            nw.tables.read(str(table))
    assert not (tmp_path / "intruded").exists()


def test_paths_and_files_that_are_no_models(tmp_path: Path) -> None:
    path = tmp_path / "model"
    for place in (path, tmp_path):
        with pytest.raises(FileNotFoundError, match=f"^no model file {place}$"):
            nw.load(place)
    save_file({"weights": np.zeros(3)}, path)
    with pytest.raises(nw.ModelFileError, match="is a safetensors file, but not one that nearwise wrote"):
        nw.load(path)
    checkpoint_file(tmp_path / "checkpoint")
    with pytest.raises(nw.ModelFileError, match="not one that nearwise wrote"):
        nw.load(tmp_path / "checkpoint")


def test_a_matrix_too_large_for_memory_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nearwise._common import memory

    path = tmp_path / "model"
    read = model_file(path)
    monkeypatch.setattr(memory, "free_bytes", lambda: 10)
    monkeypatch.setattr(memory, "_SMALL", 0)
    assert "its matrix needs 0.0 GB of memory, and 0.0 GB are free" in refusal(read, path)
    assert sealed(path.read_bytes()) == path.read_bytes()
