"""Building the plugin: missing parts are reported, and the executor is built without them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcc_targets import native
from mlcc_targets.native import build, once


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The build's output in an empty folder."""
    monkeypatch.setattr(build, "LIBRARY", tmp_path / build.LIBRARY.name)
    monkeypatch.setattr(build, "OUTPUT", tmp_path)
    monkeypatch.setattr(native, "_FOLDER", tmp_path)
    monkeypatch.setattr(native, "_LIBRARY", build.LIBRARY)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_without_a_compiler_the_reason_is_noted(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(elsewhere))
    reason = build.build_or_explain()
    assert "no C++ compiler" in reason and "apt install g++" in reason
    assert native.library() is None and native.why_absent() == reason


def test_a_compiler_that_fails_is_quoted(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = elsewhere / "compiler"
    script.write_text("#!/bin/sh\necho 'x.cc:1: error: too old' >&2\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    build.LIBRARY.write_text("of older sources")
    assert build.build_or_explain() == "compiling the WebGPU plugin failed: x.cc:1: error: too old"
    assert native.library() is None  # not one that the sources do not describe


def test_a_build_is_done_once(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = elsewhere / "compiler"
    script.write_text(
        "#!/bin/sh\n"
        f"echo run >> {elsewhere}/runs\n"
        'while [ "$1" != "-o" ]; do shift; done\n'
        'echo library > "$2"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    assert build.build_or_explain() == "" and build.build_or_explain() == ""
    assert build.is_current() and (elsewhere / "runs").read_text() == "run\n"
    assert native.library() == build.LIBRARY and not native.why_absent()
    build.LIBRARY.unlink()  # as in a second clone
    assert build.build_or_explain() == "" and build.LIBRARY.read_text() == "library\n"
    assert (elsewhere / "runs").read_text() == "run\n"
    monkeypatch.setattr(build, "source_hash", lambda: "other")
    assert not build.is_current() and build.build_or_explain() == ""
    assert (elsewhere / "runs").read_text() == "run\nrun\n"


def test_the_cache_tells_instruction_sets_apart() -> None:
    kept = {once.cached(Path("lib.so"), "hash", arch) for arch in ("", "x86_64", "aarch64")}
    assert len(kept) == 2  # one of them is this machine's


def test_a_package_that_is_missing_is_named() -> None:
    with pytest.raises(build.BuildError, match="'no_such_package' is not installed"):
        build.package("no_such_package")
