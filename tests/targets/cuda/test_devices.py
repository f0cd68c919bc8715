"""The list of NVIDIA GPUs, the libraries that they run, and translated errors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlcc.device.select import compile_flags
from mlcc.device.tvm import cuda
from mlcc.errors import CapacityError, DeviceError, DeviceLostError
from tests.targets.cuda import emulation

H100 = cuda.CudaDevice(0, "NVIDIA H100", "9.0", 80 << 30, 79 << 30, 132)
BOTH = ("sm_80", "sm_90")


@pytest.mark.usefixtures("emulated")
def test_devices_are_described() -> None:
    emulation.device()
    (found,), reason = cuda.devices()
    assert reason == "" and found.name == "emulated on the CPU"
    assert found.memory_bytes == 4 << 30 and 0 < found.free_bytes <= found.memory_bytes
    assert str(found) == "0: emulated on the CPU (4 GB, sm_90)"


@pytest.mark.usefixtures("emulated")
def test_a_first_run_compiles_for_the_card() -> None:
    """An H100's or H200's sm_90a is a choice, until a card has run its kernels."""
    emulation.device()
    assert compile_flags("cuda", None) == ("--arch", "sm_90")
    assert replace(H100, compute="8.9").arch == "sm_89"


@pytest.mark.parametrize(
    ("compute", "archs", "runs"),
    [
        ("9.0", BOTH, True),
        ("8.0", BOTH, True),
        ("8.9", BOTH, True),  # the code of sm_80
        ("12.0", BOTH, True),  # the PTX of sm_80
        ("7.5", BOTH, False),
        ("8.0", ("sm_86", "sm_90"), False),
        ("8.9", ("sm_90",), False),
        ("7.5", (), True),
        ("9.0", ("sm_90a",), True),
        ("8.9", ("sm_90a",), False),
        ("10.0", ("sm_90a",), False),  # it has no PTX that others run
    ],
)
def test_which_libraries_run(compute: str, archs: tuple[str, ...], runs: bool) -> None:
    device = replace(H100, compute=compute)
    reason = device.cannot_run(archs)
    assert (reason == "") == runs
    if not runs:
        assert f"--arch sm_{compute.replace('.', '')}" in reason and archs[0] in reason


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("CUDA Error: cudaErrorMemoryAllocation (2): out of memory", CapacityError),
        ("CUDA Error: cudaErrorIllegalAddress (700): an illegal memory access", DeviceLostError),
        ("CUDAError: cuModuleLoadData(...) failed with error: NO_BINARY_FOR_GPU", DeviceError),
    ],
)
def test_errors_have_types(text: str, kind: type[Exception]) -> None:
    error = cuda.translate(RuntimeError(f"trace\n{text}"), "computing a step")
    assert type(error).__mro__.index(kind) <= 1 and "computing a step" in str(error)
