"""A streamed answer as server-sent events. What a chunk looks like is `mlcc.api.responses`'."""

from __future__ import annotations

from collections.abc import AsyncIterator

from mlcc.api.errors import error_body
from mlcc.api.responses import Chunk
from mlcc.api.shapes import ErrorBody
from mlcc.errors import MlccError
from mlcc.service.core import Asked
from mlcc.service.exchange import to_json

DONE = "data: [DONE]\n\n"


async def lines(asked: Asked) -> AsyncIterator[str]:
    """Each event with the empty line behind it; a failure is the last one."""
    try:
        async for chunk in asked.stream():
            yield _line(chunk)
        yield DONE
    except MlccError as error:
        asked.job.failure = error
        yield _line(error_body(error))


def _line(message: Chunk | ErrorBody) -> str:
    return f"data: {to_json(message)}\n\n"
