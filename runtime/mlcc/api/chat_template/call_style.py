"""How a chat template wants calls in earlier messages: transformers gives their arguments as
objects, and some templates join them as text; some know a message without content, others write
"None", and a few leave calls out, so that they are told as text. What it is, is tried out once, as
llama.cpp does."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from mlcc.errors import MlccError
from mlcc.util.fast_dataclass import fast_dataclass

_NAME, _KEY, _VALUE = "zq_name", "zq_key", "zq value"
_ID = "abcdef123"
"""Of nine letters, which Mistral's templates insist on."""


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
