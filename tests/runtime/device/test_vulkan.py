"""The executor on a GPU through WebGPU, in software here: the results of TVM's package, two steps
in flight, and refusals."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcc.device.check_batch import BadBatchError
from mlcc.device.compiled import webgpu
from mlcc.device.compiled.executor import CompiledExecutor
from mlcc.device.compiled.kernel_log import CompiledKernelLog
from mlcc.device.device import DeviceHandle
from mlcc.engine import SamplingParams
from mlcc.engine.batch.batch import Result
from mlcc.engine.scheduler.manual_steps import ManualSteps
from mlcc.errors import CapacityError, DeviceError, OutOfMemoryError
from tests.runtime.device.conftest import DEMO_VULKAN
from tests.runtime.device.helpers.demo import (
    adjusted,
    answers,
    capacity_of,
    text_of,
    tvm_executor,
    vulkan_executor,
)

PROMPTS = ("How much is 17 + 25?", "The cat and the")
GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
SAMPLED = SamplingParams(
    temperature=0.9, top_k=40, top_p=0.95, min_p=0.01, seed=7, max_tokens=8, ignore_eos=True
)


@pytest.fixture(scope="module")
def model(built: None, request: pytest.FixtureRequest) -> Path:
    """The artifact of the demo model, q4 for vulkan."""
    if given := os.environ.get(DEMO_VULKAN):
        return Path(given)
    request.getfixturevalue("vulkan")
    compiled: Callable[[str, str], Path] = request.getfixturevalue("compiled_demo")
    return compiled("q4", "vulkan")


@pytest.fixture
def executor(model: Path) -> Iterator[CompiledExecutor]:
    made = vulkan_executor(model)
    yield made
    made.close()


def steps_of(executor: Any) -> list[Result]:
    """Chunks and decode steps, each submitted before the one before it is collected: tokens in
    flight, adjustments, top logprobs, a copy of a page."""
    steps, found, before = ManualSteps(executor.capacity, 3), list[Result](), None
    for i in range(12):
        tokens: dict[int, Any] = {0: [-1], 1: [-2]} if i else {0: range(5, 25), 1: [7]}
        if i == 4:
            tokens = {0: [-1], 1: range(40, 60)}
        batch = steps.step(tokens, top_logprobs=3 if i in (3, 8) else 0)
        words, layout = batch.words, batch.layout
        if i == 6:  # page 0 to itself: all that a copy does, and nothing else changes
            at = layout.copies.offset
            words[at : at + 3] = memoryview(np.zeros(3, np.int32))
            words[layout.header.at("copies")] = 1
        changes = adjusted(executor, random.Random(i), 2) if i in (2, 7, 9) else None
        ticket = executor.submit(batch, changes)
        if before is not None:
            found.append(executor.collect(before))
        before = ticket
    return [*found, executor.collect(before)]


def measured(model: Path, folder: Path | None) -> Any:
    """All that is compared; of TVM's package, with a copy of the library in `folder`."""
    limits = {"context": 256, "max_batch": 4}
    if folder is None:
        made: Any = vulkan_executor(model)
    else:
        made = tvm_executor(model, folder, DeviceHandle("webgpu"), **limits)
    results = steps_of(made)
    batch = ManualSteps(made.capacity, 3).step({0: range(5, 25), 2: range(40, 47)})
    logits = np.array(made.logits(batch))
    likelihood = made.log_likelihood(batch, [7, 300])
    texts = [answers(text_of(model), made, PROMPTS, sampling) for sampling in (GREEDY, SAMPLED)]
    made.close()
    return results, logits.tobytes(), round(likelihood, 9), texts


def test_results_are_those_of_tvms_package(model: Path, plugin: None, tmp_path: Path) -> None:
    """Equal kernels on equal numbers: equal to the bit, replayed or not. TVM's package runs in a
    separate process: two plugins in one process once ended it."""
    with ProcessPoolExecutor(1, get_context("spawn")) as other:
        theirs = other.submit(measured, model, tmp_path).result()
    ours = measured(model, None)
    assert ours == theirs
    assert all(len(answer) == 8 for answers in ours[-1] for answer in answers)


def test_a_step_goes_up_in_one_copy_and_comes_back_in_another(executor: CompiledExecutor) -> None:
    """Nothing waits in between: collecting the step before submits nothing and reads no more."""
    steps = ManualSteps(executor.capacity, 2)
    for _ in range(2):
        executor.collect(executor.submit(steps.step({0: [5], 1: [6]})))
    first = executor.counts()
    ticket = executor.submit(steps.step({0: [-1], 1: [-2]}))
    for _ in range(4):
        behind = executor.submit(steps.step({0: [-1], 1: [-2]}))
        submitted = executor.counts()
        executor.collect(ticket)
        assert executor.counts()["submits"] == submitted["submits"]
        ticket = behind
    executor.collect(ticket)
    last = executor.counts()
    progress = {
        name: last[name] - first[name] for name in ("reads_started", "reads", "bind_groups")
    }
    assert progress == {"reads_started": 5, "reads": 0, "bind_groups": 0}
    writes = sum(last[name] - first[name] for name in ("small_writes", "large_writes"))
    assert writes == 5


