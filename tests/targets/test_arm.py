"""`cpu` libraries for another CPU than this machine's: linked here, run by qemu.

A C program with Debian's arm64 C library stands in for TVM's runtime and calls a kernel.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from mlcc.util.machine import machine
from mlcc_compiler import pipeline
from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.frame import Expr, f32, kernel, store
from mlcc_targets import Choices, get_target
from tests.targets.small_library import WIDTH, find, inspect, lowered

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
ROW = get_target("cpu", Choices(cpu="arm"))
ROWS = 3

PROGRAM = r"""
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
typedef struct { void *data; int32_t device[2]; int32_t ndim; uint8_t code, bits; uint16_t lanes;
                 int64_t *shape, *strides; uint64_t offset; } Tensor;
typedef struct { int32_t type, pad; union { int64_t i; void *p; } v; } Any;
typedef int (*Function)(void *, Any *, int32_t, Any *);
int main(int argc, char **argv) {
  void *model = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!model) { printf("%s\n", dlerror()); return 1; }
  Function function = (Function)dlsym(model, "__tvm_ffi_kernel_0");
  if (!function) { printf("%s\n", dlerror()); return 2; }
  static float x[@ROWS@ * @WIDTH@] __attribute__((aligned(64)));
  static float out[@ROWS@ * @WIDTH@] __attribute__((aligned(64)));
  for (int i = 0; i < @ROWS@ * @WIDTH@; i++) x[i] = i;
  int64_t shape[2] = {@ROWS@, @WIDTH@};
  Tensor in = {x, {1, 0}, 2, 2, 32, 1, shape, 0, 0}, result = in;
  result.data = out;
  Any args[3] = {{7, 0, {.p = &in}}, {7, 0, {.p = &in}}, {7, 0, {.p = &result}}}, answer = {0};
  if (function(0, args, 3, &answer)) return 3;
  for (int i = 0; i < @ROWS@ * @WIDTH@; i++) printf("%.0f ", out[i]);
  return 0;
}
"""


def add(x: Expr, y: Expr, out: Expr) -> None:
    with T.serial(0, x.shape[0]) as i, T.serial(0, WIDTH) as j:
        store(out, x[i, j] + y[i, j], i, j)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("arm") / "model.so"
    rows = f32("n", WIDTH)
    pipeline.build(lowered([kernel(add, x=rows, y=rows, out=rows)], ROW), ROW, path)
    return path


@pytest.mark.skipif(machine() == "aarch64", reason="this machine runs arm64 itself")
def test_it_compiles_here_and_says_where_it_runs() -> None:
    assert ROW.missing == "" and ROW.run_missing == "runs on a Linux machine with aarch64"
    assert ROW.triple == "aarch64-linux-gnu"


@pytest.mark.skipif(not find("llvm-readelf"), reason="needs llvm-readelf (apt install llvm)")
def test_it_is_for_arm64_and_needs_no_version_of_glibc(library: Path) -> None:
    assert re.search(r"Machine:\s+AArch64", inspect("llvm-readelf", "-h", library))
    assert "NEEDED" in (dynamic := inspect("llvm-readelf", "-d", library))
    assert "libm.so.6" in dynamic and "VERNEED" not in dynamic


@pytest.mark.skipif(
    not (shutil.which(COMPILER) and shutil.which(EMULATOR)),
    reason=f"needs {EMULATOR} and {COMPILER} (apt install qemu-user gcc-aarch64-linux-gnu)",
)
def test_its_code_computes_on_arm64(library: Path, tmp_path: Path) -> None:
    source, program = tmp_path / "host.c", tmp_path / "host"
    text = PROGRAM.replace("@ROWS@", str(ROWS)).replace("@WIDTH@", str(WIDTH))
    source.write_text(text, encoding="utf-8")
    subprocess.run([COMPILER, "-w", "-O1", source, "-o", program], check=True)
    command = [EMULATOR, "-L", "/usr/aarch64-linux-gnu", program, library]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [int(word) for word in done.stdout.split()] == [2 * i for i in range(ROWS * WIDTH)]
