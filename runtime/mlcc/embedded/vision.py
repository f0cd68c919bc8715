"""Images in a tab: the page decodes and resizes them, and a second executor runs the vision tower.

JavaScript's parts are `web/src/multimodal/` and the tower's `web/src/device/executor.ts`.
"""

from __future__ import annotations

import json
from typing import Any

from mlcc.artifact.manifest import Manifest
from mlcc.artifact.schema import VisionInfo
from mlcc.embedded.bridge import to_bytes, to_python, typed_array
from mlcc.embedded.executor import JsExecutor
from mlcc.embedded.planning import capacity_of
from mlcc.engine.batch.batch import BatchWriter
from mlcc.engine.request import ImageTile
from mlcc.errors import ArtifactError
from mlcc.model.vision_tower import TileStep
from mlcc.multimodal.header import EncodedImage, bad_image, read_header
from mlcc.multimodal.processors.processor import Processor
from mlcc.multimodal.prompt import PreparedImage, planned


class TabTower:
    """The vision tower on the page's GPU."""

    def __init__(self, manifest: Any, plan: str, executor: Any, info: VisionInfo) -> None:
        """`manifest` and `plan`: the tower's own. Raises ArtifactError."""
        read = Manifest.from_bytes(to_bytes(manifest))
        if read.encoder is None:
            raise ArtifactError(f"{info.folder}: is no vision tower; compile the model again")
        self._capacity = capacity_of(read, json.loads(plan))
        self._executor, self._info = JsExecutor(executor), info

    async def encode(self, tile: ImageTile) -> bytes:
        """The rows of a tile, f32[tile.rows, width]. Raises DeviceError, and UnsupportedError for a
        tile larger than a step."""
        executor = self._executor
        step = TileStep(tile, self._info, self._capacity)
        executor.write_embeddings(range(step.tokens), step.embeddings)
        batch = step.batch(BatchWriter(self._capacity.layout))
        ticket = executor.submit(executor.pack(batch))
        return step.rows((await executor.vectors(ticket)).tobytes())


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
    asked = {"resizes": plan.resizes, "tiles": tiles}
    pixels = to_python(decoded.tiles(json.dumps(asked), processor.info.resample))
    pairs = zip(plan.tiles, pixels, strict=True)
    return PreparedImage(plan, [processor.tile(each.size, bytes(rgb)) for each, rgb in pairs])
