"""What adapters add, on a GPU, against the twin: ranks mixed in a step, in groups of any size."""

from __future__ import annotations

from functools import partial

import pytest

from mlcc_compiler.kernels.gpu import lora
from mlcc_compiler.kernels.gpu.device import Gpu
from tests.compiler.kernels.gpu_kernels import F16, SMALL, run
from tests.compiler.kernels.lora_cases import SITES, Factories, check

pytestmark = pytest.mark.usefixtures("vulkan")
FACTORIES = Factories(lora.adapt_shrink, lora.adapt_expand)


@pytest.mark.parametrize("gpu", [F16, SMALL], ids=["f16", "small"])
@pytest.mark.parametrize(("inputs", "outputs"), SITES[1:])
def test_mixed_ranks(gpu: Gpu, inputs: int, outputs: tuple[int, ...]) -> None:
    check(partial(run, gpu=gpu), FACTORIES, inputs, outputs, 2)
