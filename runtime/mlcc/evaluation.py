"""How good a compiled model is: exact-match accuracy on tasks, perplexity on texts.

Tasks are JSON lines {"task", "messages", "answer"}, answered greedily through the engine, several
at once; texts are JSON lines {"text"} with special tokens written out. Data in, figures out: the
command line is `commands/evaluate.py`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mlcc.driver import Driver
from mlcc.engine.batch import Batch, Capacity
from mlcc.engine.events import TextDelta
from mlcc.engine.request import Request, SamplingParams
from mlcc.errors import InvalidRequestError
from mlcc.model import Model

LONGEST_ANSWER = 200
"""Tokens; a model that rambles is wrong already."""


class LogitsExecutor(Protocol):
    """An executor that can also hand out logits; `native` and `reference` can."""

    capacity: Capacity

    def logits(self, batch: Batch) -> npt.NDArray[Any]: ...


@dataclass
class Score:
    """Answers right and given, per task."""

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
    """JSON lines with the given keys. Raises InvalidRequestError that names the line."""
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            row = json.loads(line)
            missing = [key for key in keys if key not in row]
        except (ValueError, TypeError) as error:
            raise InvalidRequestError(f"{path}:{number}: is not a JSON object ({error})") from error
        if missing:
            raise InvalidRequestError(f"{path}:{number}: lacks {', '.join(missing)}")
        rows.append(row)
    return rows


def score_tasks(
    model: Model, rows: Sequence[dict[str, Any]], progress: Callable[[int], None]
) -> Score:
    """Answer every row greedily, as many at once as the model takes; compare whole answers."""
    driver = Driver(model)
    sampling = SamplingParams(temperature=0.0, max_tokens=LONGEST_ANSWER)
    answers = [""] * len(rows)
    for index, row in enumerate(rows):
        prompt = model.text.encode_chat(row["messages"])
        driver.engine.add(Request(str(index), prompt, sampling))
    finished = 0
    while driver.has_work:
        for event in driver.step():
            if isinstance(event, TextDelta):
                answers[int(event.request_id)] += event.text
            else:
                finished += 1
                progress(finished)
    score = Score()
    for row, answer in zip(rows, answers, strict=True):
        score.add(row.get("task", "all"), answer.strip() == row["answer"].strip())
    return score


def perplexity(model: Model, texts: Sequence[str], progress: Callable[[int], None]) -> float:
    """exp of the mean negative log-likelihood per token, each text from its own beginning."""
    executor: Any = model.executor
    total, count = 0.0, 0
    for index, text in enumerate(texts):
        ids = model.text.tokenizer.encode(text, add_special_tokens=False)
        ids = ids[: model.capacity.context]
        for logits, targets in _scored_steps(executor, ids):
            total -= float(_log_likelihood(logits, targets))
            count += len(targets)
        progress(index + 1)
    return math.exp(total / max(1, count))


def _scored_steps(
    executor: LogitsExecutor, ids: Sequence[int]
) -> Iterator[tuple[npt.NDArray[Any], Sequence[int]]]:
    """(logits, next tokens) of a text in steps of as many rows as the library computes."""
    size, step = executor.capacity.page_size, executor.capacity.max_batch
    for start in range(0, len(ids) - 1, step):
        stop = min(start + step, len(ids) - 1)
        batch = Batch()
        batch.token_ids.extend(ids[start:stop])
        batch.positions.extend(range(start, stop))
        batch.token_slots.extend(range(start, stop))  # the text owns the first pages, in order
        batch.qo_indptr.append(stop - start)
        batch.page_indices.extend(range(-(-stop // size)))
        batch.page_indptr.append(len(batch.page_indices))
        batch.last_page_len.append((stop - 1) % size + 1)
        batch.logit_rows.extend(range(stop - start))
        yield executor.logits(batch), ids[start + 1 : stop + 1]


def _log_likelihood(logits: npt.NDArray[Any], targets: Sequence[int]) -> float:
    rows = logits.astype(np.float64)
    peak = rows.max(axis=1)
    log_total = peak + np.log(np.exp(rows - peak[:, None]).sum(axis=1))
    return float((rows[np.arange(len(targets)), list(targets)] - log_total).sum())
