"""Decodes an image to RGB as transformers' image processors do, with Pillow (the extra `vision`).

The image is upright: the orientation of its EXIF data is applied, as transformers' `load_image`
does. What is transparent becomes white, as in `convert_to_rgb` of its processors. Of an animation
the first frame is taken.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from io import BytesIO
from typing import TYPE_CHECKING

from mlcc.errors import MlccError
from mlcc.multimodal.header import EncodedImage, bad_image, read_header
from mlcc.util.extras import require

if TYPE_CHECKING:
    from PIL.Image import Image

BYTES_PER_PIXEL = 24
"""Most memory that decoding takes for each pixel: 20 of WebP with transparency, of all formats and
modes (tests/runtime/multimodal/test_budget.py)."""


def decode(image: EncodedImage) -> Image:
    """The image in Pillow's mode RGB. Raises InvalidRequestError for a damaged one, and
    UnsupportedError without Pillow."""
    require("PIL", "vision", "an image in a prompt")
    from PIL import Image as pillow

    header = read_header(image)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd metadata
            opened = pillow.open(BytesIO(image.data), formats=[header.format])
            if opened.size != (header.width, header.height):
                raise bad_image(image.field, "is of another size than its header says")
            opened.load()
            return _rgb(_upright(opened))
    except (MlccError, MemoryError):
        raise
    except Exception as error:  # decoders raise many kinds of errors on damaged files
        raise bad_image(
            image.field, f"is a damaged {header.format} file ({error!s:.80})"
        ) from error


def _upright(image: Image) -> Image:
    """The image turned as its EXIF data say; unreadable data say nothing."""
    from PIL.ImageOps import exif_transpose

    with suppress(Exception):
        exif_transpose(image, in_place=True)
    return image


def _rgb(image: Image) -> Image:
    from PIL import Image as pillow

    if "A" not in image.getbands() and image.info.get("transparency") is None:
        return image if image.mode == "RGB" else image.convert("RGB")
    if image.mode != "RGBA":
        image = image.convert("RGBA")
    white = pillow.new("RGBA", image.size, (255, 255, 255, 255))
    white.alpha_composite(image)
    return white.convert("RGB")
