"""The scenarios: starts, speeds, memory, many chats. Each function returns a plain dict.

An engine is a page (`pages/NAME.html`) and the folder of its models; all pages offer the same
calls. Times are taken in the page, memory and CPU time outside of it.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.cpu import busy_seconds
from benchmarks.web.browser import (
    Browser,
    Page,
    browser,
    cpu_seconds,
    memory,
    pin_cores,
    process_tree,
    watch,
)
from benchmarks.web.site import Site

Figures = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """Tokens and rounds of a scenario."""

    prompt: int = 256
    answer: int = 64
    rounds: int = 3


SOFTWARE = {"demo": Sizes(256, 32, 2), "135m": Sizes(32, 4, 1)}
"""For adapters on the CPU, where a step of 135M parameters takes a second or more."""


@dataclass(frozen=True)
class Bench:
    """The site that serves the engines, and the browser that visits it."""

    site: Site
    chromium: str
    flags: tuple[str, ...]
    say: Callable[[str], None]

    def browser(self, profile: Path | None = None) -> Any:
        return browser(self.chromium, self.flags, profile)

    def url(self, engine: str, shape: str) -> str:
        model = shape if engine == "peer" else f"/models/{shape}/"
        return f"{self.site.url}/{engine}.html?model={model}"


@contextmanager
def other_load() -> Iterator[Figures]:
    """Measure the cores used by other processes: `other_cores`, set at the end."""
    own, start = process_tree(os.getpid()), time.perf_counter()
    before, mine = busy_seconds(), cpu_seconds(own)
    found: Figures = {}
    yield found
    busy = busy_seconds() - before - (cpu_seconds(process_tree(os.getpid())) - mine)
    found["other_cores"] = round(max(0.0, busy) / (time.perf_counter() - start), 2)


def start(bench: Bench, engine: str, shape: str, sizes: Sizes) -> Figures:
    """A first visit and a second one with the same profile, each in a new browser process."""
    figures: Figures = {}
    with tempfile.TemporaryDirectory(prefix="mlcc-web-", ignore_cleanup_errors=True) as folder:
        for visit in ("cold", "warm"):
            bench.site.sent.clear()
            with bench.browser(Path(folder)) as opened:
                with other_load() as load, watch(opened.pid) as peak:
                    page = opened.open(bench.url(engine, shape))
                    row = page.call("started")
                    page.call("run", {"prompt": sizes.prompt, "tokens": 2, "seed": 1})
                settled = memory(opened.pid)
            sent = {str(path): count for path, count in bench.site.sent.items()}
            row |= {"peak": asdict(peak), "settled": settled, "sent": sent}
            figures[visit] = row | load
            bench.say(f"{engine} {shape} {visit}: {row['stages'][-1]['ms'] / 1e3:.1f} s")
    return figures


def speed(bench: Bench, engines: list[str], shape: str, sizes: Sizes) -> dict[str, list[Figures]]:
    """Prefill and decode of each engine in turn, all in one browser, round after round."""
    rounds: dict[str, list[Figures]] = {engine: [] for engine in engines}
    with bench.browser() as opened:
        pages = {engine: _started(bench, opened, engine, shape) for engine in engines}
        for number in range(sizes.rounds + 1):
            for engine, page in pages.items():
                figures = _one_round(page, sizes, 10 * number)
                if number:  # the first compiles what the sizes need
                    rounds[engine].append(figures)
                    bench.say(f"{engine} {shape} round {number}: {figures}")
    return rounds


def _started(bench: Bench, opened: Browser, engine: str, shape: str) -> Page:
    page = opened.open(bench.url(engine, shape))
    page.call("started")
    return page


def _one_round(page: Page, sizes: Sizes, seed: int) -> Figures:
    """Decode time is that of a long answer minus that of a single token: the page cannot see every
    token, since some have no text."""

    def ms(prompt: int, tokens: int, other: int) -> float:
        arguments = {"prompt": prompt, "tokens": tokens, "seed": seed + other}
        return float(page.call("run", arguments)["ms"])

    with other_load() as load:
        prefill = 1e3 * sizes.prompt / ms(sizes.prompt, 1, 0)
        first = ms(16, 1, 1)
        decode = 1e3 * sizes.answer / (ms(16, sizes.answer + 1, 2) - first)
    return {"prefill": round(prefill, 2), "decode": round(decode, 2), **load}


def batches(bench: Bench, shape: str, sizes: Sizes) -> list[Figures]:
    """mlcc alone: 1, 2 and 4 concurrent chats, and Python's share of each step.

    The last row is one chat again with Python and the adapter on separate cores.
    """
    rows = []
    with bench.browser() as opened:
        page = _started(bench, opened, "mlcc", shape)
        for number, chats in enumerate((1, 2, 4, 1)):
            apart = number == 3 and pin_cores(opened.pid)
            row = _at_once(page, chats, sizes, 100 * number) | {"apart": apart}
            rows.append(row)
            bench.say(f"mlcc {shape} {chats} at once: {row}")
    return rows


def _at_once(page: Page, chats: int, sizes: Sizes, seed: int) -> Figures:
    arguments = {"chats": chats, "prompt": 16, "tokens": sizes.answer + 1, "seed": seed + 10}
    page.call(
        "together", arguments | {"tokens": 2, "seed": seed}
    )  # compiles the kernels of these sizes
    before = page.call("driver")
    with other_load() as load:
        page.call("together", arguments)
    return _driver(chats, before, page.call("driver")) | load


def _driver(chats: int, before: Figures, after: Figures) -> Figures:
    """Milliseconds a step by part, from the counters of the tab's driver.

    One of the steps is the prefill, with the first token of each answer.
    """
    steps = after["steps"] - before["steps"]
    parts = {key: (after[key] - before[key]) / steps for key in after if key.endswith("_ms")}
    whole = sum(v for key, v in parts.items() if key != "python_ms")
    share = round(parts["python_ms"] / whole, 4)
    row = {"chats": chats, "decode": round(1e3 * chats / whole, 2), "steps": steps}
    return row | {k: round(v, 3) for k, v in parts.items()} | {"python_share": share}


def many(bench: Bench, chats: int, every: int = 20) -> list[Figures]:
    """Short chats in a row with the demo model; memory after each `every` chats."""
    rows = []
    with bench.browser() as opened:
        page = _started(bench, opened, "mlcc", "demo")
        for done in range(0, chats + 1, every):
            page.collect_garbage()
            rows.append({"chats": done, **memory(opened.pid)})
            bench.say(f"after {done} chats: {rows[-1]}")
            if done < chats:
                page.call("chat", {"count": every, "first": done})
    return rows


def empty(bench: Bench) -> Figures:
    """The memory of an empty tab: that of the browser itself."""
    with bench.browser() as opened:
        opened.open(f"{bench.site.url}/empty.html")
        time.sleep(1)
        return dict(memory(opened.pid))
