"""A CUDA library made without a GPU: its contents, and loading it in the runtime.

The driver is a replacement whose functions all return "no device", so nothing is computed here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mlcc.util.file_cache import KERNELS
from mlcc_compiler.cuda import code as cuda_code
from mlcc_compiler.cuda import nvrtc as cuda_nvrtc
from mlcc_compiler.cuda.build import cuda_code_in, stand_in
from mlcc_compiler.ir._tvm import tvm
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.elementwise import activation, norm
from mlcc_compiler.pipeline import tvm_target_of
from mlcc_targets import Choices, Target, TargetError, get_target
from tests.targets.cuda.fat_binary import entries

needs_nvcc = pytest.mark.usefixtures("nvcc")
ARCHS = ("sm_80", "sm_90")


def row(*archs: str) -> Target:
    return get_target("cuda", Choices(archs=archs))


def test_architectures_are_sorted_and_known() -> None:
    assert row("sm_90", "sm_80", "sm_90").archs == ARCHS
    assert row().archs[-1] == "sm_90"
    assert row("sm_90a", "sm_90a").archs == ("sm_90a",)
    with pytest.raises(TargetError, match=r"sm_90a runs on no other .*--arch sm_90a by itself"):
        row("sm_80", "sm_90a")
    with pytest.raises(TargetError, match=r"unknown architecture 'sm_91'; use --arch .*sm_90"):
        row("sm_80", "sm_91")
    with pytest.raises(TargetError, match="--no-f16"):
        get_target("cuda", Choices(f16=False))


@pytest.fixture(scope="module", autouse=True)
def no_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The user's cache has what a former run of these tests compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def built(nvcc: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with kernels.so, kernels.cu and kernels.txt."""
    folder, target = tmp_path_factory.mktemp("cuda"), row(*ARCHS)
    gpu = Gpu.of(target)
    kernels = {
        "add": activation.add(gpu, (96,), (96,)),
        "norm": norm.rms_norm(gpu, (300,), (300,), 1e-5, 0.0),
    }
    functions = {name: k.with_attr("global_symbol", name) for name, k in kernels.items()}
    described = tvm_target_of(target)
    with cuda_code_in(target, folder) as made, described:
        tvm.compile(tvm.IRModule(functions), target=described).export_library(folder / "kernels.so")
    assert len(made) == 1
    return folder


def test_every_architecture_is_in_the_library(built: Path) -> None:
    found = dict(entries((built / "kernels.so").read_bytes()))
    assert set(found) == {"sm_80", "sm_90", "ptx_80"}
    for arch in ARCHS:
        assert found[arch].startswith(b"\x7fELF")
        assert b"add_kernel" in found[arch] and b"norm_kernel" in found[arch]


def test_registers_are_reported(built: Path) -> None:
    lines = (built / "kernels.txt").read_text().splitlines()[1:]
    rows = {tuple(line.split()[:2]): [int(n) for n in line.split()[2:]] for line in lines}
    assert set(rows) == {(k, a) for k in ("add_kernel", "norm_kernel") for a in ARCHS}
    for registers, spilled, _ in rows.values():
        assert 0 < registers < 64 and spilled == 0
    assert rows["norm_kernel", "sm_90"][2] > 0  # its workgroup memory
    assert "norm_kernel" in (built / "kernels.cu").read_text()


LOAD = """
import sys
from mlcc.device.tvm import cuda
from mlcc.device.tvm.runtime import runtime, open_device
found, reason = cuda.devices()
print(found, reason, sep="|")
module = runtime().runtime.load_module(sys.argv[1])
print(module["add"] is not None, [m.kind for m in module.imports], "tvm_compiler" in
      runtime().base._LOADED_LIBS, sep="|")
"""


def in_runtime_mode(
    script: str, *arguments: str, path: str = ""
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TVM_USE_RUNTIME_LIB": "1", "LD_LIBRARY_PATH": path}
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_the_runtime_loads_it_without_a_compiler(built: Path, tmp_path: Path) -> None:
    folder = stand_in(tmp_path).parent
    done = in_runtime_mode(LOAD, str(built / "kernels.so"), path=str(folder))
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith("[]|") and "no GPU" in first
    assert second == "True|['cuda']|False"


@pytest.mark.feature("server", "cuda", "refused")
@pytest.mark.feature("profile", "cuda", "refused")
def test_without_a_driver_the_runtime_says_so(record_property: Any) -> None:
    done = in_runtime_mode(
        "from mlcc.device.tvm import cuda; print(cuda.devices()); cuda.load_cuda()"
    )
    if "libcuda.so.1" not in done.stdout:
        pytest.skip("this machine has NVIDIA's driver")
    assert "DeviceError: NVIDIA's driver (libcuda.so.1) is not on this machine" in done.stderr
    record_property("refusal", done.stderr.splitlines()[-1].partition("DeviceError: ")[2])


@needs_nvcc
def test_what_is_cached_is_not_compiled_again(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (built / "kernels.cu").read_text()
    with monkeypatch.context() as patch:
        patch.setattr(cuda_code, "_nvcc", None)
        again = cuda_code.compile_cuda(text, ARCHS)
    assert dict(entries(again.binary)) == dict(entries((built / "kernels.so").read_bytes()))
    assert {(k.kernel, k.arch) for k in again.kernels} == {
        (kernel, arch) for kernel in ("add_kernel", "norm_kernel") for arch in ARCHS
    }
    (entry,) = KERNELS.folder().iterdir()
    entry.write_bytes(entry.read_bytes()[:-1])
    with monkeypatch.context() as patch:
        patch.setattr(cuda_code, "_nvcc", lambda *_: (b"compiled", ""))
        assert cuda_code.compile_cuda(text, ARCHS).binary == b"compiled"


@needs_nvcc
def test_architectures_are_part_of_the_key() -> None:
    assert cuda_code.cuda_compiler(ARCHS) != cuda_code.cuda_compiler(ARCHS[:1])


@needs_nvcc
def test_a_fault_in_the_text_is_one_line() -> None:
    with pytest.raises(TargetError, match=r"nvcc failed .*kernels\.cu\(1\): error"):
        cuda_code.compile_cuda("__global__ void f() { nonsense; }", ARCHS)


@pytest.mark.skipif(
    not cuda_nvrtc.available(), reason="needs nvidia-cuda-nvrtc: pip install mlcc[cuda]"
)
def test_nvrtc_makes_code_for_one_architecture(
    built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_code, "toolkit", lambda: None)
    assert cuda_code.missing(["sm_90"]) == ""
    assert "--arch sm_90" in cuda_code.missing(ARCHS)
    made = cuda_code.compile_cuda((built / "kernels.cu").read_text(), ["sm_90"])
    assert made.binary.startswith(b"\x7fELF") and b"norm_kernel" in made.binary
    assert {k.kernel for k in made.kernels} == {"add_kernel", "norm_kernel"}
    with pytest.raises(TargetError, match=r"nvrtc failed .*error"):
        cuda_code.compile_cuda("__global__ void f() { nonsense; }", ["sm_90"])


def test_without_any_compiler_the_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_code, "toolkit", lambda: None)
    monkeypatch.setattr(cuda_nvrtc, "available", lambda: False)
    assert cuda_code.missing(ARCHS) == 'neither nvcc nor nvrtc is here; pip install "mlcc[cuda]"'
