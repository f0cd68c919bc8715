"""The benchmark of a GPU day: packed here, run in a bare environment over the emulated CUDA device
and lavapipe."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.gpu import libraries, pack, replay, stages
from benchmarks.gpu.recorder import KernelRecorder
from benchmarks.models.random_checkpoint import SHAPES
from mlcc.device.tvm import cuda
from mlcc.errors import DeviceLostError
from mlcc_compiler.cuda import build as cuda_build
from mlcc_targets import get_target
from tests.compiler.kernels import test_gpu_elementwise as elementwise
from tests.compiler.kernels.cases import gpu_kernels
from tests.targets.cuda import emulation, test_emulated_kernels
from tools import packages

NO_NETWORK = """\
import sys
def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo"):
        raise RuntimeError(f"the network was asked for: {arguments}")
sys.addaudithook(refuse)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any, emulated: None) -> Path:
    """A packed folder: a tiny shape for both targets, the demo model for Vulkan, two kernels."""
    folder: Path = tmp_path_factory.mktemp("day") / "packed"
    folder.mkdir()
    python = pack.write_runtime(folder, numpy=True)
    with pytest.MonkeyPatch.context() as patch:
        emulation.replace_nvcc(patch)
        libraries.prepare(folder / "cuda", "cuda", ["tiny"], ["q4"], "sm_90", prompts=0)
        _record(folder / "kernels", patch)
    libraries.prepare(folder / "vulkan", "vulkan", ["tiny"], ["q4"], prompts=2)
    pack.describe(folder, python, {"targets": ["cuda", "vulkan"]})
    return folder


def _record(folder: Path, patch: pytest.MonkeyPatch) -> None:
    recorder = KernelRecorder(folder)
    compiled = recorder.watch(test_emulated_kernels.compiled)
    patch.setattr(gpu_kernels, "compiled", lambda f, gpu, arguments: compiled(f, arguments))
    patch.setattr(gpu_kernels, "device", lambda: cuda_build.tvm.device("cuda", 0))
    elementwise.test_gated("silu")
    recorder.keep("gated")
    elementwise.test_rms_norm(test_emulated_kernels.CUDA, 300)
    recorder.keep("rms_norm")
    recorder.write_library("sm_90")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: Any) -> list[str]:
    """A command: a Python with no packages, which refuses the network."""
    home = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    (site,) = home.glob("lib/python*/site-packages")
    (site / "no_network.py").write_text(NO_NETWORK)
    (site / "no_network.pth").write_text("import no_network\n")
    return [str(home / "bin" / "python"), "-m", "benchmarks.gpu", "run", "."]


@pytest.mark.needs("lavapipe")
def test_a_day_in_a_bare_environment(folder: Path, bare: list[str], tmp_path: Path) -> None:
    """Every stage gives its figures; the one whose library is damaged fails alone."""
    row = json.loads((folder / "vulkan" / "tiny-q4.json").read_text())
    (folder / "vulkan" / "damaged.so").write_bytes(b"no library")
    damaged = row | {"name": "0b-q4", "library": "damaged.so"}
    (folder / "vulkan" / "0b-q4.json").write_text(json.dumps(damaged))
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    environment |= {"VK_ICD_FILENAMES": str(packages.LAVAPIPE)}
    environment |= emulation.install(tmp_path / "toolkit")
    command = [*bare, "--quick", "--out", str(tmp_path)]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    found = json.loads((tmp_path / "day.json").read_text())["stages"]
    failed = {name for name, stage in found.items() if stage["rc"]}
    assert failed == {"figures_vulkan_0b-q4", "kernel_times_vulkan_0b-q4"}, done.stderr
    assert done.returncode == 1
    assert "damaged.so" in stages.verdict(found["figures_vulkan_0b-q4"])
    (counts,) = found["kernels"]["rows"]
    assert counts["calls"] >= 2 and counts["bad"] == 0
    assert found["demo_vulkan"]["rows"] == [{"demo": {"equal": 2, "ties": 0, "different": 0}}]
    assert "no peer" in found["torch"]["rows"][0]["torch"]
    for target in ("cuda", "vulkan"):
        device, copied, speeds = found[f"figures_{target}_tiny-q4"]["rows"]
        assert device["device"] and copied["copy_bytes_s"] > 0
        assert speeds["decode_2"] > 0 and speeds["prefill_tok_s"] > 0
        steps = found[f"kernel_times_{target}_tiny-q4"]["rows"]
        assert [s["case"] for s in steps] == ["decode_1", "decode_2", "decode_long", "prefill"]
        assert all(any("attend" in kernel[0] for kernel in step["kernels"]) for step in steps)
        assert f"{target}_tiny-q4" in done.stdout


