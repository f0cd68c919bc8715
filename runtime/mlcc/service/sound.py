"""Where recordings are decoded and made to frames: `SoundThreads` for hosts with threads and
libmlcc_executor. A tab has neither (`mlcc.embedded.audio`)."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from functools import cache
from typing import IO, TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mlcc.multimodal.audio.frames import Recording
    from mlcc.multimodal.audio.samples import Samples

DECODES = 2
"""Files that are decoded at once."""


class SoundHost(Protocol):
    """Makes windows of frames from a file. All methods raise MlccError."""

    async def decode(self, file: IO[bytes]) -> Samples:
        """Mono samples at 16 kHz."""
        ...

    async def recording(self, samples: Samples, bins: int, rows: int) -> Recording:
        """The samples as windows of `rows` rows."""
        ...

    async def window(self, recording: Recording, start: int) -> bytes:
        """The frames of a window, from frame `start` on."""
        ...


class SoundThreads:
    """In threads: two hours of sound take seconds. Modules are imported when a recording comes."""

    async def decode(self, file: IO[bytes]) -> Samples:
        from mlcc.multimodal.audio.sound import store

        return await asyncio.get_running_loop().run_in_executor(_decoders(), store, file)

    async def recording(self, samples: Samples, bins: int, rows: int) -> Recording:
        from mlcc.multimodal.audio.frames import Recording

        return await asyncio.to_thread(Recording, samples, bins, rows)

    async def window(self, recording: Recording, start: int) -> bytes:
        return await asyncio.to_thread(recording.window, start)


@cache
def _decoders() -> Executor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(DECODES, "mlcc-decode")
