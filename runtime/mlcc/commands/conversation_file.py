"""Conversation files of `/save` and `/load`, and the settings of `/set`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlcc.errors import InvalidRequestError

if TYPE_CHECKING:
    from mlcc.api.openai.requests import SamplingOptions
    from mlcc.model.conversation import Conversation

_QUESTION = [{"role": "user", "content": "?"}]
_MOST = 64 << 20
"""Largest conversation file in bytes."""


def with_setting(sampling: SamplingOptions, name: str, text: str) -> SamplingOptions:
    """The sampling parameters with one changed; an empty text removes it.
    Raises InvalidRequestError for another name, or a value that the parameter cannot have."""
    from mlcc.api.openai.requests import parse_sampling
    from mlcc.api.schema.chat_fields import CHAT

    known = {field.name for field in CHAT.fields if field.sets} | {"max_tokens"}
    if name not in known:
        raise InvalidRequestError(f"'{name}' is no setting; there are system, {_some(known)}")
    if not text:
        return {key: value for key, value in sampling.items() if key != name}
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    checked = CHAT.check({"messages": _QUESTION, name: value}, "")
    return {**sampling, **parse_sampling(CHAT, {name: checked[name]})}


def save(name: str, conversation: Conversation) -> None:
    """Write a conversation as JSON. Raises InvalidRequestError if the file cannot be written."""
    if not name:
        raise InvalidRequestError("into which file? Type /save FILE")
    try:
        text = json.dumps({"messages": conversation.messages}, indent=1, ensure_ascii=False)
        Path(name).expanduser().write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise InvalidRequestError(f"{name} cannot be written ({error.strerror})") from error


def load(name: str, variables: Mapping[str, Any]) -> Conversation:
    """Read a conversation file; `variables` are those of the chat template.

    Raises InvalidRequestError for another file.
    """
    from mlcc.model.conversation import Conversation

    if not name:
        raise InvalidRequestError("which file? Type /load FILE")
    try:
        path = Path(name).expanduser()
        if path.stat().st_size > _MOST:
            raise InvalidRequestError(f"{name} is too large for a conversation")
        messages = json.loads(path.read_text(encoding="utf-8"))["messages"]
    except OSError as error:
        raise InvalidRequestError(f"{name} cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidRequestError(f"{name} is no conversation that /save wrote") from error
    if not isinstance(messages, list) or not all(map(_is_message, messages)):
        raise InvalidRequestError(f"{name} is no conversation that /save wrote")
    system = None
    if messages and messages[0]["role"] == "system":
        system = messages.pop(0)["content"]
    return Conversation(system, messages, variables)


def _is_message(value: Any) -> bool:
    if not isinstance(value, Mapping) or not isinstance(value.get("role"), str):
        return False
    content = value.get("content")
    if isinstance(content, list):  # a question with images or sounds
        return value["role"] == "user" and all(isinstance(part, dict) for part in content)
    return isinstance(content, str)


def _some(names: set[str]) -> str:
    return ", ".join(sorted(names))
