"""Images in requests: the parts of messages that hold them, and how they are sent.

An image is sent as base64 or in a data URL. A model that reads text only refuses it, or leaves it
out of a tool's result with a note; that is decided where the model is known.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Callable
from functools import partial
from typing import Any

from mlcc.api.schema.schema import Custom, Json, Object, Text, honoured, refuse
from mlcc.errors import InvalidRequestError, UnsupportedError, printable
from mlcc.limits import default
from mlcc.multimodal.header import EncodedImage

DATA_URL = "data:image/png;base64,..."
"""What to send, for error messages."""


class LeftOut(str):
    """The note in place of a part of a tool's result that is not text. Agents send screenshots and
    go on sending them with the conversation, which must not end it."""

    kind: str
    """The part's type."""

    def note(self, sees: bool = False, hears: bool = False) -> str:
        """The note; sees, hears: of a model that reads images, or sound, too."""
        return _words(self.kind, sees, hears) if sees or hears else self


def left_out(kind: str) -> LeftOut:
    """The note for a part of this type."""
    note = LeftOut(_words(kind))
    note.kind = kind
    return note


def _words(kind: str, sees: bool = False, hears: bool = False) -> str:
    name = printable(kind[:40]).removeprefix("input_").removesuffix("_url")
    reads = ["text", *(["images"] if sees else ()), *(["sound"] if hears else ())]
    read = " and ".join(filter(None, (", ".join(reads[:-1]), reads[-1])))
    return f"[{name} left out: this model reads {read} only]"


class ImagePart(LeftOut):
    """An image among the parts of a message: as text its note, and `image` for a model that
    sees."""

    _read: Callable[[], EncodedImage]

    def __new__(cls, kind: str, read: Callable[[], EncodedImage]) -> ImagePart:
        made = super().__new__(cls, _words(kind))
        made.kind, made._read = kind, read
        return made

    def image(self) -> EncodedImage:
        """The image. Raises InvalidRequestError or UnsupportedError that names its field."""
        return self._read()


def openai_part(part: Json, where: str) -> ImagePart:
    """A part of the type `image_url`."""
    return ImagePart("image_url", partial(_of_openai, part, where))


def base64_part(kind: str, data: str, where: str) -> ImagePart:
    """An image that is sent as base64 alone; where: the field."""
    return ImagePart(kind, lambda: EncodedImage(from_base64(data, where), where))


def url_part(kind: str, url: str, where: str, detail: str = "") -> ImagePart:
    """An image that is sent as a data URL; where: the field."""
    return ImagePart(kind, lambda: EncodedImage(from_url(url, where), where, detail == "low"))


def _of_openai(part: Json, where: str) -> EncodedImage:
    given = IMAGE_PART.check(part, where)["image_url"]
    return url_part("", given["url"], given["where"], given.get("detail", "")).image()


def from_url(url: str, where: str) -> bytes:
    """The bytes in a data URL. Raises UnsupportedError for addresses of other kinds."""
    head, comma, data = url.partition(",")
    is_data = head[:5].lower() == "data:"
    if not is_data and "://" in url:
        raise UnsupportedError(
            f"'{where}' is an address, {_brief(url)}, and none is fetched here: a request could "
            f"have a server read from its own network; send the image itself, as '{DATA_URL}'",
            param=where,
            code="image_address",
        )
    if not is_data or not comma or not head.lower().endswith(";base64"):
        raise InvalidRequestError(
            f"'{where}' is no data URL with base64; send '{DATA_URL}'",
            param=where,
            code="invalid_image",
        )
    return from_base64(data, where)


def from_base64(data: str, where: str) -> bytes:
    """The bytes of an image. Raises InvalidRequestError for other text, and for more than all
    images of a request may have, before it is decoded."""
    most = default("max_image_bytes")
    if len(data) > most * 3 // 2:
        raise InvalidRequestError(
            f"'{where}' has {len(data)} characters of base64, and the images of a request may "
            f"have {most} bytes; send a smaller image",
            param=where,
            code="image_too_large",
        )
    try:
        return b64decode("".join(data.split()), validate=True)
    except (ValueError, binascii.Error):
        pass
    raise InvalidRequestError(
        f"'{where}' is no base64 of an image; send the bytes of the file as base64",
        param=where,
        code="invalid_image",
    )


def _brief(url: str) -> str:
    text = printable(url)
    return repr(text if len(text) <= 60 else text[:57] + "...")


DETAIL = Text(("auto", "low", "high", "original"))
IMAGE_URL = Object(
    "ImageURL",
    (
        honoured("url", Text(), f"The image as a data URL: {DATA_URL}", required=True),
        honoured("detail", DETAIL, "low = few tokens: without tiles, or of fewer pixels."),
    ),
)


def _image_url(value: Json, where: str) -> dict[str, Any]:
    """The object's fields, and where its address is."""
    if isinstance(value, str):
        return {"url": Text().check(value, where), "where": where}
    if not isinstance(value, dict):
        raise refuse(IMAGE_URL_OR_TEXT, value, where)
    return {**IMAGE_URL.check(value, where), "where": f"{where}.url"}


IMAGE_URL_OR_TEXT = Custom(
    "a data URL, or an object with one as 'url'", _image_url, (Text(), IMAGE_URL)
)
IMAGE_PART = Object(
    "ImagePart",
    (
        honoured("type", Text(("image_url",)), required=True),
        honoured("image_url", IMAGE_URL_OR_TEXT, "An image.", required=True),
    ),
)
