"""The row `vulkan`: what it assumes of a GPU, and GPUs that have less."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlcc.artifact.folder import Artifact
from mlcc.artifact.schema import TargetInfo
from mlcc.device import select
from mlcc.device.compiled import webgpu
from mlcc.errors import DeviceError
from mlcc_compiler.artifact.describe import target_info
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, TargetError, get_target
from mlcc_targets.wgsl import DESKTOP, LIMITS
from tests.runtime.commands.tiny_checkpoint import write_checkpoint
from tools import packages

DESKTOP_GPU = webgpu.WebGpuDevice(
    index=0,
    name="a desktop GPU",
    vendor="AMD",
    driver="RADV",
    backend="vulkan",
    type="discrete",
    software=False,
    f16=True,
    subgroups=True,
    subgroup_min=32,
    subgroup_max=64,
    timestamps=True,
    limits={
        "max_storage_binding_bytes": 2**31 - 1,
        "workgroup_bytes": 65536,
        "workgroup_invocations": 1024,
    },
)
LAVAPIPE = replace(
    DESKTOP_GPU,
    name="llvmpipe",
    limits={**DESKTOP_GPU.limits, "max_storage_binding_bytes": 128 << 20},
)
SMALL = replace(
    LAVAPIPE, name="V3D", f16=False, limits={**LAVAPIPE.limits, "workgroup_bytes": 16384}
)


def test_the_row_assumes_more_than_webgpu() -> None:
    row, least = get_target("vulkan"), get_target("vulkan", Choices(webgpu_limits=True))
    assert row.limits == DESKTOP and least.limits == LIMITS == get_target("webgpu").limits
    assert all(DESKTOP[name] >= LIMITS[name] for name in LIMITS)
    assert "least_subgroup" in DESKTOP and "least_subgroup" not in LIMITS
    for name in ("cuda", "webgpu", "cpu"):
        with pytest.raises(TargetError, match="no choice of limits; leave out --webgpu-limits"):
            get_target(name, Choices(webgpu_limits=True))


@pytest.mark.parametrize(
    "device, flags",
    [
        (DESKTOP_GPU, ()),
        (LAVAPIPE, ("--webgpu-limits",)),
        (replace(DESKTOP_GPU, subgroup_min=4), ("--webgpu-limits",)),
        (SMALL, ("--no-f16", "--webgpu-limits")),
    ],
)
def test_a_compile_for_this_machine_assumes_what_its_gpu_has(
    device: Any, flags: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webgpu, "devices", lambda: ([device], ""))
    assert select.compile_flags("vulkan", None) == flags


def _described(largest: int, **choices: bool) -> TargetInfo:
    return target_info(get_target("vulkan", Choices(**choices)), largest)


def test_a_gpu_that_has_less_than_a_library_needs_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def opened(device: Any, target: TargetInfo) -> str:
        monkeypatch.setattr(webgpu, "devices", lambda: ([device], ""))
        try:
            select.select_device(target, None)
        except DeviceError as error:
            return error.message
        return ""

    assert opened(DESKTOP_GPU, _described(1 << 30)) == ""
    assert opened(LAVAPIPE, _described(128 << 20)) == ""
    assert opened(LAVAPIPE, _described(200 << 20)) == (
        "llvmpipe allows storage binding bytes up to 134217728, the model needs 209715200; "
        "compile it again with --webgpu-limits, or use another --device"
    )
    f32 = replace(SMALL, f16=True)
    assert "workgroup bytes up to 16384, the model needs 32768; compile it again" in opened(
        f32, _described(4096)
    )
    assert opened(f32, _described(4096, webgpu_limits=True)) == ""
    few = replace(DESKTOP_GPU, subgroup_min=4)
    assert opened(few, _described(4096)) == (
        "a desktop GPU has subgroups of 4 threads, the model needs 8; "
        "compile it again with --webgpu-limits, or use another --device"
    )
    assert opened(replace(few, subgroup_min=8), _described(4096)) == ""
    threads = replace(few, limits={**few.limits, "workgroup_invocations": 128})
    assert "workgroup invocations up to 128, the model needs 256" in opened(
        threads, _described(4096, webgpu_limits=True)
    )
    none = replace(DESKTOP_GPU, subgroups=False)
    assert "no subgroups that it reports, the model needs 8" in opened(none, _described(4096))
    assert opened(none, _described(4096, webgpu_limits=True)) == ""
    less = replace(f32, limits={**f32.limits, "workgroup_bytes": 8192})
    message = opened(less, _described(4096, webgpu_limits=True))
    assert message.endswith("the model needs 16384; use another --device or --target cpu")


def test_gpus_of_other_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metal's subgroups have 32 threads, which wgpu-native does not report; a GPU that is reached
    otherwise than by Vulkan says how."""
    mac = replace(DESKTOP_GPU, name="Apple M2", backend="metal", driver="", subgroup_min=0)
    assert mac.least_subgroup == 32
    monkeypatch.setattr(webgpu, "devices", lambda: ([mac], ""))
    assert select.compile_flags("vulkan", None) == ()
    assert str(mac) == "0: Apple M2 (discrete; metal)"
    assert (
        str(replace(mac, backend="d3d12", driver="31.0")) == "0: Apple M2 (discrete; d3d12, 31.0)"
    )
    assert str(DESKTOP_GPU) == "0: a desktop GPU (discrete; RADV)"
    assert str(replace(DESKTOP_GPU, driver="")) == "0: a desktop GPU (discrete; vulkan)"


@pytest.mark.needs("lavapipe")
def test_a_driver_is_asked_for_its_subgroups() -> None:
    """What wgpu-native does not report: lavapipe has 32 bits of its CPU's vectors for a thread."""
    code = "from mlcc.device.compiled.vulkan import least_subgroups as f; print(f())"

    def asked(drivers: str) -> Any:
        environment = {**os.environ, "VK_ICD_FILENAMES": drivers, "VK_DRIVER_FILES": drivers}
        command = [sys.executable, "-c", code]
        return ast.literal_eval(subprocess.check_output(command, env=environment, text=True))

    ((name, threads),) = asked(str(packages.LAVAPIPE)).items()
    bits = re.search(r"(\d+) bits", name)
    assert bits and threads == int(bits[1]) // 32
    assert asked("/nowhere.json") == {}
    if packages.SWIFTSHADER.exists():
        assert set(asked(str(packages.SWIFTSHADER)).values()) == {4}


def test_a_library_needs_its_largest_argument_alone(tmp_path: Path) -> None:
    """So a small model compiled for desktop GPUs runs on a driver that binds 128 MiB."""
    checkpoint = Checkpoint.open(write_checkpoint(tmp_path / "model"))
    options = Options(context=64, max_batch=2, max_step_tokens=32, quant="f32")
    out = compile_model(checkpoint, get_target("vulkan"), tmp_path / "out", options, Progress())
    manifest = Artifact.open(out).manifest
    needed = manifest.target.options["storage_binding_bytes"]
    assert needed == max(tensor.nbytes for tensor in manifest.weights.tensors)
    assert needed == manifest.model.vocab_size * checkpoint.config["hidden_size"] * 4
    wide = Options(context=64, max_batch=2, max_step_tokens=4096, quant="f32")
    out = compile_model(checkpoint, get_target("vulkan"), tmp_path / "wide", wide, Progress())
    assert Artifact.open(out).manifest.target.options["storage_binding_bytes"] > needed
