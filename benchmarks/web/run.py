"""mlcc in a browser tab beside transformers.js, in one run of the same Chromium.

    python -m benchmarks.web.run --out build/web.json [--models build/web] [--shapes demo 135m]

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

from benchmarks.web import scenarios
from benchmarks.web.browser import SWIFTSHADER
from benchmarks.web.floors import floors
from benchmarks.web.prepare import SHAPES, checkpoint, prepare, versions
from benchmarks.web.report import tables, transfers
from benchmarks.web.site import Site

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIBRARY = ROOT / "web" / "dist" / "lib"
ENGINES = ("mlcc", "peer")


def machine(chromium: str) -> dict[str, Any]:
    """Machine, versions and date of the run."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    name = next((line.partition(":")[2].strip() for line in lines if "model name" in line), "?")
    commit = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(commit, capture_output=True, text=True, check=False)
    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "cpu": f"{name}, {len(os.sched_getaffinity(0))} cores",
        "system": platform.platform(),
        "chromium": chromium,
        "commit": done.stdout.strip(),
        **versions(),
        "load_before": os.getloadavg()[0],
    }


def measure(given: argparse.Namespace, site: Site) -> dict[str, Any]:
    """All results of a run; written after each shape."""
    flags = tuple(given.flags) if given.flags is not None else SWIFTSHADER
    bench = scenarios.Bench(site, given.chromium, flags, say)
    with bench.browser() as opened:
        about = machine(opened.version)
    result: dict[str, Any] = {"machine": about, "empty": scenarios.empty(bench), "shapes": {}}
    for shape in given.shapes:
        sizes = scenarios.Sizes() if given.full else scenarios.SOFTWARE[shape]
        found = of_shape(bench, shape, sizes, given.engines)
        if "mlcc" in given.engines:
            found["floors"] = floor(given.models, shape, found["starts"]["mlcc"]["cold"], sizes)
        about["adapter"] = found["starts"][given.engines[0]]["cold"]["adapter"]
        result["shapes"][shape] = found
        write(given.out, result)
    if "mlcc" in given.engines and "demo" in given.shapes and given.chats:
        result["chats"] = scenarios.many(bench, given.chats)
    about["load_after"] = os.getloadavg()[0]
    write(given.out, result)
    return result


def of_shape(
    bench: scenarios.Bench, shape: str, sizes: scenarios.Sizes, engines: list[str]
) -> dict[str, Any]:
    """Results of one model."""
    starts = {engine: scenarios.start(bench, engine, shape, sizes) for engine in engines}
    sent = {engine: transfers(visit["cold"].pop("sent")) for engine, visit in starts.items()}
    found: dict[str, Any] = {"sizes": vars(sizes), "starts": starts, "transfers": sent}
    found["speeds"] = scenarios.speed(bench, engines, shape, sizes)
    if "mlcc" in engines:
        found["batches"] = scenarios.batches(bench, shape, sizes)
    return found


def write(path: Path | None, result: dict[str, Any]) -> None:
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=1) + "\n")


def floor(
    models: Path, shape: str, start: dict[str, Any], sizes: scenarios.Sizes
) -> dict[str, Any]:
    """The floors of a model, from the capacity that the page reported at its start."""
    manifest = json.loads((models / "mlcc" / shape / "mlcc.json").read_text())
    (cache,), (pages,) = (
        manifest["caches"],
        start["capacity"]["pools"],
    )  # no shape has sliding windows
    kv_bytes = start["bytes"]["caches"] // (pages * cache["page_size"])
    sources = checkpoint(models, shape), start["bytes"]["weights"], kv_bytes
    return floors(*sources, sizes.prompt)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="write the results here")
    parser.add_argument("--library", type=Path, default=LIBRARY, help="a build of web/")
    parser.add_argument("--models", type=Path, default=ROOT / "build" / "web-benchmark")
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES), choices=SHAPES)
    parser.add_argument("--engines", nargs="*", default=list(ENGINES), choices=ENGINES)
    parser.add_argument("--chats", type=int, default=200, help="a multiple of 20")
    parser.add_argument("--full", action="store_true", help="256 and 64 tokens; for a real GPU")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument(
        "--flags", nargs="*", help="Chromium's flags, instead of those for SwiftShader"
    )
    given = parser.parse_args()
    if "mlcc" in given.engines and not (given.library / "index.js").exists():
        sys.exit(f"{given.library} is not built; run: python3 dev.py web")
    prepare(given.models, given.shapes, given.engines)
    site = Site(
        {
            "/mlcc/": given.library,
            "/models/": given.models / "mlcc",
            "/onnx/": given.models / "onnx",
            "/npm/": HERE / "node_modules",
            "/": HERE / "pages",
        }
    )
    result = measure(given, site)
    site.close()
    print(tables(result))


if __name__ == "__main__":
    main()
