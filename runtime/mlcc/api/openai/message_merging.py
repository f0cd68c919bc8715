"""Merges the items and content blocks of other protocols into messages of /v1/chat/completions.

They send one turn of the model in several items (reasoning, text, calls), which are one message
here. Messages that a chat template cannot have where they are, such as a later system message, are
left to `mlcc.api.chat_template.turns`, which knows the template.
"""

from __future__ import annotations

import json
from typing import Any

from mlcc.api.chat_template.turns import joined


class MessageMerger:
    """Builds the messages of /v1/chat/completions in order."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    def system(self, text: str) -> None:
        """A system message, unless it is empty."""
        if text:
            self.messages.append({"role": "system", "content": text})

    def user(self, text: str) -> None:
        """A user message."""
        self.messages.append({"role": "user", "content": text})

    def assistant(self, text: str) -> None:
        """Text of the model."""
        turn = self._turn()
        turn["content"] = joined(turn["content"] or "", text)

    def reasoning(self, text: str) -> None:
        """Reasoning before the text or call that follows."""
        if text:
            turn = self._turn()
            turn["reasoning_content"] = joined(turn.get("reasoning_content", ""), text)

    def call(self, call_id: str, name: str, arguments: str) -> None:
        """A tool call by the model; arguments: JSON text."""
        calls = self._turn().setdefault("tool_calls", [])
        function = {"name": name, "arguments": arguments}
        calls.append({"id": call_id, "type": "function", "function": function})

    def result(self, call_id: str, text: str) -> None:
        """A tool's output."""
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": text})

    def _turn(self) -> dict[str, Any]:
        """The last message if it is the model's, or a new one."""
        if not self.messages or self.messages[-1]["role"] != "assistant":
            self.messages.append({"role": "assistant", "content": None})
        return self.messages[-1]


def as_text(arguments: Any) -> str:
    """Arguments of a call as JSON text; text is passed as it is, and null is none."""
    if isinstance(arguments, str):
        return arguments
    return "{}" if arguments is None else json.dumps(arguments)


def joined_parts(parts: list[str]) -> str:
    """The text parts of one message, separated: agents send separate texts as parts."""
    text = ""
    for part in parts:
        text = joined(text, part, "\n")
    return text
