"""Requirements of compiling: the linker, a Python package, and no system program."""

from __future__ import annotations

import re
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest

from mlcc_compiler.driver.toolchain import missing
from mlcc_targets import TARGETS, get_target
from mlcc_targets.linking.elf import LINUX
from mlcc_targets.linking.linker import PACKAGE
from mlcc_targets.target import not_built
from tests.targets.small_library import build

LINKED = [name for name in TARGETS if get_target(name).link is not not_built]


@pytest.mark.parametrize("target", sorted({*LINKED} - {"cuda"}))  # nvcc needs g++
def test_no_program_of_the_system_is_needed(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert missing(get_target(target)) == ""


def test_without_the_linkers_package_every_target_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ziglang").mkdir()
    (tmp_path / "ziglang" / "__init__.py").touch()
    monkeypatch.delitem(sys.modules, "ziglang", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    for target in LINKED:
        assert missing(get_target(target)).endswith(f"pip install {PACKAGE}"), target
    assert missing(get_target("reference")) == ""


def test_the_package_is_the_one_that_is_pinned() -> None:
    assert any(line.startswith(PACKAGE) for line in requires("mlcc") or [])


@pytest.mark.skipif(sys.platform != "linux", reason="reads an ELF library")
def test_a_library_asks_for_no_version_of_glibc(tmp_path: Path) -> None:
    """A library linked on a new system loads on an old one."""
    library = build(get_target("vulkan"), tmp_path / "model.so")
    data = library.read_bytes()
    assert all(name.encode() in data for name in LINUX)
    assert re.search(rb"GLIBC_\d", data) is None


@pytest.mark.parametrize("target", ["metal", "ios", "android"])
def test_what_cannot_run_here_says_where_it_does(target: str) -> None:
    assert "docs/devices.md" in get_target(target).run_missing


def test_what_runs_in_a_browser_says_how() -> None:
    assert "mlcc serve" in get_target("webgpu").run_missing
