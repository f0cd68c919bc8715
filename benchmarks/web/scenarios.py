"""What is measured: starts, speeds, memory, many chats. Each function returns plain figures.

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
    family,
    memory,
    set_apart,
    watch,
)
from benchmarks.web.site import Site

Figures = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """How much is asked of each engine."""

    prompt: int = 256
    answer: int = 64
    rounds: int = 3


SOFTWARE = {"demo": Sizes(256, 32, 2), "135m": Sizes(32, 4, 1)}
"""For adapters on the CPU, where a step of 135M parameters takes a second or more."""


@dataclass(frozen=True)
class Bench:
    """Where engines are served and which browser visits them."""

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
def others() -> Iterator[Figures]:
    """What other processes took meanwhile, in cores: `other_cores` once it is over."""
    own, start = family(os.getpid()), time.perf_counter()
    before, mine = busy_seconds(), cpu_seconds(own)
    found: Figures = {}
    yield found
    busy = busy_seconds() - before - (cpu_seconds(family(os.getpid())) - mine)
    found["other_cores"] = round(max(0.0, busy) / (time.perf_counter() - start), 2)


def start(bench: Bench, engine: str, shape: str, sizes: Sizes) -> Figures:
    """A first visit and a second one with the same profile, a browser process each."""
    figures: Figures = {}
    with tempfile.TemporaryDirectory(prefix="mlcc-web-", ignore_cleanup_errors=True) as folder:
        for visit in ("cold", "warm"):
            bench.site.sent.clear()
            with bench.browser(Path(folder)) as chosen:
                with others() as load, watch(chosen.pid) as peak:
                    page = chosen.open(bench.url(engine, shape))
                    told = page.call("started")
                    page.call("run", {"prompt": sizes.prompt, "tokens": 2, "seed": 1})
                settled = memory(chosen.pid)
            sent = {str(path): count for path, count in bench.site.sent.items()}
            told |= {"peak": asdict(peak), "settled": settled, "sent": sent}
            figures[visit] = told | load
            bench.say(f"{engine} {shape} {visit}: {told['stages'][-1]['ms'] / 1e3:.1f} s")
    return figures


def speed(bench: Bench, engines: list[str], shape: str, sizes: Sizes) -> dict[str, list[Figures]]:
    """Prefill and decode of each engine in turn, all in one browser, round after round."""
    rounds: dict[str, list[Figures]] = {engine: [] for engine in engines}
    with bench.browser() as chosen:
        pages = {engine: _started(bench, chosen, engine, shape) for engine in engines}
        for number in range(sizes.rounds + 1):
            for engine, page in pages.items():
                figures = _one_round(page, sizes, 10 * number)
                if number:  # the first compiles what the sizes need
                    rounds[engine].append(figures)
                    bench.say(f"{engine} {shape} round {number}: {figures}")
    return rounds


def _started(bench: Bench, chosen: Browser, engine: str, shape: str) -> Page:
    page = chosen.open(bench.url(engine, shape))
    page.call("started")
    return page


def _one_round(page: Page, sizes: Sizes, seed: int) -> Figures:
    """Decode is what a long answer takes beyond one of a single token: not every token has text
    that a page could see coming."""

    def ms(prompt: int, tokens: int, other: int) -> float:
        asked = {"prompt": prompt, "tokens": tokens, "seed": seed + other}
        return float(page.call("run", asked)["ms"])

    with others() as load:
        prefill = 1e3 * sizes.prompt / ms(sizes.prompt, 1, 0)
        one = ms(16, 1, 1)
        decode = 1e3 * sizes.answer / (ms(16, sizes.answer + 1, 2) - one)
    return {"prefill": round(prefill, 2), "decode": round(decode, 2), **load}


def batches(bench: Bench, shape: str, sizes: Sizes) -> list[Figures]:
    """mlcc alone: 1, 2 and 4 chats at once, and what Python took of each step.

    The last row is one chat again with Python and the adapter on cores of their own.
    """
    rows = []
    with bench.browser() as chosen:
        page = _started(bench, chosen, "mlcc", shape)
        for number, chats in enumerate((1, 2, 4, 1)):
            apart = number == 3 and set_apart(chosen.pid)
            row = _at_once(page, chats, sizes, 100 * number) | {"apart": apart}
            rows.append(row)
            bench.say(f"mlcc {shape} {chats} at once: {row}")
    return rows


def _at_once(page: Page, chats: int, sizes: Sizes, seed: int) -> Figures:
    asked = {"chats": chats, "prompt": 16, "tokens": sizes.answer + 1, "seed": seed + 10}
    page.call("together", asked | {"tokens": 2, "seed": seed})  # compiles what the sizes need
    before = page.call("driver")
    with others() as load:
        page.call("together", asked)
    return _driver(chats, before, page.call("driver")) | load


def _driver(chats: int, before: Figures, after: Figures) -> Figures:
    """Milliseconds a step by part, from the counters of the tab's driver.

    One of the steps read the prompts, with the first token of each answer.
    """
    steps = after["steps"] - before["steps"]
    parts = {key: (after[key] - before[key]) / steps for key in after if key.endswith("_ms")}
    whole = sum(v for key, v in parts.items() if key != "python_ms")
    share = round(parts["python_ms"] / whole, 4)
    told = {"chats": chats, "decode": round(1e3 * chats / whole, 2), "steps": steps}
    return told | {k: round(v, 3) for k, v in parts.items()} | {"python_share": share}


def many(bench: Bench, chats: int, every: int = 20) -> list[Figures]:
    """Short chats in a row with the demo model; memory after every so many."""
    rows = []
    with bench.browser() as chosen:
        page = _started(bench, chosen, "mlcc", "demo")
        for done in range(0, chats + 1, every):
            page.tidy()
            rows.append({"chats": done, **memory(chosen.pid)})
            bench.say(f"after {done} chats: {rows[-1]}")
            if done < chats:
                page.call("chat", {"count": every, "first": done})
    return rows


def empty(bench: Bench) -> Figures:
    """The memory of a tab with nothing in it: what the browser itself takes."""
    with bench.browser() as chosen:
        chosen.open(f"{bench.site.url}/empty.html")
        time.sleep(1)
        return dict(memory(chosen.pid))
