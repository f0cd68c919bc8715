"""A multi-turn conversation, truncated to the model's context by dropping its oldest turns."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mlcc.model.model import ModelText

_RESERVE = 256
"""Tokens reserved for the answer if `max_tokens` is not given."""


@dataclass
class Conversation:
    """Messages in order, a system message first if there is one."""

    system: str | None = None
    turns: list[dict[str, str]] = field(default_factory=list)
    variables: Mapping[str, Any] = field(default_factory=dict)
    """Variables of the chat template."""

    @property
    def messages(self) -> list[dict[str, str]]:
        """The messages in the form that chat templates take."""
        first = [{"role": "system", "content": self.system}] if self.system else []
        return first + self.turns

    def add(self, role: str, content: str) -> None:
        """Append a message."""
        self.turns.append({"role": role, "content": content})

    def fit(self, text: ModelText, context: int, max_tokens: int | None) -> tuple[array[int], int]:
        """The prompt's token ids, and the number of old messages that were dropped to fit it.

        The last message always stays; the engine rejects it if it alone is too long.
        """
        budget = context - min(max_tokens or _RESERVE, context // 4)
        before = len(self.turns)
        prompt = text.encode_chat(self.messages, variables=self.variables)
        while len(prompt) > budget and len(self.turns) > 1:
            del self.turns[: self._first_turn()]
            prompt = text.encode_chat(self.messages, variables=self.variables)
        return prompt, before - len(self.turns)

    def _first_turn(self) -> int:
        """The number of messages before the second user message."""
        for index, message in enumerate(self.turns[1:], 1):
            if message["role"] == "user":
                return index
        return len(self.turns) - 1
