"""Compiled loops: kept on disk, compiled anew after a change, and compiled where nothing can be kept."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import pytest
from numba.core.caching import FunctionCache

from nearwise.cli import _common
from nearwise.linalg import loops
from nearwise.linalg.loops import compiling

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")

SOURCE = """
from nearwise.linalg.loops.compiling import compiled

@compiled()
def doubled(x):
    return 2 * x
"""


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Nothing said and no stamp known yet."""
    said = set(compiling._told)
    compiling._told.clear()
    compiling._stamp.cache_clear()
    yield
    compiling._told.clear()
    compiling._told.update(said)
    compiling._stamp.cache_clear()


def imported(path: Path) -> ModuleType:
    """A module from a file, anew."""
    spec = importlib.util.spec_from_file_location("loop", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def hits(loop: Any) -> int:
    return sum(loop.stats.cache_hits.values())


def test_code_is_kept_until_the_folder_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """numba itself looks at the file of the function alone, and would run what was compiled before."""
    file, folder = tmp_path / "loop.py", tmp_path / "folder"
    folder.mkdir()
    file.write_text(SOURCE)
    (folder / "callee.py").write_text("FACTOR = 2")
    monkeypatch.setattr(compiling, "__file__", str(folder / "compiling.py"))
    first = imported(file).doubled
    assert (first(3), hits(first)) == (6, 0)
    again = imported(file).doubled
    assert (again(3), hits(again)) == (6, 1)
    (folder / "callee.py").write_text("FACTOR = 3")
    compiling._stamp.cache_clear()
    changed = imported(file).doubled
    assert (changed(3), hits(changed)) == (6, 0)


@pytest.mark.parametrize("compiler", ["numba", "llvmlite", "numpy"])
def test_another_version_of_a_compiler_compiles_anew(
    compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "loop.py"
    file.write_text(SOURCE)
    assert imported(file).doubled(3) == 6
    again = imported(file).doubled
    assert (again(3), hits(again)) == (6, 1)
    monkeypatch.setattr(importlib.import_module(compiler), "__version__", "0.0.0")
    compiling._stamp.cache_clear()
    other = imported(file).doubled
    assert (other(3), hits(other)) == (6, 0)


def test_the_processor_and_python_are_part_of_the_key(tmp_path: Path) -> None:
    """As numba has it: a shared folder holds code for several of them side by side."""
    file = tmp_path / "loop.py"
    file.write_text(SOURCE)
    loop = imported(file).doubled
    assert loop(3) == 6
    [(key, _)] = loop._cache._cache_file._load_index().items()
    assert loop.targetctx.codegen().magic_tuple() in key
    assert f".py{sys.version_info.major}{sys.version_info.minor}" in loop._cache._impl.filename_base


def test_what_an_older_version_left_is_removed(tmp_path: Path) -> None:
    file = tmp_path / "loop.py"
    file.write_text(SOURCE + SOURCE.replace("doubled", "other"))
    module = imported(file)
    assert (module.doubled(3), module.doubled(3.0), module.other(3)) == (6, 6.0, 6)
    folder = Path(module.doubled._cache.cache_path)

    def kept(name: str) -> list[str]:
        return sorted(path.suffix for path in folder.iterdir() if f".{name}-" in path.name)

    assert kept("doubled") == [".nbc", ".nbc", ".nbi"]
    for lines in range(1, 4):
        file.write_text("\n" * lines + SOURCE + SOURCE.replace("doubled", "other"))
        compiling._stamp.cache_clear()
        loop = imported(file).doubled
        assert (loop(3), hits(loop)) == (6, 0)
        assert kept("doubled") == [".nbc", ".nbi"]
        assert kept("other") == [".nbc", ".nbi"]  # until it is compiled anew itself
    again = imported(file).doubled
    assert (again(3), hits(again)) == (6, 1)


def test_without_a_folder_for_it_code_is_compiled_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "loop.py"
    file.write_text(SOURCE)
    monkeypatch.setattr(FunctionCache._impl_class, "_locator_classes", [])
    with pytest.warns(RuntimeWarning, match="no folder for them is writable.*NUMBA_CACHE_DIR"):
        loop = imported(file).doubled
    assert loop(4) == 8
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is said once
        assert imported(file).doubled(5) == 10
    assert not list(tmp_path.rglob("*.nbi"))


def test_a_full_disk_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    file = tmp_path / "loop.py"
    file.write_text(SOURCE)
    loop = imported(file).doubled
    monkeypatch.setattr(FunctionCache, "save_overload", full)
    with pytest.warns(RuntimeWarning, match="No space left on device"):
        assert loop(4) == 8


@pytest.mark.long
def test_compilation_is_announced_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "loop.py"
    file.write_text(SOURCE)
    with _common.telling_of_compilation(quiet=False):
        loop = imported(file).doubled
        assert capsys.readouterr().err == ""
        loop(1)
        assert capsys.readouterr().err.startswith("nearwise: note: compiling loops for this machine")
        loop(1.5)
        assert capsys.readouterr().err == ""
    assert loops.announce is None
    compiling._told.clear()
    with _common.telling_of_compilation(quiet=False):
        assert imported(file).doubled(1) == 2  # kept: nothing to compile, nothing to say
        assert capsys.readouterr().err == ""
    with _common.telling_of_compilation(quiet=True):
        loop(1j)
        assert capsys.readouterr().err == ""


@pytest.mark.slow  # compiles every loop; what it says and does is tested above with one
def test_learning_online_on_the_command_line_without_any_folder_for_code(tmp_path: Path) -> None:
    """A read-only installation and home, as in many containers."""
    code = (
        "from numba.core.caching import FunctionCache\n"
        "FunctionCache._impl_class._locator_classes = []\n"
        "from nearwise.cli import main\n"
        "raise SystemExit(main(['learn', 'dataset:iris', '--labels', 'target', '--method', 'online', "
        f"'-o', {str(tmp_path / 'model')!r}]))"
    )
    quick = os.environ | {"NUMBA_OPT": "0"}  # the compiler need not make good code of it
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=quick)
    assert run.returncode == 0, run.stderr
    assert "note: compiling loops for this machine" in run.stderr
    assert "NUMBA_CACHE_DIR" in run.stderr
    assert (tmp_path / "model").exists()
