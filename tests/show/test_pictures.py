"""Pictures on the page: arrays and files as data URIs, small ones only, and nothing that is no picture."""

from __future__ import annotations

import base64
import io
import sys
from pathlib import Path

import numpy as np
import pytest

from nearwise.show.report import Pictures, pictures as pictures_module
from nearwise.show.report.pictures import png

Image = pytest.importorskip("PIL.Image")


def opened(uri: str) -> Image.Image:
    kind, content = uri.removeprefix("data:image/").split(";base64,")
    image = Image.open(io.BytesIO(base64.b64decode(content)))
    assert image.format == kind.upper()
    return image


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    """A picture that is too large as it is: noise cannot be compressed."""
    path = tmp_path / "photo.png"
    path.write_bytes(png(np.random.default_rng(0).integers(0, 256, (300, 200, 3), dtype=np.uint8)))
    assert path.stat().st_size > pictures_module.LARGEST
    return path


@pytest.mark.parametrize("shape", [(3, 5), (3, 5, 3)])
def test_pixels_are_the_same_in_the_file(shape: tuple[int, ...]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(png(pixels)))), pixels)


def test_arrays_are_shown_from_the_smallest_number_to_the_largest() -> None:
    values = np.array([[[0.0, 2.0]], [[4.0, 8.0]]])
    found = np.asarray(opened(Pictures(values).uri(1)))
    np.testing.assert_array_equal(found, [[128, 255]])
    assert opened(Pictures(np.zeros((1, 2, 2))).uri(0)).size == (2, 2)  # all alike


@pytest.mark.parametrize("kind", ["png", "jpeg", "gif", "webp"])
def test_small_files_are_shown_as_they_are(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "without suffix"
    Image.new("RGB", (8, 8), "red").save(path, kind)
    pictures = Pictures([str(path), None])
    uri = pictures.uri(0)
    assert base64.b64decode(uri.partition(",")[2]) == path.read_bytes()
    opened(uri)
    assert pictures.uri(1) == ""
    assert pictures.note() == ""


def test_large_files_are_made_smaller(photo: Path) -> None:
    found = opened(Pictures([str(photo)]).uri(0))
    assert max(found.size) == 160
    assert found.size == (107, 160)


def test_without_pillow_large_files_are_counted(photo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    pictures = Pictures([str(photo), str(photo)])
    assert [pictures.uri(0), pictures.uri(1)] == ["", ""]
    note = "Pictures that are not shown: 2 too large, and made smaller only where Pillow is installed."
    assert pictures.note() == note


def test_what_is_no_picture_stays_where_it_is(tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    secret.write_text("password", encoding="utf-8")
    drawing = tmp_path / "drawing.svg"
    drawing.write_text("<svg xmlns='http://www.w3.org/2000/svg'/>", encoding="utf-8")
    broken = tmp_path / "broken.png"
    broken.write_bytes(png(np.zeros((9, 9), np.uint8))[:30] + b"x" * pictures_module.LARGEST)
    pictures = Pictures([str(secret), str(drawing), str(tmp_path / "nothing.png"), str(broken)])
    assert [pictures.uri(row) for row in range(4)] == [""] * 4
    assert pictures.note() == (
        "Pictures that are not shown: 2 no PNG, JPEG, GIF or WebP file, 2 not to be read."
    )


def test_one_page_holds_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures_module, "TOGETHER", 150)
    pictures = Pictures(np.arange(8.0).reshape(2, 2, 2))
    found = [bool(pictures.uri(0)) for _ in range(4)]
    assert found == [True, True, False, False]
    assert pictures.note() == "Pictures that are not shown: 2 beyond what one page may hold."
