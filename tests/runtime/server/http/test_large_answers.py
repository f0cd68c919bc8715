"""A long answer is written in pieces, between which other requests get their turn."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from mlcc.server.asgi import PIECE_BYTES, _send
from mlcc.service.http.types import TEXT_TYPE, ApiResponse

TEXT = "".join(map(str, range(PIECE_BYTES)))


class Text(str):
    """Notes the threads that encode it."""

    threads: list[threading.Thread]

    def encode(self, *arguments: Any, **words: Any) -> bytes:
        self.threads.append(threading.current_thread())
        return super().encode(*arguments, **words)


@pytest.mark.parametrize(
    ("size", "sizes"),
    [
        (0, [0]),
        (1, [1]),
        (PIECE_BYTES, [PIECE_BYTES]),
        (PIECE_BYTES + 1, [PIECE_BYTES, 1]),
        (3 * PIECE_BYTES, [PIECE_BYTES] * 3),
    ],
)
def test_no_piece_is_long_and_others_run_between_two(size: int, sizes: list[int]) -> None:
    text = Text(TEXT[:size])
    text.threads = []
    sent: list[dict[str, Any]] = []
    turns: list[int] = []

    async def other() -> None:
        while True:
            turns.append(len(sent))
            await asyncio.sleep(0)

    async def send(message: Any) -> None:
        sent.append(message)

    async def run() -> None:
        beside = asyncio.ensure_future(other())
        await _send(ApiResponse(200, {"content-type": TEXT_TYPE}, text), send, 9, None)
        beside.cancel()

    asyncio.run(run())
    start, *pieces = sent
    assert dict(start["headers"])[b"content-length"] == str(size).encode()
    assert [len(piece["body"]) for piece in pieces] == sizes
    assert b"".join(piece["body"] for piece in pieces) == str(text).encode()
    assert [piece.get("more_body", False) for piece in pieces] == [True] * (len(sizes) - 1) + [
        False
    ]
    assert {*range(2, len(sizes) + 1)} <= {*turns}, "after each piece but the last"
    in_loop = threading.main_thread() in text.threads
    assert len(text.threads) == 1 and in_loop == (size <= PIECE_BYTES)
