"""Translates chunks of completions into llama.cpp's answers and events. Times come from the
caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Payload = dict[str, Any]


class Pieces:
    """The events of one answer to /completion or /infill, chunk by chunk, and the whole of it.

    `settings`: the sampling fields of the request. There are no slots: id_slot is 0.
    """

    def __init__(self, model: str, prompt: Any, settings: Mapping[str, Any]) -> None:
        self._head = {"index": 0, "id_slot": 0}
        self._model = model
        self._prompt = prompt
        self._settings = dict(settings)
        self._content: list[str] = []
        self._logprobs: list[Payload] = []
        self._reason = "stop"
        self._usage: Mapping[str, Any] = {}

    def take(self, chunk: Mapping[str, Any]) -> Iterable[Payload]:
        """Translate one chunk."""
        self._usage = chunk.get("usage") or self._usage
        for choice in chunk["choices"]:
            if reason := choice["finish_reason"]:
                self._reason = reason
            logprobs = _probabilities(choice["logprobs"])
            if choice["text"] or logprobs:
                self._content.append(choice["text"])
                self._logprobs += logprobs
                yield {
                    **self._head,
                    "content": choice["text"],
                    "tokens": [],
                    "stop": False,
                    **({"completion_probabilities": logprobs} if logprobs else {}),
                }

    def end(self, matched: str | None, prompt_ns: int, answer_ns: int, streamed: bool) -> Payload:
        """The last event, or the whole answer. matched: the stop string that ended it."""
        usage = self._usage
        prompt, made = usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0)
        cached = usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
        kind = "limit" if self._reason == "length" else "word" if matched else "eos"
        logprobs = (
            {} if streamed or not self._logprobs else {"completion_probabilities": self._logprobs}
        )
        return {
            **self._head,
            "content": "" if streamed else "".join(self._content),
            "tokens": [],
            "stop": True,
            "model": self._model,
            "prompt": self._prompt,
            "generation_settings": self._settings,
            "tokens_predicted": made,
            "tokens_evaluated": prompt,
            "tokens_cached": prompt + made,
            "has_new_line": any("\n" in text for text in self._content),
            "truncated": False,
            "stop_type": kind,
            "stopping_word": matched or "",
            "timings": timings(prompt - cached, cached, prompt_ns, made, answer_ns),
            **logprobs,
        }


def timings(prompt: int, cached: int, prompt_ns: int, made: int, answer_ns: int) -> Payload:
    """llama.cpp's `timings`, in milliseconds; time in the queue counts as the prompt's."""
    prompt_ms, answer_ms = prompt_ns / 1e6, answer_ns / 1e6
    return {
        "cache_n": cached,
        "prompt_n": prompt,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": prompt_ms / prompt if prompt else 0.0,
        "prompt_per_second": 1e3 * prompt / prompt_ms if prompt_ms else 0.0,
        "predicted_n": made,
        "predicted_ms": answer_ms,
        "predicted_per_token_ms": answer_ms / made if made else 0.0,
        "predicted_per_second": 1e3 * made / answer_ms if answer_ms else 0.0,
    }


def only(answer: Payload, fields: Iterable[str]) -> Payload:
    """The fields in `response_fields`; a path (`timings/prompt_n`) names a nested field."""
    wanted: Payload = {}
    for path in fields:
        value: Any = answer
        for name in path.split("/"):
            value = value.get(name) if isinstance(value, Mapping) else None
        if value is not None:
            wanted[path.rpartition("/")[2]] = value
    return wanted or answer


def _probabilities(logprobs: Mapping[str, Any] | None) -> list[Payload]:
    """Log-probabilities, token by token. Token ids are not known here, and are left out."""
    if not logprobs:
        return []
    rows = zip(
        logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True
    )
    return [
        {
            **_token(token, logprob),
            "top_logprobs": [_token(text, p) for text, p in (top or {}).items()],
        }
        for token, logprob, top in rows
    ]


def _token(text: str, logprob: float) -> Payload:
    return {"token": text, "bytes": [*text.encode()], "logprob": logprob}
