"""Decode and prefill speed on CPU beside llama.cpp and transformers, alternating in one run.

    python benchmarks/cpu.py [--shape 135m] [--llama-bench PATH --gguf FILE] [--rounds 5]

Makes a random checkpoint of the shape, compiles it (q4, q8), then runs every engine in turn, round
after round, in a process of its own: prefill of 512 tokens, decode of 128 from an empty context.
Prints medians, ratios to the best peer, and one JSON line; says what else kept the cores busy.

Floors for 135M at q4 (about 90 MB read per token): decode = bytes / bandwidth, about 2 ms at 45
GB/s; prefill = 2 x 107 M multiply-adds per token over the int8 dot product's peak.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
PREFILL, DECODE = 512, 128
QUIET = 0.25
"""Cores that others may take while a round counts."""
Speeds = dict[str, float]


def mlcc_speeds(artifact: Path, threads: int) -> Speeds:
    """One prefill and one decode of a compiled model, in a child process."""
    command = [sys.executable, str(HERE / "one_mlcc.py"), str(artifact), str(threads)]
    return _last_json(command)


def transformers_speeds(checkpoint: Path, threads: int) -> Speeds:
    command = [sys.executable, str(HERE / "one_transformers.py"), str(checkpoint), str(threads)]
    return _last_json(command)


def llama_speeds(bench: Path, gguf: Path, threads: int) -> Speeds:
    """llama-bench's own numbers for the same sizes."""
    sizes = ["-p", str(PREFILL), "-n", str(DECODE), "-t", str(threads), "-r", "1"]
    command = [str(bench), "-m", str(gguf), *sizes, "-o", "json"]
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


def compile_checkpoint(checkpoint: Path, quant: str, out: Path) -> tuple[Path, float]:
    start = time.perf_counter()
    command = [sys.executable, "-m", "mlcc_compiler", "compile", str(checkpoint), "--quant", quant]
    subprocess.run([*command, "--cpu", "host", "-o", str(out), "--quiet"], check=True)
    return out, time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", default="135m", choices=("135m", "1b"))
    parser.add_argument("--quant", nargs="*", default=["q4", "q8"])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--llama-bench", type=Path)
    parser.add_argument("--gguf", type=Path)
    parser.add_argument("--no-transformers", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "checkpoint"
        make = [sys.executable, str(HERE / "random_checkpoint.py"), str(checkpoint)]
        subprocess.run([*make, "--shape", given.shape], check=True)
        engines: dict[str, Callable[[], Speeds]] = {}
        for quant in given.quant:
            out, seconds = compile_checkpoint(checkpoint, quant, Path(folder) / quant)
            size = sum(f.stat().st_size for f in out.iterdir())
            print(f"compile {quant}: {seconds:.1f} s, {size / 1e6:.1f} MB", file=sys.stderr)
            engines[f"mlcc {quant}"] = lambda out=out: mlcc_speeds(out, given.threads)
        if given.llama_bench:
            peer = lambda: llama_speeds(given.llama_bench, given.gguf, given.threads)  # noqa: E731
            engines[f"llama.cpp {given.gguf.stem}"] = peer
        if not given.no_transformers:
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
