"""How a file is written: whole or not at all, so that a reader sees the old file or the new one.

And files of arrays and texts in the safetensors format, sealed: one of which a single bit changed is not
read. The texts are the metadata of the format; one of them, `digest`, is the SHA-256 of all bytes of the
file, in which the digest itself counts as 64 zeros. It finds damage, and proves nothing about who wrote it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from nearwise._common.errors import one_line

_BLANK = b"0" * 64
_DIGEST = re.compile(rb'"digest":"([0-9a-f]{64})"')  # inside a text of JSON its quotation marks are escaped
_BLOCK = 1 << 20  # bytes


def path_text(path: str | os.PathLike[str], name: str) -> str:
    """A path as text."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"{name} must be the path of a file, got {type(path).__name__}")
    return os.fspath(path)


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


class DamagedFile(ValueError):
    """A file that is not as it was written, or was never of this format; the message is a clause."""


class OtherFormat(ValueError):
    """A safetensors file that holds something else."""


def to_bytes(arrays: Mapping[str, Any], texts: Mapping[str, str]) -> bytes:
    """The content of a file; equal arrays and texts give equal bytes."""
    from safetensors.numpy import save

    return sealed(save(dict(arrays), metadata={**texts, "digest": _BLANK.decode()}))


def sealed(content: bytes) -> bytes:
    """The file with its header in order, which safetensors changes between runs, and with its digest."""
    end = 8 + int.from_bytes(content[:8], "little")
    entries = json.loads(content[8:end])
    entries["__metadata__"]["digest"] = _BLANK.decode()
    header = json.dumps(entries, sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # the arrays behind it stay aligned
    start, arrays = len(header).to_bytes(8, "little"), content[end:]
    digest = hashlib.sha256(start + header + arrays).hexdigest().encode()
    return start + header.replace(b'"digest":"' + _BLANK, b'"digest":"' + digest) + arrays


def read_sealed(path: Path, kind: str) -> tuple[dict[str, str], dict[str, Any]]:
    """The texts and arrays of a file whose text `format` is `kind`.

    There is no text `digest` where the file was written before files had one; damage is not found then.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="numpy") as file:
            texts = dict(file.metadata() or {})
            if texts.get("format") != kind:
                raise OtherFormat(f"its format is {texts.get('format')!r}")
            if "digest" in texts:
                with open(path, "rb") as again:
                    _check_seal(again)
            return texts, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, TypeError, KeyError, AttributeError) as error:  # of types NumPy has not
        raise DamagedFile(one_line(error)) from error


def _check_seal(file: BinaryIO) -> None:
    start = file.read(8)
    # safetensors has checked that the file is at least as long as its header says
    header = file.read(int.from_bytes(start, "little"))
    found = _DIGEST.search(header)
    if found is None:
        raise DamagedFile("its digest is none")
    digest = hashlib.sha256(start + header[: found.start(1)] + _BLANK + header[found.end(1) :])
    while block := file.read(_BLOCK):
        digest.update(block)
    if digest.hexdigest().encode() != found[1]:
        raise DamagedFile("its digest does not fit its content")
