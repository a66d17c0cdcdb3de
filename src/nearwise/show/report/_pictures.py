"""Pictures for the page, as data URIs: small files as they are, large ones made smaller, arrays as PNG.

Only what is a PNG, JPEG, GIF or WebP file by its first bytes is shown, so that a table that names another
file puts nothing of it on the page.
"""

from __future__ import annotations

import base64
import io
import struct
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGEST = 20_000  # bytes of a picture on the page
TOGETHER = 1_200_000  # bytes of all pictures on a page
_READ = 50_000_000  # bytes of a file that is made smaller
_PIXELS = 100_000_000
_SIDE = 160  # pixels of a picture that was made smaller
_MAGIC = {b"\x89PNG\r\n\x1a\n": "png", b"\xff\xd8\xff": "jpeg", b"GIF87a": "gif", b"GIF89a": "gif"}
_TOO_LARGE = "too large, and made smaller only where Pillow is installed"
_NO_PICTURE = "no PNG, JPEG, GIF or WebP file"
_NOT_READ = "not to be read"
_FULL = "beyond what one page may hold"


class Pictures:
    """The pictures of rows; what cannot be shown is counted, by its reason."""

    def __init__(self, sources: Sequence[Any] | NDArray[Any] | None) -> None:
        """`sources` are paths, None for no picture, or an array (n, height, width[, 3]) of numbers."""
        self.missing: Counter[str] = Counter()
        self._left = TOGETHER
        self._sources = sources
        self._range = (0.0, 1.0)
        if isinstance(sources, np.ndarray) and sources.ndim > 1:
            self._range = (float(sources.min()), float(sources.max()))

    def __bool__(self) -> bool:
        return self._sources is not None

    def uri(self, row: int) -> str:
        """The picture of a row, for the attribute `src`; empty where there is none."""
        source = None if self._sources is None else self._sources[row]
        if source is None:
            return ""
        kind, content = self._array(source) if isinstance(source, np.ndarray) else _file(str(source))
        if kind and len(content) > self._left:
            kind, content = "", _FULL.encode()
        if not kind:
            self.missing[content.decode()] += 1
            return ""
        self._left -= len(content)
        return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"

    def note(self) -> str:
        """A sentence about pictures that could not be shown, or nothing."""
        parts = [f"{count} {reason}" for reason, count in self.missing.items()]
        return f"Pictures that are not shown: {', '.join(parts)}." if parts else ""

    def _array(self, values: NDArray[Any]) -> tuple[str, bytes]:
        low, high = self._range
        scaled = (np.asarray(values, dtype=np.float64) - low) / ((high - low) or 1.0)
        return "png", png(np.round(255 * scaled).astype(np.uint8))


def png(pixels: NDArray[np.uint8]) -> bytes:
    """(height, width) grey or (height, width, 3) coloured pixels as a PNG file (W3C PNG, section 11)."""
    height, width = pixels.shape[:2]
    colour = 0 if pixels.ndim == 2 else 2
    lines = pixels.reshape(height, -1)
    raw = np.hstack([np.zeros((height, 1), np.uint8), lines]).tobytes()  # no line is filtered

    def chunk(name: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(raw, 9)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _file(path: str) -> tuple[str, bytes]:
    """The kind of a picture and its bytes, or nothing and why there is none."""
    try:
        size = Path(path).stat().st_size
        with Path(path).open("rb") as file:
            content = file.read(min(size, _READ))
    except OSError:
        return "", _NOT_READ.encode()
    kind = next((kind for magic, kind in _MAGIC.items() if content.startswith(magic)), "")
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        kind = "webp"
    if not kind:
        return "", _NO_PICTURE.encode()
    if size <= LARGEST:
        return kind, content
    return _smaller(content) if size <= _READ else ("", _TOO_LARGE.encode())


def _smaller(content: bytes) -> tuple[str, bytes]:
    try:
        from PIL import Image
    except ImportError:
        return "", _TOO_LARGE.encode()
    try:
        with Image.open(io.BytesIO(content)) as image:
            if image.width * image.height > _PIXELS:
                return "", _TOO_LARGE.encode()
            image.draft("RGB", (_SIDE, _SIDE))
            small = image.convert("RGB")
            small.thumbnail((_SIDE, _SIDE))
            buffer = io.BytesIO()
            small.save(buffer, "JPEG", quality=80)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return "", _NOT_READ.encode()
    return "jpeg", buffer.getvalue()
