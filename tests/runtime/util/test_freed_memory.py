"""What a process has freed goes back to the system: glibc keeps it below a block that is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mlcc.server.prompts.body_reader import _parse
from mlcc.util import freed_memory
from mlcc.util.freed_memory import LARGE_BYTES, give_back_freed_memory

PROGRAM = """
from pathlib import Path
from mlcc.util.freed_memory import give_back_freed_memory

def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) >> 10

blocks = [b"x" * 100_000 for _ in range(1000)]  # 95 MiB, each smaller than what glibc maps
last = blocks.pop()
blocks.clear()
before = resident()
give_back_freed_memory()
print(before, resident())
"""


def has_malloc_trim() -> bool:
    return freed_memory._malloc_trim() is not None


@pytest.mark.skipif(not has_malloc_trim(), reason="this C library has no malloc_trim")
def test_freed_memory_goes_back() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    before, after = map(int, done.stdout.split())
    assert after < before - 80


def test_other_libraries_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    freed_memory._malloc_trim.cache_clear()
    monkeypatch.setattr(freed_memory.sys, "platform", "darwin")
    try:
        assert freed_memory._malloc_trim() is None
        give_back_freed_memory()
    finally:
        freed_memory._malloc_trim.cache_clear()


@pytest.mark.parametrize(("size", "times"), [(LARGE_BYTES // 2, 0), (2 * LARGE_BYTES, 1)])
def test_a_large_body_is_followed_by_it(
    size: int, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = list[int]()
    name = "mlcc.server.prompts.body_reader.give_back_freed_memory"
    monkeypatch.setattr(name, lambda: called.append(1))
    for body in (b'"' + b"a" * size + b'"', b"[" * size):
        assert _parse(body)
    assert len(called) == 2 * times
