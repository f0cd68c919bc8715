"""Images and sounds from files, as parts of a message (`mlcc run --image`, `/audio` in a chat)."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlcc.errors import InvalidRequestError, printable
from mlcc.limits import default
from mlcc.multimodal.header import EncodedImage, ImageHeader, read_headers

if TYPE_CHECKING:
    from mlcc.model.conversation import Content

_FIELD = re.compile(r"'messages\[\d+\]\.content\[(\d+)\]\.(?:image_url|input_audio)[^']*'")
"""The field of an image or a sound in a request, as errors name it."""


def image_part(name: str) -> tuple[dict[str, Any], ImageHeader]:
    """The part of OpenAI's API for the image in a file, and its header. Raises InvalidRequestError
    for another file, by its name."""
    hint = "images", "make it smaller: a model reads few pixels of a large one"
    data = _read(name, default("max_image_bytes"), *hint)
    (header,) = read_headers([EncodedImage(data, printable(name))])
    url = f"data:image/{header.format.lower()};base64,{b64encode(data).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}, header


def audio_part(name: str) -> tuple[dict[str, Any], str]:
    """The part of OpenAI's API for the sound in a file, and its format, such as FLAC. Raises
    InvalidRequestError for another file, by its name, and UnsupportedError without its decoder."""
    from mlcc.multimodal.audio.sound import kind_of

    hint = "sounds", "send it in parts, or convert it with `ffmpeg -i FILE -ar 16000 -ac 1 out.wav`"
    data = _read(name, default("max_audio_bytes"), *hint)
    try:
        kind = kind_of(data)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{printable(name)}: {error.message}", code=error.code) from error
    sound = {"data": b64encode(data).decode(), "format": kind.lower()}
    return {"type": "input_audio", "input_audio": sound}, kind


def naming_files(message: str, files: Sequence[str]) -> str:
    """An error's message, with the names of files for the fields of a message that has them."""

    def name(field: re.Match[str]) -> str:
        number = int(field[1])
        return printable(files[number]) if number < len(files) else field[0]

    return _FIELD.sub(name, message)


def with_files(parts: Sequence[dict[str, Any]], text: str) -> Content:
    """The content of a message: the images and sounds, then its text."""
    return [*parts, {"type": "text", "text": text}] if parts else text


def _read(name: str, most: int, what: str, hint: str) -> bytes:
    """The bytes of a file, at most `most`. what: such files, in the plural."""
    path = Path(name).expanduser()
    try:
        if (size := path.stat().st_size) > most:
            raise InvalidRequestError(
                f"{printable(name)} has {size} bytes, and {what} may have {most}; {hint}"
            )
        return path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no name of a file"
        raise InvalidRequestError(f"{printable(name)} cannot be read ({reason})") from error
