"""The executor of a CPU: results, several models and threads in a process, and refusals."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcc import loader
from mlcc.artifact.folder import Artifact
from mlcc.artifact.safetensors import TensorEntry
from mlcc.device.check_batch import BadBatchError
from mlcc.device.compiled.executor import CompiledExecutor
from mlcc.device.reference.likelihood import log_likelihood
from mlcc.device.tvm.executor import TvmExecutor
from mlcc.engine import SamplingParams
from mlcc.engine.batch.batch import Batch
from mlcc.engine.scheduler.manual_steps import ManualSteps
from mlcc.errors import ArtifactError, CapacityError, DeviceError
from mlcc.loader import compiled_model, open_executor
from mlcc.util import executor_library
from tests.runtime.device.helpers.demo import answers, capacity_of, cpu_executor, text_of

GREEDY = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)
QUESTIONS = ("How much is 17 + 25?", "The cat and the", "1 + 1 = 2, 2 + 2 =", "a a a a")


@pytest.fixture
def executor(demo: Path) -> Iterator[CompiledExecutor]:
    made = cpu_executor(demo)
    yield made
    made.close()


def first_step(executor: CompiledExecutor, **options: Any) -> Batch:
    return ManualSteps(executor.capacity, 2).step({0: range(9), 1: [5, 6]}, **options)


def test_a_copied_page_is_read_as_the_one_it_was_copied_from(executor: CompiledExecutor) -> None:
    """A prompt's second page is copied, and the sequence goes on over the copy."""
    steps = ManualSteps(executor.capacity)
    executor.collect(executor.submit(steps.step({0: range(3, 23)})))
    plain = steps.step({0: [40]})
    expected = np.array(executor.logits(plain))
    layout = plain.layout
    page, copy = plain.page_list(0)[1], executor.capacity.pools[0] - 1
    words = plain.words
    for i, value in enumerate((0, page, copy)):
        words[layout.copies.offset + i] = value
    words[layout.header.at("copies")] = 1
    words[layout.pages.offset + 1] = copy
    words[layout.tokens.at("slot.0")] += (copy - page) * layout.groups[0].page_size
    assert np.array_equal(executor.logits(plain), expected)
    words[layout.copies.offset + 1] = page - 1  # another one is another prompt
    assert not np.array_equal(executor.logits(plain), expected)


def test_top_logprobs_are_those_of_the_logits(executor: CompiledExecutor) -> None:
    batch = first_step(executor, top_logprobs=3)
    logits = np.array(executor.logits(batch), np.float64)
    result = executor.collect(executor.submit(batch))
    logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    assert result.top_logprobs is not None and len(result.top_logprobs) == 2
    for row, token, found in zip(logprobs, result.tokens, result.top_logprobs, strict=True):
        assert [t for t, _ in found] == np.argsort(-row)[:3].tolist() and found[0][0] == token
        np.testing.assert_allclose([p for _, p in found], np.sort(row)[::-1][:3], atol=1e-4)


def test_likelihoods_are_those_of_the_logits(executor: CompiledExecutor) -> None:
    batch = first_step(executor, every_row=False)
    expected = log_likelihood(np.array(executor.logits(batch)), [7, 300])
    assert abs(executor.log_likelihood(batch, [7, 300]) - expected) < 1e-9
    with pytest.raises(BadBatchError, match="not a target for each row"):
        executor.log_likelihood(batch, [7])


def test_tickets_are_collected_once(executor: CompiledExecutor) -> None:
    ticket = executor.submit(first_step(executor))
    assert len(executor.collect(ticket).tokens) == 2
    for unknown in (ticket, ticket + 1, -1):
        with pytest.raises(KeyError):
            executor.collect(unknown)


