"""Random requests of the soak, over all protocols, and how each must end.

A request is valid, and its answer must be whole; or invalid or huge, and must be refused. Some are
fixed and greedy: their answers are compared with those of a quiet server. Some clients read slowly,
and some disconnect.
"""

from __future__ import annotations

import json
import random
import struct
import zlib
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Fields = dict[str, Any]
Outcome = Literal["answered", "refused", "left", "asleep", "broken", "differs", "lost"]
"""left: the client disconnected; asleep: refused by a server that sleeps; broken: the engine died
after text was out; differs: not the answer of a quiet server; lost: none of what may be."""
CHAT = "/v1/chat/completions"
GREEDY: Fields = {"temperature": 0, "ignore_eos": True}
DIED = ("engine_died", "engine died", "EngineDiedError", "engine process was ended")


ASLEEP = "this server sleeps"
_READ_AT_ONCE = 64 << 10
"""Bytes of a body that have left the client before an answer comes."""
TEXTS = ("text", "content", "response", "delta", "text_output", "generated_text", "label")
"""Fields of answers that are text."""


@dataclass(frozen=True)
class Call:
    """One request."""

    kind: str
    path: str
    body: bytes
    ends: tuple[str, ...] = ()
    """Texts of which a whole answer has one; empty = it must be refused."""
    leaves_after: int = 1 << 30
    """Lines after which the client disconnects."""
    pause_s: float = 0.0
    """Between two lines that are read."""
    same: bool = False
    """Whether the answer is compared."""
    content_type: str = "application/json"
    plain: bool = False
    """Whether the answer is text without JSON, such as subtitles."""


def chat(text: str) -> list[Fields]:
    """A conversation of one message."""
    return [{"role": "user", "content": text}]


