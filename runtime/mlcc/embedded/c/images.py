"""The host's decoder of images: its callback decodes, as Pillow does on a desktop; mlcc resizes."""

from __future__ import annotations

import struct
from typing import Any

from mlcc.multimodal.header import EncodedImage, bad_image, read_header
from mlcc.multimodal.rgb import CHANNELS, RgbImage

_HEAD = struct.Struct("=II")


class HostImages:
    """Decodes by an engine's callback; `host` is the module `_mlcc`."""

    def __init__(self, host: Any, engine: int) -> None:
        self._host, self._engine = host, engine

    def decode(self, image: EncodedImage) -> RgbImage:
        """The image in RGB. Raises InvalidRequestError for one that cannot be read."""
        header = read_header(image)
        kind = f"image/{header.format.lower()}"
        try:
            made: bytes = self._host.decode_image(self._engine, image.data, kind)
        except ValueError as error:
            fault = f"is a {header.format} file that this app cannot decode ({error!s:.80})"
            raise bad_image(image.field, fault) from error
        if len(made) < _HEAD.size:
            raise bad_image(image.field, "was decoded to nothing by the app")
        width, height = _HEAD.unpack_from(made)
        if sorted((width, height)) != sorted((header.width, header.height)):  # EXIF may turn it
            raise bad_image(image.field, "is of another size than its header says")
        if len(made) != _HEAD.size + CHANNELS * width * height:
            raise bad_image(image.field, "was decoded to fewer or more pixels than it has")
        return RgbImage(width, height, made[_HEAD.size :])
