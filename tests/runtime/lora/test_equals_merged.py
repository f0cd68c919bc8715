"""A model with an adapter answers like the model with merged weights: up to float32's rounding,
with any mix of adapters and ranks in one step, and with projections that the compiler merges.

The oracle is the reference executor in float64 on the merged checkpoint: no kernel, no adapter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcc.artifact.arrays import mapped
from mlcc.artifact.folder import Artifact
from mlcc.device.compiled.executor import CompiledExecutor
from mlcc.device.reference.executor import ReferenceExecutor
from mlcc.engine import Finished, Request, SamplingParams, TextDelta
from mlcc.engine.batch.batch import Batch, BatchWriter, Capacity
from mlcc.engine.batch.executor import Executor
from mlcc.engine.events import Event
from mlcc.engine.kv_cache.cache_manager import CacheManager
from mlcc.engine.lora import NO_ADAPTER, AdapterUse
from mlcc.errors import DeviceError, MlccError
from mlcc.loader import open_executor, open_model
from mlcc.lora.fit import fitted
from mlcc.lora.peft import read_folder
from mlcc.model.driver import Driver
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.ir.lora import LoraConfig
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.helpers import needs
from tests.runtime.lora.folders import ALL, DEMO, merged, save

BOUND = 2e-4
"""Bound of logits up to 30: float32 sums in another order, through six layers."""
ROOM = LoraConfig(8, 3)
PROMPTS = ([5, 9, 300, 41, 7, 88, 1000, 12], [17, 4], [3, 600, 20, 1], [900, 901, 902])


def compiled(out: Path, target: str, model: Path = DEMO, room: LoraConfig | None = ROOM) -> Path:
    """The demo in float32, small."""
    name, _, f32 = target.partition("-")
    row = get_target(name, Choices(f16=False if f32 else None))
    options = Options(quant="f32", context=64, max_batch=4, max_step_tokens=32, adapters=room)
    compile_model(Checkpoint.open(model), row, out, options, Progress())
    return out


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, Any]]:
    """Adapters of several ranks, modules, scales and dtypes, and the factor of B A."""
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
    graph = json.loads(artifact.library_path.read_text())
    plain = open_executor(artifact)
    arrays, caches = mapped(artifact.weights()), artifact.manifest.caches
    return ReferenceExecutor(graph, arrays, plain.capacity, caches, "float64")


def step(capacity: Capacity, prompts: Sequence[tuple[Sequence[int], AdapterUse]]) -> Batch:
    """All prompts in one step, a row behind each token."""
    writer, pools = BatchWriter(capacity.layout), CacheManager(capacity)
    for tokens, use in prompts:
        caches = pools.empty()
        pools.grow(caches, len(tokens))
        first = writer.sequence(tokens, 0, caches, use)
        writer.row(first + len(tokens) - 1)
    return writer.finish()


def on(target: str, name: str) -> Any:
    """A target of the tests, and the features that its tests prove."""
    return pytest.param(target, marks=pytest.mark.feature("adapters", name, "runs"))


@pytest.fixture(scope="module")
def with_room(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Artifact]:
    """The demo with room for adapters, compiled once for each target."""

    @cache
    def of(target: str) -> Artifact:
        needs.require_target(target.partition("-")[0])
        return Artifact.open(compiled(tmp_path_factory.mktemp("room") / "out", target))

    return of


@pytest.fixture(params=[on("cpu", "cpu"), on("reference", "reference"), on("vulkan-f32", "vulkan")])
def opened(
    request: pytest.FixtureRequest,
    folders: list[tuple[Path, Any]],
    with_room: Callable[[str], Artifact],
) -> Iterator[tuple[Executor, list[AdapterUse]]]:
    """A model with all adapters in its slots."""
    artifact = with_room(request.param)
    room = artifact.manifest.adapters
    assert room is not None
    executor = open_executor(artifact)
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
    """The bound distinguishes adapters: their effect is a thousand times as large."""
    executor, uses = opened
    for i, use in enumerate(uses):
        plain = logits(executor, step(executor.capacity, [(PROMPTS[i], NO_ADAPTER)]))
        assert np.abs(plain[0] - wanted[i][0]).max() > 1000 * BOUND
        assert use.rank == (8, 3, 5)[i]


@pytest.mark.parametrize(
    "opened", ["cpu", pytest.param("vulkan-f32", marks=pytest.mark.long)], indirect=True
)
def test_decode_steps_are_replayed_as_they_are(
    opened: tuple[Executor, list[AdapterUse]],
) -> None:
    """Replayed steps, with adapters and without, equal those of the virtual machine."""
    executor, uses = opened
    assert isinstance(executor, CompiledExecutor)
    found = []
    for watched in (True, False):
        executor.watch(watched)
        found.append(greedy(executor, [[*uses, NO_ADAPTER], [NO_ADAPTER] * 4]))
        replays = executor.use().replays
        assert (replays == 0) == watched
    assert found[0] == found[1]
    assert found[0][0] != found[0][1]


def greedy(executor: Executor, sets: Sequence[Sequence[AdapterUse]]) -> list[list[list[int]]]:
    """Answers of 12 tokens to all prompts, with one set of adapters after the other."""
    capacity, answers = executor.capacity, []
    for uses in sets:
        pools = CacheManager(capacity)
        caches = [pools.empty() for _ in uses]
        outputs: list[list[int]] = [[] for _ in uses]
        for number in range(12):
            writer = BatchWriter(capacity.layout)
            for s, use in enumerate(uses):
                tokens = outputs[s][-1:] if number else PROMPTS[s]
                start = len(PROMPTS[s]) + number - 1 if number else 0
                pools.grow(caches[s], start + len(tokens))
                first = writer.sequence(tokens, start, caches[s], use)
                writer.row(first + len(tokens) - 1)
            result = executor.collect(executor.submit(writer.finish()))
            for s, token in enumerate(result.tokens):
                outputs[s].append(token)
        answers.append(outputs)
    return answers


@pytest.mark.parametrize("opened", ["cpu"], indirect=True)
def test_without_adapters_nothing_is_changed(
    opened: tuple[Executor, list[AdapterUse]], tmp_path: Path
) -> None:
    """The logits of a library with room are those of one without, to the bit."""
    executor, _ = opened
    plain = Artifact.open(compiled(tmp_path / "plain", "cpu", room=None))
    other = open_executor(plain)
    found = []
    for each in (executor, other):
        prompts = [(prompt, NO_ADAPTER) for prompt in PROMPTS]
        found.append(logits(each, step(each.capacity, prompts)))
    other.close()
    assert np.array_equal(*found)
    assert "forward_adapters" not in plain.manifest.functions


def test_more_adapters_than_slots_take_turns(
    folders: list[tuple[Path, Any]], with_room: Callable[[str], Artifact], tmp_path: Path
) -> None:
    """Each answers to the token as it does when it came first and never left its slot."""
    more = save(tmp_path / "more", 4, 8, ALL, 9, 0.05, targets="all-linear")
    paths = [*(path for path, _ in folders), more]

    def answers(order: Sequence[int], asked: Sequence[int]) -> list[tuple[int, ...]]:
        model = open_model(with_room("cpu").folder)
        try:
            driver = Driver(model)
            for i in order:
                driver.load_adapter(str(i), paths[i])
            found = []
            for number, i in enumerate(asked):
                greedy = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
                driver.engine.add(Request(str(number), PROMPTS[0], greedy, adapter=str(i)))
                outputs: list[int] = []
                while driver.has_work:
                    for event in driver.step():
                        if isinstance(event, TextDelta):
                            outputs += event.token_ids
                found.append(tuple(outputs))
            return found
        finally:
            model.close()

    alone = [answers([i], [i])[0] for i in range(4)]
    assert len(set(alone)) == 4
    turns = [0, 3, 1, 2, 3, 0, 2, 1]
    assert answers([0, 1, 2, 3], turns) == [alone[i] for i in turns]


def test_one_that_cannot_be_brought_costs_its_own_requests(
    folders: list[tuple[Path, Any]],
    with_room: Callable[[str], Artifact],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When an adapter is unloaded, its host copy is freed too."""
    model = open_model(with_room("cpu").folder)
    try:
        driver, write = Driver(model), model.executor.write_adapter
        for i in range(model.capacity.layout.adapter_slots + 1):
            driver.load_adapter(str(i), folders[0][0])
        last = driver.engine.adapters.names[str(i)]
        assert not last.ready

        def fails(slot: int, matrices: object) -> None:
            raise DeviceError("no memory")

        def ask(name: str) -> MlccError | None:
            """The error with which a request ends, if it does."""
            greedy = SamplingParams(temperature=0.0, max_tokens=2, ignore_eos=True)
            driver.engine.add(Request("r", PROMPTS[0], greedy, adapter=name))
            events: list[Event] = []
            while driver.has_work:
                events += driver.step()
            driver.engine.check_integrity()
            (end,) = [event for event in events if isinstance(event, Finished)]
            return end.error

        monkeypatch.setattr(model.executor, "write_adapter", fails, raising=False)
        assert isinstance(ask(last.name), DeviceError)
        assert ask("") is None
        monkeypatch.setattr(model.executor, "write_adapter", write, raising=False)
        assert ask(last.name) is None
        for name in [*driver.engine.adapters.names]:
            driver.unload_adapter(name)
        assert not driver._adapters.copies._kept
    finally:
        model.close()


def test_a_load_in_place_that_fails_leaves_what_was_there(
    folders: list[tuple[Path, Any]],
    with_room: Callable[[str], Artifact],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = open_model(with_room("cpu").folder)
    try:
        driver = Driver(model)
        driver.load_adapter("x", folders[0][0])
        before = driver.engine.adapters.names["x"]

        def fails(slot: int, matrices: object) -> None:
            raise DeviceError("no memory")

        monkeypatch.setattr(model.executor, "write_adapter", fails, raising=False)
        with pytest.raises(DeviceError):
            driver.load_adapter("x", folders[1][0], in_place=True)
        assert driver.engine.adapters.names["x"] is before and before.ready
        driver.engine.check_integrity()
    finally:
        model.close()
