"""Files of nearwise with other entries, for tests of what is read from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nearwise._common.files import sealed


def parts(content: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of a safetensors file, and the bytes of its arrays."""
    end = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:end]), content[end:]


def joined(header: dict[str, Any], arrays: bytes) -> bytes:
    """A file with that header."""
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + arrays


def rewritten(path: Path, **changes: str) -> Path:
    """The model file with other texts in its header, and a digest that fits."""
    header, arrays = parts(path.read_bytes())
    header["__metadata__"] |= changes
    path.write_bytes(sealed(joined(header, arrays)))
    return path
