"""Products of a library have the code of their tiles in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mlcc_compiler.ir._tvm import tvm
from mlcc_compiler.kernels.called_functions import called_by
from mlcc_compiler.kernels.cpu.isa import isa
from mlcc_compiler.kernels.cpu.linear import linear
from mlcc_compiler.object_files import compile_kernels
from mlcc_compiler.quantization import scheme
from tests.compiler.kernels.cases import linear_twin as lt


def product(n: int, how: str = "int4_g32", cpu: isa.Isa = isa.AVX2) -> Any:
    return linear.linear(cpu, n, 64, how, False)


def test_products_of_whole_tiles_differ_in_columns_alone() -> None:
    names = called_by(product(64))
    assert len(names) == 2 and names == called_by(product(96))
    for other in (product(72), product(64, "q4_k"), product(64, cpu=isa.AVX2_VNNI)):
        assert not set(names) & set(called_by(other))


def test_merged_weights_of_one_form_call_it_twice() -> None:
    one, how = product(64), scheme("int4_g32")
    both = linear.linear_merged(isa.AVX2, ((64, how), (32, how)), 64, False)
    assert called_by(both) == called_by(one)


def test_each_is_one_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    named = {f"kernel{n}": product(n) for n in (64, 96)}
    modules = [
        tvm.IRModule({name: kernel.with_attr("global_symbol", name)})
        for name, kernel in named.items()
    ]
    paths = compile_kernels(
        modules, tvm.target.Target({"kind": "llvm", "mcpu": "haswell"}), tmp_path
    )
    assert {path.stem for path in paths} == {*named, *called_by(product(64))}


def test_a_module_compiled_as_a_whole_has_its_own() -> None:
    """Libraries that are linked into one program would have two of a name."""
    text = lt.executable(product(64), isa.AVX2).inspect_source("asm")
    assert "vpmaddubsw" in text and ".globl\tmlcc_" not in text
