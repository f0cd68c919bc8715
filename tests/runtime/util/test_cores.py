"""The cores that a process may use, on systems given as folders of files; thread counts follow."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mlcc.device import threads
from mlcc.errors import InvalidRequestError
from mlcc.util import cores

CGROUP = "sys/fs/cgroup/"


def may_use(patch: pytest.MonkeyPatch, *cpus: int) -> None:
    patch.setattr(os, "sched_getaffinity", lambda pid: set(cpus), raising=False)


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("lists", "may", "expected"),
    [
        (("0-1", "0-1", "2-3", "2-3"), (0, 1, 2, 3), 2),
        (("0,2", "1,3", "0,2", "1,3"), (0, 1, 2, 3), 2),
        (("0,2", "1,3", "0,2", "1,3"), (0, 1), 2),  # a core each
        (("0,2", "1,3", "0,2", "1,3"), (1, 3), 1),
        (("0", "1", "2\n", "3"), (1, 2, 3), 3),
        ((), (0, 5), 2),  # no files
        (("", "what"), (0, 1), 2),
    ],
)
def test_hardware_threads_of_a_core_count_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lists: tuple[str, ...],
    may: tuple[int, ...],
    expected: int,
) -> None:
    may_use(monkeypatch, *may)
    path = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    write(tmp_path, {path.format(cpu): text for cpu, text in enumerate(lists)})
    assert cores.usable_cores(tmp_path) == expected
    assert cores.usable_threads(tmp_path) == len(may)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "max 100000\n"}, 8),
        ({"cpu.max": "250000 100000\n"}, 2),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "nonsense"}, 8),
        (  # a group below the mount's, and one above that binds more
            {"": "0::/a/b\n", "a/b/cpu.max": "700000 100000", "a/cpu.max": "300000 100000"},
            3,
        ),
        (  # the first version
            {
                "": "5:memory:/box\n4:cpu,cpuacct:/box\n",
                "cpu/box/cpu.cfs_quota_us": "400000",
                "cpu/box/cpu.cfs_period_us": "100000",
                "cpu/cpu.cfs_quota_us": "-1",
                "cpu/cpu.cfs_period_us": "100000",
            },
            4,
        ),
        ({"": "0::/../../elsewhere\n", "cpu.max": "200000 100000"}, 2),  # the host's path
        ({"": "strange"}, 8),
    ],
)
def test_a_containers_quota_binds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], expected: int
) -> None:
    may_use(monkeypatch, *range(8))
    there = {CGROUP + name if name else "proc/self/cgroup": text for name, text in files.items()}
    assert cores.usable_cores(write(tmp_path, there)) == expected


def test_the_environment_is_obeyed_as_far_as_there_are_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("TVM_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "")  # and taken back after the test
    monkeypatch.setattr(threads, "_written", None)
    monkeypatch.setattr(threads, "usable_threads", lambda: 8)
    monkeypatch.setattr(threads, "usable_cores", lambda: 4)
    assert threads.set_threads(None) == 4
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads.set_threads(None) == 3  # what was set before is not a user's wish
    monkeypatch.setenv("OMP_NUM_THREADS", " 2,4 ")
    assert threads.set_threads(None) == 2
    monkeypatch.setenv("TVM_NUM_THREADS", "6")
    assert threads.set_threads(None) == 6
    monkeypatch.setenv("TVM_NUM_THREADS", "99")
    assert threads.set_threads(None) == 8
    assert threads.set_threads(7) == 7 and os.environ["TVM_NUM_THREADS"] == "7"
    with pytest.raises(InvalidRequestError, match=r"--threads 9 is more than the 8 cores"):
        threads.set_threads(9)
    for wrong in ("many", "0", "-2", "1.5"):
        monkeypatch.setenv("TVM_NUM_THREADS", wrong)
        with pytest.raises(InvalidRequestError, match=r"TVM_NUM_THREADS is .*; set it to 1 or"):
            threads.set_threads(None)
