"""Where requests become token ids: a port, for a template is a stranger's program and a long text
takes long. A place with processes does it in one of them (`mlcc.server.prompts`).
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from mlcc.model.model import ModelText


class Prompts(Protocol):
    """Both kinds. `context` is the longest prompt in tokens, `seconds` the time there is; both
    raise MlccError."""

    async def chat(
        self, messages: Sequence[Mapping[str, Any]], context: int, seconds: float | None
    ) -> array[int]:
        """The ids of a conversation."""
        ...

    async def text(self, prompt: str, context: int, seconds: float | None) -> array[int]:
        """The ids of a raw prompt."""
        ...


class DirectPrompts:
    """Right here and now, for a place without processes."""

    def __init__(self, text: ModelText) -> None:
        self._text = text

    async def chat(
        self, messages: Sequence[Mapping[str, Any]], context: int, seconds: float | None
    ) -> array[int]:
        """The ids of a conversation."""
        return self._text.encode_chat(messages, context)

    async def text(self, prompt: str, context: int, seconds: float | None) -> array[int]:
        """The ids of a raw prompt."""
        return self._text.encode_prompt(prompt, context)
