"""Decoding: as transformers' processors do; bounds before decoding; damaged and lying files."""

from __future__ import annotations

import io
import json
import struct
import sys
from base64 import b64decode
from random import Random
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from mlcc.errors import InvalidRequestError, UnsupportedError
from mlcc.limits import default
from mlcc.multimodal.header import ImageHeader, read_header, read_headers
from mlcc.multimodal.image import decode
from tests.runtime.multimodal.helpers.decode_vectors import PATH
from tests.runtime.multimodal.helpers.pictures import encoded, given, noise

FILES = {
    "png": encoded(noise(37, 21)),
    "jpeg": encoded(noise(37, 21), "JPEG"),
    "jpeg progressive": encoded(noise(37, 21), "JPEG", progressive=True),
    "jpeg gray": encoded(noise(37, 21, channels=1), "JPEG"),
    "jpeg cmyk": encoded(noise(37, 21).convert("CMYK"), "JPEG"),
    "webp": encoded(noise(37, 21), "WEBP"),
    "webp lossless": encoded(noise(37, 21), "WEBP", lossless=True),
    "webp alpha": encoded(noise(37, 21, channels=4), "WEBP"),
    "gif": encoded(noise(37, 21).convert("P"), "GIF"),
    "png gray": encoded(noise(37, 21, channels=1)),
    "png alpha": encoded(noise(37, 21, channels=4)),
    "png gray alpha": encoded(noise(37, 21, channels=4).convert("LA")),
    "png palette": encoded(noise(37, 21).convert("P")),
    "png palette transparent": encoded(noise(37, 21).convert("P"), transparency=3),
    "png gray transparent": encoded(noise(37, 21, channels=1), transparency=7),
    "png bits": encoded(noise(37, 21).convert("1")),
    "png 16 bits": encoded(Image.fromarray(np.arange(777, dtype=np.uint16).reshape(21, 37) * 80)),
    "gif transparent": encoded(noise(37, 21).convert("P"), "GIF", transparency=3),
}


def by_transformers(data: bytes) -> np.ndarray:
    from transformers.image_transforms import convert_to_rgb

    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    return np.asarray(convert_to_rgb(image, return_numpy=True))


@pytest.mark.parametrize("name", FILES)
def test_pixels_are_those_of_transformers(name: str) -> None:
    data = FILES[name]
    format = name.split()[0].upper()
    assert read_header(given(data)) == ImageHeader(format, 37, 21)
    image = decode(given(data))
    assert image.mode == "RGB"
    assert np.array_equal(np.asarray(image), by_transformers(data))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
def test_pictures_are_upright(format: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(noise(24, 16), format, exif=exif)
    image = decode(given(data))
    assert image.size == ((24, 16) if orientation < 5 else (16, 24))
    assert np.array_equal(np.asarray(image), by_transformers(data))


def test_exif_that_cannot_be_read_says_nothing() -> None:
    data = encoded(noise(24, 16), "JPEG", exif=b"Exif\0\0MM\0*\0\0\xff\xff" + b"\xff" * 9)
    assert decode(given(data)).size == (24, 16)


@pytest.mark.parametrize("format", ["GIF", "WEBP", "PNG"])
def test_the_first_frame_of_an_animation(format: str) -> None:
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "blue")]
    data = encoded(frames[0], format, save_all=True, append_images=frames[1:], lossless=True)
    assert decode(given(data)).getpixel((3, 3)) == (255, 0, 0) if format != "GIF" else True
    assert np.array_equal(np.asarray(decode(given(data))), by_transformers(data))


def test_what_is_transparent_becomes_white() -> None:
    image = decode(given(encoded(Image.new("RGBA", (4, 4), (0, 0, 0, 0)))))
    assert image.getpixel((0, 0)) == (255, 255, 255)


OTHER = {
    "text": b"not an image at all, but some words",
    "nothing": b"",
    "svg": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    "bmp": encoded(noise(8, 8), "BMP"),
    "tiff": encoded(noise(8, 8), "TIFF"),
    "postscript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
    "png without a header": b"\x89PNG\r\n\x1a\n" + b"\0" * 40,
    "jpeg without a frame": b"\xff\xd8\xff\xd9",
}


