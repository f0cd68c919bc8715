"""Renders and tokenizes prompts: a port, because a chat template is untrusted code and long texts
take long. A server does it in a pool of processes (`mlcc.server.prompts.prompt_pool`).
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from mlcc.engine.sampling.grammar import Structure
from mlcc.errors import UnsupportedError
from mlcc.model.model import ModelText

NO_VARIABLES: Mapping[str, Any] = {}


class Prompts(Protocol):
    """Renders and tokenizes. `context`: longest prompt in tokens; `seconds`: time limit. All
    methods raise MlccError."""

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        context: int,
        seconds: float | None,
        variables: Mapping[str, Any] = NO_VARIABLES,
    ) -> array[int]:
        """The token ids of a conversation; `variables` of the template include `tools`."""
        ...

    async def text(
        self, prompt: str, context: int, seconds: float | None, add_special: bool = True
    ) -> array[int]:
        """The token ids of a raw prompt, with the model's start token or without."""
        ...

    async def written(
        self,
        messages: Sequence[Mapping[str, Any]],
        seconds: float | None,
        variables: Mapping[str, Any] = NO_VARIABLES,
    ) -> str:
        """The text that the template renders for a conversation."""
        ...

    async def structure(self, structure: Structure, seconds: float | None) -> None:
        """Raise MlccError if answers cannot be constrained to the structure."""
        ...


def check_built(text: ModelText, structure: Structure) -> None:
    """Raise UnsupportedError if there is no grammar backend."""
    if text.grammars is None:
        raise UnsupportedError(
            f"'{structure.field}' is not built here: this host of the model has nothing that reads "
            "grammars; leave it out or ask `mlcc serve`; to a program over mlcc.h llguidance is "
            "given by its `path`",
            param=structure.field,
            code="unsupported_parameter",
        )


class DirectPrompts:
    """Renders and tokenizes in this process, for hosts without a pool."""

    def __init__(self, text: ModelText) -> None:
        self._text = text

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        context: int,
        seconds: float | None,
        variables: Mapping[str, Any] = NO_VARIABLES,
    ) -> array[int]:
        """The token ids of a conversation."""
        return self._text.encode_chat(messages, context, variables)

    async def text(
        self, prompt: str, context: int, seconds: float | None, add_special: bool = True
    ) -> array[int]:
        """The token ids of a raw prompt, with the model's start token or without."""
        return self._text.encode_prompt(prompt, context, add_special)

    async def written(
        self,
        messages: Sequence[Mapping[str, Any]],
        seconds: float | None,
        variables: Mapping[str, Any] = NO_VARIABLES,
    ) -> str:
        """The text that the template renders for a conversation."""
        return self._text.render(messages, variables)[0].text

    async def structure(self, structure: Structure, seconds: float | None) -> None:
        """Raise MlccError if answers cannot be constrained to it; runs in a thread, as it is
        slow."""
        if (grammars := self._text.grammars) is not None:
            await asyncio.to_thread(grammars.check, structure)
