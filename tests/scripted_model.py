"""A model that says what the conversation tells it to: for agents' clients, which want tools called
and text written as only a large model would.

`do: NAME {...}` in a user's text makes it think, and then call that tool with these arguments, as
Hermes and Qwen write calls; once a tool has answered, or without such a line, it says a sentence.
All else is as in a real one: tokens (letters) go through pages, steps and the prefix cache, and the
template refuses what many refuse. It computes nothing, so that prompts of agents, which are long,
take no time.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from toy_model import Letters

from mlcc.api.template import ChatTemplate
from mlcc.device.check import Span, slot_of
from mlcc.device.toy import ToyExecutor
from mlcc.engine.adjustments import AdjustedRow
from mlcc.engine.batch import Batch, Capacity, PageList, Result
from mlcc.engine.tables import CacheGroup
from mlcc.model.model import Model, ModelText

PAGE = 256
CAPACITY = Capacity.of(
    [CacheGroup("paged", PAGE)],
    [2048],
    vocab_size=96,
    context=200_000,
    max_batch=8,
    max_step_tokens=16_384,
)
TEMPLATE = """
{%- for tool in tools or [] %}<tool>{{ tool.function.name }}{% endfor %}
{%- for m in messages %}
{%- if m.role == 'system' and not loop.first %}
{{- raise_exception('System message must be at the beginning.') }}
{%- endif %}
{%- if not loop.first and m.role == 'user' and messages[loop.index0 - 1].role == 'user' %}
{{- raise_exception('Conversation roles must alternate.') }}
{%- endif %}<{{ m.role }}>
{%- if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}
{{- m.content or '' }}
{%- for call in m.tool_calls or [] %}<tool_call>
{{- {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}</tool_call>
{%- endfor %}
{%- endfor %}<assistant>{% if enable_thinking is false %}<think></think>{% endif %}"""
ASKED = re.compile(r"do: (\S+) (\{.*?\})(?=[^}]*<assistant>)", re.DOTALL)
THOUGHT, DONE = "I shall.", "It is done, as you asked."
END = 0


def says(prompt: str) -> str:
    """The answer to a conversation."""
    turn = prompt.rpartition("<user>")[2]
    silent = prompt.endswith("<think></think>")
    thought = "" if silent else f"<think>{THOUGHT}</think> "
    asked = ASKED.search(turn)
    if asked is None or "<tool>" in turn:
        return thought + DONE
    return f'{thought}<tool_call>{{"name": "{asked[1]}", "arguments": {asked[2]}}}</tool_call>'


class ScriptedExecutor(ToyExecutor):
    """Keeps tokens in pages, reads a sequence back from there, and goes on as `says`."""

    def __init__(self, capacity: Capacity) -> None:
        super().__init__(capacity)
        self._tokens = array("i", [0]) * (capacity.pools[0] * PAGE)

    def _run(
        self, batch: Batch, spans: Sequence[Span], adjusted: Mapping[int, AdjustedRow]
    ) -> Result:
        copies = batch.layout.copies
        columns = (batch.column(copies, name) for name in copies.columns)
        for _, source, to in zip(*columns, strict=True):
            first, start = int(to) * PAGE, int(source) * PAGE
            self._tokens[first : first + PAGE] = self._tokens[start : start + PAGE]
        ids = map(int, batch.column(batch.layout.tokens, "id"))
        tokens = [t if t >= 0 else self._last_sampled[-1 - t] for t in ids]
        for span in spans:
            for position, token in enumerate(tokens[span.first :][: span.count], span.start):
                self._tokens[slot_of(_pages(span), position, PAGE)] = token
        owners = batch.column(batch.layout.tokens, "sequence")
        rows = map(int, batch.column(batch.layout.rows, "token"))
        self._last_sampled = [self._next(spans[int(owners[row])]) for row in rows]
        return Result(self._last_sampled, [0.0] * len(self._last_sampled), None)

    def _next(self, span: Span) -> int:
        cache = _pages(span)
        held = array("i")
        for page in range(-(-span.end // PAGE)):
            start = cache.ids[page] * PAGE
            held += self._tokens[start : start + min(PAGE, span.end - page * PAGE)]
        text = Letters().decode(held)
        prompt, mark, said = text.rpartition("<assistant>")
        if said.startswith("<think></think>"):
            prompt, mark, said = prompt + mark, "<think></think>", said[len("<think></think>") :]
        rest = says(prompt + mark)[len(said) :]
        return ord(rest[0]) - 31 if rest else END


def _pages(span: Span) -> PageList:
    cache = span.caches[0]
    assert isinstance(cache, PageList)
    return cache


def scripted_text() -> ModelText:
    """Its text side."""
    return ModelText("scripted", Letters(), ChatTemplate(TEMPLATE), frozenset([END]))


def open_scripted(*_: Any) -> Model:
    """As a program's engine process opens it."""
    return Model(scripted_text(), ScriptedExecutor(CAPACITY))
