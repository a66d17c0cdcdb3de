"""Files are written whole or not at all, through links, with the permissions of what they replace."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nearwise._common.files import write_whole


def test_a_failed_write_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.html"
    write_whole(path, b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, b"new")
    assert [file.name for file in tmp_path.iterdir()] == ["r.html"]
    assert path.read_bytes() == b"old"


def test_a_link_is_followed_and_permissions_stay(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_bytes(b"old")
    path.chmod(0o640)
    link.symlink_to(path)
    write_whole(link, b"new")
    assert link.is_symlink()
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*absent"):
        write_whole(tmp_path / "absent" / "file", b"new")


def test_a_name_of_the_greatest_length_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    write_whole(path, b"new")
    assert path.read_bytes() == b"new"