def test_a_refused_step_changes_nothing(executor: CompiledExecutor) -> None:
    """The tokens of the step before stay those that a placeholder names."""
    steps = ManualSteps(executor.capacity)
    (token,) = executor.collect(executor.submit(steps.step({0: range(9)}))).tokens
    flying = steps.step({0: [-1]})
    spoiled = flying.words[flying.layout.pages.offset]
    flying.words[flying.layout.pages.offset] = -1
    with pytest.raises(BadBatchError):
        executor.submit(flying)
    flying.words[flying.layout.pages.offset] = spoiled
    expected = np.array(executor.logits(flying))
    flying.words[flying.layout.tokens.at("id")] = token
    assert np.array_equal(executor.logits(flying), expected)


def test_a_closed_executor_says_so(executor: CompiledExecutor) -> None:
    batch = first_step(executor)
    executor.close()
    executor.close()
    with pytest.raises(DeviceError, match="closed"):
        executor.submit(batch)


def test_models_and_threads_do_not_mix(demo: Path) -> None:
    """Three models, each driven by a thread of its own, two of them with kernels on two threads."""
    text = text_of(demo)
    alone = [answers(text, made := cpu_executor(demo), [q], GREEDY) for q in QUESTIONS[:3]]
    made.close()
    executors = [cpu_executor(demo, threads) for threads in (2, 1, 2)]
    with ThreadPoolExecutor(3) as pool:
        found = [
            pool.submit(answers, text, executor, [question], GREEDY)
            for executor, question in zip(executors, QUESTIONS[:3], strict=True)
        ]
        assert [future.result() for future in found] == alone
    for executor in executors:
        executor.close()


def test_any_thread_may_run_the_next_step(demo: Path) -> None:
    made = cpu_executor(demo, 2)
    steps = ManualSteps(made.capacity)
    expected = []
    for i in range(6):
        expected.append(made.collect(made.submit(steps.step({0: [i + 3]}))).tokens[0])
    steps = ManualSteps(made.capacity)
    for token, i in zip(expected, range(6), strict=True):
        with ThreadPoolExecutor(1) as pool:  # another thread each
            ticket = pool.submit(made.submit, steps.step({0: [i + 3]})).result()
        assert made.collect(ticket).tokens == [token]
    made.close()


def test_a_child_of_a_fork_has_threads_of_its_own(demo: Path) -> None:
    made = cpu_executor(demo, 2)
    steps = ManualSteps(made.capacity)
    batch = steps.step({0: range(3, 40)})
    expected = made.collect(made.submit(batch)).tokens
    child = os.fork()
    if child == 0:
        os._exit(made.collect(made.submit(batch)).tokens != expected)
    assert os.waitpid(child, 0)[1] == 0
    assert made.collect(made.submit(batch)).tokens == expected
    made.close()


