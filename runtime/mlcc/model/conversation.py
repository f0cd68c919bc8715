"""A multi-turn conversation, truncated to the model's context by dropping its oldest turns.

The content of a message is a text, or parts as of OpenAI's API: texts, images as
data URLs, and sounds as base64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from mlcc.api.schema.message_fields import MESSAGE, messages_of
from mlcc.errors import UnsupportedError
from mlcc.model.model import ModelText
from mlcc.multimodal.placeholders import MediaCollector
from mlcc.multimodal.prompt import Prompt

Content: TypeAlias = "str | list[dict[str, Any]]"

_RESERVE = 256
"""Tokens reserved for the answer if `max_tokens` is not given."""


@dataclass
class Conversation:
    """Messages in order, a system message first if there is one."""

    system: str | None = None
    turns: list[dict[str, Any]] = field(default_factory=list)
    variables: Mapping[str, Any] = field(default_factory=dict)
    """Variables of the chat template."""

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages in the form that chat templates take."""
        first = [{"role": "system", "content": self.system}] if self.system else []
        return first + self.turns

    def add(self, role: str, content: Content) -> None:
        """Append a message."""
        self.turns.append({"role": role, "content": content})

    def fit(self, text: ModelText, context: int, max_tokens: int | None) -> tuple[Prompt, int]:
        """The prompt, and the number of old messages that were dropped to fit it.

        The last message always stays; the engine rejects it if it alone is too long.
        """
        budget = context - min(max_tokens or _RESERVE, context // 4)
        before = len(self.turns)
        prompt = encode_messages(text, self.messages, self.variables)
        while len(prompt.ids) > budget and len(self.turns) > 1:
            del self.turns[: self._first_turn()]
            prompt = encode_messages(text, self.messages, self.variables)
        return prompt, before - len(self.turns)

    def _first_turn(self) -> int:
        """The number of messages before the second user message."""
        for index, message in enumerate(self.turns[1:], 1):
            if message["role"] == "user":
                return index
        return len(self.turns) - 1


def encode_messages(
    text: ModelText, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any]
) -> Prompt:
    """The prompt of messages whose content may have images and sounds. Raises MlccError;
    UnsupportedError for those that the model does not read."""
    if not any(isinstance(message["content"], list) for message in messages):
        return Prompt(text.encode_chat(messages, variables=variables))
    _refuse_unread(text, messages)
    collector = MediaCollector(text.vision is not None, text.hears)
    checked = [MESSAGE.check(message, f"messages[{i}]") for i, message in enumerate(messages)]
    turns = messages_of(checked, collector)
    if (media := collector.collected()) is None:
        return Prompt(text.encode_chat(turns, variables=variables))
    return text.encode_chat_with_media(turns, media, variables=variables)


def _refuse_unread(text: ModelText, messages: Sequence[Mapping[str, Any]]) -> None:
    """Raises UnsupportedError for images or sounds for which the model has no tower."""
    contents = [message["content"] for message in messages if isinstance(message["content"], list)]
    given = {part.get("type") for content in contents for part in content}
    sees, hears = text.vision is not None, text.hears
    if "image_url" in given and not sees:
        lacks, what, other = "vision tower", "images", "sees, such as SmolVLM"
    elif "input_audio" in given and not hears:
        lacks, what, other = "audio tower", "sound", "hears, such as Qwen2-Audio"
    else:
        return
    why = f"has no {lacks}" if sees or hears else f"reads text only: it has no {lacks}"
    raise UnsupportedError(f"'{text.name}' {why}; leave {what} out, or take a model that {other}")
