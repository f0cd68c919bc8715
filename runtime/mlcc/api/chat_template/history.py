"""How a chat template wants the model's own earlier turns, beyond how it writes a call
(`history.py`): by what name it reads a thought, one call a turn, GLM-4-0414's observations, and
Gemma 4's turn of a call and what came of it.

A thought is `reasoning_content` for most; gpt-oss and LFM2.5 read `thinking`, and Mistral's
templates a block of the content. Which it is, is tried out once; templates that forget thoughts are
given the usual name. gpt-oss writes the first call of a turn only, and Llama 3 refuses the others:
several become turns, each with its result behind it, as these models were trained. Mistral's
refuse ids of calls that are not of nine characters, which no OpenAI client knows.

How a chat template wants calls in earlier messages: transformers gives their arguments as
objects, and some templates join them as text; some know a message without content, others write
"None", and a few leave calls out, so that they are told as text. What it is, is tried out once, as
llama.cpp does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from mlcc.errors import MlccError
from mlcc.util.fast_dataclass import fast_dataclass

Messages = Sequence[Mapping[str, Any]]
_USUAL, _BLOCK = "reasoning_content", "block"
_THOUGHT, _SAID = "zq thought", "zq said"
_NAME, _KEY, _VALUE = "zq_name", "zq_key", "zq value"
_ID = "abcdef123"
"""Of nine letters, which Mistral's templates insist on."""


@fast_dataclass(frozen=True)
class ReasoningStyle:
    """What a template is given of a thought."""

    key: str = _USUAL
    """Of the message; "block" = a part of its content."""
    alone: bool = False
    """Whether a turn that calls may not say anything beside its thought: it becomes one with it."""

    def apply(self, messages: Messages) -> list[dict[str, Any]]:
        """Messages with thoughts, so."""
        return [self._message(message) for message in messages]

    def _message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        made = dict(message)
        thought = made.get(_USUAL)
        if not thought or (self.key == _BLOCK and made.get("prefix")):
            return made
        said = made["content"]
        if self.alone and said and made.get("tool_calls"):
            thought, said = f"{thought}\n\n{said}", ""
        del made[_USUAL]
        made["content"] = said
        if self.key != _BLOCK:
            return {**made, self.key: thought}
        text = [{"type": "text", "text": said}] if said else []
        return {**made, "content": [{"type": "thinking", "thinking": thought}, *text]}


def detect_reasoning_style(render: Callable[[list[dict[str, Any]]], str]) -> ReasoningStyle:
    """The first that a template writes out; the usual one, if it writes none."""
    for tried in (_CALLING, _SAYING):
        for alone in (False, True):
            for key in (_USUAL, "thinking", _BLOCK):
                style = ReasoningStyle(key, alone)
                try:
                    text = render(style.apply(tried))
                except MlccError:
                    continue
                # A block that is written out as Python or JSON is no thought.
                if _THOUGHT in text and "'thinking'" not in text and '"thinking"' not in text:
                    return style
    return ReasoningStyle()


def wants_one_call(template: str) -> bool:
    """Whether it looks at the first call of a turn only."""
    return "tool_calls[0]" in template


def one_call_a_turn(messages: Messages) -> list[dict[str, Any]]:
    """A turn of several calls as turns of one, each with its results behind it."""
    made: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        calls = message.get("tool_calls") or ()
        if len(calls) < 2:
            made.append(dict(message))
            continue
        results = _results(messages[index + 1 :])
        names = [call.get("id") for call in calls]
        if {result.get("tool_call_id") for result in results} != set(names):
            return [*map(dict, messages)]  # the client's own order, which the template may refuse
        for number, call in enumerate(calls):
            turn = {**message, "tool_calls": [call]}
            if number:
                turn["content"] = ""
                turn.pop(_USUAL, None)
            made.append(turn)
            made += [dict(one) for one in results if one["tool_call_id"] == names[number]]
        rest = messages[index + 1 + len(results) :]
        return made + one_call_a_turn(rest)
    return made


def _results(messages: Messages) -> list[Mapping[str, Any]]:
    """Those of tools that the messages begin with."""
    found = []
    for message in messages:
        if message["role"] != "tool":
            break
        found.append(message)
    return found


def wants_short_ids(template: str) -> bool:
    """Whether it refuses a call's id that is not of nine letters and digits, as Mistral's do."""
    return "length != 9" in template


def with_short_ids(messages: Messages) -> list[dict[str, Any]]:
    """Calls and results whose ids are of nine letters and digits: those that are not are exchanged
    for what is the same in every request of a conversation."""
    made = []
    for message in messages:
        turn = dict(message)
        if turn.get("tool_calls"):
            turn["tool_calls"] = [
                {**call, "id": _short(call["id"])} if "id" in call else call
                for call in turn["tool_calls"]
            ]
        if "tool_call_id" in turn:
            turn["tool_call_id"] = _short(turn["tool_call_id"])
        made.append(turn)
    return made


def _short(id: str) -> str:
    if len(id) == 9 and id.isascii() and id.isalnum():
        return id
    from hashlib import sha256  # few templates ask

    return sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:9]


def wants_observations(template: str) -> bool:
    """Whether calls are turns with `metadata`, and results are observations."""
    return "observation" in template and "metadata" in template and "tool_calls" not in template


