"""`tools/ndk_stand_in.py`: the functions of an API level, and stubs that have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.targets.small_library import inspect
from tools.ndk_stand_in import functions, stub

LIST = """\
LIBC {
  global:
    malloc;
    __aeabi_atexit; # arm
    cfsetspeed; # introduced=21
    aligned_alloc; # introduced=28
    atexit; # arm x86_64
    __gnu_basename; # introduced-arm64=23 introduced-x86_64=30
  local:
    *;
};
LIBC_PRIVATE {
  global:
    __accept4; # arm x86
    __system_property_area;
} LIBC;
"""


@pytest.fixture
def bionic(tmp_path: Path) -> Path:
    (tmp_path / "libc").mkdir()
    (tmp_path / "libc" / "libc.map.txt").write_text(LIST, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("arch", "found"),
    [
        ("aarch64", ["malloc", "cfsetspeed", "__gnu_basename"]),
        ("x86_64", ["malloc", "cfsetspeed", "atexit"]),
    ],
)
def test_functions_of_android_8(bionic: Path, arch: str, found: list[str]) -> None:
    assert list(functions(bionic, "c", arch)) == found


@pytest.mark.needs("llvm")
def test_a_stub_defines_them(tmp_path: Path) -> None:
    library = tmp_path / "libc.so"
    stub(["malloc", "free"], library, "aarch64")
    listed = inspect("llvm-nm", "-D", "--defined-only", "--format=just-symbols", library)
    assert set(listed.split()) == {"malloc", "free"}
    assert "libc.so" in inspect("llvm-readelf", "-d", library)
