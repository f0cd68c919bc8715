"""Makes TGI's answers and events of the engine's events. `/generate_stream` has an event for each
token; the last one has the whole text, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mlcc.engine.events import Finished, TextDelta
from mlcc.engine.text.logprobs import Candidate, TokenLogprob

Payload = dict[str, Any]
UNKNOWN = -1
"""Id of the token of a last event when the engine reported none."""


class Pieces:
    """The events of one answer. TGI counts tokens from 1.

    prompt: text to send before the answer (`return_full_text`); top: whether `top_tokens` were
    requested.
    """

    def __init__(self, prompt: str = "", top: bool = False) -> None:
        self._text = [prompt]
        self._top = top
        self._sampled: deque[tuple[int, float]] = deque()
        """Tokens that were sampled and not reported with their text yet."""
        self._loose = ""
        """Text that no event has."""
        self._index = 0
        self._held: Payload | None = None
        """The last event: more belongs to it if the answer ends."""

    def take(self, delta: TextDelta) -> Iterator[Payload]:
        """Events of tokens whose text is known, but the last one."""
        self._sampled.extend(zip(delta.token_ids, delta.logprobs, strict=True))
        self._loose += delta.text
        for token, text in self._with_texts(delta.token_logprobs):
            if self._sampled and self._sampled[0][0] == token.chosen.token:
                self._sampled.popleft()
            yield from self._push(token_of(token.chosen, text), token.top)

    def end(self, finished: Finished, details: bool, seed: int | None) -> Iterator[Payload]:
        """The last events: tokens of a stop string, which are reported without their texts, and
        the whole text."""
        while self._sampled:
            token, logprob = self._sampled.popleft()
            text, self._loose = ("", self._loose) if self._sampled else (self._loose, "")
            yield from self._push(_token(token, text, logprob, False), ())
        if self._held is None:
            yield from self._push(_token(UNKNOWN, "", 0.0, True), ())
        assert self._held is not None
        self._held["token"]["text"] += self._loose
        self._text.append(self._loose)
        self._held["generated_text"] = "".join(self._text)
        if details:
            self._held["details"] = {
                "finish_reason": finish_reason(finished),
                "generated_tokens": finished.completion_tokens,
                "seed": seed,
                "input_length": finished.prompt_tokens,
            }
        yield self._held

    def _with_texts(self, tokens: Sequence[TokenLogprob]) -> Iterator[tuple[TokenLogprob, str]]:
        """Each token with its share of the text: its own, if these make up the text, else all of
        it belongs to the last one. Control tokens are not part of the text."""
        plain = [token for token in tokens if not token.chosen.control]
        if not plain:
            yield from ((token, token.chosen.text) for token in tokens)
            return
        whole, self._loose = self._loose, ""
        split = "".join(token.chosen.text for token in plain) == whole
        for token in tokens:
            own = token.chosen.text if token.chosen.control or split else ""
            yield token, whole if token is plain[-1] and not split else own

    def _push(self, token: Payload, top: Sequence[Candidate]) -> Iterator[Payload]:
        if self._held is not None:
            yield self._held
        if not token["special"]:
            self._text.append(token["text"])
        self._index += 1
        event: Payload = {"index": self._index, "token": token}
        event |= {"generated_text": None, "details": None}
        if self._top:
            event["top_tokens"] = [token_of(one, one.text) for one in top]
        self._held = event


def whole(
    deltas: Sequence[TextDelta], finished: Finished, seed: int | None, prompt: str, top: bool
) -> Payload:
    """A whole answer with its details."""
    pieces = Pieces(prompt, top)
    events = [event for delta in deltas for event in pieces.take(delta)]
    events += pieces.end(finished, False, seed)
    details: Payload = {
        "finish_reason": finish_reason(finished),
        "generated_tokens": finished.completion_tokens,
        "seed": seed,
        "prefill": [*map(_prefill, (t for delta in deltas for t in delta.prompt_logprobs))],
        "tokens": [event["token"] for event in events],
    }
    if details["prefill"]:
        details["prefill"][0]["logprob"] = None  # it follows nothing
    if top:
        details["top_tokens"] = [event["top_tokens"] for event in events]
    return {"generated_text": events[-1]["generated_text"], "details": details}


def best_of(made: Sequence[Payload]) -> Payload:
    """The most likely of several answers, with the others among its details. As in TGI, that is
    the highest mean log-probability of the tokens, an end token included."""
    first, *others = sorted(made, key=lambda one: -_mean_logprob(one["details"]["tokens"]))
    sequences = [{"generated_text": one["generated_text"], **one["details"]} for one in others]
    if sequences:
        first["details"]["best_of_sequences"] = sequences
    return first


def _mean_logprob(tokens: Sequence[Payload]) -> float:
    return sum(float(token["logprob"]) for token in tokens) / len(tokens)


def finish_reason(finished: Finished) -> str:
    """TGI's word for why the answer ended."""
    if finished.reason == "length":
        return "length"
    return "stop_sequence" if finished.matched else "eos_token"


def token_of(candidate: Candidate, text: str) -> Payload:
    """TGI's shape of a token."""
    return _token(candidate.token, text, candidate.logprob, candidate.control)


def _token(token: int, text: str, logprob: float, special: bool) -> Payload:
    return {"id": token, "text": text, "logprob": max(logprob, -9999.0), "special": special}


def _prefill(token: TokenLogprob) -> Payload:
    chosen = token.chosen
    return {"id": chosen.token, "text": chosen.text, "logprob": max(chosen.logprob, -9999.0)}


def info(
    name: str, digest: str, device: str, architecture: str, limits: Mapping[str, int], version: str
) -> Payload:
    """The answer of /info."""
    return {
        "model_id": name,
        "model_sha": digest or None,
        "model_device_type": device,
        "model_pipeline_tag": "text-generation",
        "model_type": architecture,
        **limits,
        "version": version,
        "router": "mlcc",
    }
