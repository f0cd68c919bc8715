"""The executor as a Python module: the stable ABI of any version, and ownership of its objects."""

from __future__ import annotations

import ctypes
import gc
import re
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest

from mlcc.artifact.checks import hash_cache
from mlcc.artifact.folder import Artifact
from mlcc.engine.scheduler.manual_steps import ManualSteps
from mlcc.engine_args import EngineArgs
from mlcc.errors import DeviceError
from mlcc.loader import open_executor, open_model
from mlcc.util import executor_library as library
from tests.runtime.device.conftest import NATIVE
from tests.runtime.device.helpers.demo import cpu_executor


def declared() -> set[str]:
    """The functions of Python's ABI that the module uses."""
    text = (NATIVE / "src" / "python" / "python_abi.h").read_text(encoding="utf-8")
    return set(re.findall(r"^MLCC_PYTHON .*?\b(_?Py\w+)\(", text, flags=re.MULTILINE))


def test_it_takes_nothing_that_this_python_has_not() -> None:
    assert len(declared()) > 20
    assert [name for name in declared() if not hasattr(ctypes.pythonapi, name)] == []


@pytest.mark.needs("g++")  # with it comes nm
def test_a_program_without_python_can_load_it(built: None) -> None:
    """All of Python's symbols are weak, and are those that the header declares."""
    done = subprocess.run(
        ["nm", "-D", str(library.LIBRARY)], capture_output=True, text=True, check=True
    )
    found = re.findall(r" ([a-zU]) (_?Py\w+)$", done.stdout, flags=re.MULTILINE)
    assert {kind for kind, _ in found} == {"w"}
    assert {name for _, name in found} <= declared()


def test_ctypes_is_not_imported(demo: Path) -> None:
    """It would take 10 ms of a start, and libffi along on a phone. To ask Linux for AMX, which no
    phone has, takes ctypes."""
    if "amx-tile" in Artifact.open(demo).manifest.target.features:
        pytest.skip("this CPU's library uses AMX")
    script = f"""
import sys
from pathlib import Path
from mlcc.engine_args import EngineArgs
from mlcc.loader import open_model
model = open_model(Path({str(demo)!r}), EngineArgs(threads=1))
model.close()
sys.exit("ctypes" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_view_of_the_words_keeps_their_memory(demo: Path) -> None:
    executor = cpu_executor(demo)
    batch = ManualSteps(executor.capacity).step({0: [1, 2, 3]})
    words, gone = executor.step_buffer(), weakref.ref(executor)
    del executor
    gc.collect()
    assert gone() is None
    words[: batch.used_words] = batch.words[: batch.used_words]
    assert words[: batch.used_words] == batch.words[: batch.used_words]


def test_closing_takes_back_what_was_lent(demo: Path) -> None:
    executor = cpu_executor(demo)
    words = executor.step_buffer()
    executor.close()
    executor.close()
    with pytest.raises(ValueError, match="released"):
        words[0] = 1
    with pytest.raises(DeviceError, match="the executor is closed"):
        executor.submit(ManualSteps(executor.capacity).step({0: [1]}))


def test_a_python_without_its_lock_is_refused(built: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "load", library.load.__wrapped__)
    monkeypatch.setattr(sys, "abiflags", "t", raising=False)
    with pytest.raises(DeviceError, match=r"free-threaded one .*; use the usual build of Python 3"):
        library.load()


@pytest.mark.parametrize("wrong", [(), (b"x",), (b"x", None, "one")])
def test_wrong_records_are_errors_of_python(built: None, wrong: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        library.load().open(*wrong)


def test_what_progress_raises_is_raised(demo: Path) -> None:
    """From within a call of C, which it may not cross."""

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_executor(
            Artifact.open(demo), EngineArgs(threads=1, max_batch=1, context=64), progress=stop
        )


def test_progress_of_loading_counts_the_hashes_unless_they_were_checked_before(
    demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(hash_cache, "SETTLED_NS", 0)

    def load() -> list[tuple[int, int]]:
        seen: list[tuple[int, int]] = []
        args = EngineArgs(threads=1, max_batch=1, context=64)
        open_model(demo, args, progress=lambda done, total: seen.append((done, total))).close()
        return seen

    first, second = load(), load()
    for seen in (first, second):
        assert seen == sorted(seen) and seen[-1][0] == seen[-1][1]
    hashed = sum(entry.bytes for entry in Artifact.open(demo).manifest.files)
    assert first[-1][0] == hashed + second[-1][0]
