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
from mlcc.api.schema.audio_fields import AudioPart
from mlcc.api.schema.image_fields import ImagePart, LeftOut
from mlcc.api.schema.modalities import Modalities

Content: TypeAlias = "str | list[dict[str, str] | ImagePart | AudioPart]"
"""A message's text, or its parts if images or sounds are among them."""


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


def content_of(parts: Sequence[str], reads: Modalities) -> Content:
    """The content of a message of text parts, images and sounds. A model gets the notes of those
    that it does not read."""
    kinds = [kind for kind, read in ((ImagePart, reads.images), (AudioPart, reads.sound)) if read]
    if not any(isinstance(part, tuple(kinds)) for part in parts):
        return noted_parts(parts, reads)
    content: list[dict[str, str] | ImagePart | AudioPart] = []
    for is_read, group in groupby(parts, lambda part: isinstance(part, tuple(kinds))):
        if is_read:
            content += [part for part in group if isinstance(part, ImagePart | AudioPart)]
        else:
            content.append({"type": "text", "text": noted_parts([*group], reads)})
    return content


def noted_parts(parts: Sequence[str], reads: Modalities) -> str:
    """`joined_parts`, with notes of what is left out."""
    return joined_parts([p.note(*reads) if isinstance(p, LeftOut) else p for p in parts])


def joined_parts(parts: Sequence[str]) -> str:
    """The text parts of one message, separated: agents send separate texts as parts."""
    text = ""
    for part in parts:
        text = joined(text, part, "\n")
    return text
