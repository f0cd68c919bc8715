"""The list of devices, typed errors, and times of kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm

from tests.targets.native import plugin_functions as functions
from tests.targets.native.wgsl_library import (
    WITHOUT_TORCH,
    count_groups,
    load,
    pointer,
    scale_add,
)


def python(code: str, **environment: str) -> str:
    """The output of a new Python process that runs `code`."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH + code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TVM_USE_RUNTIME_LIB": "1", **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_devices_are_described(device: Any) -> None:
    found, reason = functions.devices()
    assert found and not reason
    for index, one in enumerate(found):
        assert one.index == index
        assert one.name and one.backend in ("vulkan", "metal")
        assert one.type in ("discrete", "integrated", "other", "cpu")
        assert one.software == (one.type == "cpu") == ("software" in str(one))
        assert one.limits["max_storage_binding_bytes"] >= 128 << 20
        assert one.limits["workgroup_invocations"] >= 256
        assert one.limits["workgroup_bytes"] >= 16384
        assert one.limits["storage_buffers_per_stage"] >= 8
    ranks = [("discrete", "integrated", "other", "cpu").index(one.type) for one in found]
    assert ranks == sorted(ranks)


def test_tvm_sees_the_same(device: Any) -> None:
    first = functions.devices()[0][0]
    assert device.exist and device.device_name == first.name
    assert device.max_threads_per_block == first.limits["workgroup_invocations"]
    assert device.max_shared_memory_per_block == first.limits["workgroup_bytes"]
    assert not tvm.device("webgpu", 99).exist


def test_a_device_that_is_not_there_is_refused_with_those_that_are(device: Any) -> None:
    name = functions.devices()[0][0].name
    with pytest.raises(RuntimeError) as caught:
        tvm.runtime.empty((4,), "float32", tvm.device("webgpu", 99))
    assert f"there is no device 99; there are: 0 = {name}" in str(caught.value)


def test_a_buffer_that_does_not_fit_is_out_of_memory(device: Any) -> None:
    most = functions.devices()[0][0].limits["max_buffer_bytes"]
    with pytest.raises(RuntimeError) as caught:
        tvm.runtime.empty((most + 1,), "uint8", device)
    assert functions.fault(caught.value) == "OutOfMemory"


LOST = """
import sys
sys.path.insert(0, {tests!r})
import numpy as np, tvm
from tests.targets.native import plugin_functions as functions
from tests.targets.native.wgsl_library import load, pointer, scale_add
device = tvm.device("webgpu", 0)
function = load(scale_add())["scale_add"]
x, y = (tvm.runtime.tensor(np.ones(64, np.float32), device) for _ in range(2))
call = lambda: function(pointer(x), pointer(y), 64, 1.0, 0.0, 1, 64)
call()
tvm.get_global_func("mlcc.webgpu.close")(0)
uses = (call, y.numpy, lambda: x.copyto(y), device.sync,
        lambda: tvm.runtime.empty((9999,), "float32", device),
        lambda: functions.prepare(load(scale_add("other")), 0))
for use in uses:
    try:
        use()
    except RuntimeError as error:
        print(functions.fault(error))
del x, y  # freeing on a lost device is no error
"""


def test_each_use_of_a_lost_device_says_so(device: Any) -> None:
    printed = python(LOST.format(tests=str(Path(__file__).parents[3])))
    assert printed.split() == ["DeviceLost"] * 6


DEVICES = "import tvm; print(tvm.get_global_func('mlcc.webgpu.devices')())"


def test_without_a_driver_tvm_imports_and_there_are_no_devices(plugin: None) -> None:
    printed = python(DEVICES, VK_ICD_FILENAMES="/nowhere.json", VK_DRIVER_FILES="/nowhere.json")
    assert '"devices":[]' in printed and "no Vulkan driver" in printed


def test_without_wgpu_tvm_imports_and_the_reason_is_given(plugin: None) -> None:
    code = (
        "import importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'wgpu' else find(name, *a)\n"
        f"{DEVICES}"
    )
    assert "the Python package `wgpu` is missing" in python(code)


@pytest.mark.parametrize("runtime_only", ["0", "1"])
def test_importing_tvm_looks_for_no_device(plugin: None, runtime_only: str) -> None:
    code = (
        "import tvm; maps = open('/proc/self/maps').read()\n"
        "assert 'libmlcc_webgpu' in maps and 'wgpu_native' not in maps and 'vulkan' not in maps\n"
        "assert tvm.get_global_func('device_api.webgpu', allow_missing=True)"
    )
    python(code, TVM_USE_RUNTIME_LIB=runtime_only)


@pytest.mark.parametrize("by_wall_clock", [False, True])
def test_the_profile_counts_each_kernel(device: Any, by_wall_clock: bool) -> None:
    library = load(scale_add(), count_groups())
    x = tvm.runtime.tensor(np.ones(64, np.float32), device)
    y = tvm.runtime.empty((64,), "float32", device)
    seen = tvm.runtime.tensor(np.zeros(200, np.int32), device)

    def work(times: int) -> None:
        for _ in range(times):
            library["scale_add"](pointer(x), pointer(y), 64, 2.0, 1.0, 1, 64)
        library["count_groups"](pointer(seen), 200, 1, 1)

    functions.profile_start(0, by_wall_clock=by_wall_clock)
    work(times=150)
    profile = functions.profile_stop(0)
    assert {k.name: k.count for k in profile.kernels} == {"scale_add": 150, "count_groups": 1}
    assert all(0 < k.total_ns < 10**10 for k in profile.kernels)
    assert profile.device == functions.devices()[0][0].name
    timestamps = functions.devices()[0][0].timestamps and not by_wall_clock
    assert profile.clock.startswith("timestamp" if timestamps else "wall time")
    assert (y.numpy() == 3).all()

    work(times=3)  # not watched
    functions.profile_start(0)
    assert functions.profile_stop(0).kernels == ()
