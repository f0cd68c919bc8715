"""Counts of machine code, from text that nvdisasm printed of a kernel of an 8B model in q4."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gpu import count
from benchmarks.gpu.count import Count, Instruction
from mlcc_targets import cuda_files

RECORDED = Path(__file__).with_name("linear_part.sass")
USAGE = """\
 Function linear_part_kernel:
  REG:32 STACK:8 SHARED:1088 LOCAL:0 CONSTANT[0]:576 TEXTURE:0 SURFACE:0 SAMPLER:0
"""


def test_a_recorded_kernel() -> None:
    """Its one loop multiplies 8 weights by one row, and unpacks each by three more FFMA."""
    (kernel,) = count.parse_sass(RECORDED.read_text(encoding="utf-8"))
    usage = count.parse_usage(USAGE)
    (found,) = count.count([kernel], usage)
    assert (found.kernel, found.registers, found.stack_bytes) == ("linear_part_kernel", 32, 8)
    assert (found.shared_bytes, found.instructions, found.spills) == (1088, 192, 0)
    assert (found.loop, found.products, found.tensor) == (104, 32, 0)
    loop = kernel.inner_loop()
    assert [i.base for i in loop].count("FRND") == 8 and loop[-1].base == "BRA"


def test_weights_are_counted_without_what_unpacks_them() -> None:
    """Kernels of 4 and 8 rows show how many multiply-adds unpack; tensor cores need none."""
    sizes = [("", 32, 104, 0), ("_1", 40, 118, 0), ("_2", 56, 149, 0), ("_3", 88, 212, 0)]
    sizes += [("_4", 2 * 64, 145, 2), ("_7", 16 * 64, 200, 16)]
    counts = [
        Count(f"linear_part_kernel{end}", 32, 0, 0, 999, 0, loop, products, tensor)
        for end, products, loop, tensor in sizes
    ]
    found = count.with_weights([*counts, Count("attend_kernel", 32, 0, 0, 99, 1, 79, 64, 0)])
    assert [c.weights for c in found] == [8, 8, 8, 8, 8, 8, 0]
    assert [c.rows for c in found] == [1, 2, 4, 8, 16, 128, 0]
    assert found[0].of_weight == 13 and found[-1].of_weight is None
    assert found[5].of_product == pytest.approx(0.1953, abs=1e-4)
    lines = count.table(found).splitlines()
    assert lines[2] == "| `linear_part_kernel` | 1 | 32 | 0 | 0 | 104 | 0 |  |  | 3.25 | 13.0 |"
    assert (
        lines[7] == "| `linear_part_kernel_7` | 128 | 32 | 0 | 0 | 200 | 16 | 8% |  | 0.20 | 25.0 |"
    )


def test_products_of_constants_read_no_weights() -> None:
    """Two of six tensor instructions a group; the first of them adds to 0."""
    text = """\
.text.linear_kernel:
.L_x_1:
        /*0000*/                   HMMA.16816.F32 R44, R32, R16, RZ ;
        /*0010*/                   HMMA.16816.F32 R44, R24, R2, R44 ;
        /*0020*/                   HMMA.16816.F32 R20, R20, R16, R44 ;
        /*0030*/                   HMMA.16816.F32 R20, R4, R2.reuse, R20 ;
        /*0040*/                   HMMA.16816.F32 R12, R4, R16, R44 ;
        /*0050*/                   HMMA.16816.F32 R12, R40, R2, R12 ;
        /*0060*/               @P1 BRA `(.L_x_1) ;
.text.linear_kernel_1:
        /*0000*/                   FFMA R1, R1, R2, RZ ;
"""
    found, other = count.count(count.parse_sass(text), {})
    assert (found.rows, found.tensor, found.from_zero, found.weights) == (8, 6, 1, 32)
    assert other.rows == 16 and other.from_zero == 0


@pytest.mark.parametrize(
    "op, products",
    [
        ("FFMA.FTZ", 1),
        ("FADD", 0),
        ("HFMA2.BF16_V2", 2),
        ("HFMA2.MMA", 0),
        ("IDP.4A.S8.S8", 4),
        ("HMMA.16816.F32.BF16", 64),
        ("HMMA.1688.F32", 32),
        ("IMMA.16832.S8.S8", 128),
        ("HGMMA.64x128x16.F32", 1024),
        ("QGMMA.64x64x32.F32.E4M3.E4M3", 1024),
    ],
)
def test_products_of_an_instruction(op: str, products: int) -> None:
    assert Instruction(op).products == products


def test_the_inner_of_nested_loops_counts() -> None:
    """And a loop without multiply-adds is none."""
    text = """\
.text.attend_kernel:
.L_x_1:
        /*0000*/                   LDG.E R1, desc[UR8][R12.64] ;
.L_x_2:
        /*0010*/                   FFMA R1, R1, R2, R3 ;
        /*0020*/              @!P0 LDL R4, [R1] ;
        /*0030*/               @P1 BRA `(.L_x_2) ;
.L_x_3:
        /*0040*/                   IADD3 R1, R1, 0x1, RZ ;
        /*0050*/               @P1 BRA `(.L_x_3) ;
        /*0060*/               @P1 BRA `(.L_x_1) ;
        /*0070*/                   EXIT ;
.L_x_4:
        /*0080*/                   BRA `(.L_x_4);
"""
    (found,) = count.count(count.parse_sass(text), {})
    assert (found.instructions, found.loop, found.products, found.spills) == (9, 3, 1, 1)


def test_what_to_type_where_the_tools_are_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_files, "program", lambda name: None)
    monkeypatch.setattr(count, "_of_triton", lambda name: None)
    with pytest.raises(SystemExit, match="pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm"):
        count.tool("nvdisasm")
    library = tmp_path / "model.so"
    library.write_bytes(b"no kernels")
    with pytest.raises(SystemExit, match="holds no CUDA code; compile the model with --target"):
        count.disassemble(library, "sm_90")
