"""Pictures of rows as data URIs: small files as they are, large ones made smaller, arrays as PNG.

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

Encoded = tuple[str, bytes]  # the kind of a picture, and its bytes


class _NotShown(Exception):
    """The message says why, after a number of pictures."""


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
        try:
            kind, content = self._array(source) if isinstance(source, np.ndarray) else _file(Path(source))
            if len(content) > self._left:
                raise _NotShown("beyond what one page may hold")
        except _NotShown as reason:
            self.missing[str(reason)] += 1
            return ""
        self._left -= len(content)
        return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"

    def note(self) -> str:
        """A sentence about pictures that could not be shown, or nothing."""
        parts = [f"{count} {reason}" for reason, count in self.missing.items()]
        return f"Pictures that are not shown: {', '.join(parts)}." if parts else ""

    def _array(self, values: NDArray[Any]) -> Encoded:
        low, high = self._range
        scaled = (np.asarray(values, dtype=np.float64) - low) / ((high - low) or 1.0)
        return "png", png(np.round(255 * scaled).astype(np.uint8))


def png(pixels: NDArray[np.uint8]) -> bytes:
    """(height, width) grey or (height, width, 3) coloured pixels as a PNG file (W3C PNG, section 11)."""
    height, width = pixels.shape[:2]
    lines = pixels.reshape(height, -1)
    raw = np.hstack([np.zeros((height, 1), np.uint8), lines]).tobytes()  # no line is filtered
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if pixels.ndim == 2 else 2, 0, 0, 0)
    file = b"\x89PNG\r\n\x1a\n"
    for chunk in (b"IHDR" + header, b"IDAT" + zlib.compress(raw, 9), b"IEND"):
        file += struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return file


def _file(path: Path) -> Encoded:
    """A picture in a file, made smaller where it is large."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            content = file.read(min(size, _READ))
    except OSError:
        raise _NotShown("not to be read") from None
    kind = next((kind for magic, kind in _MAGIC.items() if content.startswith(magic)), "")
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        kind = "webp"
    if not kind:
        raise _NotShown("no PNG, JPEG, GIF or WebP file")
    if size <= LARGEST:
        return kind, content
    if size > _READ:
        raise _NotShown(_TOO_LARGE)
    return "jpeg", _smaller(content)


def _smaller(content: bytes) -> bytes:
    try:
        from PIL import Image
    except ImportError:
        raise _NotShown(_TOO_LARGE) from None
    try:
        with Image.open(io.BytesIO(content)) as image:
            if image.width * image.height > _PIXELS:
                raise _NotShown(_TOO_LARGE)
            image.draft("RGB", (_SIDE, _SIDE))
            small = image.convert("RGB")
            small.thumbnail((_SIDE, _SIDE))
            buffer = io.BytesIO()
            small.save(buffer, "JPEG", quality=80)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        raise _NotShown("not to be read") from None
    return buffer.getvalue()
