"""The MSL text of a whole model's kernels, checked by clang in place of Apple's compiler.

msl/metal_stdlib declares the part of Metal's library that generated kernels use. Clang's own vector
types lack constructors and casts of vectors, so those are rewritten as calls of templates.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import get_target
from tests.runtime.commands.tiny_checkpoint import write_checkpoint
from tests.targets.small_library import inspect

pytestmark = pytest.mark.needs("llvm", "clang")
DECLARATIONS = Path(__file__).parent / "msl"
VECTOR = r"(?:char|uchar|short|ushort|int|uint|long|ulong|half|float)[234]"
CLANG = ["clang++", "--target=arm64-apple-macos13", "-x", "c++", "-std=c++17", "-fsyntax-only"]
CLANG += ["-w", "-I", str(DECLARATIONS)]


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


def as_cpp(kernel: str) -> str:
    kernel = re.sub(rf"\b({VECTOR})\(", r"make<\1>(", kernel)
    return re.sub(rf"\(({VECTOR})\)", r"cast<\1>()->*", kernel)


def faults(kernel: str) -> str:
    command = [*CLANG, "-"]
    done = subprocess.run(
        command, input=as_cpp(kernel), capture_output=True, text=True, check=False
    )
    return done.stderr if done.returncode else ""


def test_every_kernel_is_well_formed(library: Path) -> None:
    found = kernels(library)
    assert len(found) > 10
    assert len(found) == library.read_bytes().count(b"\nkernel void ")
    wrong = [fault for kernel in found if (fault := faults(kernel))]
    assert not wrong, "\n".join(wrong)


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