def as_observations(messages: Messages) -> list[dict[str, Any]]:
    """GLM-4-0414's way: a call is a turn whose `metadata` is the tool's name."""
    made: list[dict[str, Any]] = []
    for message in messages:
        turn = {key: value for key, value in message.items() if key != "tool_calls"}
        if message["role"] == "tool":
            turn["role"] = "observation"
        calls = message.get("tool_calls") or ()
        if turn["content"] or not calls:
            made.append(turn)
        for call in calls:
            function = call["function"]
            given = function.get("arguments", {})
            text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
            made.append({"role": "assistant", "metadata": function["name"], "content": text})
    return made


def wants_responses(template: str) -> bool:
    """Whether results of calls are `tool_responses` of the turn that called."""
    return re.search(r"""[.'"]tool_responses\b""", template) is not None  # a field, and no mark


def with_responses(messages: Messages) -> list[dict[str, Any]]:
    """Gemma 4's way: a call, what came of it and what is said of that are one turn, as its maker's
    page on function calling shows. A turn that spoke before it called is not joined, for the
    template writes what is said last."""
    made: list[dict[str, Any]] = []
    rest = [dict(message) for message in messages]
    while rest:
        turn = rest.pop(0)
        made.append(turn)
        results = _results(rest) if turn.get("tool_calls") else []
        if not results:
            continue
        names = {call.get("id"): call["function"]["name"] for call in turn["tool_calls"]}
        turn["tool_responses"] = [_response(result, names) for result in results]
        del rest[: len(results)]
        if rest and not turn["content"] and _only_says(rest[0]):
            said = rest.pop(0)
            turn |= {key: said[key] for key in ("content", "prefix") if key in said}
    return made


def _response(result: Mapping[str, Any], names: Mapping[Any, str]) -> dict[str, Any]:
    """An object as one, where the tool wrote one."""
    told = result["content"]
    try:
        found = json.loads(told) if isinstance(told, str) else None
    except ValueError:
        found = None
    name = names.get(result.get("tool_call_id"), result.get("name", "unknown"))
    return {"name": name, "response": found if isinstance(found, dict) else told}


def _only_says(message: Mapping[str, Any]) -> bool:
    return message["role"] == "assistant" and not message.get("tool_calls")


_SAYING: list[dict[str, Any]] = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": _SAID, _USUAL: _THOUGHT},
]
_CALLING: list[dict[str, Any]] = [
    {"role": "user", "content": "hi"},
    {
        "role": "assistant",
        "content": _SAID,
        _USUAL: _THOUGHT,
        "tool_calls": [
            {"id": _ID, "type": "function", "function": {"name": "zq_name", "arguments": {}}}
        ],
    },
    {"role": "tool", "tool_call_id": _ID, "name": "zq_name", "content": "1"},
]


def adapt_history(messages: Messages, template: str) -> list[dict[str, Any]]:
    """Calls of earlier turns in the shape that a template's text says it wants."""
    if wants_observations(template):
        return as_observations(messages)
    if wants_responses(template):
        return with_responses(messages)
    if wants_one_call(template):
        messages = one_call_a_turn(messages)
    if wants_short_ids(template):
        messages = with_short_ids(messages)
    return [dict(message) for message in messages]


@fast_dataclass(frozen=True)
class CallStyle:
    """What a template is given."""

    as_text: bool = False
    """Arguments as JSON's text, not as an object."""
    null_content: bool = True
    """None for a message that says nothing but calls, not ""."""
    told: Callable[[Sequence[Mapping[str, Any]]], str] | None = None
    """Writes calls into the content; None = the template does."""

    def apply(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Messages with calls, so."""
        return [self._message(message) for message in messages]

    def _message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        made = dict(message)
        if not (calls := made.get("tool_calls")):
            return made
        if self.told is not None:
            del made["tool_calls"]
            said, told = made["content"], self.told(calls)
            if isinstance(said, list):  # parts, of which a thought is one
                made["content"] = [*said, {"type": "text", "text": told}]
            else:
                made["content"] = "\n".join(filter(None, (said, told)))
            return made
        made["tool_calls"] = [self._call(call) for call in calls]
        made["content"] = made["content"] or (None if self.null_content else "")
        return made

    def _call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        function = dict(call["function"])
        given = function.get("arguments", {})
        if self.as_text and not isinstance(given, str):
            given = json.dumps(given, ensure_ascii=False)
        return {**call, "function": {**function, "arguments": given}}


def detect_call_style(
    render: Callable[[list[dict[str, Any]]], str],
    told: Callable[[Sequence[Mapping[str, Any]]], str] | None = None,
) -> CallStyle:
    """The first that a template writes out soundly; the usual one, if it writes none. told: how
    calls are written for a template that leaves them out."""
    left_out = False
    for as_text, null in product((False, True), (True, False)):
        style = CallStyle(as_text, null)
        try:
            text = render(style.apply(_TRIED))
        except MlccError:
            continue
        # Kimi's have the id, which is the function's name and a number, where others have the name
        named = _NAME in text or (_ID in text and _KEY in text)
        left_out = left_out or not named
        sound = named and _KEY in text and _VALUE in text
        if sound and "None" not in text and f"{{'{_KEY}'" not in text and '\\"' not in text:
            return style
    return CallStyle(told=told) if left_out else CallStyle()


_TRIED: list[dict[str, Any]] = [
    {"role": "user", "content": "hi"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "id": _ID,
                "type": "function",
                "function": {"name": _NAME, "arguments": {_KEY: _VALUE}},
            }
        ],
    },
    {"role": "tool", "tool_call_id": _ID, "name": _NAME, "content": "1"},
]
