"""The audio tower of a model: computes the rows of a window of sound, to which its decoder
attends."""

from __future__ import annotations

from mlcc.artifact.schema import AudioInfo
from mlcc.engine.batch.batch import Batch, BatchWriter, Capacity, int32
from mlcc.engine.batch.executor import EncoderExecutor, Executor
from mlcc.engine.request import AudioWindow
from mlcc.errors import UnsupportedError
from mlcc.model.vision_tower import TowerExecutor, first_pages
from mlcc.multimodal.audio.frames import tower_rows


class WindowStep:
    """The step of a tower that computes one window, on any host."""

    def __init__(self, window: AudioWindow, info: AudioInfo, capacity: Capacity) -> None:
        self.tokens, self._capacity = info.rows, capacity
        self.embeddings = tower_rows(window.features, info.bins)
        """Of the tokens, for the first slots of the tower's embeddings."""

    def batch(self, writer: BatchWriter) -> Batch:
        """The step, once the embeddings are there."""
        first, count = self._capacity.vocab_size, self.tokens
        writer.sequence(int32(range(first, first + count)), 0, first_pages(self._capacity, count))
        for row in range(count):
            writer.row(row)
        return writer.finish()

    def rows(self, found: bytes) -> bytes:
        """The rows of the window, from the step's result."""
        return found


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
        executor = self._executor
        step = WindowStep(window, self._info, executor.capacity)
        executor.write_embeddings(range(step.tokens), step.embeddings)
        batch = step.batch(BatchWriter(executor.capacity.layout, executor.step_buffer()))
        return bytes(executor.vectors(batch, self._width).tobytes())

    def close(self) -> None:
        """Free the device's memory."""
        self._executor.close()
