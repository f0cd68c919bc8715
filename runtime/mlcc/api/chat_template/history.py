"""How a chat template wants earlier turns of the model: its reasoning, its tool calls and results.

Templates differ, and none of them declares how. Two methods find it out:

- `QUIRKS` is a table of patterns in the template's source, for shapes that a template either
  insists on or silently drops (`adapt_history`).
- `detect_reasoning_style` and `detect_call_style` render a short conversation in each known style
  and take the first in which everything appears, as llama.cpp does. `refuses_ids` tries ids.

Reasoning is `reasoning_content` for most templates; gpt-oss and LFM2.5 read `thinking`, and
Mistral's read a block of the content. Templates that drop earlier reasoning get the usual name.
transformers passes a call's arguments as an object, and some templates concatenate them as text;
some accept a message without content, others then write "None"; a few drop tool calls, which are
then written into the content as text. How a model writes its own calls is `mlcc.api.parsers.tools`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product, zip_longest
from typing import Any

from mlcc.errors import MlccError
from mlcc.util.fast_dataclass import fast_dataclass

Messages = Sequence[Mapping[str, Any]]
_USUAL, _BLOCK = "reasoning_content", "block"
_REASONING, _CONTENT = "zq thought", "zq said"
_NAME, _KEY, _VALUE = "zq_name", "zq_key", "zq value"
"""Texts of the conversations rendered to detect a style. No template writes them itself."""
_UNKNOWN = "unknown"
_ID = "abcdef123"
"""Nine characters, which Mistral's templates insist on."""


@fast_dataclass(frozen=True)
class Quirk:
    """A shape of tool calls that some templates need, recognized in the template's source."""

    name: str
    applies: Callable[[str], bool]
    adapt: Callable[[Messages], list[dict[str, Any]]]
    exclusive: bool = False
    """Whether later rows are skipped."""


def adapt_history(messages: Messages, template: str) -> list[dict[str, Any]]:
    """The messages, with earlier tool calls in the shape that the template's source needs."""
    messages = with_any_name(messages)
    for quirk in QUIRKS:
        if quirk.applies(template):
            messages = quirk.adapt(messages)
            if quirk.exclusive:
                break
    return [dict(message) for message in messages]


def with_any_name(messages: Messages) -> list[dict[str, Any]]:
    """Results whose call is not in the conversation, as of clients that send its end only, with a
    name: Kimi K3's template refuses a result without one."""
    made: list[dict[str, Any]] = []
    known = set[Any]()
    for message in messages:
        known.update(call.get("id") for call in message.get("tool_calls") or ())
        lost = message["role"] == "tool" and message.get("tool_call_id") not in known
        made.append({"name": _UNKNOWN, **message} if lost else dict(message))
    return made


def results_in_order(messages: Messages) -> list[dict[str, Any]]:
    """The results of a message's calls in the order of the calls. Many templates write no ids, so
    that the place of a result says whose it is, and agents send the first one that is ready."""
    made: list[dict[str, Any]] = []
    for message, results, others in _turns(messages):
        made += [message, *filter(None, results), *others]
    return made


def one_call_a_turn(messages: Messages) -> list[dict[str, Any]]:
    """A message with several calls as messages with one, each followed by its result."""
    made: list[dict[str, Any]] = []
    for message, results, others in _turns(messages):
        calls = message.get("tool_calls") or ()
        turns = [{**message, "tool_calls": [call]} for call in calls] or [message]
        for later in turns[1:]:
            later["content"] = ""
            later.pop(_USUAL, None)
        for turn, result in zip_longest(turns, results):
            made += filter(None, (turn, result))
        made += others
    return made


def _turns(
    messages: Messages,
) -> Iterator[tuple[dict[str, Any], list[dict[str, Any] | None], list[dict[str, Any]]]]:
    """Each message; the result of each of its calls, None if there is none; and the results after
    it that are of no call. A result counts once: ids may be used twice."""
    at = 0
    while at < len(messages):
        message, at = dict(messages[at]), at + 1
        calls = message.get("tool_calls") or ()
        others = _results(messages, at) if calls else []
        at += len(others)
        results = []
        for call in calls:
            ids = [one.get("tool_call_id") for one in others]
            found = call.get("id") in ids
            results.append(others.pop(ids.index(call.get("id"))) if found else None)
        yield message, results, others


def _results(messages: Messages, first: int = 0) -> list[dict[str, Any]]:
    """The tool messages from one on."""
    end = first
    while end < len(messages) and messages[end]["role"] == "tool":
        end += 1
    return [dict(message) for message in messages[first:end]]


