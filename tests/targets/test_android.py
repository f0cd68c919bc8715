"""`android` libraries: inspected by object tools, and their arm64 host code run by qemu.

qemu-aarch64 replaces the phone's CPU, Debian's arm64 C library that of Android, and a C program
TVM's runtime: it records the kernels that the host code launches.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from mlcc_targets import Choices, get_target
from tests.targets.small_library import WIDTH, build, inspect

pytestmark = pytest.mark.needs("llvm")
COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
SYSROOT = Path("/usr/aarch64-linux-gnu")
WEBGPU = 15  # DLDeviceType.kDLWebGPU
ROWS = 5
ROW = get_target("android", Choices(gpu=True))

PHONE = r"""
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
typedef struct { void *data; int32_t device[2]; int32_t ndim; uint8_t code, bits; uint16_t lanes;
                 int64_t *shape, *strides; uint64_t offset; } Tensor;
typedef struct { int32_t type, pad; union { int64_t i; void *p; } v; } Any;
typedef int (*Function)(void *, Any *, int32_t, Any *);
static void *model;
static void raise(const char *kind, const char *message) { printf("%s", message); }
static int lookup(void *context, const char *name, void **out) {
  if (context != &model) return -1;  /* what the loader has put into __tvm_ffi__library_ctx */
  *out = strdup(name);
  return 0;
}
static int once(void **handle, int (*make)(void **)) { return *handle ? 0 : make(handle); }
static int call(void *name, Any *args, int32_t n, Any *result) {
  printf("%s", (char *)name);
  for (int i = 0; i < n; i++) printf(args[i].type == 1 ? " %lld" : " *", (long long)args[i].v.i);
  printf("\n");
  return 0;
}
static int set(const char *name, void *value) {
  void **place = dlsym(model, name);
  if (place) *place = value;
  return place != 0;
}
int main(int argc, char **argv) {
  model = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!model) { printf("%s\n", dlerror()); return 1; }
  if (!set("__tvm_ffi__library_ctx", &model) || !set("__TVMFFIFunctionCall", call) ||
      !set("__TVMFFIEnvModLookupFromImports", lookup) || !set("__TVMFFIHandleInitOnce", once) ||
      !set("__TVMFFIErrorSetRaisedFromCStr", raise))
    return 2;
  Function kernel = (Function)dlsym(model, "__tvm_ffi_kernel_0");
  int64_t shape[2] = {@ROWS@, @WIDTH@}, wrong[2] = {@ROWS@, @WIDTH@ + 1};
  static float numbers[1000] __attribute__((aligned(64)));
  Tensor t = {numbers, {@DEVICE@, 0}, 2, 2, 32, 1, shape, 0, 0}, bad = t;
  bad.shape = wrong;
  Any good[3] = {{7, 0, {.p = &t}}, {7, 0, {.p = &t}}, {7, 0, {.p = &t}}}, result = {0};
  int status = kernel(0, good, 3, &result);
  good[1].v.p = &bad;
  printf("status %d, ", status);
  printf("status %d\n", kernel(0, good, 3, &result));
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(
        get_target("android", Choices(gpu=True)), tmp_path_factory.mktemp("android") / "model.so"
    )


def needed(library: Path) -> list[str]:
    return re.findall(
        r"\(NEEDED\)\s+Shared library: \[(.*)\]", inspect("llvm-readelf", "-d", library)
    )


def test_it_is_a_shared_library_for_arm64(library: Path) -> None:
    header = inspect("llvm-readelf", "-h", library)
    assert re.search(r"Type:\s+DYN", header) and re.search(r"Machine:\s+AArch64", header)
    assert "Library soname: [model.so]" in inspect("llvm-readelf", "-d", library)


def test_segments_do_not_share_pages_of_16_kib(library: Path) -> None:
    listed = inspect("llvm-readelf", "-lW", library)
    loads = re.findall(r"^\s+LOAD(.*)$", listed, flags=re.MULTILINE)
    pages: list[set[int]] = []
    for fields in (re.sub("R E", "RE", line).split() for line in loads):
        offset, address, size, align = (int(fields[i], 16) for i in (0, 1, 4, 6))
        assert align == 0x4000 and (address - offset) % align == 0
        pages.append(set(range(address // align, (address + max(size, 1) - 1) // align + 1)))
    assert len(pages) > 1
    assert sum(map(len, pages)) == len(set().union(*pages)), pages
    assert re.search(r"GNU_STACK .* RW ", listed)


def test_it_needs_androids_libraries_only(library: Path) -> None:
    """Bionic binds all names when it loads a library; TVM's runtime writes its own into it."""
    table = inspect("llvm-readelf", "--dyn-syms", "-W", library)
    assert not re.findall(r" UND (\S+)$", table, flags=re.MULTILINE)
    assert needed(library) == ["libm.so", "libc.so"]
    assert {"__tvm_ffi_kernel_0", "__tvm_ffi__library_bin"} <= set(table.split())


def test_the_kernels_are_inside_as_wgsl(library: Path) -> None:
    data = library.read_bytes()
    assert data.count(b"@compute @workgroup_size(256, 1, 1)") == 2
    assert b".debug" not in data and b"/tmp" not in data


def test_two_links_are_equal_to_the_byte(library: Path, tmp_path: Path) -> None:
    again = build(ROW, tmp_path / "elsewhere" / "model.so")
    assert again.read_bytes() == library.read_bytes()


@pytest.mark.needs("qemu", "an arm64 compiler")
def test_the_host_code_launches_its_kernels_on_arm64(library: Path, tmp_path: Path) -> None:
    for name in needed(library):  # Android's names for Debian's files
        found = next((SYSROOT / "lib").glob(f"{name}.[0-9]"))
        (tmp_path / name).symlink_to(found)
    source, program = tmp_path / "phone.c", tmp_path / "phone"
    defined = {"@WIDTH@": WIDTH, "@ROWS@": ROWS, "@DEVICE@": WEBGPU}
    source.write_text(re.sub("@\\w+@", lambda m: str(defined[m[0]]), PHONE), encoding="utf-8")
    subprocess.run([COMPILER, "-w", "-O1", source, "-o", program], check=True)
    command = [EMULATOR, "-L", SYSROOT, "-E", f"LD_LIBRARY_PATH={tmp_path}", program, library]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    launched, refusal = done.stdout.split("status 0, ")
    # Three tensors and their rows; then the grid of [blocks of a row, rows], and threads.
    assert launched == f"__tvm_set_device {WEBGPU} 0\nkernel_0_kernel * * * {ROWS} 1 {ROWS} 256\n"
    assert "Invalid .shape[1] on argument #1" in refusal and refusal.endswith("status -1\n")
