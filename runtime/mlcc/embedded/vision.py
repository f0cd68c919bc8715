"""Images in a tab: the page decodes and resizes them. Python plans the tiles.

JavaScript's part is `web/src/multimodal/`.
"""

from __future__ import annotations

import json
from typing import Any

from mlcc.embedded.bridge import to_python, typed_array
from mlcc.multimodal.header import EncodedImage, bad_image, read_header
from mlcc.multimodal.processors.processor import Processor
from mlcc.multimodal.prompt import PreparedImage, planned


async def prepare_in_tab(js: Any, processor: Processor, image: EncodedImage) -> PreparedImage:
    """The tiles of an image, which the page decodes and resizes (`ImagePort` in
    web/src/worker/python.ts). Raises InvalidRequestError for one that cannot be read."""
    header = read_header(image)
    data = typed_array()(memoryview(image.data))
    try:
        decoded = await js.decode(data, f"image/{header.format.lower()}")
    except Exception as error:
        fault = f"is a damaged {header.format} file, or one that this browser does not decode"
        raise bad_image(image.field, fault) from error
    size = int(decoded.width), int(decoded.height)
    if sorted(size) != sorted((header.width, header.height)):  # EXIF may turn it
        raise bad_image(image.field, "is of another size than its header says")
    plan = planned(processor, image, size)
    tiles = [[tile.box, tile.size, tile.of_original] for tile in plan.tiles]
    asked = {"resizes": plan.resizes, "tiles": tiles, "fill": plan.fill}
    pixels = to_python(decoded.tiles(json.dumps(asked), processor.info.resample))
    return PreparedImage(plan, processor.tiles_of(plan, [bytes(rgb) for rgb in pixels]))
