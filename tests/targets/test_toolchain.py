"""Whether a machine without the linkers hears what to install, before any work."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mlcc_compiler.toolchain import missing
from mlcc_targets import get_target
from mlcc_targets.linker import find_tool

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="names Debian's packages")


def program(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("target", "tool", "install"),
    [
        ("cpu", "gcc", "apt install gcc"),
        ("vulkan", "cc", "apt install gcc"),
        ("metal", "ld64.lld", "apt install lld"),
        ("metal", "ld64.lld-14", "apt install lld"),
        ("ios", "llvm-libtool-darwin-19", "apt install llvm"),
        ("android", "ld.lld", "apt install lld"),
        ("webgpu", "emcc", "apt install emscripten"),
    ],
)
def test_a_tool_is_asked_for_and_found(
    target: str, tool: str, install: str, empty_path: Path
) -> None:
    row = get_target(target)
    assert missing(row).endswith(install)
    program(empty_path, tool)
    assert missing(row) == ""


def test_the_newest_version_is_taken_unless_one_is_chosen(empty_path: Path) -> None:
    for name in ("ld.lld-9", "ld.lld-14", "ld.lld-19"):
        program(empty_path, name)
    assert find_tool("ld.lld") == str(empty_path / "ld.lld-19")
    program(empty_path, "ld.lld")
    assert find_tool("ld.lld") == str(empty_path / "ld.lld")


def test_a_compiler_that_is_not_there_is_named(
    empty_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(empty_path, "gcc")
    monkeypatch.setenv("CC", "no-such-cc -m64")
    assert "no-such-cc" in missing(get_target("cpu"))


@pytest.mark.parametrize("target", ["metal", "ios", "android"])
def test_what_cannot_run_here_says_where_it_does(target: str) -> None:
    assert "docs/devices.md" in get_target(target).run_missing


def test_what_runs_in_a_browser_says_how() -> None:
    assert "mlcc serve" in get_target("webgpu").run_missing
