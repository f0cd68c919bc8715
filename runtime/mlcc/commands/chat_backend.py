"""Backends of `mlcc chat`: a model in this process, or a server with OpenAI's API."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from mlcc.api.parsers.deltas import ContentDelta, Delta, ReasoningDelta
from mlcc.commands.server_registry import Server, checked_url, events, opened
from mlcc.errors import InvalidRequestError, printable

if TYPE_CHECKING:
    from mlcc.api.openai.requests import SamplingOptions
    from mlcc.model.conversation import Conversation
    from mlcc.model.session import Session, Timing

Note = Callable[[str], None]


class ChatBackend(Protocol):
    """Generates the answers of a chat."""

    @property
    def last(self) -> Timing | None:
        """Timing of the latest answer."""
        ...

    @property
    def about(self) -> str:
        """Name and context of the model, for the user."""
        ...

    @property
    def context(self) -> int | None:
        """Context length in tokens; None = unknown."""
        ...

    def answer(
        self,
        conversation: Conversation,
        sampling: SamplingOptions,
        stopped: Callable[[], bool],
        note: Note,
    ) -> Iterator[Delta]:
        """Pieces of the answer to a conversation. Raises MlccError."""
        ...

    def close(self) -> None:
        """Release the model or connection."""
        ...


class LocalBackend:
    """A model that is loaded in this process."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def last(self) -> Timing | None:
        return self._session.last

    @property
    def about(self) -> str:
        model = self._session.model
        return f"{printable(model.text.name)}, context {model.capacity.context} tokens"

    @property
    def context(self) -> int | None:
        return self._session.model.capacity.context

    def answer(
        self,
        conversation: Conversation,
        sampling: SamplingOptions,
        stopped: Callable[[], bool],
        note: Note,
    ) -> Iterator[Delta]:
        """Drops the oldest messages when the context is full, and notes it."""
        model = self._session.model
        context = model.capacity.context
        prompt, forgotten = conversation.fit(model.text, context, sampling.get("max_tokens"))
        if forgotten:
            note(
                f"(the context of {context} tokens is full: the {forgotten} oldest messages are "
                "forgotten)"
            )
        return self._session.answer_chat(prompt, sampling, stopped)

    def close(self) -> None:
        self._session.close()


class RemoteBackend:
    """A server, by its URL. Its key, if it has one, is read from MLCC_API_KEY."""

    def __init__(self, url: str, name: str | None = None) -> None:
        """Raises MlccError if no server answers at `url`, or it has no such model."""
        self._url = checked_url(url)
        models = Server(self._url).models()
        if not models:
            raise InvalidRequestError(f"the server at {self._url} has no model")
        self._name = name or str(models[0]["id"])
        contexts = (m.get("context_length") for m in models if str(m["id"]) == self._name)
        self._context: int | None = next(contexts, None)
        self._last: Timing | None = None

    @property
    def last(self) -> Timing | None:
        return self._last

    @property
    def about(self) -> str:
        return f"{printable(self._name)} at {self._url}"

    @property
    def context(self) -> int | None:
        return self._context

    def answer(
        self,
        conversation: Conversation,
        sampling: SamplingOptions,
        stopped: Callable[[], bool],
        note: Note,
    ) -> Iterator[Delta]:
        """Stream the server's answer. Closing the iterator cancels the request."""
        body = {
            "model": self._name,
            "messages": conversation.messages,
            "stream": True,
            "stream_options": {"include_usage": True},
            **sampling,
            **(
                {"chat_template_kwargs": dict(conversation.variables)}
                if conversation.variables
                else {}
            ),
        }
        began, first, pieces = time.perf_counter(), 0.0, 0
        usage: dict[str, Any] = {}
        reason = "cancelled"
        with opened(self._url, "/v1/chat/completions", body) as response:
            for chunk in events(self._url, response):
                usage = chunk.get("usage") or usage
                choice = (chunk.get("choices") or [{}])[0]
                reason = choice.get("finish_reason") or reason
                delta = choice.get("delta") or {}
                for kind, field in (
                    (ReasoningDelta, "reasoning_content"),
                    (ContentDelta, "content"),
                ):
                    if text := delta.get(field):
                        first, pieces = first or time.perf_counter(), pieces + 1
                        yield kind(text)
                if stopped():
                    break
        self._measure(began, first, pieces, usage, reason)

    def close(self) -> None:
        """Nothing to release: the server keeps running."""

    def _measure(
        self, began: float, first: float, pieces: int, usage: dict[str, Any], reason: str
    ) -> None:
        from mlcc.model.session import Timing

        details = usage.get("prompt_tokens_details") or {}
        now = time.perf_counter()
        self._last = Timing(
            prompt_tokens=usage.get("prompt_tokens", 0),
            completion_tokens=usage.get("completion_tokens", pieces),
            first_token_s=(first or now) - began,
            total_s=now - began,
            reason=reason,
            cached_tokens=details.get("cached_tokens") or 0,
        )
