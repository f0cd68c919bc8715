"""Where the tokens of an answer begin in their window of sound, from the attention of the model's
alignment heads; the path is found in libmlcc_executor
(`runtime/native/src/multimodal/token_rows.cc`)."""

from __future__ import annotations

from mlcc.artifact.schema import AudioInfo
from mlcc.engine.alignment import Alignment
from mlcc.engine.batch.executor import AligningExecutor, Executor, no_alignment
from mlcc.errors import UnsupportedError


def token_rows(alignment: Alignment, executor: Executor, info: AudioInfo | None) -> tuple[int, ...]:
    """The row at which each token begins. Raises UnsupportedError for a model or a device that
    does not align, DeviceError."""
    from mlcc.util import executor_library  # rarely needed

    if info is None or not info.alignment_heads:
        raise no_alignment()
    if not isinstance(executor, AligningExecutor):
        raise UnsupportedError(
            "this device finds no times of words; ask for those of segments, or compile the model "
            "for cpu or vulkan",
            param="timestamp_granularities",
        )
    width = info.alignment_heads * info.rows
    weights = b"".join(
        executor.alignment(batch, width).tobytes() for batch in alignment.batches(executor.capacity)
    )
    used = min(alignment.rows, info.rows)
    count, heads = len(alignment.tokens), info.alignment_heads
    return tuple(executor_library.load().token_rows(weights, count, heads, info.rows, used))
