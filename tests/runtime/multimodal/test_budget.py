"""Decoding in the prompt processes: the worst images fit their memory, and hostile ones cost
their own request alone."""

from __future__ import annotations

import asyncio
import struct
import threading
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from PIL import Image

from mlcc.commands.serve.checks import with_body
from mlcc.commands.serve.command import serve_command
from mlcc.errors import CapacityError
from mlcc.limits import default
from mlcc.multimodal.placeholders import MediaCollector
from mlcc.multimodal.prompt import Prompt
from mlcc.server.asgi import Settings
from mlcc.server.prompts.prompt_pool import PromptPool
from mlcc.server.prompts.prompt_worker import IMAGE_MEMORY_BYTES
from tests.runtime.multimodal.helpers import seeing_server
from tests.runtime.multimodal.helpers.pictures import encoded, given, noise
from tests.runtime.multimodal.helpers.seeing_toy import data_url, picture
from tests.runtime.server.helpers.server_process import RunningServer, running

T = TypeVar("T")
WIDTH, HEIGHT = 8192, 6103
"""Nearly all pixels that a request may have."""
assert default("max_image_pixels") - WIDTH * HEIGHT < WIDTH


@cache
def worst(format: str) -> bytes:
    """An image of the most pixels, of the kind that takes its format the most memory: WebP takes
    20 bytes a pixel, progressive JPEG in CMYK 12, PNG in two channels 16."""
    if format == "WEBP":
        image = Image.new("RGBA", (WIDTH, HEIGHT), (200, 30, 40, 90))
        return encoded(image, format, lossless=True, method=0, quality=0)
    image = Image.new("CMYK", (WIDTH, HEIGHT), (9, 8, 7, 6))
    return encoded(image, format, progressive=True, quality=50, subsampling=0)


def asked(run: Callable[[PromptPool], Awaitable[T]], **bounds: Any) -> T:
    """What `run` returns for a pool of the seeing toy."""

    async def whole() -> T:
        prompts = PromptPool(seeing_server.open_text, **bounds)
        try:
            prompts.start()
            return await run(prompts)
        finally:
            prompts.close()

    return asyncio.run(whole())


async def seen(prompts: PromptPool, *files: bytes, seconds: float | None = 120) -> Prompt:
    """The prompt of one message of images."""
    collector = MediaCollector()
    content = "".join(collector.add(given(data)) for data in files)
    images = collector.collected()
    assert images is not None
    messages = [{"role": "user", "content": content}]
    return await prompts.chat_with_media(messages, images, 2048, seconds)


def test_the_worst_pictures_fit_the_memory() -> None:
    """In one process, one after another: what one took is free again."""
    files = [worst(format) for format in ("WEBP", "JPEG")]

    async def each(prompts: PromptPool) -> list[Prompt]:
        return [await seen(prompts, data) for data in files]

    for prompt in asked(each, workers=1):
        assert len(prompt.media) == 4 * 3 + 1


def test_pictures_beyond_the_memory_fail_alone() -> None:
    """With less than is planned for them."""

    async def first_large(prompts: PromptPool) -> Prompt:
        with pytest.raises(CapacityError, match=r"by its images.*; send smaller images"):
            await seen(prompts, worst("WEBP"))
        return await seen(prompts, picture())

    less = 500 << 20
    prompt = asked(first_large, workers=1, memory_bytes=less - IMAGE_MEMORY_BYTES)
    assert len(prompt.media) == 13


def test_a_picture_that_takes_too_long_fails_alone() -> None:
    async def slow(prompts: PromptPool) -> tuple[Prompt, list[int]]:
        await seen(prompts, picture())  # its libraries are loaded
        hostile = asyncio.ensure_future(seen(prompts, many_scans()))
        words = await prompts.chat([{"role": "user", "content": "hi"}], 2048, 120)
        with pytest.raises(CapacityError, match="took more than 3 seconds"):
            await hostile
        return await seen(prompts, picture()), list(words)

    prompt, words = asked(slow, longest_s=3)
    assert len(prompt.media) == 13 and words