def with_short_ids(messages: Messages) -> list[dict[str, Any]]:
    """Calls and results with ids of nine letters and digits, for Mistral. Another id is replaced by
    its hash, so that it is the same in every request of a conversation."""
    made = []
    for message in messages:
        turn = dict(message)
        if turn.get("tool_calls"):
            turn["tool_calls"] = [
                {**call, "id": _short(call.get("id", ""))} for call in turn["tool_calls"]
            ]
        if "tool_call_id" in turn:
            turn["tool_call_id"] = _short(turn["tool_call_id"])
        made.append(turn)
    return made


def _short(id: str) -> str:
    if len(id) == 9 and id.isascii() and id.isalnum():
        return id
    from hashlib import sha256  # few templates need it

    return sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:9]


def with_named_ids(messages: Messages) -> list[dict[str, Any]]:
    """Calls and results with ids of Kimi's form: `functions.name:0`, numbered from the first call
    of the conversation."""
    made, names, number = [], dict[Any, str](), 0
    for message in messages:
        turn = dict(message)
        calls = turn.get("tool_calls") or ()
        for call in calls:
            names[call.get("id")] = f"functions.{call['function']['name']}:{number}"
            number += 1
        if calls:
            turn["tool_calls"] = [{**call, "id": names[call.get("id")]} for call in calls]
        if turn.get("tool_call_id") in names:
            turn["tool_call_id"] = names[turn["tool_call_id"]]
        made.append(turn)
    return made


def as_observations(messages: Messages) -> list[dict[str, Any]]:
    """Each call as a message whose `metadata` is the tool's name; results as observations."""
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


def with_responses(messages: Messages) -> list[dict[str, Any]]:
    """A call, its results and the answer to them as one message, as in Gemma's documentation of
    function calling. Content before a call stays where it is: the template writes it last."""
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
        if rest and not turn["content"] and _is_answer(rest[0]):
            answer = rest.pop(0)
            turn |= {key: answer[key] for key in ("content", "prefix") if key in answer}
    return made


def _response(result: Mapping[str, Any], names: Mapping[Any, str]) -> dict[str, Any]:
    """A result: a JSON object is passed as an object, other text as text."""
    content = result["content"]
    try:
        found = json.loads(content) if isinstance(content, str) else None
    except ValueError:
        found = None
    name = names.get(result.get("tool_call_id"), result.get("name", _UNKNOWN))
    return {"name": name, "response": found if isinstance(found, dict) else content}


def _is_answer(message: Mapping[str, Any]) -> bool:
    return message["role"] == "assistant" and not message.get("tool_calls")


def _has_field(name: str) -> Callable[[str], bool]:
    """Whether a template reads a field of a message; the name alone may be a control token."""
    pattern = re.compile(rf"""[.'"]{name}\b""")
    return lambda template: pattern.search(template) is not None


QUIRKS = (
    # Qwen, GLM, MiniMax, Granite, Gemma and others write no ids.
    Quirk("results in order", lambda template: "tool_call_id" not in template, results_in_order),
    # GLM-4-0414: a call is an assistant message whose `metadata` names the tool, and results have
    # the role `observation`. Its template never mentions `tool_calls`.
    Quirk(
        "observations",
        lambda template: (
            "observation" in template and "metadata" in template and "tool_calls" not in template
        ),
        as_observations,
        exclusive=True,
    ),
    # Gemma 4: results are the field `tool_responses` of the message with the calls.
    Quirk("tool responses", _has_field("tool_responses"), with_responses, exclusive=True),
    # gpt-oss writes only the first call of a message, and Llama 3 refuses a second one: their
    # templates read `tool_calls[0]`. Both models were trained on one call a turn.
    Quirk("one call a turn", lambda template: "tool_calls[0]" in template, one_call_a_turn),
    # Kimi: a call is written as its id, which is the function's name and a number.
    Quirk("named ids", lambda template: "<|tool_calls_section_begin|>" in template, with_named_ids),
)
"""In the order of use: an exclusive row ends the search, other rows add up."""


