"""The engine on a compiled library: a sliding window frees pages, so that a tiny pool suffices, and
sequences with a state roll back and start again.

Greedy answers equal those of `transformers`, token by token; at a difference both candidates'
logits must lie within the bound, and the comparison ends (a tie).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcc.artifact.folder import Artifact
from mlcc.engine import Engine, Request, SamplingParams, TextDelta
from mlcc.engine.batch.batch import Batch
from mlcc.loader import open_executor
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import get_target
from tests.compiler.models.helpers.checkpoints import make_checkpoint, oracle_logits

BOUND = 1e-3
NEW_TOKENS = 50


def compiled(case: str, folder: Path) -> tuple[Any, Any]:
    """(transformers' model, an executor of its compiled library)."""
    oracle = make_checkpoint(case, folder)
    (folder / "tokenizer.json").write_text('{"model": {"type": "BPE", "vocab": {}, "merges": []}}')
    options = Options(quant="f32", context=128, max_batch=4, max_step_tokens=16)
    out = compile_model(
        Checkpoint.open(folder), get_target("cpu"), folder / "out", options, Progress()
    )
    return oracle, open_executor(Artifact.open(out))


@pytest.fixture(scope="module")
def model(tmp_path_factory: Any) -> tuple[Any, Any]:
    """Mistral with a window of 11."""
    return compiled("mistral", tmp_path_factory.mktemp("mistral"))


@pytest.mark.feature("window", "cpu", "runs")
@pytest.mark.parametrize("pages", [16, 5])
def test_answers_equal_transformers(model: tuple[Any, Any], pages: int) -> None:
    oracle, executor = model
    engine = Engine(replace(executor.capacity, pools=(pages,)))
    batches = check_answers(oracle, executor, engine)
    freed = [batch for batch in batches if any(slid(batch))]
    assert freed, "no page slid out of the window"
    assert engine.stats().pages_free == pages


def slid(batch: Batch) -> list[int]:
    """How many pages of each sequence are behind its window."""
    return batch.column(batch.layout.sequences, "page_number.0")


@pytest.mark.parametrize(
    "case",
    [
        "qwen3_next-experts",
        pytest.param("falcon_h1", marks=pytest.mark.long),
        pytest.param("lfm2", marks=pytest.mark.long),
    ],
)
def test_states_start_again_after_preemption(case: str, tmp_path: Path) -> None:
    """Pages for two of four sequences, and a slot of states fewer than sequences."""
    oracle, executor = compiled(case, tmp_path)
    engine = Engine(replace(executor.capacity, pools=(11, 3)))
    batches = check_answers(oracle, executor, engine)
    assert engine.stats().preemptions > 0
    assert begun(batches, 1) > 4, "no state was begun anew"


def begun(batches: list[Batch], group: int) -> int:
    """The number of states that were initialized."""
    columns = (b.column(b.layout.sequences, f"slot_in.{group}")[:-1] for b in batches)
    return sum(list(column).count(-1) for column in columns)


def test_a_model_of_states_alone(tmp_path: Path) -> None:
    """No pages at all, and four sequences for three slots."""
    oracle, executor = compiled("mamba2", tmp_path)
    assert not any(group.has_pages for group in executor.capacity.groups)
    engine = Engine(replace(executor.capacity, pools=(3,)))
    batches = check_answers(oracle, executor, engine)
    assert begun(batches, 0) >= 4
    assert engine.stats().pages_free == 3


def check_answers(oracle: Any, executor: Any, engine: Engine) -> list[Batch]:
    """Four requests at once, each answered as the oracle would; returns the steps."""
    rng = np.random.default_rng(5)
    prompts = [rng.integers(3, 131, n).tolist() for n in (40, 7, 23, 1)]
    for i, prompt in enumerate(prompts):
        sampling = SamplingParams(temperature=0.0, max_tokens=NEW_TOKENS)
        engine.add(Request(str(i), prompt, sampling))
    answers: list[list[int]] = [[] for _ in prompts]
    batches = []
    while engine.has_work:
        batch = engine.plan()
        assert batch is not None
        batches.append(batch)
        for event in engine.commit(executor.collect(executor.submit(batch))):
            if isinstance(event, TextDelta):
                answers[int(event.request_id)].extend(event.token_ids)
        engine.check_integrity()
    ties = sum(check_greedy(oracle, p, a) for p, a in zip(prompts, answers, strict=True))
    assert ties <= 1
    return batches


def check_greedy(oracle: Any, prompt: list[int], answer: list[int]) -> bool:
    """Whether the answer leaves the oracle's at a tie; AssertionError if it leaves it elsewhere."""
    assert len(answer) == NEW_TOKENS
    logits = oracle_logits(oracle, prompt + answer)[len(prompt) - 1 : -1]
    for row, token in zip(logits, answer, strict=True):
        gap = float(row.max() - row[token])
        assert gap < BOUND
        if gap > 0:
            return True
    return False
