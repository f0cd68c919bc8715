"""Chat templates, tokenizer.json and pictures of strangers, mutated from a seed: each is read, or
refused by an error of mlcc's own, within bounds of time and memory.

The mutants run in child processes: what kills one (a crash of a Rust library, no memory) is a
failure of this test, not the end of it. 1,000 of each run with --long, a tenth of them always.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import resource
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from mlcc.api.chat_template.template import ChatTemplate
from mlcc.errors import MlccError
from mlcc.model.tokenizer.tokenizer import FileTokenizer
from mlcc.multimodal.header import EncodedImage, read_headers
from mlcc.multimodal.processors.registry import processor_of
from mlcc.multimodal.prompt import prepare
from tests.runtime.multimodal.helpers.pictures import encoded, gemma3, idefics3, noise, qwen2_vl

ROOT = Path(__file__).resolve().parents[3]
TEMPLATES = sorted((ROOT / "tests" / "runtime" / "parsers" / "templates").glob("*.jinja"))
TOKENIZER = ROOT / "examples" / "demo" / "model" / "tokenizer.json"
MEMORY_BYTES = 2 << 30
MOST_S = 20.0
"""For one mutant: budgets are counts of work, and this only ends what has none."""
BATCH = 100
"""Mutants of a child process, whose imports take a second."""
MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is the weather in Paris? <|im_end|>"},
    {"role": "assistant", "content": "", "tool_calls": [
        {"id": "call_1", "type": "function",
         "function": {"name": "weather", "arguments": {"city": "Paris"}}}]},
    {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    {"role": "user", "content": "And tomorrow?"},
]  # fmt: skip
TOOLS = [
    {"type": "function", "function": {
        "name": "weather", "description": "The weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}},
]  # fmt: skip
SPLICES = (
    "{% for a in range(10**9) %}{{ a }}{% endfor %}", "{{ 'x' * 10**10 }}", "{{ [1] * 10**9 }}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{{ ''.__class__.__mro__ }}",
    "{{ cycler.__init__.__globals__ }}", "{{ messages.__len__ }}", "{% include 'x' %}",
    "{{ raise_exception('no') }}", "{{ '%999999999d' % 1 }}", "{{ 9**9**9 }}",
    "{{ messages|tojson }}",
    "{{ ''|center(10**9) }}", "{% set ns = namespace(x=[]) %}{% for i in range(10**6) %}"
    "{% set ns.x = ns.x + ns.x + [i] %}{% endfor %}", "{{ self }}", "{{ caller() }}", "{%", "}}",
    "{{ '\ud800' }}", "{{ 'a'.join(['b'] * 10**8) }}", "{{ lipsum(n=10**7) }}", "\x00", "{#",
    "{{ 'a'|replace('', 'b' * 10**8) }}", "{{ messages|map(attribute='x.y.z')|list }}",
)  # fmt: skip


def mutated_text(rng: random.Random, text: str) -> str:
    """A text with a few pieces deleted, doubled, moved or replaced."""
    for _ in range(rng.randrange(1, 6)):
        start = rng.randrange(len(text) + 1)
        end = min(len(text), start + rng.choice((1, 3, 20, 200)))
        piece = text[start:end]
        change = rng.randrange(5)
        if change == 0:
            text = text[:start] + text[end:]
        elif change == 1:
            text = text[:end] + piece * rng.randrange(1, 4) + text[end:]
        elif change == 2:
            place = rng.randrange(len(text) + 1)
            text = text[:place] + piece + text[place:]
        elif change == 3:
            text = text[:start] + rng.choice(SPLICES) + text[start:]
        else:
            text = text[:start] + piece[::-1] + text[end:]
    return text


ODD: tuple[Any, ...] = (
    None, True, -1, 0, 2**31, 2**64, 1e308, "", "\u0000", "x" * 100_000, [], {}, [[]], "(a+)+$",
    {"type": "Sequence", "decoders": []}, {"type": "Replace", "pattern": {"Regex": "(a+)+$"},
    "content": "b"}, {"type": "Split", "pattern": {"Regex": "(|a)*"}, "behavior": "Isolated",
    "invert": False},
)  # fmt: skip


def mutated_value(rng: random.Random, value: Any) -> Any:
    """A JSON value in which one place, chosen at random from the root down, is odd."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice([*value])
        rest = {k: v for k, v in value.items() if k != key}
        if rng.random() < 0.1:
            return rest
        return {**rest, key: mutated_value(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.85:
        place = rng.randrange(len(value))
        return [*value[:place], mutated_value(rng, value[place]), *value[place + 1 :]]
    return rng.choice(ODD)


def read_template(seed: int) -> None:
    rng = random.Random(seed)
    source = mutated_text(rng, rng.choice(TEMPLATES).read_text("utf-8"))
    control = ("<|im_end|>", "<|eot_id|>", "</s>")
    template = ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"}, control)
    text = template.render(MESSAGES, tools=TOOLS)
    assert "".join(text.pieces) == text.text


def read_tokenizer(seed: int) -> None:
    rng = random.Random(seed)
    data = TOKENIZER.read_bytes()
    if rng.random() < 0.2:
        place = rng.randrange(len(data))
        data = data[:place] + rng.randbytes(rng.randrange(1, 9)) + data[place + 3 :]
    else:
        value = json.loads(data)
        for _ in range(rng.randrange(1, 4)):
            value = mutated_value(rng, value)
        data = json.dumps(value).encode()
    tokenizer = FileTokenizer(Path("tokenizer.json"), data)
    ids = tokenizer.encode(
        "Hello, a world of aaaaaaaaaaaaaaaaaaaaaaaaaaaab!", add_special_tokens=True
    )
    assert all(0 <= token < 2**31 for token in ids)
    tokenizer.decode(ids)
    tokenizer.special_tokens()
    assert tokenizer.longest is None or tokenizer.longest >= 0


@cache
def pictures() -> tuple[bytes, ...]:
    """A small picture in each format and of most of their kinds."""
    color, alpha = noise(90, 61), noise(90, 61, channels=4)
    exif = Image.Exif()
    exif[0x0112] = 6
    return (
        *(encoded(color, format) for format in ("PNG", "JPEG", "WEBP")),
        *(encoded(alpha, "PNG"), encoded(alpha, "WEBP", lossless=True)),
        *(encoded(color, "JPEG", progressive=True, exif=exif), encoded(color.convert("P"), "GIF")),
        encoded(color.convert("P"), "PNG", transparency=3),
        encoded(color, "WEBP", save_all=True, append_images=[color.rotate(180)], exif=exif),
    )


def mutated_picture(rng: random.Random, data: bytes) -> bytes:
    """A file with bytes changed, lies in its header, or pieces removed, doubled or moved."""
    made = bytearray(data)
    for _ in range(rng.randrange(1, 5)):
        if not made:
            break
        place, length = rng.randrange(len(made)), rng.choice((1, 2, 4, 30, 400))
        piece = made[place : place + length]
        change = rng.randrange(6)
        if change == 0:
            made[place : place + length] = rng.randbytes(length)
        elif change == 1:  # where headers are
            place = rng.randrange(min(64, len(made)))
            made[place : place + 4] = rng.choice((0, 1, 255, 16000, 2**31, 2**32 - 1)).to_bytes(
                4, "big"
            )
        elif change == 2:
            del made[place : place + length]
        elif change == 3:
            made[place:place] = piece * rng.randrange(1, 50)
        elif change == 4:
            del made[place:]
        else:
            other = rng.choice(pictures())
            made[place:] = other[rng.randrange(len(other)) :]
    return bytes(made)


def read_picture(seed: int) -> None:
    rng = random.Random(seed)
    image = EncodedImage(mutated_picture(rng, rng.choice(pictures())))
    read_headers([image])
    processor = processor_of(rng.choice((idefics3(), gemma3(split=True, max_tiles=4), qwen2_vl())))
    made = prepare(processor, image)
    for tile in made.tiles:
        assert len(tile.pixels) == 3 * tile.width * tile.height and tile.rows > 0


def run_batch(read: Callable[[int], None], seeds: range, found: Any) -> None:
    """In a child: read each mutant, and send what went wrong by seed."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for seed in seeds:
        found.send((seed, "it ended the process"))
        signal.setitimer(signal.ITIMER_REAL, MOST_S)
        try:
            read(seed)
            fault = ""
        except MlccError as error:
            fault = "" if error.message and "bug in mlcc" not in error.message else "no reason"
        except BaseException as error:
            fault = f"{type(error).__name__}: {error}"[:500]
        signal.setitimer(signal.ITIMER_REAL, 0)
        found.send((seed, fault))
    found.close()


def faults(read: Callable[[int], None], count: int) -> dict[int, str]:
    """Seed -> what went wrong, of `count` mutants."""
    context, found = multiprocessing.get_context("spawn"), dict[int, str]()
    left = [range(first, min(first + BATCH, count)) for first in range(0, count, BATCH)]
    while left:
        seeds = left.pop(0)
        receive, send = context.Pipe(duplex=False)
        child = context.Process(target=run_batch, args=(read, seeds, send))
        child.start()
        send.close()
        last = seeds.start - 1
        while True:
            try:
                last, fault = receive.recv()
            except EOFError:
                break
            found[last] = fault
        child.join()
        if last + 1 < seeds.stop:  # the child has ended early
            left.insert(0, range(last + 1, seeds.stop))
    assert len(found) == count
    return {seed: fault for seed, fault in found.items() if fault}


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.parametrize("read", [read_template, read_tokenizer, read_picture])
def test_each_is_read_or_refused(read: Callable[[int], None], count: int) -> None:
    assert faults(read, count) == {}