def test_what_travels(folder: Path) -> None:
    """No compiler, no sources of kernels, nothing for another machine."""
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert "site/tvm/lib/libtvm_runtime.so" in files
    assert "site/tvm/lib/libtvm_runtime_cuda.so" in files
    assert not [f for f in files if "libtvm_compiler" in f or "-kernels/" in f or "/tests/" in f]
    own = sum(
        pack.bytes_of(path) for path in (folder / "site").iterdir() if "numpy" not in str(path)
    )
    assert own < 48e6


def test_a_stage_that_hangs_or_dies_is_told(tmp_path: Path) -> None:
    """Lines that were printed before are kept."""
    text = "import json, os, time; print(json.dumps({'first': 1}), flush=True); "
    hangs = stages.Stage("hangs", 1, [sys.executable, "-c", f"{text}time.sleep(60)"])
    found = stages.run_stage(hangs, tmp_path, 100)
    assert found["rows"] == [{"first": 1}] and found["rc"] and "ended after 1 s" in found["timeout"]
    dies = stages.Stage("dies", 9, [sys.executable, "-c", f"{text}print('{{\"cut'); os.abort()"])
    found = stages.run_stage(dies, tmp_path, 100)
    assert found["rows"] == [{"first": 1}] and found["rc"] == -6
    absent = stages.Stage("absent", 9, [str(tmp_path / "nothing")])
    assert "nothing" in stages.verdict(stages.run_stage(absent, tmp_path, 100))


def test_a_folder_of_another_python_or_none_is_refused(tmp_path: Path) -> None:
    given = argparse.Namespace(folder=tmp_path, out=None)
    with pytest.raises(SystemExit, match="is not packed; type"):
        stages.run(given)
    (tmp_path / "pack.json").write_text('{"python": "2.7"}')
    with pytest.raises(SystemExit, match=r"packed for Python 2.7.*python2.7.*--packages-from"):
        stages.run(given)


