"""LoRA adapters against the twin: ranks mixed in a step, every size of vector and of group."""

from __future__ import annotations

from functools import partial

import pytest

from mlcc_compiler.kernels.cpu.elementwise import lora
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.elementwise import lora as gpu_lora
from tests.compiler.kernels.cases.cpu_kernels import CPUS, Cpu, run
from tests.compiler.kernels.cases.gpu_kernels import F16, SMALL, on_vulkan
from tests.compiler.kernels.cases.gpu_kernels import run as gpu_run
from tests.compiler.kernels.cases.lora import SITES, Factories, check

FACTORIES = Factories(lora.adapt_shrink, lora.adapt_expand)
GPU_FACTORIES = Factories(gpu_lora.adapt_shrink, gpu_lora.adapt_expand)


@pytest.mark.parametrize("cpu", CPUS, ids=lambda c: c.name)
@pytest.mark.parametrize(("inputs", "outputs"), SITES)
def test_mixed_ranks(cpu: Cpu, inputs: int, outputs: tuple[int, ...]) -> None:
    for more in (0, 2):
        check(partial(run, cpu=cpu), FACTORIES, inputs, outputs, more)


@on_vulkan
@pytest.mark.parametrize("gpu", [F16, SMALL], ids=["f16", "small"])
@pytest.mark.parametrize(("inputs", "outputs"), SITES[1:])
def test_gpu_mixed_ranks(gpu: Gpu, inputs: int, outputs: tuple[int, ...]) -> None:
    check(partial(gpu_run, gpu=gpu), GPU_FACTORIES, inputs, outputs, 2)
