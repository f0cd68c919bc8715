"""Reads that do not wait for later commands: in order, with one submit, and reused memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm

from tests.targets.native import plugin_functions as functions
from tests.targets.native.wgsl_library import load, pointer, scale_add

LARGE = 4 << 20


@pytest.fixture(scope="module")
def kernel(device: Any) -> Any:
    return load(scale_add(threads=256))["scale_add"]


def tensor(values: Any, dtype: str, device: Any) -> Any:
    return tvm.runtime.tensor(np.asarray(values, dtype), device)


def read(*tensors: Any) -> Callable[[], list[list[Any]]]:
    """Start to copy tensors; returns the function that waits for their values."""
    finish = functions.start_read(tensors)
    kinds = [(tensor.dtype, tensor.shape[0]) for tensor in tensors]

    def values() -> list[list[Any]]:
        data, at, found = finish(), 0, []
        for dtype, count in kinds:
            part = np.frombuffer(data, dtype, count, at)
            found.append(part.tolist())
            at += part.nbytes
        return found

    return values


def test_values_are_those_of_the_moment(device: Any) -> None:
    """Reads of several tensors at once, one of them a view, one empty; overwritten after the
    read."""
    ids = tensor([7, -8, 9], "int32", device)
    floats = tensor(np.arange(6) / 4, "float32", device)
    empty = tvm.runtime.empty((0,), "int32", device)
    first = read(ids, empty, floats._create_view((2,), "float32", 8))
    ids.copyfrom(np.zeros(3, np.int32))
    second = read(ids)
    assert second() == [[0, 0, 0]]
    assert first() == [[7, -8, 9], [], [0.5, 0.75]]


def test_a_read_waits_for_nothing_behind_it(device: Any, kernel: Any) -> None:
    """Work is queued before both reads, so that both are pending when the first is waited for, and
    enough after them that no driver has finished it."""
    small = tensor([1.5], "float32", device)
    x, y = (tvm.runtime.empty((LARGE,), "float32", device) for _ in range(2))

    def work(times: int) -> None:
        for _ in range(times):
            kernel(pointer(x), pointer(y), LARGE, 1.0, 0.0, LARGE // 256, LARGE // 256)

    before = functions.counts(0)
    work(3)
    first = read(small)
    work(8)
    second = read(small)
    assert first() == [[1.5]]
    after = functions.counts(0)
    assert after["reads_started"] - before["reads_started"] == 2
    assert after["reads_arrived"] - before["reads_arrived"] == 1
    assert second() == [[1.5]]
    assert functions.counts(0)["reads_arrived"] - before["reads_arrived"] == 2


def test_waiting_submits_nothing_and_memory_is_used_again(device: Any) -> None:
    ids = tensor(range(8), "int32", device)
    [read(ids)() for _ in range(2)]
    for _ in range(20):
        one, other = read(ids), read(ids)
        before = functions.counts(0)["submits"]
        assert one() == other() == [[*range(8)]]
        assert functions.counts(0)["submits"] == before
    finish = functions.start_read([ids])
    finish()
    with pytest.raises(RuntimeError, match="finished before"):
        finish()


def test_an_unfinished_read_is_forgotten(device: Any) -> None:
    ids = tensor(range(8), "int32", device)
    for _ in range(200):
        read(ids)
    assert read(ids)() == [[*range(8)]]


def test_what_cannot_be_read_so_is_refused(device: Any) -> None:
    with pytest.raises(RuntimeError, match="whole words"):
        functions.start_read([tensor([1, 2, 3], "int8", device)])
    with pytest.raises(RuntimeError, match="nothing to read"):
        functions.start_read([])
    with pytest.raises(RuntimeError, match="of this plugin's devices"):
        functions.start_read([tensor([1], "int32", tvm.cpu())])