@pytest.mark.parametrize("name", OTHER)
def test_other_data_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="send a PNG, JPEG, WebP or GIF") as raised:
        decode(given(OTHER[name], "messages[2].content[1]"))
    assert raised.value.param == "messages[2].content[1]"
    assert raised.value.code == "invalid_image"


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_file_is_never_half_a_picture(name: str) -> None:
    """It is refused, unless only the end behind the pixels is missing."""
    data, refused = FILES[name], 0
    for end in range(0, len(data), max(1, len(data) // 24)):
        try:
            image = decode(given(data[:end]))
        except InvalidRequestError as error:
            assert (error.param, error.code) == ("image", "invalid_image")
            refused += 1
        else:
            assert np.array_equal(np.asarray(image), by_transformers(data))
    assert refused > 20


def test_damaged_files_decode_or_are_refused() -> None:
    """Bytes changed at random: never another error than the one for damaged images."""
    rng = Random(7)
    for name, data in FILES.items():
        for _ in range(40):
            made = bytearray(data)
            for _ in range(rng.randint(1, 6)):
                made[rng.randrange(len(made))] = rng.randrange(256)
            try:
                read_headers([given(bytes(made))])
                image = decode(given(bytes(made)))
            except InvalidRequestError as error:
                assert error.code in ("invalid_image", "image_too_large"), name
            else:
                assert image.mode == "RGB", name


def sized(format: str, width: int, height: int) -> bytes:
    """A file whose header says this size, and whose data do not."""
    data = bytearray(FILES[format])
    if format == "png":
        struct.pack_into(">II", data, 16, width, height)
    elif format == "jpeg":
        at = data.index(b"\xff\xc0")
        struct.pack_into(">HH", data, at + 5, height, width)
    elif format == "gif":
        struct.pack_into("<HH", data, 6, width, height)
    else:
        struct.pack_into("<HH", data, 26, width, height)
    return bytes(data)


@pytest.mark.parametrize(
    ("format", "width", "height"),
    [("png", 16385, 1), ("png", 2**31 - 1, 2**31 - 1), ("jpeg", 16385, 2), ("jpeg", 65535, 65535),
     ("gif", 20, 16385), ("gif", 65535, 65535), ("png", 10000, 5001), ("webp", 16383, 16383)],
)  # fmt: skip
def test_bombs_are_refused_by_their_header(format: str, width: int, height: int) -> None:
    with pytest.raises(InvalidRequestError, match="send fewer images, or make them") as raised:
        read_headers([given(sized(format, width, height))])
    assert raised.value.code == "image_too_large"


@pytest.mark.parametrize(("width", "height"), [(0, 10), (10, 0)])
def test_a_picture_without_pixels_is_refused(width: int, height: int) -> None:
    with pytest.raises(InvalidRequestError, match=f"an image of {width} x {height} pixels"):
        read_headers([given(sized("png", width, height))])


def test_the_bounds_are_of_all_pictures_together() -> None:
    small, large = given(FILES["png"]), given(sized("png", 5000, 5000))
    assert len(read_headers([small] * default("max_images"))) == 16
    with pytest.raises(InvalidRequestError, match="is image 17 of the request"):
        read_headers([small] * 17)
    assert len(read_headers([large] * 2)) == 2
    with pytest.raises(InvalidRequestError, match="makes it 50000777 pixels, and a request may"):
        read_headers([large, large, small])
    heavy = given(FILES["png"] + b"\0" * 10_000_000)
    with pytest.raises(
        InvalidRequestError, match="bytes of images, and a request may have 20000000"
    ):
        read_headers([heavy, heavy])


@pytest.mark.parametrize("format", ["png", "jpeg", "gif"])
def test_a_header_that_lies_costs_no_more_than_it_says(format: str) -> None:
    """More rows than the data have: an error, or rows without data, and never another size."""
    data = sized(format, 40, 300)
    try:
        assert decode(given(data)).size == (40, 300)
    except InvalidRequestError as error:
        assert error.code == "invalid_image"


def test_a_frame_beyond_the_canvas_of_a_gif_is_refused() -> None:
    data = sized("gif", 2, 2)
    with pytest.raises(InvalidRequestError, match="of another size than its header says"):
        decode(given(data))


def test_without_pillow_the_extra_is_named(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UnsupportedError, match=r'type `pip install "mlcc\[vision\]"`'):
        decode(given(FILES["png"]))


VECTORS = json.loads(PATH.read_text(encoding="utf-8"))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_what_a_browser_is_tested_against(vector: dict[str, Any]) -> None:
    """decode_vectors.json has Pillow's pixels; other versions may decode lossy files otherwise."""
    image = decode(given(b64decode(vector["file"])))
    assert list(image.size) == vector["size"]
    wanted = np.frombuffer(b64decode(vector["rgb"]), np.uint8)
    off = np.frombuffer(image.tobytes(), np.uint8).astype(int) - wanted
    assert np.abs(off).max() <= vector["levels"]
