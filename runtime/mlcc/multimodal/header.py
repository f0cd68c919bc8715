"""The format and the size of an encoded image, read from its first bytes without decoding it.

A decoder allocates what the header says, so the header is checked against the bounds of a request
first. Standard library only.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from mlcc.errors import InvalidRequestError
from mlcc.limits import default
from mlcc.util.fast_dataclass import fast_dataclass

FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
_SIZED = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""JPEG's markers of a frame, which has the size; the others are tables."""
_ALONE = frozenset({0x01, *range(0xD0, 0xD9)})
"""JPEG's markers without a length."""


@fast_dataclass(frozen=True)
class EncodedImage:
    """An image as it came: the bytes of a file, and the field of the request that has it."""

    data: bytes
    field: str = "image"
    low_detail: bool = False
    """The client wants few tokens for it (`detail` "low")."""


@fast_dataclass(frozen=True)
class ImageHeader:
    """What the first bytes of an image say. EXIF may turn it afterwards."""

    format: str
    width: int
    height: int


def bad_image(field: str, fault: str) -> InvalidRequestError:
    """The error for an image that cannot be read; it ends with what to send instead."""
    return InvalidRequestError(
        f"'{field}' {fault}; send a PNG, JPEG, WebP or GIF image",
        param=field,
        code="invalid_image",
    )


def read_header(image: EncodedImage) -> ImageHeader:
    """The header of an image. Raises InvalidRequestError for other data."""
    data = image.data
    try:
        found = _png(data) or _gif(data) or _webp(data) or _jpeg(data)
    except (struct.error, IndexError):
        raise bad_image(image.field, "ends within its header") from None
    if found is None:
        raise bad_image(image.field, "has no image in a format that is read here")
    if found.width < 1 or found.height < 1:
        raise bad_image(image.field, f"is an image of {found.width} x {found.height} pixels")
    return found


def read_headers(images: Sequence[EncodedImage]) -> list[ImageHeader]:
    """The headers of all images of a request, which are within its bounds (`mlcc.limits`).
    Raises InvalidRequestError, before anything is decoded."""
    if len(images) > (most := default("max_images")):
        raise _too_much(images[most].field, f"is image {most + 1} of the request", most, "")
    headers, size, pixels = [], 0, 0
    for image in images:
        size += len(image.data)
        if size > (most := default("max_image_bytes")):
            raise _too_much(image.field, f"makes it {size} bytes of images", most, " bytes")
        header = read_header(image)
        side = max(header.width, header.height)
        if side > (most := default("max_image_side")):
            raise _too_much(image.field, f"has a side of {side} pixels", most, " pixels")
        pixels += header.width * header.height
        if pixels > (most := default("max_image_pixels")):
            raise _too_much(image.field, f"makes it {pixels} pixels", most, " pixels")
        headers.append(header)
    return headers


def _too_much(field: str, what: str, most: int, unit: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"'{field}' {what}, and a request may have {most}{unit} at most; send fewer images, or "
        "make them smaller: a model reads few pixels of a large one",
        param=field,
        code="image_too_large",
    )


def _png(data: bytes) -> ImageHeader | None:
    if not data.startswith(b"\x89PNG\r\n\x1a\n"):
        return None
    length, kind, width, height = struct.unpack_from(">I4sII", data, 8)
    return ImageHeader("PNG", width, height) if (length, kind) == (13, b"IHDR") else None


def _gif(data: bytes) -> ImageHeader | None:
    if not data.startswith((b"GIF87a", b"GIF89a")):
        return None
    return ImageHeader("GIF", *struct.unpack_from("<HH", data, 6))


def _webp(data: bytes) -> ImageHeader | None:
    """Of its three kinds: lossy, lossless, and extended, which has a canvas."""
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP":
        return None
    kind = data[12:16]
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", data, 26)
        return ImageHeader("WEBP", width & 0x3FFF, height & 0x3FFF)
    if kind == b"VP8L" and data[20:21] == b"\x2f":
        (bits,) = struct.unpack_from("<I", data, 21)
        return ImageHeader("WEBP", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if kind == b"VP8X":
        (width, high), (height, more) = (struct.unpack_from("<HB", data, at) for at in (24, 27))
        return ImageHeader("WEBP", (width | high << 16) + 1, (height | more << 16) + 1)
    return None


def _jpeg(data: bytes) -> ImageHeader | None:
    """Walks the segments before the image up to the frame."""
    if not data.startswith(b"\xff\xd8\xff"):
        return None
    at = 2
    while data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
        elif marker in _ALONE:
            at += 2
        elif marker in _SIZED:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return ImageHeader("JPEG", width, height)
        else:
            (length,) = struct.unpack_from(">H", data, at + 2)
            at += 2 + max(length, 2)
    return None