def many_scans() -> bytes:
    """A progressive JPEG whose last scan comes thousands of times: each goes over all pixels."""
    data = encoded(Image.new("L", (6000, 6000), 7), "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    return data[:last] + data[last:-2] * 4000 + data[-2:]


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, *chunks: bytes) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks) + chunk(b"IEND", b"")


@cache
def hostile_files() -> dict[str, bytes]:
    """Files that cost more than they weigh; a second of work, so not done when tests are read."""
    zeros = zlib.compress(bytes(200 << 20), 9)  # 200 MiB in 200 KB
    half = zlib.compress(bytes(70_000_000), 1)
    gif = encoded(noise(64, 64), "GIF")
    return {
        "more data than its size": png(8, 8, chunk(b"IDAT", zeros)),
        "a text that is large": png(8, 8, chunk(b"zTXt", b"a\0\0" + zeros), chunk(b"IDAT", zeros)),
        "a profile that is large": png(
            8, 8, chunk(b"iCCP", b"a\0\0" + zeros), chunk(b"IDAT", zeros)
        ),
        "no data": png(7000, 7000),
        "half of its data": png(7000, 7000, chunk(b"IDAT", half)),
        "many small chunks": png(8, 8, *[chunk(b"IDAT", b"")] * 500_000),
        "a header of another size": gif.replace(b"@\0@\0", b"\1\0\1\0", 1),
    }


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running(program=Path(str(seeing_server.__file__))) as started:
        yield started


def chat(content: Any, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 8, **more}


def image(data: bytes) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": data_url(data)}}


def test_hostile_pictures_leave_a_neighbours_stream_alive(server: RunningServer) -> None:
    """A stream that began before eight of them at once gets its tokens meanwhile, and ends."""
    url = f"{server.url}/v1/chat/completions"
    answers: list[httpx.Response] = []

    def hostile(data: bytes) -> None:
        with httpx.Client(timeout=120) as client:
            answers.append(client.post(url, json=chat([image(data)])))

    files = [*hostile_files().values(), picture()[:300]]
    threads = [threading.Thread(target=hostile, args=[data]) for data in files]
    times = []
    body = chat("tell me", stream=True) | {"max_tokens": 400, "ignore_eos": True}
    with httpx.stream("POST", url, json=body, timeout=120) as stream:
        lines = stream.iter_lines()
        next(lines)
        for thread in threads:
            thread.start()
        for line in lines:
            times.append(time.monotonic())
            assert "error" not in line
    for thread in threads:
        thread.join()
    assert len(times) > 400 and len(answers) == 8
    for answer in answers:
        assert answer.status_code in (200, 400, 503), answer.text
        if answer.status_code != 200:
            assert answer.json()["error"]["code"] in ("invalid_image", "prompt_too_costly")
    assert sum(answer.status_code == 200 for answer in answers) <= 2
    assert httpx.post(url, json=chat([image(picture())]), timeout=60).status_code == 200
    assert httpx.post(url, json=chat("hi"), timeout=60).status_code == 200


def test_a_request_may_have_all_the_bytes_that_pictures_may(server: RunningServer) -> None:
    """20 MB of images are 27 MB of base64, within the body's 32 MiB; more is refused by name."""
    url = f"{server.url}/v1/chat/completions"
    full = picture() + bytes(default("max_image_bytes") // 2 - len(picture()))
    answer = httpx.post(url, json=chat([image(full + b"\0")] * 2), timeout=120)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "image_too_large")
    answer = httpx.post(url, json=chat([image(full)] * 2), timeout=120)
    assert answer.status_code == 200, answer.text
    counted = answer.json()["usage"]["prompt_tokens_details"]["image_tokens"]
    assert counted == 2 * 13 * 4


@pytest.mark.parametrize(
    ("flags", "expected"), [((), 32 << 20), (("--max-body", "4194304"), 4 << 20)]
)
def test_a_model_that_sees_has_a_larger_body(flags: tuple[str, ...], expected: int) -> None:
    with serve_command.make_context("serve", ["model", *flags]) as context:
        settings = Settings(max_body_bytes=context.params["max_body_bytes"])
        assert with_body(settings, True).max_body_bytes == expected
        assert with_body(settings, False).max_body_bytes == 4 << 20
