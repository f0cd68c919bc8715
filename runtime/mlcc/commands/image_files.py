"""Images from files, as parts of a message (`mlcc run --image`, `/image` in a chat)."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlcc.errors import InvalidRequestError, printable
from mlcc.limits import default
from mlcc.multimodal.header import EncodedImage, ImageHeader, read_headers

if TYPE_CHECKING:
    from mlcc.model.conversation import Content


def image_part(name: str) -> tuple[dict[str, Any], ImageHeader]:
    """The part of OpenAI's API for the image in a file, and its header. Raises InvalidRequestError
    for another file, by its name."""
    path, most = Path(name).expanduser(), default("max_image_bytes")
    try:
        if path.stat().st_size > most:
            raise InvalidRequestError(
                f"{printable(name)} has {path.stat().st_size} bytes, and images may have {most}; "
                "make it smaller: a model reads few pixels of a large one"
            )
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no name of a file"
        raise InvalidRequestError(f"{printable(name)} cannot be read ({reason})") from error
    (header,) = read_headers([EncodedImage(data, printable(name))])
    url = f"data:image/{header.format.lower()};base64,{b64encode(data).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}, header


def with_images(images: Sequence[dict[str, Any]], text: str) -> Content:
    """The content of a message: the images, then its text."""
    return [*images, {"type": "text", "text": text}] if images else text
