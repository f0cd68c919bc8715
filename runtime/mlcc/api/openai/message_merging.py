"""Merges the items and content blocks of other protocols into messages of /v1/chat/completions.

They send one turn of the model in several items (reasoning, text, calls), which are one message
here. Messages that a chat template cannot have where they are, such as a later system message, are
left to `mlcc.api.chat_template.turns`, which knows the template.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any, TypeAlias

from mlcc.api.chat_template.turns import joined
from mlcc.api.schema.image_fields import ImagePart

Content: TypeAlias = "str | list[dict[str, str] | ImagePart]"
"""A message's text, or its parts if images are among them."""


class MessageMerger:
    """Builds the messages of /v1/chat/completions in order."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    def system(self, text: str) -> None:
        """A system message, unless it is empty."""
        if text:
            self.messages.append({"role": "system", "content": text})

    def user(self, content: Content) -> None:
        """A user message."""
        self.messages.append({"role": "user", "content": content})

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

    def result(self, call_id: str, content: Content) -> None:
        """A tool's output."""
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": content})

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


def content_of(parts: Sequence[str], sees: bool) -> Content:
    """The content of a message of text parts and images. A model that reads text only gets the
    notes of the images."""
    if not sees or not any(isinstance(part, ImagePart) for part in parts):
        return joined_parts(parts)
    content: list[dict[str, str] | ImagePart] = []
    for is_image, group in groupby(parts, lambda part: isinstance(part, ImagePart)):
        if is_image:
            content += [part for part in group if isinstance(part, ImagePart)]
        else:
            content.append({"type": "text", "text": joined_parts([*group])})
    return content


def joined_parts(parts: Sequence[str]) -> str:
    """The text parts of one message, separated: agents send separate texts as parts."""
    text = ""
    for part in parts:
        text = joined(text, part, "\n")
    return text
