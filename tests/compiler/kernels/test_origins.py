"""Kernels are known by factories and arguments, so that keys of compiled code need no text."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from mlcc_compiler import object_files
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.ir._tvm import ir
from mlcc_compiler.kernels import origins
from mlcc_compiler.kernels.cpu.elementwise import norm
from mlcc_compiler.kernels.cpu.isa import isa
from mlcc_compiler.kernels.cpu.linear.linear import linear
from mlcc_compiler.kernels.cpu.linear.quantize_rows import quantize_rows
from mlcc_compiler.kernels.fused_kernels import fuse_kernels
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.options import Options
from mlcc_compiler.quantization import scheme
from mlcc_targets import get_target
from tests.runtime.commands.tiny_checkpoint import write_checkpoint

ROOT = Path(__file__).parents[3]
FOLDERS = {"mlcc": "runtime", "mlcc_compiler": "compiler", "mlcc_targets": "targets"}


def rms_norm(width: int, eps: float = 1e-5, known: bool = True) -> Any:
    made = norm.rms_norm(isa.AVX2, (width,), (width,), eps, 0.0)
    if known:
        origins.record_origin(made, norm.rms_norm, isa.AVX2, (width,), (width,), eps, 0.0)
    return made


def named(kernel: Any) -> ir.IRModule:
    return ir.IRModule({"kernel": kernel.with_attr("global_symbol", "kernel")})


@pytest.mark.parametrize(
    "other",
    [
        (linear, replace(isa.AVX2, tile_columns=8), 64, scheme("t4_g32"), {"a", "b"}, None, False),
        (linear, isa.AVX2, 65, scheme("t4_g32"), {"a", "b"}, None, False),
        (linear, isa.AVX2, 64.0, scheme("t4_g32"), {"a", "b"}, None, False),
        (linear, isa.AVX2, 64, scheme("t5_g32"), {"a", "b"}, None, False),
        (linear, isa.AVX2, 64, scheme("t4_g32"), {"a", "c"}, None, False),
        (linear, isa.AVX2, 64, scheme("t4_g32"), {"a", "b"}, None, 0),
        (quantize_rows, isa.AVX2, 64, scheme("t4_g32"), {"a", "b"}, None, False),
        (linear, Gpu(), 64, scheme("t4_g32"), {"a", "b"}, None, False),
    ],
)
def test_different_arguments_have_different_texts(other: Any) -> None:
    one = (linear, isa.AVX2, 64, scheme("t4_g32"), {"b", "a"}, None, False)
    same = (linear, replace(isa.AVX2), 64, scheme("t4_g32"), {"a", "b"}, None, False)
    assert (
        origins.canonical_text(one) == origins.canonical_text(same) != origins.canonical_text(other)
    )


@dataclass(frozen=True)
class OfTests:
    width: int


@pytest.mark.parametrize("value", [lambda: 1, rms_norm, OfTests(1), object(), OfTests])
def test_what_may_differ_under_one_name_has_no_text(value: Any) -> None:
    with pytest.raises(TypeError, match="no canonical text"):
        origins.canonical_text((1, value))


def test_a_replaced_function_has_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced = norm.rms_norm
    monkeypatch.setattr(norm, "rms_norm", rms_norm)
    with pytest.raises(TypeError, match="no canonical text"):
        origins.canonical_text(replaced)


def test_a_key_is_the_same_with_and_without_an_origin() -> None:
    known, unknown = named(rms_norm(64)), named(rms_norm(64, known=False))
    assert origins.origin_of(known["kernel"]) and not origins.origin_of(unknown["kernel"])
    first, again = (object_files.key_of(known, "llvm") for _ in range(2))
    assert first == again == object_files.key_of(unknown, "llvm")
    others = [named(rms_norm(128)), named(rms_norm(64, eps=1e-6))]
    assert len({first, *(object_files.key_of(other, "llvm") for other in others)}) == 3


def test_a_changed_constant_of_a_factory_is_noticed() -> None:
    """The origin of both is the same; the hash that TVM has of them is not."""
    kernels = [rms_norm(width, known=False) for width in (64, 128)]
    found = set()
    for kernel in kernels:
        origins.record_origin(kernel, norm.rms_norm, isa.AVX2)
        found.add(origins.origin_of(kernel))
    assert len(found) == 2


def test_a_fused_kernel_has_the_origins_of_both() -> None:
    first, second = rms_norm(64), quantize_rows(isa.AVX2, 64, 32, 32)
    fused = fuse_kernels(first, second)
    origins.record_fused_origin(fused, fuse_kernels, first, second)
    assert origins.origin_of(fused) is None  # nothing is known of the second
    origins.record_origin(second, quantize_rows, isa.AVX2, 64, 32, 32)
    origins.record_fused_origin(fused, fuse_kernels, first, second)
    assert origins.origin_of(fused)
    assert origins.origin_of(fused.with_attr("tirx.noalias", False)) != origins.origin_of(fused)


def test_a_second_compile_writes_no_text_of_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    checkpoint = Checkpoint.open(write_checkpoint(tmp_path / "model"))
    written, content = list[Any](), object_files._content

    def counted(kernel: Any) -> str:
        written.append(kernel)
        return content(kernel)

    monkeypatch.setattr(object_files, "_content", counted)

    def count(out: str) -> int:
        written.clear()
        options = Options(quant="q4", context=32, max_batch=1)
        compile_model(checkpoint, get_target("cpu"), tmp_path / out, options, Progress())
        return len(written)

    assert count("first") > 8
    assert count("second") == 1  # TVM's function of shapes


def imported(path: Path) -> Iterator[Path]:
    """mlcc's files that a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] in FOLDERS:
            folder = ROOT / FOLDERS[str(node.module).partition(".")[0]]
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            for name in [str(node.module), *names]:
                place = folder / name.replace(".", "/")
                found = [place.with_suffix(".py"), place / "__init__.py"]
                yield from (each for each in found if each.exists())


def test_all_that_factories_import_is_part_of_the_hash() -> None:
    folder = ROOT / "compiler" / "mlcc_compiler" / "kernels"
    open_, seen = list(folder.rglob("*.py")), set[Path]()
    while open_:
        path = open_.pop()
        if path not in seen:
            seen.add(path)
            open_.extend(imported(path))
    assert seen <= set(origins.source_files()), seen - set(origins.source_files())
