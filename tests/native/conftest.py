"""The WebGPU plugin on Mesa's software driver (or whatever VK_ICD_FILENAMES names already)."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import pytest

SWIFTSHADER = Path("/usr/lib/chromium/vk_swiftshader_icd.json")
"""Google's software driver, as Debian's chromium brings it: no f16, another compiler."""
LAVAPIPE = Path(f"/usr/share/vulkan/icd.d/lvp_icd.{platform.machine()}.json")
if LAVAPIPE.exists():  # before anything looks for devices
    os.environ.setdefault("VK_ICD_FILENAMES", str(LAVAPIPE))


@pytest.fixture(scope="session")
def device() -> Any:
    """TVM's device 0. A machine without any Vulkan driver skips; without the plugin it fails."""
    import tvm

    from mlcc.device import webgpu
    from mlcc_targets import native

    assert not native.why_absent(), native.why_absent()
    if not webgpu.devices()[0]:
        pytest.skip(f"no Vulkan device: {webgpu.devices()[1]}")
    return tvm.device("webgpu", 0)
