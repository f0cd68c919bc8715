"""The audio tower of a model: computes the rows of a window of sound, to which its decoder
attends."""

from __future__ import annotations

from mlcc.artifact.schema import AudioInfo
from mlcc.engine.batch.batch import BatchWriter, int32
from mlcc.engine.batch.executor import EncoderExecutor, Executor
from mlcc.engine.request import AudioWindow
from mlcc.errors import UnsupportedError
from mlcc.model.vision_tower import TowerExecutor, first_pages
from mlcc.multimodal.audio.frames import tower_rows


class AudioTower:
    """One tower on its device. width: numbers of a row.

    Raises UnsupportedError for an executor that cannot return rows.
    """

    def __init__(self, executor: Executor, info: AudioInfo, width: int) -> None:
        if not isinstance(executor, EncoderExecutor):
            raise UnsupportedError(
                "this device computes no rows of an audio tower yet; compile the model for cpu or "
                "vulkan"
            )
        self._executor: TowerExecutor = executor
        self._info, self._width = info, width

    def encode(self, window: AudioWindow) -> bytes:
        """The rows of a window, f32[window.rows, width]. Raises DeviceError."""
        executor, count = self._executor, self._info.rows
        executor.write_embeddings(range(count), tower_rows(window.features, self._info.bins))
        capacity = executor.capacity
        writer = BatchWriter(capacity.layout, executor.step_buffer())
        first = capacity.vocab_size
        writer.sequence(int32(range(first, first + count)), 0, first_pages(capacity, count))
        for row in range(count):
            writer.row(row)
        return bytes(executor.vectors(writer.finish(), self._width).tobytes())

    def close(self) -> None:
        """Free the device's memory."""
        self._executor.close()
