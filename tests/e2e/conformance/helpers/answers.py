"""Parses OpenAI's two forms of an answer, whole and as events, into one: texts, reasons, usage.

Parsing checks the properties of all answers: their keys, the order of events, one finish reason per
choice, usage last and only if requested, `[DONE]` at the end and nothing after.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.e2e.conformance.helpers.matching import Json, Matcher, Mismatch, differ

REASON = {"$regex": "^(stop|length)$"}
SOME_TEXT = {"$regex": "(?s)."}
COLUMNS = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
"""Fields of a completion's log-probabilities."""
USAGE = {
    "prompt_tokens": {"$any": "integer"},
    "completion_tokens": {"$any": "integer"},
    "total_tokens": {"$any": "integer"},
    "prompt_tokens_details": {"cached_tokens": {"$any": "integer"}},
}


@dataclass(frozen=True)
class Kind:
    """An endpoint: chat completions or completions."""

    id: str
    whole: str
    chunk: str
    chat: bool


KINDS = {
    "/v1/chat/completions": Kind("chatcmpl", "chat.completion", "chat.completion.chunk", True),
    "/v1/completions": Kind("cmpl", "text_completion", "text_completion", False),
}


def read_answer(request: dict[str, Any], text: str) -> Json:
    """{"choices": [{"text", "finish_reason"}], "usage"} of any answer. Raises Mismatch. A streamed
    one also has "pieces", the texts of its chunks, in each choice; with requested log-probabilities
    it has "logprobs"."""
    kind, body = KINDS[request["path"]], request["body"]
    wanted = body.get("logprobs")
    with_logprobs = wanted is not None and wanted is not False  # 0 is wanted
    if body.get("stream"):
        options = body.get("stream_options") or {}
        return _Stream(kind, bool(options.get("include_usage")), with_logprobs).read(events(text))
    answer = json.loads(text)
    choices = answer.get("choices", [])
    expected = [_whole_choice(kind, index, with_logprobs) for index in range(max(1, len(choices)))]
    shape = {**_head(kind, kind.whole), "choices": expected, "usage": USAGE}
    Matcher().check(shape, answer, "answer")
    return {
        "choices": [
            {
                "text": choice["message"]["content"] if kind.chat else choice["text"],
                "finish_reason": choice["finish_reason"],
                **_joined_logprobs(kind, [choice["logprobs"]] if with_logprobs else []),
            }
            for choice in choices
        ],
        "usage": _added_up(answer["usage"]),
    }


def events(text: str) -> list[Json]:
    """The chunks of a stream, without the `[DONE]` that must be its end."""
    *pieces, rest = text.split("\n\n")
    if rest or not pieces or not all(piece.startswith("data: ") for piece in pieces):
        raise Mismatch(f"stream: not all of it is 'data: ...' and an empty line: {text[-200:]!r}")
    *chunks, last = [piece.removeprefix("data: ") for piece in pieces]
    if last != "[DONE]":
        raise Mismatch(f"stream: it ends with {last[:300]!r} instead of [DONE]")
    return [json.loads(chunk) for chunk in chunks]


def named_events(text: str) -> list[Json]:
    """The events of a stream of another protocol than OpenAI's chat, each under its name."""
    *pieces, rest = text.split("\n\n")
    found = []
    for piece in pieces:
        name, _, data = piece.partition("\n")
        if not name.startswith("event: ") or not data.startswith("data: "):
            raise Mismatch(f"stream: not a name and data: {piece[:200]!r}")
        event = json.loads(data.removeprefix("data: "))
        if event.get("type") != name.removeprefix("event: "):
            raise Mismatch(f"stream: an event of another name than its type: {piece[:200]!r}")
        found.append(event)
    if rest or not found:
        raise Mismatch(f"stream: it ends with {rest[-200:]!r} instead of an event")
    return found


