"""`metal` and `ios` libraries, inspected by object tools: nothing here can load one."""

from __future__ import annotations

import ctypes
import hashlib
import platform
import re
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mlcc_compiler import pipeline
from mlcc_compiler.ir._tvm import T, tvm
from mlcc_compiler.kernels.frame import Expr, f32, kernel, store
from mlcc_targets import Target, TargetError, get_target
from mlcc_targets.linking import static
from mlcc_targets.linking.linker import run_zig
from tests.targets.small_library import WIDTH, build, inspect, lowered

pytestmark = pytest.mark.needs("llvm")
TVM_CALLS = {"_TVMFFIErrorSetRaisedFromCStrParts"}
STATIC_CALLS = TVM_CALLS | {
    "_TVMFFIEnvModLookupFromImports",
    "_TVMFFIEnvModRegisterSystemLibSymbol",
    "_TVMFFIFunctionCall",
    "_TVMFFIHandleInitOnce",
}


@pytest.fixture(scope="module")
def dylib(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(get_target("metal"), tmp_path_factory.mktemp("metal") / "model.dylib")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(named_ios("mlcc_small_"), tmp_path_factory.mktemp("ios") / "model.a")


def named_ios(prefix: str) -> Target:
    return replace(get_target("ios"), symbol_prefix=prefix)


def commands(headers: str) -> dict[str, str]:
    """Load command -> its data."""
    parts = re.split(r"^ *cmd (LC_\w+)$", headers, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def symbols(library: Path, kind: str) -> set[str]:
    """Names of the symbols that `library` defines or leaves undefined."""
    lines = inspect("llvm-nm", "-g", f"--{kind}-only", "--format=just-symbols", library)
    return {line for line in lines.split() if not line.endswith(":")}


def test_the_dylib_is_for_macos_and_signed(dylib: Path) -> None:
    header = inspect("llvm-objdump", "-m", "--private-header", dylib)
    assert re.search(r"MH_MAGIC_64\s+ARM64\s+ALL\s+\S+\s+DYLIB", header), header
    found = commands(inspect("llvm-objdump", "-m", "--private-headers", dylib))
    assert re.search(r"platform macos\s+sdk 13.0\s+minos 13.0", found["LC_BUILD_VERSION"])
    assert re.search(r"datasize [1-9]", found["LC_CODE_SIGNATURE"])
    assert "LC_UUID" in found  # dyld refuses a library without one, or without any LC_LOAD_DYLIB
    assert "name /usr/lib/libSystem.B.dylib " in found["LC_LOAD_DYLIB"]
    assert "name @rpath/model.dylib " in found["LC_ID_DYLIB"]


def test_the_signature_covers_every_page_of_the_dylib(dylib: Path) -> None:
    hashes = code_hashes(dylib.read_bytes())
    assert hashes, "no hashes"
    for page, (expected, actual) in enumerate(hashes):
        assert expected == actual, f"page {page}"


def code_hashes(data: bytes) -> list[tuple[bytes, bytes]]:
    """(hash in the ad-hoc signature, hash of the bytes) of each page; see xnu's cs_blobs.h."""
    start = data.rindex(struct.pack(">I", 0xFADE0C02))  # the code directory
    _, _, _, flags, hash_at, _, _, slots, limit = struct.unpack_from(">9I", data, start)
    size, kind, _, page_bits = struct.unpack_from(">4B", data, start + 36)
    assert flags & 2, "not ad hoc"
    assert (size, kind) == (32, 2), "not SHA-256"
    page = 1 << page_bits
    bodies = [data[at : min(at + page, limit)] for at in range(0, limit, page)]
    assert slots == len(bodies)
    at = start + hash_at
    return [
        (data[at + i * size : at + (i + 1) * size], hashlib.sha256(body).digest())
        for i, body in enumerate(bodies)
    ]


def test_the_dylib_needs_nothing_but_tvm(dylib: Path) -> None:
    assert symbols(dylib, "undefined") <= TVM_CALLS | {"dyld_stub_binder"}
    exported = symbols(dylib, "defined")
    assert {"___tvm_ffi_kernel_0", "___tvm_ffi__library_bin"} <= exported
    # What the runtime fills in when it loads the library; it finds them by these names.
    assert {"___TVMFFIFunctionCall", "___tvm_ffi__library_ctx"} <= exported


@pytest.mark.parametrize("library", ["dylib", "archive"])
def test_the_kernels_are_inside_as_text(library: str, request: pytest.FixtureRequest) -> None:
    data = request.getfixturevalue(library).read_bytes()
    assert data.count(b"#include <metal_stdlib>") == 2
    assert len(re.findall(rb"kernel void \w*kernel_\d_kernel\(", data)) == 2


def test_the_archive_is_for_ios(archive: Path) -> None:
    headers = inspect("llvm-objdump", "-m", "--private-headers", archive)
    assert len(re.findall(r"platform ios\s+sdk n/a\s+minos 15.0", headers)) == 2
    assert symbols(archive, "undefined") == STATIC_CALLS


def test_every_symbol_of_the_archive_carries_its_prefix(archive: Path) -> None:
    shared = {"___extendhfsf2", "___truncsfhf2"}  # weak: equal in every model
    listed = inspect("llvm-nm", "-g", "-m", "--defined-only", archive).splitlines()
    weak = {line.split()[-1] for line in listed if " weak external " in line}
    assert shared <= weak
    names = symbols(archive, "defined") - shared
    assert "_mlcc_small___tvm_ffi__library_bin" in names
    assert all(name.removeprefix("___tvm_ffi").startswith("_mlcc_small_") for name in names), names


def test_two_links_are_equal_to_the_byte(dylib: Path, archive: Path, tmp_path: Path) -> None:
    for row, first in ((get_target("metal"), dylib), (named_ios("mlcc_small_"), archive)):
        again = build(row, tmp_path / "elsewhere" / first.name)
        assert again.read_bytes() == first.read_bytes(), row.name
        for name in row.extra_files:
            assert again.with_name(name).read_bytes() == first.with_name(name).read_bytes()


def double(x: Expr, y: Expr, out: Expr) -> None:
    """out = 2x + y, on the CPU."""
    with T.serial(0, x.shape[0]) as i, T.serial(0, WIDTH) as j:
        store(out, x[i, j] + x[i, j] + y[i, j], i, j)


def triple(x: Expr, y: Expr, out: Expr) -> None:
    """out = 3x, on the CPU."""
    with T.serial(0, x.shape[0]) as i, T.serial(0, WIDTH) as j:
        store(out, x[i, j] + x[i, j] + x[i, j], i, j)


@pytest.mark.skipif(platform.system() != "Linux", reason="links ELF objects")
def test_an_app_links_two_static_models_through_their_headers(tmp_path: Path) -> None:
    """The steps of `metal` for this machine's CPU, where the result can be loaded and run."""
    functions = {"mlcc_double_": double, "mlcc_triple_": triple}
    archives = [static_model(tmp_path, prefix, body) for prefix, body in functions.items()]
    source = tmp_path / "app.c"
    lines = [f'#include "{path.with_suffix(".h").name}"' for path in archives]
    lines += [
        f"const char *{prefix}name(void) {{ return {prefix}link(); }}" for prefix in functions
    ]
    source.write_text("\n".join(lines), encoding="utf-8")
    app = tmp_path / "app.so"
    command = ["cc", "-Wall", "-Werror", "-O2", "-shared", "-fPIC", "-o", app, source, *archives]
    run_zig([str(word) for word in (*command, "-nostdlib")], app)  # this process has libm
    linked = ctypes.CDLL(str(app))
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 3, WIDTH)).astype(np.float32)
    for prefix, expected in (("mlcc_double_", x + x + y), ("mlcc_triple_", x + x + x)):
        name = getattr(linked, f"{prefix}name")
        name.restype = ctypes.c_char_p
        assert name().decode() == prefix
        library = tvm.get_global_func("ffi.SystemLib")(prefix)
        machine = tvm.runtime.vm.VirtualMachine(library, tvm.cpu())
        result = machine["forward"](tvm.runtime.tensor(x), tvm.runtime.tensor(y))
        np.testing.assert_array_equal(result.numpy(), expected)


def static_model(folder: Path, prefix: str, body: object) -> Path:
    """A static model of one CPU kernel as for `ios`, but for this machine; with its header."""

    def archive(objects: list[Path], library: Path) -> None:
        run_zig(["ar", "rcsD", str(library), *map(str, objects)], library)
        text = static.header(static.symbol_prefix(objects), library.name, "")
        library.with_suffix(".h").write_text(text, encoding="utf-8")

    row = Target(name="static", device="cpu", symbol_prefix=prefix, link=archive)
    rows = f32("n", WIDTH)
    module = lowered([kernel(body, x=rows, y=rows, out=rows)], row)
    library = folder / f"{prefix}model.a"
    pipeline.build(module, row, library)
    return library


def test_objects_without_a_prefix_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="no symbol prefix"):
        static.symbol_prefix([tmp_path / "lib0.o", tmp_path / "devc.o"])
