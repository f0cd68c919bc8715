"""Between a chat's request and the model's dialect: what its template is given, and what reads its
answers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from mlcc.api.chat_answers import NewReader
from mlcc.api.requests import ChatRequest
from mlcc.api.tools.fallback import in_words
from mlcc.model.model import ModelText


def asked_of_template(
    parsed: ChatRequest, text: ModelText
) -> tuple[Sequence[dict[str, Any]], dict[str, Any]]:
    """The messages, and the variables beside them. A template that knows no tools gets them in
    words."""
    messages, variables = parsed.messages, dict(parsed.thinking.variables)
    shown = parsed.use.shown
    if text.dialect.native:
        return messages, {**variables, "tools": [*shown]} if shown else variables
    return in_words(messages, shown, text.chat_template.source or ""), variables


def readers(parsed: ChatRequest, text: ModelText, prompt: Sequence[int]) -> NewReader:
    """What makes the reader of each answer to a prompt."""
    dialect = text.dialect
    opened = dialect.marks is not None and dialect.opened(text.ending(prompt))
    return partial(dialect.reader, parsed.use, opened, _new_id)


def _new_id() -> str:
    return f"call_{os.urandom(12).hex()}"
