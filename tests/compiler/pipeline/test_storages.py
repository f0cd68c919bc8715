"""A library's allocations have one size: pools do not keep buffers for each number of rows."""

from __future__ import annotations

import re
from math import prod
from pathlib import Path

import pytest
from tvm.ir import IRModule

from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.ir.ir_dump import IrDump
from mlcc_compiler.kernels import kernel_set_for
from mlcc_compiler.options import Options
from mlcc_compiler.passes.storages import PAGE
from mlcc_compiler.pipeline import Bounds, Lowered, LoweringConfig, lower
from mlcc_compiler.plan import Plan, make_plan
from mlcc_targets import get_target
from tests.runtime.commands.tiny_checkpoint import write_checkpoint

TENSOR = re.compile(
    r"R\.memory\.alloc_tensor\((\w+), 0, R\.shape\(\[([^\]]*)\]\), R\.dtype\(\"[a-z]+(\d+)"
)
STORAGE = re.compile(r"R\.memory\.alloc_storage\(R\.shape\(\[([^\]]*)\]\)")
PHASES = ("memory_planned", "storages_bounded", "storages_by_size")


class SomePhases(IrDump):
    """A dump of `PHASES` alone: to print a module takes longer than most phases."""

    def __call__(self, phase: str, module: IRModule) -> None:
        if phase in PHASES:
            super().__call__(phase, module)


def lowered(folder: Path, target: str, quant: str) -> tuple[Lowered, dict[str, str], Plan]:
    """A small model, and its text after each of `PHASES`."""
    checkpoint = Checkpoint.open(write_checkpoint(folder / "model"))
    plan = make_plan(checkpoint, get_target(target), Options(quant=quant, context=64))
    kernels, bounds = kernel_set_for(plan.target), Bounds(plan.layout, plan.limits.context)
    vocab, dump = plan.config.vocab_size, SomePhases(folder / "dump")
    config = LoweringConfig(plan.target, kernels, plan.caches, bounds, vocab)
    found = lower(plan.traced, config, dump)
    phases = {p.stem.split("_", 1)[1]: p.read_text("utf-8") for p in dump.folder.iterdir()}  # type: ignore[union-attr]
    return found, phases, plan


@pytest.mark.parametrize("target", ["cpu", "vulkan", "cuda"])
def test_all_storages_are_of_constant_sizes_and_counted(tmp_path: Path, target: str) -> None:
    found, phases, plan = lowered(tmp_path, target, "f32")
    returned = re.findall(
        r"R\.builtin\.alloc_tensor\(R\.shape\(\[(.*?)\]\)", phases["memory_planned"]
    )
    assert any("r" in shape for shape in returned)  # logits are as many rows as there are
    sizes = STORAGE.findall(phases["storages_bounded"])
    assert len(sizes) > len(returned) and all(re.fullmatch(r"\d+", size) for size in sizes), sizes
    assert max(map(int, sizes)) >= 4 * plan.limits.max_rows * plan.config.vocab_size
    assert found.workspace_bytes == sum(-(-int(size) // PAGE) * PAGE for size in sizes)


def test_a_cpus_storages_hold_arrays_of_one_size(tmp_path: Path) -> None:
    """A row of an array is at the position of that row in the array before it, in the cache of the
    same core. In TVM's plan some storages have several sizes."""
    _, phases, _ = lowered(tmp_path, "cpu", "q8")

    def sizes(phase: str) -> dict[str, set[str]]:
        text = phases[phase]
        forward = text[text.index("def forward(") :]
        found: dict[str, set[str]] = {}
        for storage, shape, bits in TENSOR.findall(forward[: forward.index("return")]):
            rows, *rest = shape.split(", ")
            found.setdefault(storage, set()).add(
                f"{rows} * {prod(map(int, rest)) * int(bits) // 8}"
            )
        return found

    planned, apart = sizes("memory_planned"), sizes("storages_by_size")
    assert max(map(len, planned.values())) > 1
    assert {len(each) for each in apart.values()} == {1}
    assert set().union(*apart.values()) == set().union(*planned.values())