class _Stream:
    """Reads the chunks of one stream in order."""

    def __init__(self, kind: Kind, include_usage: bool, with_logprobs: bool) -> None:
        self._kind = kind
        self._usage = include_usage
        self._wants_logprobs = with_logprobs
        self._logprobs: dict[int, list[Json]] = {}
        self._pieces: dict[int, list[str]] = {}
        self._reasons: dict[int, str] = {}
        self._matcher = Matcher()
        same = {"id": {"$same": "id"}, "created": {"$same": "created"}}
        self._base = {**_head(kind, kind.chunk), **same, **({"usage": None} if self._usage else {})}

    def read(self, chunks: list[Json]) -> Json:
        """The answer. Raises Mismatch at the first chunk that is out of order."""
        *rest, last = chunks if self._usage and chunks else [*chunks, None]
        for number, chunk in enumerate(rest):
            self._take(chunk, f"chunk {number}")
        if self._usage:
            self._check({"choices": [], "usage": USAGE}, last, "the last chunk")
        if not self._pieces or self._pieces.keys() != self._reasons.keys():
            raise Mismatch(f"stream: {len(self._pieces)} choices, {len(self._reasons)} ended")
        choices = [
            {
                "text": "".join(pieces),
                "finish_reason": self._reasons[index],
                "pieces": pieces,
                **_joined_logprobs(self._kind, self._logprobs.get(index, [])),
            }
            for index, pieces in sorted(self._pieces.items())
        ]
        return {"choices": choices, "usage": _added_up(last["usage"]) if self._usage else None}

    def _take(self, chunk: Json, where: str) -> None:
        found = (chunk.get("choices") or [{}])[0]
        index, reason = found.get("index"), found.get("finish_reason")
        opens = self._kind.chat and index not in self._pieces
        if index in self._reasons:
            raise Mismatch(f"{where}: choice {index} has ended: {chunk}")
        choice = {
            "index": {"$any": "integer"},
            **self._content(opens, reason is not None),
            "logprobs": _logprobs(self._kind, self._wants_logprobs and not (opens or reason)),
            "finish_reason": REASON if reason else None,
        }
        self._check({"choices": [choice]}, chunk, where)
        piece = found["delta"].get("content", "") if self._kind.chat else found["text"]
        self._pieces.setdefault(index, []).extend([piece] if piece else [])
        if found["logprobs"]:
            self._logprobs.setdefault(index, []).append(found["logprobs"])
        if reason:
            self._reasons[index] = reason

    def _content(self, opens: bool, ends: bool) -> Json:
        """The text of a chunk's choice: a chat begins with the role, only the last is empty."""
        if not self._kind.chat:
            return {"text": "" if ends else SOME_TEXT}
        if opens:
            return {"delta": {"role": "assistant", "content": ""}}
        return {"delta": {} if ends else {"content": SOME_TEXT}}

    def _check(self, expected: Json, chunk: Json, where: str) -> None:
        self._matcher.check({**self._base, **expected}, chunk, where)


def _head(kind: Kind, name: str) -> dict[str, Json]:
    return {
        "id": {"$regex": f"^{kind.id}-[0-9a-f]{{32}}$"},
        "object": name,
        "created": {"$any": "integer"},
        "model": {"$any": "string"},
        "system_fingerprint": {"$regex": "^fp_[0-9a-f]{12}$"},
    }


def _logprobs(kind: Kind, with_logprobs: bool) -> Json:
    """The expected `logprobs` of a choice."""
    if not with_logprobs:
        return None
    if kind.chat:
        return {"content": {"$any": "array"}, "refusal": None}
    return {name: {"$any": "array"} for name in COLUMNS}


def _joined_logprobs(kind: Kind, pieces: list[Json]) -> Json:
    """The log-probabilities of one answer, from those of its pieces."""
    if not pieces:
        return {}
    if kind.chat:
        return {"logprobs": {"content": [t for piece in pieces for t in piece["content"]]}}
    joined = {name: [t for piece in pieces for t in piece[name]] for name in COLUMNS}
    if len({len(column) for column in joined.values()}) > 1:
        raise Mismatch(f"logprobs: not as many of each: {joined}")
    return {"logprobs": joined}


def _whole_choice(kind: Kind, index: int, with_logprobs: bool) -> Json:
    message = {"role": "assistant", "content": {"$any": "string"}, "refusal": None}
    return {
        "index": index,
        **({"message": message} if kind.chat else {"text": {"$any": "string"}}),
        "logprobs": _logprobs(kind, with_logprobs),
        "finish_reason": REASON,
    }


def _added_up(usage: dict[str, Any]) -> dict[str, int]:
    """The three counts. Cached tokens depend on earlier requests, so they are only checked here:
    fewer than the prompt."""
    details = usage.pop("prompt_tokens_details")
    if usage["prompt_tokens"] + usage["completion_tokens"] != usage["total_tokens"]:
        raise differ("usage.total_tokens", "the sum of both", usage)
    if not 0 <= details["cached_tokens"] < usage["prompt_tokens"]:
        raise differ("usage.prompt_tokens_details", "less than the prompt", details)
    return usage
