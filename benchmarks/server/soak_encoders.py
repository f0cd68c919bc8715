"""Random texts of a soak over an encoder: every address that its task has, and bodies that must be
refused. For `soak_requests.py`'s outcomes."""

from __future__ import annotations

import random
from collections.abc import Callable

from benchmarks.server.soak_requests import Call, Fields, encoded

_TEXT = "a cat sat on the mat beside two small dogs; it was late, and rain fell: héllo 12"
_WORDS = _TEXT.split()
_TOO_LONG = "word " * 200_000


def _infer(model: str, **texts: list[str]) -> tuple[str, Fields, str]:
    """KServe's request, whose inputs have these names."""
    inputs = [
        {"name": name, "datatype": "BYTES", "shape": [len(some)], "data": some}
        for name, some in texts.items()
    ]
    return f"/v2/models/{model}/infer", {"inputs": inputs}, '"outputs"'


def asked(task: str, model: str, texts: list[str]) -> list[tuple[str, Fields, str]]:
    """Path, body and what a whole answer has, of each address of a task (`EncoderInfo.task`)."""
    query, pair = texts[0], {"text_1": texts[0], "text_2": texts}
    if task == "classify":
        return [("/classify", {"input": texts}, '"probs"'), _infer(model, text=texts)]
    ranked: Fields = {"query": query, "documents": texts}
    rows: list[tuple[str, Fields, str]] = [
        ("/v1/score", pair, '"score"'),
        ("/v1/rerank", ranked, '"relevance_score"'),
        ("/v2/rerank", {**ranked, "top_n": 1}, '"relevance_score"'),
    ]
    if task == "score":
        return [*rows, _infer(model, query=[query], document=texts)]
    return [
        *rows,
        ("/v1/embeddings", {"input": texts}, '"embedding"'),
        ("/v1/embeddings", {"input": texts, "encoding_format": "base64"}, '"embedding"'),
        ("/api/embed", {"model": model, "input": texts}, '"embeddings"'),
        ("/embedding", {"content": query}, '"embedding"'),
        _infer(model, text=texts),
    ]


def hostile_bodies(model: str) -> list[Call]:
    """Requests that must be refused by an encoder of any task."""
    infer = f"/v2/models/{model}/infer"
    odd = {"name": "text", "datatype": "BYTES", "shape": [3], "data": ["a"]}
    bodies: list[tuple[str, str, bytes]] = [
        ("no chat", "/v1/chat/completions", encoded({"messages": [{"role": "user"}]})),
        ("no generation", "/generate", encoded({"inputs": "a"})),
        ("no input", "/v1/embeddings", encoded({"input": []})),
        ("no JSON", "/classify", b'{"input": '),
        ("no text", "/classify", encoded({"input": {"a": 1}})),
        ("no query", "/v1/rerank", encoded({"documents": ["a"]})),
        ("no pair", "/v1/score", encoded({"text_1": ["a", "b"], "text_2": ["a", "b", "c"]})),
        ("no tensor", infer, encoded({"inputs": []})),
        ("odd shape", infer, encoded({"inputs": [odd]})),
        ("other model", "/v2/models/none/infer", encoded({"inputs": [odd]})),
        ("long text", "/classify", encoded({"input": _TOO_LONG})),
        ("deep", "/v1/embeddings", b'{"input":' + b"[" * 100_000),
    ]
    return [Call(f"hostile: {name}", path, body) for name, path, body in bodies]


class EncoderRequests:
    """Draws the calls of a soak over an encoder."""

    def __init__(self, seed: int, task: str, model: str) -> None:
        self._rng = random.Random(seed)
        self._task, self._model = task, model
        self.fixed = [
            Call(f"same {number} {path}", path, encoded(fields), (end,), same=True)
            for number, (path, fields, end) in enumerate(asked(task, model, _WORDS[:4]))
        ]
        self._hostile = hostile_bodies(model)
        self._round: list[Call] = []
        """Fixed and hostile calls that the present round still has."""

    def draw(self) -> Call:
        """The next call."""
        kinds: dict[Callable[[], Call], int] = {
            lambda: self._random("plain"): 50,
            lambda: self._random("hangs up"): 10,
            lambda: self._random("slow"): 4,
            self._next: 36,
        }
        return self._rng.choices([*kinds], [*kinds.values()])[0]()

    def _next(self) -> Call:
        """Each in turn, in a random order."""
        if not self._round:
            calls = [*self.fixed, *self._hostile]
            self._round = self._rng.sample(calls, len(calls))
        return self._round.pop()

    def _random(self, kind: str) -> Call:
        """Texts that no other request has; a client that hangs up leaves behind the status."""
        rng = self._rng
        texts = [
            " ".join(rng.choices(_WORDS, k=rng.choice((1, 4, 12))))
            for _ in range(rng.choice((1, 3, 24)))
        ]
        path, fields, end = rng.choice(asked(self._task, self._model, texts))
        leaves = 0 if kind == "hangs up" else 1 << 30
        pause = 0.05 if kind == "slow" else 0.0
        return Call(kind, path, encoded(fields), (end,), leaves, pause)
