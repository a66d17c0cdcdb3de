"""Files of nearwise with other entries, for tests of what is read from them.

They are safetensors files. One text in the header, `digest`, is the SHA-256 of all bytes of the file, in
which the digest itself counts as 64 zeros.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any


def parts(content: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of a safetensors file, and the bytes of its arrays."""
    end = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:end]), content[end:]


def joined(header: dict[str, Any], arrays: bytes) -> bytes:
    """A file with that header."""
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + arrays


def sealed(header: dict[str, Any], arrays: bytes) -> bytes:
    """A file with that header and the digest that fits."""
    blank = b'"digest":"' + b"0" * 64
    header["__metadata__"]["digest"] = "0" * 64
    text = json.dumps(header, separators=(",", ":")).encode()
    content = len(text).to_bytes(8, "little") + text + arrays
    return content.replace(blank, b'"digest":"' + hashlib.sha256(content).hexdigest().encode())


def rewritten(path: Path, **changes: str) -> Path:
    """The model file with other texts in its header, and a digest that fits."""
    header, arrays = parts(path.read_bytes())
    header["__metadata__"] |= changes
    path.write_bytes(sealed(header, arrays))
    return path
