"""A growing conversation that is kept within a model's context by forgetting its oldest turns."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mlcc.model.model import ModelText

_RESERVE = 256
"""Tokens kept free for the answer, if no limit says otherwise."""


@dataclass
class Conversation:
    """Messages in order, a system message first if there is one."""

    system: str | None = None
    turns: list[dict[str, str]] = field(default_factory=list)
    variables: Mapping[str, Any] = field(default_factory=dict)
    """Of the chat template."""

    @property
    def messages(self) -> list[dict[str, str]]:
        """As a chat template wants them."""
        first = [{"role": "system", "content": self.system}] if self.system else []
        return first + self.turns

    def add(self, role: str, content: str) -> None:
        """The next message."""
        self.turns.append({"role": role, "content": content})

    def fit(self, text: ModelText, context: int, max_tokens: int | None) -> tuple[array[int], int]:
        """The prompt's token ids, and how many old messages were forgotten to make room.

        The last message always stays, and is refused by the engine if it is too long alone.
        """
        room = context - min(max_tokens or _RESERVE, context // 4)
        before = len(self.turns)
        prompt = text.encode_chat(self.messages, variables=self.variables)
        while len(prompt) > room and len(self.turns) > 1:
            del self.turns[: self._first_turn()]
            prompt = text.encode_chat(self.messages, variables=self.variables)
        return prompt, before - len(self.turns)

    def _first_turn(self) -> int:
        """Messages up to the second one from the user."""
        for index, message in enumerate(self.turns[1:], 1):
            if message["role"] == "user":
                return index
        return len(self.turns) - 1
