"""mlcc in a browser tab beside transformers.js, in one run of the same Chromium.

    python benchmarks/web/run.py --out build/web.json [--models build/web] [--shapes demo 135m]

Prepares the models (once; they stay under --models), serves pages and models from this machine,
and drives Chromium over them: starts with a fresh profile and with the same one again, prefill and
decode in alternating rounds, several chats at once, memory, many chats in a row. Prints tables and
writes JSON; asserts nothing.

The adapter is SwiftShader, WebGPU on the CPU, unless `--flags` (and `--chromium`) say otherwise: on
a GPU, `--flags=--enable-features=Vulkan --full`. Needs node, Chromium, `dev.py web` and Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))

import visits  # noqa: E402
from browser import SWIFTSHADER  # noqa: E402
from floors import floors  # noqa: E402
from hosting import Site  # noqa: E402
from prepare import SHAPES, checkpoint, prepare, versions  # noqa: E402
from report import tables, transfers  # noqa: E402

LIBRARY = ROOT / "web" / "dist" / "lib"
ENGINES = ("mlcc", "peer")


def machine(shown: str) -> dict[str, Any]:
    """Where and with what this ran."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    name = next((line.partition(":")[2].strip() for line in lines if "model name" in line), "?")
    commit = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(commit, capture_output=True, text=True, check=False)
    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "cpu": f"{name}, {len(os.sched_getaffinity(0))} cores",
        "system": platform.platform(),
        "chromium": shown,
        "commit": done.stdout.strip(),
        **versions(),
        "load_before": os.getloadavg()[0],
    }


def measure(given: argparse.Namespace, site: Site) -> dict[str, Any]:
    """All figures of a run."""
    flags = tuple(given.flags) if given.flags is not None else SWIFTSHADER
    sizes = visits.Sizes() if given.full else visits.Sizes(64, 16, 3, given.chats, 20)
    bench = visits.Bench(site, given.chromium, flags, say)
    with bench.browser() as chosen:
        about = machine(chosen.version)
    result: dict[str, Any] = {"machine": about, "sizes": vars(sizes), "empty": visits.empty(bench)}
    result |= {
        "starts": {},
        "speeds": {},
        "batches": {},
        "transfers": {},
        "floors": {},
        "chats": [],
    }
    for shape in given.shapes:
        starts = {engine: visits.start(bench, engine, shape, sizes) for engine in given.engines}
        about["adapter"] = next(iter(starts.values()))["cold"]["adapter"]
        result["starts"][shape] = starts
        sent = {engine: visit["cold"].pop("sent") for engine, visit in starts.items()}
        result["transfers"][shape] = {engine: transfers(files) for engine, files in sent.items()}
        result["speeds"][shape] = visits.speed(bench, given.engines, shape, sizes)
        if "mlcc" in given.engines:
            result["batches"][shape] = visits.batches(bench, shape, sizes)
            result["floors"][shape] = floor(given.models, shape, starts["mlcc"]["cold"], sizes)
    if "mlcc" in given.engines and "demo" in given.shapes:
        result["chats"] = visits.many(bench, sizes)
    about["load_after"] = os.getloadavg()[0]
    return result


def floor(models: Path, shape: str, told: dict[str, Any], sizes: visits.Sizes) -> dict[str, Any]:
    """Of the model that a page loaded, from the plan it tells."""
    pages = told["capacity"]["num_pages"] * told["capacity"]["page_size"]
    sources = checkpoint(models, shape), told["bytes"]["weights"], told["bytes"]["kv"] // pages
    return floors(*sources, sizes.prompt)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="write the figures here")
    parser.add_argument("--models", type=Path, default=ROOT / "build" / "web-benchmark")
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES), choices=SHAPES)
    parser.add_argument("--engines", nargs="*", default=list(ENGINES), choices=ENGINES)
    parser.add_argument("--chats", type=int, default=200)
    parser.add_argument("--full", action="store_true", help="256 and 64 tokens; for a real GPU")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--flags", nargs="*", help="of Chromium, instead of SwiftShader's")
    given = parser.parse_args()
    if "mlcc" in given.engines and not (LIBRARY / "index.js").exists():
        sys.exit(f"{LIBRARY} is not built; run: python3 dev.py web")
    prepare(given.models, given.shapes, given.engines)
    site = Site(
        {
            "/mlcc/": LIBRARY,
            "/models/": given.models / "mlcc",
            "/onnx/": given.models / "onnx",
            "/npm/": HERE / "node_modules",
            "/": HERE / "pages",
        }
    )
    result = measure(given, site)
    site.close()
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(result, indent=1) + "\n")
    print(tables(result))


if __name__ == "__main__":
    main()
