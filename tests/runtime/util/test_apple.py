"""What macOS and iOS report.

Neither is here: the layout of Mach's record is compared with its header, by a compiler for macOS;
calls go to a stand-in of libSystem, which takes and gives what Apple's manual pages say.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import pytest

from mlcc.artifact.checks import host_check
from mlcc.util import apple, machine, memory
from mlcc_targets.linking.linker import run_zig, zig

HEADER = """
#include <mach/mach.h>
#include <stddef.h>
#define AT(field, at) _Static_assert(offsetof(vm_statistics64_data_t, field) == at, #field)
AT(free_count, {free});
AT(inactive_count, {inactive});
AT(speculative_count, {speculative});
AT(internal_page_count, {internal});
AT(total_uncompressed_pages_in_compressor, {compressed});
_Static_assert(HOST_VM_INFO64 == 4 && HOST_VM_INFO64_COUNT >= {words}, "count");
"""


def test_the_record_is_machs(tmp_path: Path) -> None:
    record = apple.VmStatistics64
    at = {name: getattr(record, name).offset for name, *_ in record._fields_}
    text = HEADER.format(**at, words=ctypes.sizeof(record) // 4)
    source, made = tmp_path / "record.c", tmp_path / "record.o"
    source.write_text(text, encoding="utf-8")
    headers = Path(zig()).parent / "lib" / "libc" / "include" / "any-darwin-any"
    words = ["cc", "-target", "aarch64-macos.13.0", "-isystem", str(headers), "-c", str(source)]
    run_zig([*words, "-o", str(made)], made)
    assert made.exists()


class System:
    """libSystem's functions, with sysctls by name."""

    def __init__(self, ones: set[str], texts: dict[str, str]) -> None:
        self.ones, self.texts = ones, texts
        self.os_proc_available_memory = lambda: 3 << 30

    def sysctlbyname(self, name: bytes, value: Any, size: Any, new: None, no: Any) -> int:
        text = self.texts.get(name.decode())
        if text is None:
            if name.decode() not in self.ones:
                return -1
            ctypes.cast(value, ctypes.POINTER(ctypes.c_int32))[0] = 1
            size._obj.value = 4
            return 0
        if value is not None:
            ctypes.memmove(value, text.encode(), len(text))
        size._obj.value = len(text) + 1
        return 0

    def mach_host_self(self) -> int:
        return 7

    def host_statistics64(self, host: int, kind: int, record: Any, count: Any) -> int:
        assert (host, kind, count._obj.value) == (7, 4, 38)
        record._obj.free, record._obj.inactive, record._obj.active = 100, 20, 9999
        return 0


@pytest.fixture
def phone(monkeypatch: pytest.MonkeyPatch) -> System:
    system = System({"hw.optional.neon", "hw.optional.arm.FEAT_DotProd"}, {})
    monkeypatch.setattr(apple, "_system", lambda: system)
    monkeypatch.setattr(apple.sys, "platform", "ios")
    monkeypatch.setattr(apple.sys.implementation, "_multiarch", "arm64-iphoneos")
    return system


def test_a_phone(phone: System) -> None:
    assert (machine.machine(), machine.system()) == ("aarch64", "iOS")
    present = machine.cpu_features.__wrapped__()
    assert machine.missing_features(("neon", "dotprod", "i8mm"), present) == ("i8mm",)
    assert memory.available_bytes() == 3 << 30


def test_its_simulator_is_another_system(phone: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apple.sys.implementation, "_multiarch", "arm64-iphonesimulator")
    assert machine.system() == "iOS simulator"
    triples = {"arm64-apple-ios15.0": "iOS", "arm64-apple-ios15.0-simulator": "iOS simulator"}
    for triple, system in triples.items():
        found = next(name for word, name in host_check._SYSTEMS.items() if word in triple)
        assert found == system


def test_a_mac(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        "machdep.cpu.features": "FPU SSE4.2 AVX1.0 FMA",
        "machdep.cpu.leaf7_features": "AVX2 BMI1",
    }
    monkeypatch.setattr(apple, "_system", lambda: System(set(), texts))
    monkeypatch.setattr(machine.platform, "system", lambda: "Darwin")
    present = machine.cpu_features.__wrapped__()
    needed = ("sse4.2", "avx2", "fma", "avx512f")
    assert machine.missing_features(needed, present) == ("avx512f",)
    monkeypatch.setattr(apple.sys, "platform", "darwin")
    assert memory.available_bytes() == 120 * os.sysconf("SC_PAGE_SIZE")
