"""A model that two processes compute equals `transformers`, alone and in the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcc.engine import Engine
from mlcc.model.model import Model
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import get_target
from tests.compiler.models.helpers.mixed import run_mixed
from tests.compiler.models.test_engine_on_native import check_answers
from tests.e2e.demo.equality import compare, greedy_tokens
from tests.runtime.device.helpers.demo import text_of
from tests.runtime.tensor_parallel.split_models import CASES_OF_RANKS, checkpoint, compiled, opened

BOUND = 1e-4
"""Bound of logits in float32 with a standard deviation of at least 1, as for one process."""
ALWAYS = {"llama-head-dim", "qwen2_moe"}
"""Architectures beside llama; the rest consist of the same parts."""
DEMO = Path(__file__).parents[3] / "examples" / "demo"


def cases() -> Iterator[Any]:
    for case in sorted(set(CASES_OF_RANKS) - {"llama"}):
        marks = [] if case in ALWAYS else [pytest.mark.long]
        yield pytest.param(case, marks=[*marks, pytest.mark.feature("ranks", "cpu", "runs")])


@pytest.mark.parametrize("case", cases())
def test_two_ranks_equal_transformers(case: str, tmp_path: Path) -> None:
    oracle = checkpoint(case, tmp_path / "model")
    executor = opened(compiled(tmp_path / "model", 2))
    try:
        assert run_mixed(executor, oracle, 128) < BOUND
    finally:
        executor.close()


@pytest.mark.feature("ranks", "cpu", "runs")
def test_a_head_whose_table_is_the_embedding(llama: tuple[Any, Path]) -> None:
    oracle, artifact = llama
    executor = opened(artifact)
    try:
        assert run_mixed(executor, oracle, 128) < BOUND
    finally:
        executor.close()


@pytest.mark.long
def test_four_ranks_where_two_share_a_kv_head(tmp_path: Path) -> None:
    oracle = checkpoint("llama", tmp_path / "model", vocab_size=132)
    executor = opened(compiled(tmp_path / "model", 4))
    try:
        assert run_mixed(executor, oracle, 128) < BOUND
    finally:
        executor.close()


def test_the_engine_steps_back_and_finds_prefixes(llama: tuple[Any, Path]) -> None:
    """Pages for less than four sequences: preemption is the engine's, of which there is one."""
    oracle, artifact = llama
    executor = opened(artifact)
    try:
        engine = Engine(replace(executor.capacity, pools=(11,)))
        check_answers(oracle, executor, engine)
        assert engine.stats().preemptions > 0
        check_answers(oracle, executor, engine)  # the same prompts again
        assert engine.stats().cached_tokens > 0
        assert executor.use().replays > 0, "decode steps were not replayed"
    finally:
        executor.close()


def test_the_demo_answers_as_with_one_process(
    compiled_demo: Callable[[str, str], Path], tmp_path: Path
) -> None:
    one = compiled_demo("q8", "cpu")
    options = Options(quant="q8", context=1024, ranks=2)
    made = compile_model(
        Checkpoint.open(DEMO / "model"), get_target("cpu"), tmp_path / "two", options, Progress()
    )
    text = text_of(one)
    prompts = [
        text.encode_prompt(question)
        for question in ("What is 17 + 25?", "Sort these words: river, apple, stone", "Hello")
    ]
    executors = [opened(folder) for folder in (one, made)]
    models = [Model(text, executor) for executor in executors]
    try:
        answers = [greedy_tokens(model, prompts, 40) for model in models]
        pairs = zip(prompts, *answers, strict=True)
        ties = sum(compare(models[0], p, a, b, 0.2) for p, a, b in pairs)
        assert ties <= 1
        sizes = [np.prod(e.page_bytes) for e in executors]
        assert sizes[0] == 2 * sizes[1], "a rank keeps half of the heads"
    finally:
        for executor in executors:
            executor.close()
