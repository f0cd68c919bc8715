"""What a library allocates has one size: pools keep nothing for each number of rows there was."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli.tiny_checkpoint import write_checkpoint

from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.ir_dump import IrDump
from mlcc_compiler.kernels import kernel_set_for
from mlcc_compiler.options import Options
from mlcc_compiler.passes.storages import PAGE
from mlcc_compiler.pipeline import Bounds, lower
from mlcc_compiler.plan import make_plan
from mlcc_targets import get_target

STORAGE = re.compile(r"R\.memory\.alloc_storage\(R\.shape\(\[([^\]]*)\]\)")


@pytest.mark.parametrize("target", ["cpu", "vulkan", "cuda"])
def test_all_storages_are_of_constant_sizes_and_counted(tmp_path: Path, target: str) -> None:
    checkpoint = Checkpoint.open(write_checkpoint(tmp_path / "model"))
    options = Options(quant="f32", context=64)
    plan = make_plan(checkpoint, get_target(target), options)
    kernels, bounds = kernel_set_for(plan.target), Bounds(plan.layout, plan.limits.context)
    vocab, dump = plan.config.vocab_size, IrDump(tmp_path / "dump")
    lowered = lower(plan.traced, kernels, plan.caches, bounds, vocab, plan.target, dump)
    phases = {p.stem.split("_", 1)[1]: p.read_text("utf-8") for p in dump.folder.iterdir()}  # type: ignore[union-attr]
    returned = re.findall(
        r"R\.builtin\.alloc_tensor\(R\.shape\(\[(.*?)\]\)", phases["memory_planned"]
    )
    assert any("r" in shape for shape in returned)  # logits are as many rows as there are
    sizes = STORAGE.findall(phases["storages_bounded"])
    assert len(sizes) > len(returned) and all(re.fullmatch(r"\d+", size) for size in sizes), sizes
    assert max(map(int, sizes)) >= 4 * plan.limits.max_rows * vocab
    assert lowered.workspace_bytes == sum(-(-int(size) // PAGE) * PAGE for size in sizes)
