"""libmlcc_executor for macOS, read by object tools: nothing here can load it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from mlcc_targets.linking.linker import zig
from tests.targets.metal.test_library import code_hashes, commands, symbols
from tests.targets.small_library import inspect

pytestmark = [pytest.mark.needs("llvm"), pytest.mark.long]  # four minutes of CPU time
NATIVE = Path(__file__).parents[2] / "runtime" / "native"
OPERATORS = re.compile(r"__Z(n|d)[wal]")
"""new and delete, of zig's C++ library."""


@pytest.fixture(scope="module", params=["aarch64", "x86_64"])
def executor(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    sys.path.insert(0, str(NATIVE))
    import build_executor

    made: Path = build_executor.build_for_macos(
        tmp_path_factory.mktemp(request.param) / "libmlcc_executor.dylib", request.param
    )
    return made


def test_it_is_for_macos_13_and_signed(executor: Path) -> None:
    header = inspect("llvm-objdump", "-m", "--private-header", executor)
    (kind,) = re.findall(r"MH_MAGIC_64\s+(\S+)\s+ALL\s+\S+\s+DYLIB", header)
    assert kind == {"aarch64": "ARM64", "x86_64": "X86_64"}[executor.parent.name[:-1]]
    found = commands(inspect("llvm-objdump", "-m", "--private-headers", executor))
    assert re.search(r"platform macos\s+sdk \S+\s+minos 13.0", found["LC_BUILD_VERSION"])
    assert "name @rpath/libmlcc_executor.dylib " in found["LC_ID_DYLIB"]
    assert "LC_UUID" in found
    if kind == "ARM64":  # where libraries without a signature are refused
        hashes = code_hashes(executor.read_bytes())
        assert hashes and all(expected == actual for expected, actual in hashes)


def test_it_needs_libsystem_and_python_alone(executor: Path) -> None:
    listed = inspect("llvm-objdump", "-m", "--dylibs-used", executor).splitlines()
    needed = {line.split()[0] for line in listed if line.startswith("\t")}
    assert needed - {"@rpath/libmlcc_executor.dylib"} == {"/usr/lib/libSystem.B.dylib"}
    stub = Path(zig()).parent / "lib" / "libc" / "darwin" / "libSystem.tbd"
    system = set(re.findall(r"[\w$]+", stub.read_text(encoding="utf-8")))
    left = symbols(executor, "undefined") - system
    assert {name for name in left if not re.match(r"__?Py[A-Z_]", name)} == set()
    assert "_PyModuleDef_Init" in left


def test_it_exports_its_own_functions(executor: Path) -> None:
    defined = {name for name in symbols(executor, "defined") if not OPERATORS.match(name)}
    assert {"_PyInit_libmlcc_executor", "_mlcc_executor_abi", "_mlcc_executor_step"} <= defined
    others = {name for name in defined if not name.startswith(("_mlcc_", "_PyInit_"))}
    assert others == {"___dso_handle", "__mh_dylib_header"}  # the linker's
