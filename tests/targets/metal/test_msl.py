"""The MSL text of a whole model's kernels, checked by zig's clang in place of Apple's compiler."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest

from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import TargetError, get_target
from mlcc_targets.linking.linker import run_zig
from tests.runtime.commands.tiny_checkpoint import write_checkpoint
from tests.targets.metal import emulation
from tests.targets.small_library import inspect

pytestmark = pytest.mark.needs("llvm")
CLANG = ["cc", "-target", "aarch64-linux-musl", "-x", "c++", "-std=c++20", "-w", "-c"]
CLANG += ["-fno-sanitize=all"]  # whose checks are most of the compile
CLANG += ["-I", str(emulation.HERE)]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("metal")
    checkpoint = Checkpoint.open(write_checkpoint(folder / "tiny"))
    target, options = get_target("metal"), Options(context=64)
    return compile_model(checkpoint, target, folder / "out", options, Progress()) / target.library


def kernels(library: Path) -> list[str]:
    """The MSL text of each kernel in a library."""
    text = r"#include <metal_stdlib>[\t\n -~]*?\nkernel void [\t\n -~]*?\n}\n"
    return re.findall(text, library.read_bytes().decode("latin-1"))


def faults(kernel: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.cc"
        source.write_text(emulation.as_cpp(kernel))
        try:
            run_zig([*CLANG, "-o", str(source.with_suffix(".o")), str(source)], source)
        except TargetError as error:
            return str(error)
    return ""


def test_every_kernel_is_well_formed(library: Path) -> None:
    found = kernels(library)
    assert len(found) > 10
    assert len(found) == library.read_bytes().count(b"\nkernel void ")
    assert not faults("\n".join(found))
    assert any("simdgroup_multiply_accumulate(" in kernel for kernel in found)


def test_phones_without_matrix_instructions_are_served() -> None:
    """iOS 15 runs on GPUs of Apple 5 and 6, too."""
    assert get_target("metal").matrix_unit == "simdgroup" and not get_target("ios").matrix_unit


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("device half4*", "constant half4*", "not assignable"),
        ("device half4* x", "device float* x", "float"),
        ("device half4* y = x", "half4* y = x", "cannot initialize"),
        ("float4(1, 2, 3, 4)", "float4(1, 2, 3)", "a number for each element"),
        ("as_type<float>", "as_type<half>", "of one size"),
        ("exp(", "expf(", "undeclared"),
        ("[[thread_position_in_grid]]", "[[thread_position_in_grid", "expected"),
    ],
)
def test_clang_sees_what_is_wrong(old: str, new: str, message: str) -> None:
    kernel = """#include <metal_stdlib>
        using namespace metal;
        kernel void f(device half4* x [[ buffer(0) ]], uint i [[thread_position_in_grid]]) {
          device half4* y = x;
          float4 sum = (float4)y[i] + float4(1, 2, 3, 4);
          x[i] = half4(sum * exp(as_type<float>(i)));
        }"""
    assert old in kernel and not faults(kernel)
    assert message in faults(kernel.replace(old, new))


def test_the_library_of_a_model_needs_nothing_but_tvm(library: Path) -> None:
    undefined = inspect("llvm-nm", "-g", "--undefined-only", "--format=just-symbols", library)
    assert set(undefined.split()) <= {"_TVMFFIErrorSetRaisedFromCStrParts", "dyld_stub_binder"}