@pytest.mark.parametrize("shape", ["1b", "8b"])
def test_bounds_fit_the_target(shape: str) -> None:
    """A step's largest arrays are within the binding, and no bound is smaller than need be."""
    sizes = SHAPES[shape]
    for name, batch, tokens in (("cuda", 64, 2048), ("vulkan", 0, 0)):
        target = get_target(name)
        bounds = libraries.ShapeBounds.of(sizes, target)
        binding = target.limits["storage_binding_bytes"]
        assert bounds.max_batch * (33024 // 128 + 1) * sizes["hidden_size"] * 4 <= binding
        assert bounds.max_step_tokens * sizes["intermediate_size"] * 8 <= binding
        assert bounds.max_batch >= max(8, batch) and bounds.max_step_tokens >= max(512, tokens)


def test_both_kinds_of_products_are_timed(tmp_path: Path) -> None:
    """Those by `wgmma` first; the peer is between them."""
    for name in ("cuda", "cuda_sm_90"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "8b-q4.json").touch()
    given = argparse.Namespace(quick=False, device=None)
    names = [stage.name for stage in stages.stages_of(tmp_path, given)]
    of_each = ["figures_cuda_8b-q4", "torch", "kernel_times_cuda_8b-q4"]
    without = ["figures_cuda_sm_90_8b-q4", "kernel_times_cuda_sm_90_8b-q4"]
    assert names == ["machine", *of_each, *without]


def test_scratch_that_is_hardly_used_is_recorded(tmp_path: Path) -> None:
    """As that of products is, 16 MB of which a few are written."""
    recorder = KernelRecorder(tmp_path)
    cpu = cuda_build.tvm.runtime.tensor
    half, full = np.full(1 << 20, np.nan, np.float32), np.arange(1 << 20, dtype=np.float32)
    filled = recorder.watch(lambda factory, arguments: lambda x: x.copyfrom(full))
    part = recorder.watch(lambda factory, arguments: lambda x: x.copyfrom(written))
    written = half.copy()
    written[:9] = 1
    part(elementwise.test_gated, (1,))(cpu(half))
    filled(elementwise.test_gated, (2,))(cpu(half))
    recorder.keep("both")
    (call,) = recorder._calls
    assert call["changed"] == [0]
    with np.load(tmp_path / "calls" / "c000.npz") as file:
        np.testing.assert_array_equal(file["a0"], written)


# -- replayed calls -------------------------------------------------------------------------------


def _call(kernel: str, before: list[Any], after: dict[int, Any]) -> tuple[Any, Any]:
    arrays = {f"b{i}": a for i, a in enumerate(before)} | {f"a{i}": a for i, a in after.items()}
    return {"kernel": kernel, "sizes": [], "changed": list(after)}, arrays


def test_replayed_calls_are_compared() -> None:
    """Floats by their norm, integers and inputs exactly."""
    x, y = np.arange(8, dtype=np.float32), np.arange(8, dtype=np.int32)
    call, arrays = _call("m.add", [x, 0 * x, 0 * y], {1: x, 2: y})
    assert replay.compare(call, arrays, [x, x * (1 + 1e-4), y])[0] == {}
    assert replay.compare(call, arrays, [x, x * 1.01, y])[0]["error"] == pytest.approx(0.01, 1e-3)
    assert replay.compare(call, arrays, [x, x, y + (y == 3)])[0] == {"unequal": [[2, 1, 8]]}
    assert replay.compare(call, arrays, [x + 1, x, y])[0] == {"input_changed": 0}
    assert replay.compare(call, arrays, [x, x * np.nan, y])[0] == {"error": float("inf")}


def test_words_of_a_workspace_may_be_floats() -> None:
    """Of sampling kernels alone, and small integers among them stay exact."""
    words = np.concatenate([np.float32([1.5, -2.5]).view(np.uint32), np.uint32([7, 0xFFFFFFFF])])
    near = np.concatenate([np.float32([1.5001, -2.5]).view(np.uint32), words[2:]])
    for kernel, faults in (("m.top_logprobs", {}), ("m.add", {"unequal": [[0, 1, 4]]})):
        call, arrays = _call(kernel, [0 * words], {0: words})
        assert replay.compare(call, arrays, [near])[0] == faults
    call, arrays = _call("m.top_logprobs", [0 * words], {0: words})
    assert replay.compare(call, arrays, [words + (words == 7)])[0] == {"unequal": [[0, 1, 4]]}


def test_calls_behind_one_that_loses_the_gpu(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """They are repeated in another process, from the next one on."""
    calls = json.loads((folder / "kernels" / "calls.json").read_text())
    calls[1]["key"] = "absent"
    for name in ("calls", "kernels.so"):
        (tmp_path / name).symlink_to(folder / "kernels" / name)
    (tmp_path / "calls.json").write_text(json.dumps(calls))
    assert replay.replay(tmp_path, 0) == 1
    failed, counts = map(json.loads, capsys.readouterr().out.splitlines())
    assert failed["name"] == "c001" and failed["failed"]
    assert counts["bad"] == 1 and counts["calls"] == len(calls)
    begun: list[int] = []
    monkeypatch.setattr(cuda, "translate", lambda error, doing: DeviceLostError("gone"))
    monkeypatch.setattr(replay, "_in_another_process", lambda f, i, first: begun.append(first) or 0)
    assert replay.replay(tmp_path, 0) == 1 and begun == [2]
