"""The NEON kernels run under qemu, where qemu-aarch64 and a cross compiler are installed.

A small C program stands in for TVM's runtime: it reads tensors from a file, calls the kernel's
packed function on one thread, and writes the tensors back.
"""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcc_compiler.kernels.cpu.elementwise import embedding
from mlcc_compiler.kernels.cpu.isa import isa
from mlcc_compiler.kernels.cpu.linear import linear
from mlcc_compiler.quantization import scheme
from mlcc_targets.cpu import STORED_FOR_BOTH
from tests.compiler.kernels.cases import linear_twin as lt

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"

pytestmark = pytest.mark.needs("qemu", "an arm64 compiler")

HOST = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef struct { void *data; int32_t device[2]; int32_t ndim; uint8_t code, bits; uint16_t lanes;
                 int64_t *shape, *strides; uint64_t offset; } Tensor;
typedef struct { int32_t type, pad; void *value; } Any;
typedef int (*Body)(int, void *, void *);
static struct { void *sync; int32_t tasks; } one_task = {0, 1};
static int launch(Body body, void *closure, int tasks) { return body(0, &one_task, closure); }
static void *take(int a, int b, uint64_t size, int c, int d) {
  return aligned_alloc(64, size + 63 & ~63);
}
static int give(int a, int b, void *data) { free(data); return 0; }
extern void *__TVMBackendParallelLaunch __attribute__((weak));
extern void *__TVMBackendAllocWorkspace __attribute__((weak));
extern void *__TVMBackendFreeWorkspace __attribute__((weak));
void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int n) {
  for (int i = 0; i < n; i++) fputs(parts[i], stderr);
}
int __tvm_ffi_kernel(void *, Any *, int32_t, Any *);
int main(int argc, char **argv) {
  static Tensor tensors[16]; static Any args[16]; Any result = {0}; static int64_t bytes[16];
  if (&__TVMBackendParallelLaunch) __TVMBackendParallelLaunch = (void *)launch;
  if (&__TVMBackendAllocWorkspace) __TVMBackendAllocWorkspace = (void *)take;
  if (&__TVMBackendFreeWorkspace) __TVMBackendFreeWorkspace = (void *)give;
  FILE *f = fopen(argv[1], "rb"); int32_t n, head[3];
  fread(&n, 4, 1, f);
  for (int i = 0; i < n; i++) {
    Tensor *t = &tensors[i]; fread(head, 4, 3, f);
    t->device[0] = 1; t->ndim = head[0]; t->code = head[1]; t->bits = head[2]; t->lanes = 1;
    t->shape = malloc(64); fread(t->shape, 8, t->ndim, f); bytes[i] = t->bits / 8;
    for (int j = 0; j < t->ndim; j++) bytes[i] *= t->shape[j];
    t->data = aligned_alloc(64, bytes[i] + 63 & ~63); fread(t->data, 1, bytes[i], f);
    args[i].type = 7; args[i].value = t;
  }
  fclose(f);
  if (__tvm_ffi_kernel(0, args, n, &result)) return 1;
  f = fopen(argv[2], "wb");
  for (int i = 0; i < n; i++) fwrite(tensors[i].data, 1, bytes[i], f);
  return fclose(f);
}
"""


DOT = {"neon_i8mm": "smmla", "neon_dotprod": "sdot", "neon": "sadalp"}
"""How a level multiplies bytes -> the instruction that its kernels must have."""


def run(built: Any, arrays: list[Any], folder: Path) -> list[Any]:
    """Run a compiled kernel under an emulator; returns its arguments afterwards."""
    program, source = folder / "kernel", folder / "host.c"
    source.write_text(HOST)
    built.write_to_file(str(folder / "kernel.o"))
    command = [COMPILER, "-w", "-static", source, folder / "kernel.o", "-lm", "-o", program]
    subprocess.run(command, check=True)
    codes = {"i": 0, "u": 1, "f": 2}
    with (folder / "in").open("wb") as f:
        f.write(np.int32(len(arrays)).tobytes())
        for a in arrays:
            head = [a.ndim, codes[a.dtype.kind], 8 * a.itemsize]
            f.write(np.array(head, np.int32).tobytes() + np.array(a.shape, np.int64).tobytes())
            f.write(a.tobytes())
    emulate = [EMULATOR, "-cpu", "max", program, folder / "in", folder / "out"]
    subprocess.run(emulate, check=True)
    raw = (folder / "out").read_bytes()
    ends = np.cumsum([a.nbytes for a in arrays])
    parts = [raw[end - a.nbytes : end] for a, end in zip(arrays, ends, strict=True)]
    return [np.frombuffer(p, a.dtype).reshape(a.shape) for p, a in zip(parts, arrays, strict=True)]


LEVELS = (isa.NEON, isa.NEON_DOTPROD, isa.NEON_I8MM)


@pytest.mark.parametrize("cpu", LEVELS, ids=lambda c: c.name)
@pytest.mark.parametrize("name", ["int4_g32", "q4_k", "int8a_g32", "q6_k", "iq4_nl", "f16"])
def test_linear_and_embedding(cpu: isa.Isa, name: str, tmp_path: Path) -> None:
    check(cpu, name, tmp_path)


@pytest.mark.parametrize(
    "cpu, name",
    [(isa.NEON_I8MM, "q4_k"), (isa.NEON_DOTPROD, "int8a_g32")],
    ids=["i8mm-q4_k", "dotprod-int8a"],
)
def test_the_layout_of_a_folder_for_both_architectures(
    cpu: isa.Isa, name: str, tmp_path: Path
) -> None:
    """x86-64's wide tiles in strips; codes of 8 bits lie otherwise than the instructions take."""
    columns, signed = STORED_FOR_BOTH
    check(replace(cpu, tile_columns=columns, stored_signed=signed), name, tmp_path)


