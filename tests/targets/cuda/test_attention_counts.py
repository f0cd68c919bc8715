"""The machine code of attention of prompts does not get longer: compiled for sm_80 and sm_90 and
counted. The counts and what they were before: docs/notes/cuda_prompts.md.
"""

from __future__ import annotations

import pytest

from benchmarks.gpu import count_attention
from mlcc_compiler.kernels.gpu.attention import flash_rows


@pytest.mark.usefixtures("disassembler")
@pytest.mark.parametrize(
    ("arch", "most", "registers"),
    [("sm_90", 0.081, 168), pytest.param("sm_80", 0.082, 176, marks=pytest.mark.long)],
)
def test_attention_of_prompts(arch: str, most: float, registers: int) -> None:
    """32 heads, 8 of keys, 128 wide: a block of 64 keys is 128 tensor instructions of a warp. With
    168 registers a multiprocessor runs three workgroups."""
    found = count_attention.plain(arch)
    assert found.spills == 0 and found.tensor == 128 and found.registers <= registers
    assert found.of_product is not None and most / 2 < found.of_product <= most, found


@pytest.mark.usefixtures("disassembler")
@pytest.mark.parametrize(
    ("arch", "heads", "most"),
    [
        ("sm_90", 128, 0.069),
        ("sm_80", 16, 0.072),
        pytest.param("sm_90", 16, 0.069, marks=pytest.mark.long),
        pytest.param("sm_80", 128, 0.072, marks=pytest.mark.long),
    ],
)
def test_latent_attention_of_prompts(arch: str, heads: int, most: float) -> None:
    """DeepSeek's widths: of a block of 32 keys a warp has 72 tensor instructions for scores, and 64
    for values. Workgroup memory is asked for at launch, but for the scores of the warps' halves."""
    found = count_attention.latents(arch, heads)
    assert found.spills == 0 and found.tensor == 72 + 64
    assert found.of_product is not None and most / 2 < found.of_product <= most, found
    assert found.shared_bytes <= 17 << 10


@pytest.mark.parametrize("columns", [64, 96, 128, 192, 576, 1088])
def test_rows_in_workgroup_memory_are_in_other_banks(columns: int) -> None:
    """Eight lanes read 16 bytes each at once: of keys four neighbours of two rows, of values one
    piece of eight rows."""
    stride = 2 * flash_rows.stride(columns)
    assert stride >= 2 * columns and stride % 16 == 0
    key = flash_rows.key_of
    pairs = [[(key(g), 16 * t) for g in (first, first + 1) for t in range(4)] for first in (0, 2)]
    for lanes in (*pairs, [(key(row), 0) for row in range(8)]):
        assert len({(row * stride + at) % 128 // 16 for row, at in lanes}) == 8
