"""Files that earlier versions wrote: models answer as they did then, and checkpoints go on or are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import nearwise as nw
from nearwise.cli import main
from stored import FILES, answers, assert_same, read

MODELS = sorted((FILES / "models").glob("*.safetensors"))
CHECKPOINTS = sorted((FILES / "checkpoints").glob("*.checkpoint"))
RELATIVE = 1e-9  # to the largest number of an answer


def record(path: Path) -> dict[str, Any]:
    return json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_a_stored_model_answers_as_it_did(path: Path, tmp_path: Path) -> None:
    known = record(path)
    model = nw.load(path)
    assert type(model).__name__ == known["class"]
    nw.save(model, tmp_path / "again.safetensors")
    for one in (model, nw.load(tmp_path / "again.safetensors")):
        found = answers(one, read(known["inputs"]), known["asked"])
        for line, answer, expected in zip(known["asked"], found, known["answers"], strict=True):
            assert_same(answer, expected, RELATIVE, line)


def test_every_estimator_and_metric_that_is_exported_has_a_file() -> None:
    exported = {name for name in nw.__all__ if hasattr(getattr(nw, name), "fit")}
    exported |= {name for name in nw.__all__ if hasattr(getattr(nw, name), "squared_distances")}
    assert exported
    assert exported <= {record(path)["class"] for path in MODELS}


class _Counted:
    """A callback that counts iterations."""

    def __init__(self) -> None:
        self.n = 0

    def __call__(self, record: object) -> None:
        self.n += 1


@pytest.mark.parametrize("path", CHECKPOINTS, ids=lambda path: path.stem)
def test_a_stored_checkpoint_goes_on_or_is_refused_as_another_version_s(path: Path, tmp_path: Path) -> None:
    known, kept, seen = record(path), tmp_path / path.name, _Counted()
    shutil.copyfile(path, kept)
    inputs = read(known["inputs"])
    learner = getattr(nw, known["class"])(**known["settings"], random_state=0, checkpoint=kept, callback=seen)
    # a fit of a kernel is known by its features, whose last digits are those of a processor
    may_be_refused = nw.__version__ != known["version"] or "kernel" in known["settings"]
    refusal = ""
    try:
        learner.fit(inputs["X"], inputs["y"])
    except ValueError as error:
        refusal = str(error)
    if refusal:
        assert may_be_refused
        assert path.name in refusal
        assert len(refusal.splitlines()) == 1
        assert kept.read_bytes() == path.read_bytes()
        return
    assert nw.__version__ == known["version"]
    assert not kept.exists()
    assert seen.n < learner.n_iter_, "it began anew"
    for line, answer, expected in zip(
        known["asked"], answers(learner, inputs, known["asked"]), known["answers"], strict=True
    ):
        assert_same(answer, expected, 1e-6, line)


def test_the_command_reads_its_stored_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, known = (
        FILES / "command" / "objects.safetensors",
        record(FILES / "command" / "objects.safetensors"),
    )
    out = tmp_path / "out.csv"
    assert main(["apply", str(model), str(model.with_suffix(".csv")), "--id", "name", "-o", str(out)]) == 0
    lines = [line.split(",") for line in out.read_text(encoding="utf-8").splitlines()]
    assert lines[0] == known["columns"]
    assert_same([list(map(float, row[1:])) for row in lines[1:]], known["values"], RELATIVE, "coordinates")
    capsys.readouterr()
    assert main(["info", str(model)]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in ("objects.csv", "kind", "rare", "label"))
