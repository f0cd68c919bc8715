"""Synchronous generation with one request at a time, for the command line and notebooks.

Not a server (`mlcc.server`): the model runs only while the iterator is advanced.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlcc.api.openai.requests import SamplingOptions, to_params
from mlcc.api.parsers.deltas import ContentDelta, Delta
from mlcc.api.schema.tool_fields import NO_TOOLS
from mlcc.engine.events import Event, Finished
from mlcc.engine.request import Request
from mlcc.engine.sampling.grammar import Structure
from mlcc.model.driver import Driver
from mlcc.model.model import Model
from mlcc.model.reasoning import reasoning_rule
from mlcc.multimodal.prompt import Prompt


@dataclass(frozen=True)
class Timing:
    """Token counts and times of one answer."""

    prompt_tokens: int
    completion_tokens: int
    first_token_s: float
    """From the request to the first token (TTFT)."""
    total_s: float
    reason: str
    cached_tokens: int = 0
    """Prompt tokens found in the prefix cache."""

    @property
    def tokens_per_s(self) -> float:
        """Decode speed: tokens after the first one, over the time they took (1 / TPOT)."""
        span = self.total_s - self.first_token_s
        return (self.completion_tokens - 1) / span if span > 0 and self.completion_tokens > 1 else 0


class Session:
    """Generates answers with a model. `last` has the timing of the latest one."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.last: Timing | None = None
        self._driver = Driver(model)
        self._count = 0

    def answer(
        self,
        prompt: Sequence[int] | Prompt,
        fields: SamplingOptions,
        stopped: Callable[[], bool] = lambda: False,
        structure: Structure | None = None,
        thinks: bool = False,
    ) -> Iterator[str]:
        """Text pieces of the answer, constrained to `structure`. prompt: with its images, if it has
        any. stopped: polled between steps to cancel. thinks: reasoning with its delimiters may come
        first and is not constrained.

        Raises InvalidRequestError if the prompt does not fit or the structure is invalid,
        DeviceError if the device fails.
        """
        text, grammar = self.model.text, None
        ids, media = (prompt.ids, prompt.media) if isinstance(prompt, Prompt) else (prompt, ())
        if structure is not None and text.grammars is not None:
            grammar = text.grammars.open(structure)
        self._count += 1
        params = to_params(fields, text.sampling)
        reasoning = reasoning_rule(text, ids) if grammar is not None and thinks else None
        request = Request(
            f"r{self._count}",
            ids,
            params,
            structure=structure,
            shown=text.shown if thinks else (),
            reasoning=reasoning,
            media=media,
        )
        started = time.perf_counter()
        first = 0.0
        self._driver.engine.add(request, grammar)
        try:
            for event in self._events(request.id, stopped):
                first = first or time.perf_counter()
                if isinstance(event, Finished):
                    self.last = _timing(event, started, first)
                elif event.text:
                    yield event.text
        except GeneratorExit:
            self._abandon(request.id)
            raise

    def answer_chat(
        self,
        prompt: Sequence[int] | Prompt,
        fields: SamplingOptions,
        stopped: Callable[[], bool] = lambda: False,
        structure: Structure | None = None,
    ) -> Iterator[Delta]:
        """`answer` for the prompt of a conversation, split into reasoning and content."""
        text = self.model.text
        output_format = text.output_format
        ids = prompt.ids if isinstance(prompt, Prompt) else prompt
        opened = output_format.tags is not None and output_format.opened(text.ending(ids))
        parser = output_format.parser(NO_TOOLS, opened, str)
        for piece in self.answer(prompt, fields, stopped, structure, True):
            yield from parser.push(piece) if parser else [ContentDelta(piece)]
        cut = self.last is not None and self.last.reason == "length"
        yield from parser.flush(cut) if parser else ()

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        fields: SamplingOptions,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Iterator[str]:
        """`answer` for a conversation."""
        return self.answer(self.model.text.encode_chat(messages), fields, stopped)

    def close(self) -> None:
        """Free the memory of the device."""
        self.model.close()

    def _events(self, request_id: str, stopped: Callable[[], bool]) -> Iterator[Event]:
        while self._driver.has_work:
            for event in self._driver.step():
                if isinstance(event, Finished) and event.error and event.request_id == request_id:
                    raise event.error.__cause__ or event.error  # the caller is in this process
                yield event
            if stopped():
                yield from self._driver.engine.cancel(request_id)

    def _abandon(self, request_id: str) -> None:
        """Cancel the request of a caller that stopped iterating, and drain the device."""
        self._driver.engine.cancel(request_id)
        while self._driver.has_work:
            self._driver.step()


def _timing(event: Finished, started: float, first: float) -> Timing:
    return Timing(
        prompt_tokens=event.prompt_tokens,
        completion_tokens=event.completion_tokens,
        first_token_s=first - started,
        total_s=time.perf_counter() - started,
        reason=event.reason,
        cached_tokens=event.cached_tokens,
    )
