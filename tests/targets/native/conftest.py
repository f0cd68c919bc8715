"""The WebGPU plugin on Mesa's software driver (or on the one of VK_ICD_FILENAMES)."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(scope="session")
def device(vulkan: None) -> Any:
    """TVM's device 0."""
    import tvm

    return tvm.device("webgpu", 0)
