"""A Chromium driven through `browser.mjs`, with the memory and CPU time of its processes.

Linux only: memory is read from /proc. `scenarios.py` decides what is measured.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SWIFTSHADER = (
    "--use-webgpu-adapter=swiftshader",
    # Else SwiftShader unrolls the zeroing of shared arrays, and pipelines compile for seconds.
    "--disable-dawn-features=use_vulkan_zero_initialize_workgroup_memory_extension",
)
"""WebGPU on the CPU."""
_TICKS = os.sysconf("SC_CLK_TCK")


class BrowserError(RuntimeError):
    """A page threw an exception, or the browser ended."""


class Browser:
    """One Chromium with a profile; `close` ends it and its driver."""

    def __init__(self, chromium: str, profile: Path, flags: tuple[str, ...] = ()) -> None:
        command = ["node", str(HERE / "browser.mjs")]
        self._driver = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=HERE
        )
        self.pid = self._driver.pid
        options = {"profile": str(profile), "executable": chromium, "flags": list(flags)}
        self.version = self._command("launch", **options)["version"]

    def open(self, url: str) -> Page:
        return Page(self, self._command("open", url=url)["page"])

    def close(self) -> None:
        if self._driver.poll() is None:
            self._command("close")
        self._driver.communicate(timeout=30)

    def _command(self, action: str, **arguments: Any) -> Any:
        assert self._driver.stdin and self._driver.stdout
        self._driver.stdin.write(json.dumps({"do": action, **arguments}) + "\n")
        self._driver.stdin.flush()
        line = self._driver.stdout.readline()
        if not line:
            raise BrowserError("the browser's driver ended; its last messages are on stderr")
        reply = json.loads(line)
        if "error" in reply:
            raise BrowserError(f"{action}: {reply['error']}")
        return reply["value"]


@dataclass(frozen=True)
class Page:
    """A tab that offers `window.bench`."""

    browser: Browser
    number: int

    def call(self, name: str, given: Any = None) -> Any:
        return self.browser._command("call", page=self.number, name=name, **{"with": given})

    def collect_garbage(self) -> None:
        """Run JavaScript's garbage collector, so that memory in use is memory needed."""
        self.browser._command("tidy", page=self.number)


@contextmanager
def browser(
    chromium: str, flags: tuple[str, ...], profile: Path | None = None
) -> Iterator[Browser]:
    """A Chromium; without `profile`, with a fresh one."""
    folder = profile or Path(tempfile.mkdtemp(prefix="mlcc-web-"))
    opened = Browser(chromium, folder, flags)
    try:
        yield opened
    finally:
        opened.close()
        if profile is None:
            shutil.rmtree(folder, ignore_errors=True)


def process_tree(pid: int) -> list[int]:
    """A process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:  # it has just ended
                continue
            children.setdefault(parent, []).append(int(entry.name))
    pids = [pid]
    for process in pids:
        pids += children.get(process, [])
    return pids


def cpu_seconds(pids: list[int]) -> float:
    """CPU seconds of processes and of their ended children."""
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(int(value) for value in fields[11:15])
    return ticks / _TICKS


def roles(pid: int) -> dict[int, str]:
    """The processes of a browser that run pages: `tab` (all renderers) and `gpu`."""
    found = {}
    for child in process_tree(pid):
        try:
            command = Path(f"/proc/{child}/cmdline").read_bytes()
        except OSError:  # it has just ended
            continue
        if b"--type=renderer" in command:
            found[child] = "tab"
        elif b"--type=gpu-process" in command:
            found[child] = "gpu"
    return found


def memory(pid: int) -> dict[str, int]:
    """Proportional set size (PSS) in bytes of the tab and of the GPU process."""
    found = {"tab": 0, "gpu": 0}
    for child, role in roles(pid).items():
        try:
            rollup = Path(f"/proc/{child}/smaps_rollup").read_text()
        except OSError:
            continue
        found[role] += 1024 * int(rollup.partition("\nPss:")[2].split()[0])
    return found


def pin_cores(pid: int) -> bool:
    """Pin the GPU process, which computes if the adapter is the CPU, to one core, tabs to the rest.

    As with a real GPU, Python then waits for no core. False if there is only one core.
    """
    first, *rest = sorted(os.sched_getaffinity(0))
    for child, role in roles(pid).items() if rest else ():
        for task in Path(f"/proc/{child}/task").iterdir():
            os.sched_setaffinity(int(task.name), {first} if role == "gpu" else rest)
    return bool(rest)


@dataclass
class Peak:
    """The largest memory during a `watch`."""

    tab: int = 0
    gpu: int = 0
    both: int = 0
    samples: int = field(default=0, repr=False)

    def update(self, now: dict[str, int]) -> None:
        self.tab, self.gpu = max(self.tab, now["tab"]), max(self.gpu, now["gpu"])
        self.both = max(self.both, now["tab"] + now["gpu"])
        self.samples += 1


@contextmanager
def watch(pid: int, every: float = 0.2) -> Iterator[Peak]:
    """Sample the memory of a browser in the background."""
    peak, done = Peak(), threading.Event()

    def sample() -> None:
        while not done.wait(every):
            peak.update(memory(pid))

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()
