"""Tensors to the device and back: every size, every offset, in order."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.targets.native import plugin_functions as functions
from tests.targets.native.wgsl_library import WITHOUT_TORCH

SIZES = [0, 1, 2, 3, 4, 5, 255, 256, 257, 16384, 16385, 65537, 9_000_001]


@pytest.mark.parametrize("size", SIZES)
def test_round_trip(device: Any, size: int) -> None:
    sent = np.random.default_rng(size).integers(0, 255, size, np.uint8)
    assert (tvm.runtime.tensor(sent, device).numpy() == sent).all()


@pytest.mark.parametrize("dtype", ["int8", "float16", "int32", "float32", "int64", "float64"])
def test_types(device: Any, dtype: str) -> None:
    sent = np.arange(35).reshape(5, 7).astype(dtype)
    assert (tvm.runtime.tensor(sent, device).numpy() == sent).all()


def test_copies_between_tensors(device: Any) -> None:
    for size in SIZES:
        sent = np.random.default_rng(size).integers(0, 255, size, np.uint8)
        source = tvm.runtime.tensor(sent, device)
        target = tvm.runtime.empty((size,), "uint8", device)
        source.copyto(target)
        assert (target.numpy() == sent).all()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40), st.booleans()),
        max_size=8,
    )
)
def test_views_at_any_offset(device: Any, steps: list[tuple[int, int, int, bool]]) -> None:
    """Writes and copies of odd sizes at odd offsets touch the bytes they name, and no other."""
    expected = np.arange(80, dtype=np.uint8)
    tensor = tvm.runtime.tensor(expected, device)
    for source, target, size, on_device in steps:
        data = np.full(size, target, np.uint8)
        if on_device:
            data = expected[source : source + size].copy()
            view = tensor._create_view((size,), "uint8", source)
        else:
            view = tvm.runtime.tensor(data)
        view.copyto(tensor._create_view((size,), "uint8", target))
        expected[target : target + size] = data
    assert (tensor.numpy() == expected).all()


def test_reused_memory_holds_what_was_written_last(device: Any) -> None:
    kept = [tvm.runtime.tensor(np.full(1000, i, np.int32), device) for i in range(5)]
    for i in range(200):
        kept[i % 5] = tvm.runtime.tensor(np.full(1000, i, np.int32), device)
        assert (kept[(i + 1) % 5].numpy() == kept[(i + 1) % 5].numpy()[0]).all()
    assert sorted(int(t.numpy()[0]) for t in kept) == list(range(195, 200))


def test_small_writes_cost_no_submit(device: Any) -> None:
    host = tvm.runtime.tensor(np.arange(16, dtype=np.int32))
    tensors = [tvm.runtime.empty((16,), "int32", device) for _ in range(13)]
    tensors[0].numpy()
    before = functions.counts(0)
    for tensor in tensors:
        host.copyto(tensor)
    tensors[-1].numpy()
    after = functions.counts(0)
    assert after["submits"] - before["submits"] == 1
    assert after["small_writes"] - before["small_writes"] == 13


def test_freed_buffers_are_used_again(device: Any) -> None:
    tvm.runtime.tensor(np.zeros(777, np.int32), device)
    before = functions.counts(0)
    for _ in range(50):
        tvm.runtime.tensor(np.zeros(777, np.int32), device)
    after = functions.counts(0)
    assert after["buffers_created"] == before["buffers_created"]
    assert after["used_bytes"] == before["used_bytes"]


def test_large_memory_goes_back_at_once(device: Any) -> None:
    before = functions.counts(0)
    for _ in range(20):
        tvm.runtime.empty((300 << 20,), "uint8", device)
    after = functions.counts(0)
    assert after["used_bytes"] == before["used_bytes"]
    assert after["kept_bytes"] <= 256 << 20


UPLOAD = """
import resource, numpy as np, tvm
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
device = tvm.device("webgpu", 0)
tvm.runtime.tensor(np.zeros(100 << 20, np.uint8)[: 1 << 20], device).numpy()
data = np.arange(64 << 20, dtype=np.int32)
before = peak()
tensor = tvm.runtime.tensor(data, device)
print(peak() - before)
back = tensor._create_view((1000,), "int32", data.nbytes - 4000).numpy()
assert (back == data[-1000:]).all()
"""


def test_a_large_upload_takes_its_size_once(device: Any) -> None:
    """256 MiB; a software device's memory is the process's own, so the tensor itself counts."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH + UPLOAD], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 256 + 80
