"""A streamed answer as server-sent events. What a chunk looks like is `mlcc.api.responses`'."""

from __future__ import annotations

from collections.abc import AsyncIterator

from mlcc.api.errors import error_body
from mlcc.api.responses import Chunk, Chunks
from mlcc.api.shapes import ErrorBody
from mlcc.engine.events import Finished
from mlcc.errors import MlccError
from mlcc.service.exchange import to_json
from mlcc.service.job import Job

DONE = "data: [DONE]\n\n"


async def lines(job: Job, chunks: Chunks) -> AsyncIterator[str]:
    """Each event with the empty line behind it; a failure is the last one."""
    try:
        for index in range(job.size):
            if opening := chunks.start(index):
                yield _line(opening)
        async for index, event in job.events():
            if isinstance(event, Finished):
                yield _line(chunks.end(index, event.reason))
            elif event.text or event.told or event.prompt:
                yield _line(chunks.text(index, event))
        if usage := chunks.usage(job.usage()):
            yield _line(usage)
        yield DONE
    except MlccError as error:
        job.failure = error
        yield _line(error_body(error))


def _line(message: Chunk | ErrorBody) -> str:
    return f"data: {to_json(message)}\n\n"
