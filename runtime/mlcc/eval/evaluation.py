"""Quality of a compiled model: exact-match accuracy on tasks, perplexity on texts.

Tasks are JSON lines {"task", "messages", "answer"}, answered greedily through the engine, several
at once; texts are JSON lines {"text"}. The command line is `commands/evaluate.py`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

from mlcc.api.openai.requests import parse_chat
from mlcc.api.schema.schema import Text
from mlcc.engine.batch.batch import Batch, Capacity
from mlcc.engine.events import TextDelta
from mlcc.engine.request import Request, SamplingParams
from mlcc.engine.scheduler.manual_steps import ManualSteps
from mlcc.errors import InvalidRequestError, MlccError
from mlcc.model.driver import Driver
from mlcc.model.model import Model
from mlcc.model.tokenizer.tokenizer import TextTokenizer, beginning

LONGEST_ANSWER = 512
"""Most tokens of an answer; a model that rambles is wrong already."""


class Scorer(Protocol):
    """An executor that returns likelihoods of given tokens; all except the toy do."""

    capacity: Capacity

    def log_likelihood(self, batch: Batch, targets: Sequence[int]) -> float:
        """Run a batch; returns the sum over its rows of the natural log of each target's
        probability."""
        ...


@dataclass
class Score:
    """Correct and given answers, per task."""

    right: dict[str, int] = field(default_factory=dict)
    given: dict[str, int] = field(default_factory=dict)

    def add(self, task: str, correct: bool) -> None:
        self.given[task] = self.given.get(task, 0) + 1
        self.right[task] = self.right.get(task, 0) + int(correct)

    @property
    def accuracy(self) -> float:
        """Share of exact matches over all rows, 0 .. 1."""
        return sum(self.right.values()) / max(1, sum(self.given.values()))


def read_rows(path: Path, keys: Sequence[str]) -> list[dict[str, Any]]:
    """JSON lines with the given keys, at least one. Raises InvalidRequestError naming the line."""
    try:
        text = path.read_text(encoding="utf-8").rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"{path}: cannot be read as UTF-8 text ({error})") from error
    if not text.strip():
        raise InvalidRequestError(f"{path}: is empty; give one JSON object per line")
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):
        try:
            rows.append(_row(line, keys))
        except InvalidRequestError as error:
            raise InvalidRequestError(f"{path}:{number}: {error.message}") from error
    return rows


def _row(line: str, keys: Sequence[str]) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"is not a JSON object ({error})") from error
    if not isinstance(row, dict):
        raise InvalidRequestError("is not a JSON object")
    missing = [key for key in keys if key not in row]
    if missing:
        raise InvalidRequestError(f"lacks {', '.join(missing)}")
    for key in ("task", "answer", "text"):
        if key in row:
            Text().check(row[key], key)
    if "messages" in row:
        row["messages"] = parse_chat({"messages": row["messages"]}).messages
    return row


def score_tasks(
    model: Model, rows: Sequence[dict[str, Any]], progress: Callable[[int], None]
) -> Score:
    """Answer every row greedily, as many at once as the model takes; compare whole answers.

    Raises InvalidRequestError that names the row if a prompt does not fit.
    """
    driver = Driver(model)
    sampling = SamplingParams(temperature=0.0, max_tokens=LONGEST_ANSWER)
    answers = [""] * len(rows)
    for index, row in enumerate(rows):
        try:
            prompt = model.text.encode_chat(row["messages"])
            driver.engine.add(Request(str(index), prompt, sampling))
        except MlccError as error:
            raise InvalidRequestError(f"task row {index + 1}: {error.message}") from error
    finished = 0
    while driver.has_work:
        for event in driver.step():
            if isinstance(event, TextDelta):
                answers[int(event.request_id)] += event.text
            elif event.error is not None:
                raise event.error
            else:
                finished += 1
                progress(finished)
    score = Score()
    for row, answer in zip(rows, answers, strict=True):
        score.add(row.get("task", "all"), answer.strip() == row["answer"].strip())
    return score


def perplexity(
    model: Model,
    texts: Sequence[str],
    progress: Callable[[int], None],
    note: Callable[[str], None],
) -> float:
    """exp of the mean negative log-likelihood per token, each text from its own beginning.

    `note` receives a message if texts are longer than the context. Raises InvalidRequestError if no
    text has a token to predict.
    """
    scorer = cast(Scorer, model.executor)
    context = model.capacity.context
    total, count, cut = 0.0, 0, 0
    for index, text in enumerate(texts):
        ids = ids_of(model.text.tokenizer, text)
        cut += len(ids) > context
        for batch, targets in steps_of(scorer.capacity, ids[:context]):
            total -= scorer.log_likelihood(batch, targets)
            count += len(targets)
        progress(index + 1)
    if not count:
        raise InvalidRequestError("no text has two tokens, so there is nothing to predict")
    if cut:
        note(f"{cut} of {len(texts)} texts are scored up to the context of {context} tokens only")
    return math.exp(total / count)


def ids_of(tokenizer: TextTokenizer, text: str) -> Sequence[int]:
    """A text's tokens, after the tokens that the tokenizer puts first, unless the text has them.

    Tokens that it appends are left out: the text may be part of a longer one. A model trained with
    `<bos>` behaves differently without it: Gemma 3 270M's perplexity doubles, and so does the cost
    of rounding its weights.
    """
    ids = list(tokenizer.encode(text, add_special_tokens=False))
    begin = beginning(tokenizer)
    return ids if ids[: len(begin)] == begin else begin + ids


def steps_of(
    capacity: Capacity, ids: Sequence[int], rows: int | None = None
) -> Iterator[tuple[Batch, Sequence[int]]]:
    """A text in steps of as many rows as the library computes, or of `rows`, and the tokens that
    follow each row."""
    step = rows or min(capacity.max_rows, capacity.max_step_tokens)
    steps = ManualSteps(capacity)
    for start in range(0, len(ids) - 1, step):
        stop = min(start + step, len(ids) - 1)
        yield steps.step({0: ids[start:stop]}, every_row=True), ids[start + 1 : stop + 1]
