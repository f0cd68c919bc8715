"""How a prompt is cut into chunks, which measured times decide, changes no bit on CPUs."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from mlcc.engine.events import Finished
from mlcc.engine.request import Request, SamplingParams
from mlcc.model.model import Model
from mlcc_targets.cpu import host_level
from tests.e2e.demo.conftest import Opened

PROMPT = "Tell me about 17 + 25, and then count: " + ", ".join(map(str, range(1, 90)))


def answered(
    model: Model, requests: list[Request], times: random.Random | None
) -> tuple[dict[str, list[list[float]]], set[int]]:
    """The log-probabilities of each answer's tokens, and the lengths of prompts' chunks. times: of
    the steps; None = one request after the other, prompts whole."""
    engine = model.new_engine()
    found: dict[str, list[float]] = {request.id: [] for request in requests}
    chunks, waiting = set[int](), [*requests]
    while waiting or engine.has_work:
        if waiting and (not engine.has_work or (times is not None and times.random() < 0.1)):
            engine.add(waiting.pop(0))
        batch = engine.plan(model.executor.step_buffer())
        assert batch is not None
        firsts = [int(n) for n in batch.column(batch.layout.sequences, "first_token")]
        counts = [b - a for a, b in pairwise(firsts)]
        chunks.update(counts[len(counts) - batch.num_prompts :])
        result = model.executor.collect(model.executor.submit(batch))
        seconds = None if times is None else 1 + times.uniform(0, 0.1) * batch.num_tokens
        for event in engine.commit(result, seconds):
            if not isinstance(event, Finished):
                found[event.request_id] += event.logprobs
    return found, chunks


def test_a_cpu_has_the_same_logits_however_prompts_are_cut(opened: Opened) -> None:
    if "amx-tile" in host_level().features:
        pytest.skip("AMX rounds x of 32 rows and more to bf16, of fewer to 8 bits")
    model, times = opened("q8", "cpu"), random.Random(1)
    ids = model.text.encode_prompt(PROMPT).tolist()
    sampling = SamplingParams(temperature=0.0, max_tokens=60, ignore_eos=True, logprobs=0)
    ends = [100, 200, 170, 130]
    requests = [Request(str(i), ids[i:end], sampling) for i, end in enumerate(ends)]
    whole, lengths = answered(model, requests, None)
    cut, chunks = answered(model, [replace(each) for each in requests], times)
    assert lengths == {end - i for i, end in enumerate(ends)}
    assert min(chunks) <= 16 and len(chunks - lengths) > 8
    assert cut == whole
