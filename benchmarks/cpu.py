"""Decode and prefill speed on CPU beside llama.cpp and transformers, alternating in one run.

    python benchmarks/cpu.py [--shape 135m] [--llama-bench PATH --gguf FILE] [--rounds 5]
    python benchmarks/cpu.py --shape moe --quant q4_g32 --llama-bench PATH --gguf FILE
    python benchmarks/cpu.py --shape hybrid --quant q4 --prefill 2048

Makes a random checkpoint of the shape, compiles it (q4, q8), then runs every engine in turn, round
after round, in a process of its own: prefill of 512 tokens, decode of 128 from an empty context.
Prints medians, ratios to the best peer, and one JSON line; says what else kept the cores busy.
`moe` is OLMoE-1B-7B's shape, whose GGUF `random_moe_gguf.py` makes; `moe-small` a quarter of its
layers, beside a dense model of as many weights as a token uses; `hybrid` is Qwen3.5-0.8B's, beside
as many weights in layers of attention alone.

Floors for 135M at q4 (about 90 MB read per token): decode = bytes / bandwidth, about 2 ms at 45
GB/s; prefill = 2 x 107 M multiply-adds per token over the int8 dot product's peak.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
PREFILL, DECODE = 512, 128
QUIET = 0.25
"""Cores that others may take while a round counts."""
Speeds = dict[str, float]
FAMILIES = ("moe", "moe-small", "moe-small-dense", "hybrid", "hybrid-dense")
"""Shapes of `families.py`."""
BESIDE = {"hybrid": "hybrid-dense", "moe-small": "moe-small-dense"}
"""What a shape is compared with, of our own."""


def mlcc_speeds(artifact: Path, threads: int, prefill: int = PREFILL) -> Speeds:
    """One prefill and one decode of a compiled model, in a child process."""
    command = [sys.executable, str(HERE / "one_mlcc.py"), str(artifact), str(threads), str(prefill)]
    return _last_json(command)


def transformers_speeds(checkpoint: Path, threads: int) -> Speeds:
    command = [sys.executable, str(HERE / "one_transformers.py"), str(checkpoint), str(threads)]
    return _last_json(command)


def llama_speeds(bench: str, gguf: Path, threads: int, prefill: int = PREFILL) -> Speeds:
    """llama-bench's own numbers for the same sizes."""
    sizes = ["-p", str(prefill), "-n", str(DECODE), "-t", str(threads), "-r", "1"]
    command = [*shlex.split(bench), "-m", str(gguf), *sizes, "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = json.loads(done.stdout)
    speeds = {"prefill" if row["n_prompt"] else "decode": row["avg_ts"] for row in rows}
    return {key: float(value) for key, value in speeds.items()}


def _last_json(command: list[str]) -> Speeds:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def busy_seconds() -> float:
    """CPU seconds spent by every process so far; 0 where the system does not tell."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0.0
    fields = [int(f) for f in stat.read_text().splitlines()[0].split()[1:]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def other_load(seconds: float = 1.0) -> float:
    """Cores that other processes keep busy, measured while this one sleeps."""
    before, start = busy_seconds(), time.perf_counter()
    time.sleep(seconds)
    return (busy_seconds() - before) / (time.perf_counter() - start)


def wait_until_quiet(longest: float = 20.0) -> float:
    """Wait for other processes to leave the cores alone; returns what they still take."""
    end = time.perf_counter() + longest
    while (load := other_load()) > QUIET and time.perf_counter() < end:
        pass
    return load


def run(engines: dict[str, Callable[[], Speeds]], rounds: int) -> dict[str, list[Speeds]]:
    """Every engine once per round, in turn, so that drift hits all alike."""
    results: dict[str, list[Speeds]] = {name: [] for name in engines}
    for number in range(rounds):
        for name, measure in engines.items():
            load = wait_until_quiet()
            speeds = measure() | {"other_cores": round(load, 2)}
            results[name].append(speeds)
            print(f"round {number + 1} {name}: {speeds}", file=sys.stderr, flush=True)
    return results


def report(results: dict[str, list[Speeds]]) -> dict[str, dict[str, float]]:
    """Medians per engine over the undisturbed rounds, and mlcc's ratio to the best peer."""
    keys = ("prefill", "decode")
    table: dict[str, dict[str, float]] = {}
    for name, rounds in results.items():
        quiet = [r for r in rounds if r["other_cores"] <= QUIET] or rounds
        table[name] = {k: statistics.median(r[k] for r in quiet) for k in keys}
        table[name]["rounds"] = len(quiet) if quiet is not rounds else 0
    peers = [row for name, row in table.items() if not name.startswith("mlcc")]
    for name, row in table.items():
        if peers and name.startswith("mlcc"):
            for key in keys:
                row[f"{key}_vs_best_peer"] = row[key] / max(peer[key] for peer in peers)
    return table


def make_checkpoint(shape: str, folder: Path) -> Path:
    """Random weights of a shape."""
    script = "families.py" if shape in FAMILIES else "random_checkpoint.py"
    subprocess.run([sys.executable, str(HERE / script), str(folder), "--shape", shape], check=True)
    return folder


def compile_checkpoint(
    checkpoint: Path, quant: str, out: Path, context: int = 2048
) -> tuple[Path, float]:
    start = time.perf_counter()
    command = [sys.executable, "-m", "mlcc_compiler", "compile", str(checkpoint), "--quant", quant]
    command += ["--context", str(context), "--max-batch", "4"] if context > 2048 else []
    subprocess.run([*command, "--cpu", "host", "-o", str(out), "--quiet"], check=True)
    return out, time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", default="135m", choices=("135m", "1b", *FAMILIES))
    parser.add_argument("--prefill", type=int, default=PREFILL)
    parser.add_argument("--quant", nargs="*", default=["q4", "q8"])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--llama-bench", help="a path, or words: 'chroot ROOT llama-bench'")
    parser.add_argument("--gguf", type=Path)
    parser.add_argument("--no-transformers", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        engines: dict[str, Callable[[], Speeds]] = {}
        context = given.prefill + 4 * DECODE
        for shape in (given.shape, *filter(None, [BESIDE.get(given.shape)])):
            checkpoint = make_checkpoint(shape, Path(folder) / shape)
            for quant in given.quant:
                place = Path(folder) / f"{shape}-{quant}"
                out, seconds = compile_checkpoint(checkpoint, quant, place, context)
                size = sum(f.stat().st_size for f in out.iterdir())
                print(f"compile {quant}: {seconds:.1f} s, {size / 1e6:.1f} MB", file=sys.stderr)
                run_it = partial(mlcc_speeds, out, given.threads, given.prefill)
                engines[f"mlcc {quant}" if shape == given.shape else f"{shape} {quant}"] = run_it
        if given.llama_bench:
            words = (given.llama_bench, given.gguf, given.threads, given.prefill)
            peer = partial(llama_speeds, *words)
            engines[f"llama.cpp {given.gguf.stem}"] = peer
        if not given.no_transformers and given.shape not in FAMILIES:
            engines["transformers bf16"] = lambda: transformers_speeds(checkpoint, given.threads)
        results = run(engines, given.rounds)
    table = report(results)
    print(f"{'engine':<36}{'prefill tok/s':>14}{'decode tok/s':>14}{'quiet rounds':>14}")
    for name, row in table.items():
        speeds = f"{row['prefill']:>14.0f}{row['decode']:>14.1f}"
        print(f"{name:<36}{speeds}{row['rounds']:>14.0f}")
    print(json.dumps({"threads": given.threads, "median": table, "rounds": results}))


if __name__ == "__main__":
    main()
