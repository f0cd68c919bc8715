"""A model that generates scripted text: the demo's own tokenizer, with more control tokens, and an
executor that follows a script, behind the real engine, service and grammars. For answers that no
small model generates: a call where text is allowed, reasoning, the control tokens of other
families.

The script replaces the toy's hash (`mlcc.device.toy.executor`): masks and biases apply to it as to
logits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mlcc.api.chat_template.template import ChatTemplate
from mlcc.device.check_batch import Span
from mlcc.device.toy.executor import ToyExecutor
from mlcc.engine.batch.batch import Batch, Capacity
from mlcc.engine.batch.tables import CacheGroup
from mlcc.model.model import Model, ModelText
from mlcc.model.structured_output.llguidance import open_grammars
from mlcc.model.tokenizer.tokenizer import FileTokenizer

TOKENIZER = Path(__file__).parents[2] / "examples" / "demo" / "model" / "tokenizer.json"
END, THOUGHT = "<|im_end|>", "</think>"
START = "<|im_start|>"
OPENINGS = ("<think>\n\n</think>\n\n", "<think>\n")
"""Beginnings of an answer that a prompt may contain."""
PLAIN_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
HERMES_TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}"
    "<tool_call><|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{% if m.content is not none %}{{ m.content }}{% endif %}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n"
    "{% elif opened %}<think>\n{% endif %}{% endif %}"
)


class Scripted(ToyExecutor):
    """An executor whose next token follows a script: `answer` returns it for the text of a
    prompt."""

    def __init__(
        self, capacity: Capacity, tokenizer: FileTokenizer, answer: Callable[[str], str]
    ) -> None:
        super().__init__(capacity)
        self._answer, self._tokenizer = answer, tokenizer
        (self._start,) = tokenizer.encode(START, add_special_tokens=False)
        self._head = len(tokenizer.encode(f"{START}assistant\n", add_special_tokens=False))
        (self._end,) = tokenizer.encode(END, add_special_tokens=False)
        self.prompts: list[str] = []
        """The prompts that were answered, without control tokens, the last with its answer so
        far."""

    def _sample(
        self, batch: Batch, spans: Sequence[Span], views: Sequence[Sequence[list[list[int]]]]
    ) -> list[tuple[int, float]]:
        owners = batch.column(batch.layout.tokens, "sequence")
        written = []
        for token in batch.column(batch.layout.rows, "token"):
            s = int(owners[int(token)])
            (known,) = (view[int(token) - spans[s].first] for view in views[s])
            written.append((self._next(known), -0.5))
        return written

    def _next(self, known: Sequence[int]) -> int:
        first = len(known) - 1 - [*reversed(known)].index(self._start) + self._head
        prompt = self._tokenizer.decode(known[:first])
        if not self.prompts or self.prompts[-1] != prompt:
            self.prompts.append(prompt)
        written, script = self._written(known[first:]), self._answer(prompt)
        for opening in OPENINGS:
            if not script.startswith(opening):
                written = written.removeprefix(opening)
        if THOUGHT in written and THOUGHT in script:  # which may have been cut short by a budget
            written, script = written.rpartition(THOUGHT)[2], script.rpartition(THOUGHT)[2]
        rest = script[len(written) :] if script.startswith(written) else ""
        ids = self._tokenizer.encode(rest, add_special_tokens=False)
        return ids[0] if len(ids) else self._end

    def _written(self, ids: Sequence[int]) -> str:
        """A text with its control tokens."""
        return "".join(self._tokenizer.decode([i]) or self._tokenizer.piece(i) or "" for i in ids)


def scripted(
    folder: Path,
    answer: str | Callable[[str], str],
    template: str = HERMES_TEMPLATE,
    marks: Sequence[str] = (),
    special: Sequence[str] = (),
    grammars: bool = True,
    **parsers: Any,
) -> Model:
    """A model that gives this answer. marks: further tokens that are text, `special` that are not.
    folder: for its tokenizer."""
    path = folder / "tokenizer.json"
    found = json.loads(TOKENIZER.read_text())
    vocab = len(found["model"]["vocab"])
    for i, mark in enumerate([*marks, *special]):
        found["added_tokens"].append(
            {"id": vocab + i, "content": mark, "special": mark in special, "normalized": False,
             "single_word": False, "lstrip": False, "rstrip": False}
        )  # fmt: skip
    path.write_text(json.dumps(found))
    tokenizer = FileTokenizer(path)
    size = vocab + len(marks) + len(special)
    group = CacheGroup("paged", 16)
    capacity = Capacity.of(
        [group], [256], vocab_size=size, context=2048, max_batch=4, max_step_tokens=512
    )
    (end,) = tokenizer.encode(END, add_special_tokens=False)
    made = ModelText(
        "scripted",
        tokenizer,
        ChatTemplate(template, {}, tokenizer.special_tokens()),
        frozenset([end]),
        grammars=open_grammars(path, size, [end]) if grammars else None,
        **parsers,
    )
    say = answer if callable(answer) else lambda prompt: answer
    return Model(made, Scripted(capacity, tokenizer, say))
