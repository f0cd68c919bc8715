"""The manylinux tag of a wheel, computed from the versions that its library requires."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mlcc_targets import native
from mlcc_targets.native import manylinux


@pytest.mark.parametrize(
    ("needed", "expected"),
    [
        ({"GLIBC_2.2.5", "GLIBC_2.17"}, "manylinux_2_17_x86_64"),
        ({"GLIBC_2.34", "GLIBCXX_3.4.29", "CXXABI_1.3.9", "GCC_3.0"}, "manylinux_2_34_x86_64"),
        ({"GLIBC_2.17", "GLIBCXX_3.4.30"}, "manylinux_2_35_x86_64"),
        ({"GLIBC_2.9", "GLIBC_2.28"}, "manylinux_2_28_x86_64"),  # numbers, not text
        ({"GLIBC_2.2.5", "CXXABI_1.3.15"}, "manylinux_2_39_x86_64"),
    ],
)
def test_the_oldest_system_that_has_all_is_named(needed: set[str], expected: str) -> None:
    assert manylinux.tag(frozenset(needed), "x86_64") == expected


def test_what_no_system_has_is_refused() -> None:
    with pytest.raises(ValueError, match=r"GLIBC_2\.99"):
        manylinux.tag(frozenset({"GLIBC_2.99"}), "x86_64")


@pytest.mark.skipif(sys.platform != "linux", reason="reads an ELF library")
@pytest.mark.skipif(native.library() is None, reason="the plugin is not built")
def test_the_plugins_versions_are_those_that_it_names() -> None:
    plugin = native.library()
    assert plugin
    needed = manylinux.needed_versions(plugin)
    assert any(name.startswith("GLIBC_2.") for name in needed)
    assert any(name.startswith("GLIBCXX_3.4") for name in needed)
    assert all(name.encode() in plugin.read_bytes() for name in needed)


def test_what_is_no_library_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a library")
    with pytest.raises(ValueError, match="text is no 64-bit ELF library"):
        manylinux.needed_versions(tmp_path / "text")
