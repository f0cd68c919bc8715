"""Kernels on the device: results, order, grids, and errors that name the kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm

from tests.targets.native import plugin_functions as functions
from tests.targets.native.wgsl_library import (
    Kernel,
    count_groups,
    load,
    module_bytes,
    pointer,
    scale_add,
)


def run(function: Any, x: Any, y: Any, factor: float = 2.0, add: float = 0.0) -> None:
    count = int(np.prod(x.shape))
    function(pointer(x), pointer(y), count, factor, add, -(-count // 64), 64)


def test_a_compiled_kernel_equals_numpy(device: Any, tmp_path: Path) -> None:
    from tvm import te, topi
    from tvm.s_tir import dlight

    n = te.var("n")
    a = te.placeholder((n, 96), "float32", name="a")
    b = te.placeholder((96, 128), "float32", name="b")
    product = te.create_prim_func([a, b, topi.nn.matmul(a, b)])
    target = tvm.target.Target({"kind": "webgpu"}, host="llvm")
    with target:
        scheduled = dlight.ApplyDefaultSchedule(dlight.gpu.Matmul())(
            tvm.IRModule({"product": product.with_attr("global_symbol", "product")})
        )
    library = tmp_path / "product.so"
    tvm.compile(scheduled, target=target).export_library(str(library))
    module = tvm.runtime.load_module(str(library))
    assert functions.prepare(module, 0) == 1

    rng = np.random.default_rng(0)
    right = rng.standard_normal((96, 128)).astype("float32")
    for rows in (1, 33, 64, 0):
        left = rng.standard_normal((rows, 96)).astype("float32")
        out = tvm.runtime.empty((rows, 128), "float32", device)
        module["product"](tvm.runtime.tensor(left, device), tvm.runtime.tensor(right, device), out)
        np.testing.assert_allclose(out.numpy(), left @ right, rtol=1e-4, atol=1e-4)


def test_writes_kernels_copies_and_reads_keep_their_order(device: Any) -> None:
    """A random program on a few tensors, compared with numpy; it waits only where it reads."""
    function = load(scale_add())["scale_add"]
    rng = np.random.default_rng(1)
    count = 5000  # above what goes with the batch: both ways of writing are taken
    small = 300
    expected = [np.zeros(count, np.float32) for _ in range(4)]
    tensors = [tvm.runtime.tensor(values, device) for values in expected]
    for step in range(600):
        i, j = rng.choice(4, 2, replace=False)
        kind = rng.integers(0, 12)
        if kind < 7:
            run(function, tensors[i], tensors[j], 0.5, float(step))
            expected[j] = expected[i] * np.float32(0.5) + np.float32(step)
        elif kind < 9:
            size = count if kind == 7 else small
            values = rng.standard_normal(size).astype(np.float32)
            tvm.runtime.tensor(values).copyto(tensors[i]._create_view((size,)))
            expected[i][:size] = values
        elif kind < 10:
            tensors[i].copyto(tensors[j])
            expected[j] = expected[i].copy()
        elif kind < 11:
            tensors[i] = tvm.runtime.tensor(expected[j], device)  # frees one that may be in use
            expected[i] = expected[j].copy()
        else:
            np.testing.assert_array_equal(tensors[i].numpy(), expected[i])
    for tensor, values in zip(tensors, expected, strict=True):
        np.testing.assert_array_equal(tensor.numpy(), values)


def test_a_batch_is_one_submit(device: Any) -> None:
    function = load(scale_add())["scale_add"]
    x = tvm.runtime.tensor(np.ones(64, np.float32), device)
    y = tvm.runtime.empty((64,), "float32", device)
    run(function, x, y)
    y.numpy()
    before = functions.counts(0)
    for _ in range(60):
        run(function, x, y)
    y.numpy()
    after = functions.counts(0)
    assert after["dispatches"] - before["dispatches"] == 60
    assert after["submits"] - before["submits"] == 1
    assert after["bind_groups"] == before["bind_groups"]


@pytest.mark.parametrize("groups", [1, 65535, 65536, 65537, 131073, 200001])
def test_each_workgroup_of_a_large_grid_runs_once(device: Any, groups: int) -> None:
    function = load(count_groups())["count_groups"]
    seen = tvm.runtime.tensor(np.zeros(groups + 8, np.int32), device)
    function(pointer(seen), groups, 1, 1)
    expected = np.ones(groups + 8, np.int32)
    expected[groups:] = 0  # TVM's own guard lets one workgroup too many through
    np.testing.assert_array_equal(seen.numpy(), expected)


@pytest.mark.parametrize("grid", [(0, 1), (1, 0), (0, 0)])
def test_an_empty_grid_does_nothing(device: Any, grid: tuple[int, int]) -> None:
    function = load(count_groups())["count_groups"]
    seen = tvm.runtime.tensor(np.zeros(8, np.int32), device)
    function(pointer(seen), *grid, 1)
    assert not seen.numpy().any()


def test_a_grid_beyond_the_device_is_refused(device: Any) -> None:
    function = load(count_groups())["count_groups"]
    seen = tvm.runtime.tensor(np.zeros(8, np.int32), device)
    with pytest.raises(RuntimeError, match=r"kernel count_groups: the grid of 1 x 70000 "):
        function(pointer(seen), 1, 70000, 1)


def test_prepare_counts_the_kernels_of_a_library(device: Any) -> None:
    library = load(scale_add("first"), scale_add("second"), count_groups())
    assert functions.prepare(library, 0) == 3


def test_a_kernel_that_does_not_compile_is_named(device: Any) -> None:
    broken = Kernel("broken_one", "fn broken_one() { nonsense }", ["buffer"], [1])
    library = load(broken)
    with pytest.raises(RuntimeError) as caught:
        functions.prepare(library, 0)
    assert functions.fault(caught.value) == "KernelError"
    assert "compiling kernel broken_one" in str(caught.value)
    assert "nonsense" in str(caught.value)  # the compiler's own words
    # The device is none the worse for it.
    test_an_empty_grid_does_nothing(device, (0, 1))
    test_each_workgroup_of_a_large_grid_runs_once(device, 3)


def test_a_kernel_without_its_entry_point_is_named(device: Any) -> None:
    wrong = Kernel("right_name", scale_add("wrong_name").wgsl, ["buffer"] * 2, [0, 1])
    with pytest.raises(RuntimeError, match="compiling kernel right_name"):
        functions.prepare(load(wrong), 0)


def test_one_tensor_read_and_written_is_refused(device: Any) -> None:
    function = load(scale_add())["scale_add"]
    x = tvm.runtime.tensor(np.ones(64, np.float32), device)
    with pytest.raises(RuntimeError, match="kernel scale_add: buffer arguments 0 and 1 are one"):
        run(function, x, x)


def test_a_binding_beyond_the_device_is_refused(device: Any) -> None:
    limit = functions.devices()[0][0].limits["max_storage_binding_bytes"]
    function = load(scale_add())["scale_add"]
    try:
        x = tvm.runtime.empty((limit + 16,), "uint8", device)
    except RuntimeError:
        pytest.skip("this device allocates no buffer beyond its binding limit")
    y = tvm.runtime.empty((64,), "float32", device)
    with pytest.raises(RuntimeError, match=f"scale_add: buffer argument 0 has {limit + 16} bytes"):
        function(pointer(x), pointer(y), 64, 1.0, 0.0, 1, 64)


def test_arguments_that_do_not_fit_are_refused(device: Any) -> None:
    function = load(scale_add())["scale_add"]
    x = tvm.runtime.tensor(np.ones(64, np.float32), device)
    y = tvm.runtime.empty((64,), "float32", device)
    with pytest.raises(RuntimeError, match="kernel scale_add: the integer argument 4294967296"):
        function(pointer(x), pointer(y), 1 << 32, 1.0, 0.0, 1, 64)
    with pytest.raises(RuntimeError, match="kernel scale_add: called with 3 arguments, it has 7"):
        function(pointer(x), pointer(y), 64)
    wide = Kernel("wide", scale_add("wide").wgsl, ["buffer", "buffer", "int64"], [0, 1])
    with pytest.raises(RuntimeError, match="kernel wide: no scalar argument"):
        load(wide)


def test_damaged_modules_are_refused(device: Any) -> None:
    whole = module_bytes(scale_add(), count_groups())
    loader = tvm.get_global_func("ffi.Module.load_from_bytes.webgpu")
    for size in range(0, len(whole), 7):
        with pytest.raises(RuntimeError, match=r"mlcc\.webgpu\.KernelError"):
            loader(whole[:size])


def test_a_module_keeps_its_source(device: Any) -> None:
    library = load(scale_add())
    assert library.kind == "webgpu"
    assert "fn scale_add" in library.inspect_source()