def test_without_the_library_tvms_package_runs_the_model(
    demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = Artifact.open(shutil.copytree(demo, tmp_path / "demo"))
    monkeypatch.setattr(executor_library, "LIBRARY", tmp_path / "none.so")
    made: Any = open_executor(artifact)
    assert isinstance(made, TvmExecutor)
    assert made.collect(made.submit(first_step(made))).tokens
    made.close()
    monkeypatch.setattr(loader, "is_here", lambda package: False)
    with pytest.raises(DeviceError, match=r"not built; run: python runtime/native"):
        open_executor(artifact)


ALONE = """
import sys
from pathlib import Path
from mlcc.loader import open_model
from mlcc.model.session import Session
session = Session(open_model(Path(sys.argv[1])))
print("".join(session.chat([{"role": "user", "content": sys.argv[2]}], {"temperature": 0})))
print(sorted({"tvm", "tvm_ffi", "numpy", "torch"} & set(sys.modules)))
"""


def test_neither_tvm_nor_numpy_is_imported(demo: Path) -> None:
    command = [sys.executable, "-c", ALONE, str(demo), QUESTIONS[0]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "17 + 25 = 42\n[]\n", done.stderr


def opened(demo: Path, library: Path, **changes: Any) -> CompiledExecutor:
    """The demo model, of another library or with other arguments."""
    capacity = changes.pop("capacity", None) or capacity_of(demo)
    model = replace(compiled_model(Artifact.open(demo)), library=library, interface=None)
    return CompiledExecutor(replace(model, **changes), capacity)


def foreign(data: bytes) -> bytes:
    other = 183 if struct.unpack_from("<H", data, 18)[0] == 62 else 62
    return data[:18] + struct.pack("<H", other) + data[20:]


BROKEN = {
    "another CPU": (foreign, r"is a library for (aarch64|x86_64), and this process runs on"),
    "truncated": (lambda data: data[: len(data) // 2], "is truncated"),
    "a byte short": (lambda data: data[:-1], "is truncated"),
    "empty": (lambda data: b"", "is truncated"),
    "text": (lambda data: b"hello " * 100, "is no library of this system"),
    "an object": (lambda data: data[:16] + b"\1\0" + data[18:], "is no library of this system"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_file_that_is_no_library_for_this_process(demo: Path, tmp_path: Path, case: str) -> None:
    spoil, reason = BROKEN[case]
    library = tmp_path / "model.so"
    library.write_bytes(spoil((demo / "model.so").read_bytes()))
    with pytest.raises(DeviceError, match=rf"cannot load model\.so: .*{reason}") as caught:
        opened(demo, library)
    assert "compile the model again" in caught.value.message


def test_a_library_compiled_before_it_raised_errors_by_itself(demo: Path, tmp_path: Path) -> None:
    """The library needs a function under a name that no runtime has any more."""
    data = (demo / "model.so").read_bytes()
    library = tmp_path / "model.so"
    library.write_bytes(data.replace(b"\0memcpy\0", b"\0mlccpy\0"))
    with pytest.raises(DeviceError, match="undefined symbol: mlccpy; compile the model again"):
        opened(demo, library)


def test_what_a_library_lacks_is_named(demo: Path, tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="no function 'fly'"):
        opened(demo, demo / "model.so", functions=("forward", "fly"))
    with pytest.raises(DeviceError, match="cannot be read"):
        opened(demo, tmp_path / "model.so")
    libm = next(Path("/lib").glob("*/libm.so.6"))
    with pytest.raises(DeviceError, match="cannot load"):
        opened(demo, shutil.copyfile(libm, tmp_path / "model.so"))


def test_another_manifests_library(demo: Path) -> None:
    with pytest.raises(ArtifactError, match=r"was compiled for another mlcc\.json .*it says"):
        opened(demo, demo / "model.so", interface="of another day")


def test_an_error_of_the_library_is_raised(demo: Path) -> None:
    """Its functions check caches and the arrays of a step. Weights are checked where they are
    located (`mlcc.artifact.folder`)."""
    caches = compiled_model(Artifact.open(demo)).caches
    wider = [
        replace(cache, tensors=tuple(replace(t, dtype="float32") for t in cache.tensors))
        for cache in caches
    ]
    executor = opened(demo, demo / "model.so", caches=wider)
    with pytest.raises(DeviceError, match=r"failed while computing a step: .*float16"):
        executor.submit(first_step(executor))
    executor.close()


def entry(path: Path, shape: tuple[int, ...] = (4,), start: int = 0) -> TensorEntry:
    return TensorEntry(path, "w", "float32", shape, start, start + 16)


def test_weights_that_are_not_where_they_were(demo: Path, tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_bytes(bytes(16))
    library = demo / "model.so"
    for wrong, reason in (
        (entry(tmp_path / "none"), "none cannot be mapped .No such file"),
        (entry(tmp_path), "cannot be mapped"),
        (entry(short, (5,)), "ends before a weight does"),
        (entry(short, start=4), "ends before a weight does"),
        (entry(short, start=2**63), "ends before a weight does"),
    ):
        with pytest.raises(ArtifactError, match=reason):
            opened(demo, library, weights=[wrong])
    opened(demo, library, weights=[entry(short)]).close()
    with pytest.raises(BadBatchError, match="no memory holds"):
        opened(demo, library, weights=[entry(short, (2**40, 2**40))])


def test_caches_that_do_not_fit(demo: Path) -> None:
    large = replace(capacity_of(demo), pools=(2**26,))  # of kilobytes each
    with pytest.raises(CapacityError, match=r"no memory for caches .*; use a smaller --context"):
        opened(demo, demo / "model.so", capacity=large)
