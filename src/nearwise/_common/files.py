"""How a file is written: whole or not at all, so that a reader sees the old file or the new one."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_whole(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file beside its destination, then move it there; nothing half-written is left behind.

    A symbolic link is followed, and a file that is replaced hands its permissions on.
    """
    with whole_file(path) as part, open(part, "xb") as file:
        file.write(content)


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path to write to, which does not exist yet; at the end it is moved to its destination, as above."""
    target = Path(path).resolve()
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: there is no folder {Path(path).parent}")
    part = target.with_name(f".{uuid.uuid4().hex}.part")
    try:
        yield part
        with open(part, "rb+") as file:
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, part)
        os.replace(part, target)
    except OSError as error:
        if error.errno is not None and error.filename in (None, str(part)):
            error.filename, error.filename2 = os.fspath(path), None  # what the user asked for
        raise
    finally:
        part.unlink(missing_ok=True)
