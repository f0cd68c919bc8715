"""A long answer is written in pieces, between which other requests get their turn."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from mlcc.server.asgi import _send
from mlcc.service.http.types import PIECE, TEXT_TYPE, ApiResponse, LongText

TEXT = "".join(map(str, range(PIECE)))


class Text(str):
    """Notes the threads that encode it, or a slice of it."""

    threads: list[threading.Thread]

    def __getitem__(self, at: Any) -> Text:
        return noting(super().__getitem__(at), self.threads)

    def encode(self, *arguments: Any, **words: Any) -> bytes:
        self.threads.append(threading.current_thread())
        return super().encode(*arguments, **words)


def noting(text: str, threads: list[threading.Thread]) -> Text:
    made = Text(text)
    made.threads = threads
    return made


@pytest.mark.parametrize("in_pieces", [False, True])
@pytest.mark.parametrize(
    ("size", "sizes"),
    [
        (0, [0]),
        (1, [1]),
        (PIECE, [PIECE]),
        (PIECE + 1, [PIECE, 1]),
        (3 * PIECE, [PIECE] * 3),
    ],
)
def test_no_piece_is_long_and_others_run_between_two(
    size: int, sizes: list[int], in_pieces: bool
) -> None:
    threads: list[threading.Thread] = []
    text = noting(TEXT[:size], threads)
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    pieces = [text[end - length : end] for end, length in zip(ends, sizes, strict=True)]
    body = LongText(pieces) if in_pieces else text
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
        await _send(ApiResponse(200, {"content-type": TEXT_TYPE}, body), send, 9, None)
        beside.cancel()

    asyncio.run(run())
    start, *written = sent
    assert dict(start["headers"])[b"content-length"] == str(size).encode()
    assert [len(message["body"]) for message in written] == sizes
    assert b"".join(message["body"] for message in written) == TEXT[:size].encode()
    more = [message.get("more_body", False) for message in written]
    assert more == [True] * (len(sizes) - 1) + [False]
    assert {*range(2, len(sizes) + 1)} <= {*turns}, "after each piece but the last"
    in_loop = threading.main_thread() in threads
    assert len(threads) == len(sizes) and in_loop == (size <= PIECE and not in_pieces)