def check(cpu: isa.Isa, name: str, tmp_path: Path) -> None:
    """A product of seven rows and an embedding are the twins'."""
    rng, how = np.random.default_rng(0), scheme(name)
    n_out, k, n = 35, 64, 7
    packing = linear.packing(n_out, k, how, cpu)
    stored = packing.pack((rng.standard_normal((n_out, k)) + 0.1).astype(np.float32))
    weight = packing.unpack(stored)
    x, bias = (rng.standard_normal(s).astype(np.float32) for s in ((n, k), (n_out,)))
    inputs, seen = [x], x
    if not how.is_float:
        out = [np.zeros((n, w), d) for w, d in ((k, "int8"), (2, "float32"), (4, "int32"))]
        rounding = lt.executable(linear.quantize_rows(cpu, k, 32, 16), cpu)
        inputs = run(rounding, [x, *out], tmp_path)[1:]
        seen = lt.dequantize_rows(inputs[0], inputs[1])
        assert (np.abs(seen - x) <= inputs[1].repeat(32, axis=1) * 0.50001).all()
    y = np.zeros((n, n_out), np.float32)
    built = lt.executable(linear.linear(cpu, n_out, k, how, True), cpu)
    assembly = built.inspect_source("asm")
    assert how.is_float or DOT[cpu.dot] in assembly
    assert "bl\t__extendhfsf2" not in assembly
    y = run(built, [*inputs, *stored, bias, y], tmp_path)[-1]
    assert lt.relative_error(y, lt.twin(seen, weight, bias)) < 1e-5
    ids = np.array([0, 34, -3, 99, 5], np.int32)
    built = lt.executable(embedding.embedding_packed(cpu, n_out, k, how), cpu)
    rows = run(built, [ids, *stored, np.zeros((5, k), np.float32)], tmp_path)[-1]
    np.testing.assert_array_equal(rows, weight[np.clip(ids, 0, n_out - 1)])