def test_a_refused_step_tells_the_device_nothing(executor: CompiledExecutor) -> None:
    steps = ManualSteps(executor.capacity)
    batch = steps.step({0: range(9)})
    layout = batch.layout
    executor.submit(batch)
    before = executor.counts()
    for place in (layout.tokens.at("id"), layout.tokens.at("slot.0"), layout.pages.offset):
        kept, batch.words[place] = batch.words[place], 2**30
        with pytest.raises(BadBatchError):
            executor.submit(batch)
        with pytest.raises(BadBatchError):
            executor.logits(batch)
        batch.words[place] = kept
    assert executor.counts() == before


def test_two_models_do_not_mix(model: Path) -> None:
    text = text_of(model)
    first, second = vulkan_executor(model), vulkan_executor(model)
    alone = [answers(text, made, PROMPTS[:1], GREEDY) for made in (first, second)]
    assert alone[0] == alone[1]
    steps = [ManualSteps(made.capacity) for made in (first, second)]
    prompts = ([3, 9, 27], [200, 100])
    expected = []
    for made, prompt in zip((first, second), prompts, strict=True):
        fresh = ManualSteps(made.capacity)
        expected.append(made.collect(made.submit(fresh.step({0: prompt}))))
    tickets = [
        made.submit(each.step({0: prompt}))
        for made, each, prompt in zip((first, second), steps, prompts, strict=True)
    ]
    assert [first.collect(tickets[0]), second.collect(tickets[1])] == expected
    assert expected[0] != expected[1]
    first.close()
    assert second.collect(second.submit(steps[1].step({0: [5]}))).tokens
    second.close()


def test_closing_with_steps_in_flight(model: Path) -> None:
    for _ in range(3):
        made = vulkan_executor(model)
        steps = ManualSteps(made.capacity)
        tickets = [made.submit(steps.step({0: [token]})) for token in (5, 6, 7)]
        made.close()
        with pytest.raises(DeviceError, match="closed"):
            made.submit(steps.step({0: [8]}))
    made = vulkan_executor(model)
    with pytest.raises(KeyError):
        made.collect(tickets[0] + 9)
    made.close()


def test_progress_reports_uploaded_weights(model: Path) -> None:
    progress: list[tuple[int, int]] = []
    vulkan_executor(model, progress=lambda *both: progress.append(both)).close()
    assert progress == sorted(progress) and progress[-1][0] == progress[-1][1] > 10**6

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        vulkan_executor(model, progress=stop)


def test_kernels_are_timed_by_the_device(executor: CompiledExecutor) -> None:
    log, steps = CompiledKernelLog(executor), ManualSteps(executor.capacity)
    batch = steps.step({0: range(5, 25)})
    log.start(batch)
    executor.collect(executor.submit(batch))
    found = {use.name: use for use in log.stop()}
    assert found["sample_rows"].calls == 1 and found["embedding"].bytes > 0
    assert sum(use.nanoseconds for use in found.values()) > 0
    if webgpu.devices()[0][0].timestamps:
        assert log.clock == "the device's clock"
    assert log.copy_bandwidth() > 0


def test_a_device_that_is_not_there(model: Path) -> None:
    with pytest.raises(DeviceError, match=r"there is no device 99; there are: 0 = "):
        vulkan_executor(model, handle=DeviceHandle("webgpu", 99))


def test_caches_that_do_not_fit(model: Path) -> None:
    large = replace(capacity_of(model), pools=(2**26,))  # of kilobytes each
    with pytest.raises(CapacityError, match=r"making room for caches") as caught:
        vulkan_executor(model, capacity=large)
    assert type(caught.value) is OutOfMemoryError and "--context" in caught.value.message
    vulkan_executor(model).close()  # the device is none the worse for it


ALONE = """
import sys
from pathlib import Path
from mlcc.device.compiled import webgpu
from mlcc.engine.scheduler.manual_steps import ManualSteps
from mlcc.errors import DeviceError
from mlcc.engine_args import EngineArgs
from mlcc.loader import open_model
executor = open_model(Path(sys.argv[1]), EngineArgs(context=256)).executor
print(type(executor).__name__, sorted({"tvm", "tvm_ffi", "numpy", "wgpu"} & set(sys.modules)))
batches = [ManualSteps(executor.capacity).step({0: [token]}) for token in (5, 6)]
ticket = executor.submit(batches[0])
webgpu.library().webgpu_close(0)
uses = (lambda: executor.submit(batches[1]), lambda: executor.logits(batches[1]),
        lambda: open_model(Path(sys.argv[1]), EngineArgs(context=256)))
for use in uses:
    try:
        use()
    except DeviceError as error:
        print(type(error).__name__, "\\n" in str(error))
executor.close()
"""


def test_a_lost_device_says_so_and_nothing_of_tvms_package_is_needed(model: Path) -> None:
    command = [sys.executable, "-c", ALONE, str(model)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert lines == ["CompiledExecutor []", *["DeviceLostError False"] * 3], done.stderr
