"""The forward of calibration equals the reference executor's, row by row."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from mlcc.device.reference.executor import ReferenceExecutor
from mlcc.engine.batch.batch import Capacity
from mlcc.engine.scheduler.manual_steps import ManualSteps
from mlcc_compiler.calibration import weights as weights_module
from mlcc_compiler.calibration.forward import PAGE_SIZE, Forward
from mlcc_compiler.calibration.weights import Weights
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.ir.graph_json import graph_to_json
from mlcc_compiler.models.registry import build_model
from mlcc_compiler.passes.cache_groups import caches_of
from mlcc_compiler.pipeline import trace
from mlcc_compiler.plan import Plan
from tests.compiler.models.helpers.checkpoints import make_checkpoint


@pytest.mark.parametrize(
    "case", ["llama", "gemma3", "gemma3n", "gemma4", "qwen3_next", "deepseek_v2", "gpt_oss"]
)
def test_rows_are_what_the_reference_executor_computes(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_checkpoint(case, tmp_path)
    checkpoint = Checkpoint.open(tmp_path)
    architecture = build_model(checkpoint.config, 64)
    traced = trace(architecture.model)
    graph, tensors = json.loads(graph_to_json(traced)), checkpoint.tensors
    caches = caches_of(traced.module, PAGE_SIZE, "float32")
    vocab = architecture.config.vocab_size
    rng = np.random.default_rng(1)
    rows = [rng.integers(3, vocab, n).tolist() for n in (40, 9, 23)]

    seen: list[str] = []
    sources = {name: name for name in traced.names}
    weights = Weights(cast(Plan, SimpleNamespace(checkpoint=checkpoint, sources=sources)))

    def linear(name: str, source: str, x: Any) -> Any:
        seen.append(name)
        return weights.matmul(name, x)

    monkeypatch.setattr(weights_module, "ROWS_AT_A_TIME", 1500)  # several pieces a matrix
    forward = Forward(graph, caches, vocab, rows, weights, linear)
    forward.run(lambda done, total: None, until="")
    found = forward.values[graph["output"]]

    pools = tuple(12 for _ in caches.groups)
    capacity = Capacity.of(
        caches.groups, pools, vocab_size=vocab, context=64, max_batch=3, max_step_tokens=128
    )
    weights = {name: tensors.read(name) for name in traced.names}
    executor = ReferenceExecutor(graph, weights, capacity, caches.infos(pools))
    expected = executor.logits(ManualSteps(capacity, 3).step(dict(enumerate(rows))))
    np.testing.assert_allclose(found, expected, atol=1e-3 * expected.std())
    assert any(name.endswith("o_proj.weight") for name in seen)
    assert set(forward.values) <= {graph["output"], *graph["constants"], "logit_rows"}
