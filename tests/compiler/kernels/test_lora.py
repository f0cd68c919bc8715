"""What adapters add, on the CPU, against the twin: every size of vector, ranks mixed in a step."""

from __future__ import annotations

from functools import partial

import pytest

from mlcc_compiler.kernels.cpu.elementwise import lora
from tests.compiler.kernels.cpu_kernels import CPUS, Cpu, run
from tests.compiler.kernels.lora_cases import SITES, Factories, check

FACTORIES = Factories(lora.adapt_shrink, lora.adapt_expand)


@pytest.mark.parametrize("cpu", CPUS, ids=lambda c: c.name)
@pytest.mark.parametrize(("inputs", "outputs"), SITES)
def test_mixed_ranks(cpu: Cpu, inputs: int, outputs: tuple[int, ...]) -> None:
    for more in (0, 2):
        check(partial(run, cpu=cpu), FACTORIES, inputs, outputs, more)
