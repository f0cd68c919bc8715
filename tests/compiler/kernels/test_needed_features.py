"""Kernels that call no instruction of a level's own are one object for several levels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mlcc_compiler.ir._tvm import ir, tvm
from mlcc_compiler.kernels.called_functions import functions_of
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.linear.linear import linear
from mlcc_compiler.kernels.cpu.linear.quantize_rows import quantize_rows
from mlcc_compiler.kernels.tir_pipeline import CPU_PIPELINE
from mlcc_compiler.object_files import compile_kernels, key_of, target_for
from mlcc_compiler.pipeline import tvm_target_of
from mlcc_targets import Choices, Target, get_target

PAIRS = {  # levels of equal vectors, and a weight whose product has instructions of the second's
    ("avx2", "avx2-vnni"): "int4_g32",
    ("avx512-vnni", "avx512-vbmi"): "t4_g32",
    ("avx512-vnni", "avx512-bf16"): "bf16",
    ("avx512-vnni", "avx512-amx"): "int4_g32",
    ("arm", "arm-dotprod"): "int4_g32",
    ("arm", "arm-i8mm"): "int4_g32",
}


def row(level: str) -> Target:
    return get_target("cpu", Choices(cpu=level))


def module(kernel: Any) -> ir.IRModule:
    return ir.IRModule({"kernel": kernel.with_attr("global_symbol", "kernel")})


def rounded(level: str) -> ir.IRModule:
    isa = Isa.from_features(row(level).arch, row(level).features)
    return module(quantize_rows(isa, 64, 32, 32))


def product(level: str, scheme: str) -> ir.IRModule:
    isa = Isa.from_features(row(level).arch, row(level).features)
    return module(linear(isa, 64, 256, scheme, False))


@pytest.mark.parametrize(("levels", "scheme"), PAIRS.items())
def test_rounded_rows_are_one_object_for_both_and_a_product_is_not(
    levels: tuple[str, str], scheme: str
) -> None:
    lower, upper = levels
    targets = [tvm_target_of(row(level)) for level in levels]
    assert key_of(rounded(lower), targets[0]) == key_of(rounded(upper), targets[1])
    made = product(upper, scheme)
    parts = [made, *functions_of([made])]
    kernels = [kernel for part in parts for kernel in part.functions.values()]
    assert str(targets[1]) in [str(target_for(kernel, targets[1])) for kernel in kernels]


def test_levels_have_the_tiles_of_a_product_in_common() -> None:
    """AMX multiplies many rows, and the register tiles few: those of every AVX-512."""
    levels = ("avx512-vnni", "avx512-vbmi", "avx512-bf16", "avx512-amx")
    found = []
    for level in levels:
        tiles = [m for m in functions_of([product(level, "int4_g32")]) if "bytes" not in str(m)]
        found.append([key_of(each, tvm_target_of(row(level))) for each in tiles])
    assert len(found[0]) == 2  # of few rows, and of many, which AMX has its own code for
    assert found == [found[0]] * 3 + [found[0][:1]]
    (few, _) = functions_of([product("avx512-vbmi", "t4_g32")])
    assert key_of(few, tvm_target_of(row("avx512-vbmi"))) not in found[0]


@pytest.mark.parametrize(("lower", "upper"), PAIRS)
def test_its_bytes_are_those_for_all_of_the_levels_features(
    lower: str, upper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    target = tvm_target_of(row(upper))
    (path,) = compile_kernels([rounded(upper)], target, tmp_path)
    found = path.read_bytes()
    with target:
        tvm.tirx.build(rounded(upper), target, CPU_PIPELINE).write_to_file(str(path))
    assert path.read_bytes() == found


def test_the_second_level_compiles_no_such_kernel_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    built, build = list[Any](), tvm.tirx.build
    monkeypatch.setattr(tvm.tirx, "build", lambda *a: built.append(a) or build(*a))
    for level in ("avx2", "avx2-vnni"):
        compile_kernels([rounded(level)], tvm_target_of(row(level)), tmp_path)
    assert len(built) == 1
