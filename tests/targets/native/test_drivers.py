"""Another driver, and two at once: the same tests, and copies between devices."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.targets.native.wgsl_library import WITHOUT_TORCH
from tools.packages import LAVAPIPE, SWIFTSHADER

HERE = Path(__file__).parent
pytestmark = pytest.mark.needs("chromium")


def python(*arguments: str, drivers: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "VK_ICD_FILENAMES": drivers, "TVM_USE_RUNTIME_LIB": "1"},
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done.stdout


def test_swiftshader_passes_the_same_tests(device: Any) -> None:
    files = [str(HERE / name) for name in ("test_tensors.py", "test_kernels.py")]
    choice = "not equals_numpy and not its_size"
    options = ("-q", "-p", "no:cacheprovider", "-k", choice)
    code = f"{WITHOUT_TORCH}import pytest; sys.exit(pytest.main(sys.argv[1:]))"
    python("-c", code, *options, *files, drivers=str(SWIFTSHADER))


TWO = """
import sys
sys.path.insert(0, {tests!r})
import numpy as np, tvm
from tests.targets.native.wgsl_library import load, pointer, scale_add
from tests.targets.native import plugin_functions as functions
found, _ = functions.devices()
assert len(found) == 2 and all(one.software for one in found)
first, second = tvm.device("webgpu", 0), tvm.device("webgpu", 1)
assert first.device_name != second.device_name
data = np.arange(5_000_001, dtype=np.uint32)
here = tvm.runtime.tensor(data, first)
there = tvm.runtime.empty(data.shape, "uint32", second)
here.copyto(there)
assert (there.numpy() == data).all()
function = load(scale_add())["scale_add"]
for device in (first, second):
    x, y = (tvm.runtime.tensor(np.ones(64, np.float32), device) for _ in range(2))
    function(pointer(x), pointer(y), 64, 2.0, 1.0, 1, 64)
    assert (y.numpy() == 3).all()
try:
    function(pointer(tvm.runtime.tensor(data, first)), pointer(y), 64, 2.0, 1.0, 1, 64)
except RuntimeError as error:
    assert "kernel scale_add: its tensors are on different devices" in str(error)
else:
    raise AssertionError
"""


@pytest.mark.needs("lavapipe")
def test_two_devices_at_once(device: Any) -> None:
    code = TWO.format(tests=str(HERE.parents[2]))
    python("-c", WITHOUT_TORCH + code, drivers=os.pathsep.join(map(str, (LAVAPIPE, SWIFTSHADER))))