@fast_dataclass(frozen=True)
class ReasoningStyle:
    """How a template reads reasoning of earlier turns."""

    key: str = _USUAL
    """Field of the message; "block" = a part of its content."""
    alone: bool = False
    """Whether a message with tool calls may have reasoning or content, not both: the content is
    then appended to the reasoning."""

    def apply(self, messages: Messages) -> list[dict[str, Any]]:
        """The messages with their reasoning in this style."""
        return [self._message(message) for message in messages]

    def _message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        made = dict(message)
        reasoning = made.get(_USUAL)
        if not reasoning or (self.key == _BLOCK and made.get("prefix")):
            return made
        content = made["content"]
        if self.alone and content and made.get("tool_calls"):
            reasoning, content = f"{reasoning}\n\n{content}", ""
        del made[_USUAL]
        made["content"] = content
        if self.key != _BLOCK:
            return {**made, self.key: reasoning}
        text = [{"type": "text", "text": content}] if content else []
        return {**made, "content": [{"type": "thinking", "thinking": reasoning}, *text]}


def detect_reasoning_style(render: Callable[[list[dict[str, Any]]], str]) -> ReasoningStyle:
    """The first style in which the template writes the reasoning; the default if there is none."""
    for conversation in (_WITH_CALL, _WITHOUT_CALL):
        for alone in (False, True):
            for key in (_USUAL, "thinking", _BLOCK):
                style = ReasoningStyle(key, alone)
                try:
                    text = render(style.apply(conversation))
                except MlccError:
                    continue
                # A block that is written out as Python or JSON was not understood as reasoning.
                if _REASONING in text and "'thinking'" not in text and '"thinking"' not in text:
                    return style
    return ReasoningStyle()


@fast_dataclass(frozen=True)
class CallStyle:
    """How a template reads tool calls of earlier turns."""

    as_text: bool = False
    """Arguments as JSON text, not as an object."""
    null_content: bool = True
    """Empty content beside tool calls is None, not ""."""
    write: Callable[[Sequence[Mapping[str, Any]]], str] | None = None
    """Writes the calls into the content; None = the template does."""

    def apply(self, messages: Messages) -> list[dict[str, Any]]:
        """The messages with their tool calls in this style."""
        return [self._message(message) for message in messages]

    def _message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        made = dict(message)
        if not (calls := made.get("tool_calls")):
            return made
        if self.write is not None:
            del made["tool_calls"]
            content, written = made["content"], self.write(calls)
            if isinstance(content, list):  # parts, of which reasoning is one
                made["content"] = [*content, {"type": "text", "text": written}]
            else:
                made["content"] = "\n".join(filter(None, (content, written)))
            return made
        made["tool_calls"] = [self._call(call) for call in calls]
        made["content"] = made["content"] or (None if self.null_content else "")
        return made

    def _call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        function = dict(call["function"])
        arguments = function.get("arguments", {})
        if self.as_text and not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        return {**call, "function": {**function, "arguments": arguments}}


def detect_call_style(
    render: Callable[[list[dict[str, Any]]], str],
    write: Callable[[Sequence[Mapping[str, Any]]], str] | None = None,
) -> CallStyle:
    """The first style in which the template writes a call correctly; the default if there is none.

    write: writes calls as text, for a template that drops them.
    """
    dropped = False
    for as_text, null in product((False, True), (True, False)):
        style = CallStyle(as_text, null)
        try:
            text = render(style.apply(_ONLY_CALL))
        except MlccError:
            continue
        # Kimi's templates write the id, which is the function's name and a number, for the name.
        named = _NAME in text or (_ID in text and _KEY in text)
        dropped = dropped or not named
        sound = named and _KEY in text and _VALUE in text
        if sound and "None" not in text and f"{{'{_KEY}'" not in text and '\\"' not in text:
            return style
    return CallStyle(write=write) if dropped else CallStyle()


def refuses_ids(render: Callable[[list[dict[str, Any]]], str]) -> bool:
    """Whether a template takes ids of nine characters and refuses others, as Mistral's do."""

    def refuses(id: str) -> bool:
        text = json.dumps(_ONLY_CALL).replace(_ID, id)
        try:
            render(json.loads(text))
        except MlccError:
            return True
        return False

    return not refuses(_ID) and any(map(refuses, ("1", "call_0123456789abcdef01234567")))


_WITHOUT_CALL: list[dict[str, Any]] = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": _CONTENT, _USUAL: _REASONING},
]
_WITH_CALL: list[dict[str, Any]] = [
    {"role": "user", "content": "hi"},
    {
        "role": "assistant",
        "content": _CONTENT,
        _USUAL: _REASONING,
        "tool_calls": [
            {"id": _ID, "type": "function", "function": {"name": "zq_name", "arguments": {}}}
        ],
    },
    {"role": "tool", "tool_call_id": _ID, "name": "zq_name", "content": "1"},
]
_ONLY_CALL: list[dict[str, Any]] = [
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