def png(width: int, height: int, level: int = 0) -> bytes:
    """A gray image of this size, with the data of one line at most."""
    size = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    line = zlib.compress(b"\0" + bytes([level]) * width)
    if width * height < 1 << 20:
        line = zlib.compress((b"\0" + bytes([level]) * width) * height)
    chunks = ((b"IHDR", size), (b"IDAT", line), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def seen(data: bytes) -> list[Fields]:
    """A conversation of an image and a text."""
    url = f"data:image/png;base64,{b64encode(data).decode()}"
    picture = {"type": "image_url", "image_url": {"url": url}}
    return [{"role": "user", "content": [picture, {"type": "text", "text": "what is it?"}]}]


def image_calls() -> list[Call]:
    """Greedy requests with images, for models that see."""
    sizes = ((40, 30, 9), (30, 40, 9), (300, 200, 7))
    bodies: list[Fields] = [{"messages": seen(png(*size)), "max_tokens": 12} for size in sizes]
    return [
        Call(
            f"same image {number}", CHAT, encoded({**body, **GREEDY}), ("finish_reason",), same=True
        )
        for number, body in enumerate(bodies)
    ]


def fixed_calls(model: str) -> list[Call]:
    """Greedy requests, one or two of each protocol."""
    messages = chat("hello there")
    short: Fields = {"max_tokens": 12, **GREEDY}
    options = {"options": {"num_predict": 12, "temperature": 0}}
    input_: Fields = {"max_output_tokens": 12, "temperature": 0}
    message: Fields = {"model": model, "messages": messages, "max_tokens": 12, "temperature": 0}
    tgi: Fields = {"max_new_tokens": 12, "details": True}
    response_ends = ("response.completed", "response.incomplete")
    v2 = f"/v2/models/{model or 'toy'}"
    rows: list[tuple[str, Fields, tuple[str, ...]]] = [
        ("/v1/completions", {"prompt": "once upon", **short}, ("finish_reason",)),
        ("/v1/chat/completions", {"messages": messages, **short}, ("finish_reason",)),
        ("/v1/chat/completions", {"messages": messages, "stream": True, **short}, ("[DONE]",)),
        ("/v1/responses", {"input": "hello there", **input_}, ('"completed"', '"incomplete"')),
        ("/v1/responses", {"input": messages, "stream": True, **input_}, response_ends),
        ("/v1/messages", message, ("stop_reason",)),
        ("/v1/messages", {"stream": True, **message}, ("message_stop",)),
        ("/api/chat", {"messages": messages, **options}, ('"done":true',)),
        ("/api/generate", {"prompt": "hello", "stream": False, **options}, ('"done":true',)),
        ("/completion", {"prompt": "a", "n_predict": 12, "temperature": 0}, ('"stop":true',)),
        ("/generate", {"inputs": "a", "parameters": tgi}, ('"details"',)),
        ("/generate_stream", {"inputs": "a", "parameters": tgi}, ('"finish_reason"',)),
        (f"{v2}/generate", {"text_input": "a", **short}, ('"text_output"',)),
        (f"{v2}/generate_stream", {"text_input": "a", **short}, ('"text_output"',)),
        ("/tokenize", {"content": "once upon a time"}, ("tokens",)),
        ("/v1/messages/count_tokens", {"model": model, "messages": messages}, ("input_tokens",)),
    ]
    return [
        Call(f"same {number} {path.rpartition('/')[2]}", path, encoded(fields), ends, same=True)
        for number, (path, fields, ends) in enumerate(rows)
    ]


def large_calls() -> list[Call]:
    """Large bodies that are answered: within the prompt processes' 30 s on a busy machine too."""
    text, ids = "word, hello 123 " * 60_000, [7, 8, 9] * 300_000
    bodies: list[tuple[str, str, Fields, str]] = [
        ("text", "/tokenize", {"content": text}, "tokens"),
        ("pieces", "/tokenize", {"content": text, "with_pieces": True}, "piece"),
        ("ids", "/detokenize", {"tokens": ids}, "content"),
        ("conversation", "/apply-template", {"messages": chat("a") * 20_000}, "prompt"),
        ("message", "/apply-template", {"messages": chat(text * 4)}, "prompt"),
        ("answers", "/v1/completions",
         {"prompt": "a", "n": 64, "max_tokens": 60, "logprobs": 5, "ignore_eos": True},
         "finish_reason"),
    ]  # fmt: skip
    return [Call(f"large: {name}", path, encoded(body), (end,)) for name, path, body, end in bodies]


def hostile_calls() -> list[Call]:
    """Bodies that must be refused, whatever they cost."""
    many = chat("a") * 20_000
    bodies: list[tuple[str, str, bytes]] = [
        ("long chat", "/v1/chat/completions", encoded({"messages": many})),
        ("long input", "/v1/responses", encoded({"input": many})),
        ("long ids", "/v1/completions", encoded({"prompt": [1] * 300_000})),
        ("long text", "/api/chat", encoded({"messages": chat("word, " * 500_000)})),
        ("many values", "/v1/chat/completions", b'{"messages":[' + b"{}," * 100_000 + b"{}]}"),
        ("deep", "/v1/chat/completions", b'{"messages":' + b"[" * 100_000),
        ("no JSON", "/v1/messages", b'{"model": '),
        ("no float", "/v1/completions", b'{"prompt": "a", "temperature": 1e999}'),
        ("negative", "/v1/completions", encoded({"prompt": "a", "temperature": -1})),
        ("no parameters", "/generate", encoded({"inputs": "a", "parameters": [1]})),
        ("no grammar", "/", encoded({"inputs": "a", "parameters": {"grammar": {"type": "x"}}})),
        ("no inputs", "/v2/models/toy/infer", encoded({"inputs": []})),
        ("no text", "/v2/models/toy/generate", encoded({"text_input": 5})),
        ("no message", "/api/chat", encoded({"messages": [{"role": "king", "content": 1}]})),
        ("no role", "/v1/chat/completions", encoded({"messages": [{}]})),
        ("image bomb", CHAT, encoded({"messages": seen(png(16384, 16384))})),
        ("image cut off", CHAT, encoded({"messages": seen(png(7000, 7000)[:50])})),
        ("no image", CHAT, encoded({"messages": seen(b"GIF89a" + bytes(400))})),
    ]
    calls = [Call(f"hostile: {name}", path, body) for name, path, body in bodies]
    part = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    forms: list[tuple[str, bytes]] = [
        ("empty form", b""),
        ("cut form", part + b"{}"),
        ("form without purpose", part + b"{}\r\n--b--\r\n"),
        ("form of many parts", part * 5_000),
        ("form with a long head", b"--b\r\n" + b"x" * 70_000),
        ("form that is no text", part + b"\xff" * 200_000 + b"\r\n--b--\r\n"),
    ]
    kind = "multipart/form-data; boundary=b"
    return calls + [
        Call(f"hostile: {name}", "/v1/files", body, content_type=kind) for name, body in forms
    ]


class Requests:
    """Draws the calls of a soak from one seed."""

    def __init__(
        self, seed: int, vocab: int, model: str, grammars: bool = True, sees: bool = False
    ) -> None:
        self._rng = random.Random(seed)
        self._vocab = vocab
        self._grammars = grammars
        self.fixed, hostile = fixed_calls(model), hostile_calls()
        self.fixed += image_calls() if sees else []
        self._round: list[Call] = []
        """Fixed calls that the present round still has."""
        self._first = large_calls()[:1]
        """What starts the processes that read large bodies: their memory is no growth."""
        self._small = [call for call in hostile if len(call.body) < 1000]
        self._large = [call for call in hostile if len(call.body) >= 1000] + large_calls()

    def draw(self) -> Call:
        """The next call."""
        if self._first:
            return self._first.pop()
        rng = self._rng
        kinds: dict[Callable[[], Call], int] = {
            lambda: self._completion("plain"): 30,
            lambda: self._completion("several"): 8,
            lambda: self._completion("grammar"): 12 * self._grammars,
            lambda: self._completion("hangs up"): 14,
            lambda: self._completion("slow"): 3,
            self._next_fixed: 25,
            lambda: rng.choice(self._small): 6,
            lambda: rng.choice(self._large): 2,
        }
        return rng.choices([*kinds], [*kinds.values()])[0]()

    def _next_fixed(self) -> Call:
        """Each in turn, in a random order."""
        if not self._round:
            self._round = self._rng.sample(self.fixed, len(self.fixed))
        return self._round.pop()

    def _completion(self, kind: str) -> Call:
        rng = self._rng
        prompt = [rng.randrange(1, self._vocab) for _ in range(rng.choice((8, 24, 60, 200)))]
        if rng.random() < 0.5:
            prefix = random.Random(rng.randrange(4))
            prompt = [*(prefix.randrange(1, self._vocab) for _ in range(96)), *prompt]
        fields: Fields = {
            "prompt": prompt, "max_tokens": rng.choice((1, 8, 16, 120)),
            "seed": rng.randrange(1 << 30), "temperature": rng.choice((0, 1)),
            "stream": kind != "several", "ignore_eos": rng.random() < 0.5,
        }  # fmt: skip
        if kind == "several":
            fields["n"] = 3
        elif kind == "grammar":
            fields["structured_outputs"] = {"regex": f"[a-z]{{4,{rng.randrange(5, 40)}}}"}
        leaves = rng.randrange(1, 6) if kind == "hangs up" else 1 << 30
        pause = 0.05 if kind == "slow" else 0.0
        ends = ('"finish_reason":"', '"finish_reason": "')
        return Call(kind, "/v1/completions", encoded(fields), ends, leaves, pause)


def encoded(fields: Fields) -> bytes:
    """A body."""
    return json.dumps(fields).encode()


def outcome(call: Call, status: int, answer: str, left: bool) -> Outcome:
    """How a call ended, by its status and the text of its body."""
    # A server that does not read on may reset the connection before its words are read.
    cut = len(call.body) > _READ_AT_ONCE and answer.endswith("\r\n\r\n")
    if status == 503 and (ASLEEP in answer or cut):
        return "asleep"
    if any(word in answer for word in DIED):
        return "broken"
    if not call.ends:
        return "refused" if 400 <= status < 500 else "lost"
    if left:
        return "left"
    return "answered" if status == 200 and any(end in answer for end in call.ends) else "lost"


def words(call: Call, answer: str) -> str:
    """The text and token counts of an answer, without names and times that differ each time."""
    if call.plain:
        return answer.partition("\r\n\r\n")[2]  # behind the head, which has the time
    lines = [line.removeprefix("data: ") for line in answer.splitlines()]
    found: list[str] = []
    for line in lines:
        try:
            _collect(json.loads(line), found)
        except ValueError:
            continue
    return "".join(found)


def _collect(value: Any, found: list[str]) -> None:
    if isinstance(value, dict):
        for name, entry in value.items():
            if name == "usage":  # Anthropic's counts leave out cached tokens, which differ
                continue
            if name in TEXTS and isinstance(entry, str):
                found.append(entry)
            elif name in ("tokens", "input_tokens") and not isinstance(entry, dict):
                found.append(str(entry))
            else:
                _collect(entry, found)
    elif isinstance(value, list):
        for entry in value:
            _collect(entry, found)
