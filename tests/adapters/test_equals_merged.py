"""A model with an adapter answers as the model whose weights it was merged into: to float32's
rounding, in any mix of adapters and ranks in one step, with projections that the compiler merges.

The oracle is the reference executor in float64 on the merged checkpoint: no kernel, no adapter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters.folders import ALL, DEMO, merged, save
from mlcc.adapters.fit import fitted
from mlcc.adapters.peft import read_folder
from mlcc.artifact.arrays import mapped
from mlcc.artifact.folder import Artifact
from mlcc.device.reference import ReferenceExecutor
from mlcc.engine.adapters import NO_ADAPTER, AdapterUse
from mlcc.engine.batch import Batch, Capacity
from mlcc.engine.batch_writer import BatchWriter
from mlcc.engine.caches import CachePools
from mlcc.engine.executor import Executor
from mlcc.opening import open_executor
from mlcc_compiler.adapters import AdapterRoom
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.plan import Options
from mlcc_targets import Choices, get_target

BOUND = 2e-4
"""Of logits, which are up to 30: float32 sums in another order, through six layers."""
ROOM = AdapterRoom(8, 3)
PROMPTS = ([5, 9, 300, 41, 7, 88, 1000, 12], [17, 4], [3, 600, 20, 1], [900, 901, 902])


def compiled(out: Path, target: str, model: Path = DEMO, room: AdapterRoom | None = ROOM) -> Path:
    """The demo in float32, small."""
    name, _, f32 = target.partition("-")
    row = get_target(name, Choices(f16=False if f32 else None))
    options = Options(quant="f32", context=64, max_batch=4, max_step_tokens=32, adapters=room)
    compile_model(Checkpoint.open(model), row, out, options, Progress())
    return out


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, Any]]:
    """Adapters of several ranks, modules, scales and dtypes, and by what B A is multiplied."""
    root = tmp_path_factory.mktemp("adapters")
    whole = save(root / "whole", 8, 16, ALL, 1, 0.05, targets="all-linear")
    some = save(root / "some", 3, 6, ("k_proj", "up_proj"), 2, dtype="float16", use_rslora=True)
    ranks = {"rank_pattern": {"v_proj": 2}, "alpha_pattern": {"v_proj": 5}}
    mixed = save(root / "mixed", 5, 10, ("q_proj", "v_proj", "down_proj"), 3, **ranks)
    return [
        (whole, 2.0),
        (some, 6 / np.sqrt(3)),
        (mixed, {"q_proj": 2.0, "v_proj": 2.5, "down_proj": 2.0}),
    ]


@pytest.fixture(scope="module")
def wanted(
    folders: list[tuple[Path, Any]], tmp_path_factory: pytest.TempPathFactory
) -> list[np.ndarray[Any, Any]]:
    """The logits of each prompt, with each adapter, the last one with none."""
    root = tmp_path_factory.mktemp("merged")
    models = [merged(root / f"m{i}", *found) for i, found in enumerate(folders)] + [DEMO]
    found = []
    for i, (model, prompt) in enumerate(zip(models, PROMPTS, strict=True)):
        artifact = Artifact.open(compiled(root / f"c{i}", "reference", model, None))
        executor = exact(artifact)
        found.append(executor.logits(step(executor.capacity, [(prompt, NO_ADAPTER)])))
    return found


def exact(artifact: Artifact) -> ReferenceExecutor:
    import json

    graph = json.loads(artifact.library_path.read_text())
    plain = open_executor(artifact, threads=None, max_batch=None, context=None)
    arrays, caches = mapped(artifact.weights()), artifact.manifest.caches
    return ReferenceExecutor(graph, arrays, plain.capacity, caches, "float64")


def step(capacity: Capacity, prompts: Sequence[tuple[Sequence[int], AdapterUse]]) -> Batch:
    """All prompts in one step, a row behind each token."""
    writer, pools = BatchWriter(capacity.layout), CachePools(capacity)
    for tokens, use in prompts:
        caches = pools.empty()
        pools.grow(caches, len(tokens))
        first = writer.sequence(tokens, 0, caches, use)
        writer.row(first + len(tokens) - 1)
    return writer.finish()


@pytest.fixture(scope="module", params=["cpu", "reference", "vulkan-f32"])
def opened(
    request: pytest.FixtureRequest,
    folders: list[tuple[Path, Any]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Executor, list[AdapterUse]]]:
    """A model with all adapters in its slots."""
    import needs

    needs.require_target(request.param.partition("-")[0])
    artifact = Artifact.open(compiled(tmp_path_factory.mktemp("room") / "out", request.param))
    room = artifact.manifest.adapters
    assert room is not None
    executor = open_executor(artifact, threads=None, max_batch=None, context=None)
    uses = []
    for slot, (folder, _) in enumerate(folders):
        adapter = fitted(read_folder(folder), room)
        executor.write_adapter(slot, adapter.matrices)
        uses.append(AdapterUse(slot, adapter.rank))
    yield executor, uses
    executor.close()


def logits(executor: Executor, batch: Batch) -> np.ndarray[Any, Any]:
    compute: Callable[[Batch], Any] = executor.logits  # type: ignore[attr-defined]
    return np.array(compute(batch), np.float64)


def test_a_mixed_step_equals_merged_weights(
    opened: tuple[Executor, list[AdapterUse]], wanted: list[np.ndarray[Any, Any]]
) -> None:
    executor, uses = opened
    prompts = list(zip(PROMPTS, [*uses, NO_ADAPTER], strict=True))
    found = logits(executor, step(executor.capacity, prompts))
    for got, expected in zip(found, wanted, strict=True):
        assert np.abs(got - expected[0]).max() < BOUND
    # alone, and in another order, each is what it is beside the others
    for i, prompt in enumerate(prompts):
        alone = logits(executor, step(executor.capacity, [prompt]))
        assert np.abs(alone[0] - wanted[i][0]).max() < BOUND
    backwards = logits(executor, step(executor.capacity, prompts[::-1]))
    assert np.abs(backwards[::-1] - found).max() < BOUND


def test_an_adapter_changes_the_answer(
    opened: tuple[Executor, list[AdapterUse]], wanted: list[np.ndarray[Any, Any]]
) -> None:
    """The bound tells adapters apart: what they change is a thousand times as much."""
    executor, uses = opened
    for i, use in enumerate(uses):
        plain = logits(executor, step(executor.capacity, [(PROMPTS[i], NO_ADAPTER)]))
        assert np.abs(plain[0] - wanted[i][0]).max() > 1000 * BOUND
        assert use.rank == (8, 3, 5)[i]
