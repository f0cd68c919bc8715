"""Two engines on the cores of one: all cores shared, beside half of the cores each.

    python -m benchmarks.engine.two_engines ARTIFACT [--tokens 400] [--rounds 5]

A round runs both cases in turn: two processes decode at once, each with all threads, then each with
half of them. Prints tokens a second of both together, the minimum CPU milliseconds a token, and the
ratio of the medians. Other processes slow all of it: look at the load.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from mlcc.artifact.folder import Artifact
from mlcc.engine.scheduler.manual_steps import ManualSteps
from mlcc.engine_args import EngineArgs
from mlcc.loader import open_executor


def decode(path: Path, threads: int, tokens: int) -> None:
    """The child process: decodes once it reads a line, and prints wall and CPU seconds."""
    executor = open_executor(
        Artifact.open(path), EngineArgs(threads=threads, max_batch=1, context=tokens + 128)
    )
    steps = ManualSteps(executor.capacity)
    for token in [[5] * 64, *([[-1]] * 8)]:  # warm-up
        executor.collect(executor.submit(steps.step({0: token})))
    print("ready", flush=True)
    sys.stdin.readline()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(tokens):
        executor.collect(executor.submit(steps.step({0: [-1]})))
    print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu]), flush=True)
    executor.close()


def both(path: Path, threads: int, tokens: int) -> tuple[float, float]:
    """Run two children: (tokens a second of both, CPU milliseconds a token)."""
    command = [sys.executable, "-m", "benchmarks.engine.two_engines", str(path)]
    command += ["--tokens", str(tokens), "--decode", str(threads)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    children = [subprocess.Popen(command, **pipes) for _ in range(2)]  # type: ignore[call-overload]
    for child in children:
        child.stdout.readline()
    for child in children:
        child.stdin.write("\n")
        child.stdin.flush()
    times = [json.loads(child.stdout.readline()) for child in children]
    for child in children:
        child.communicate()
    wall, cpu = max(t[0] for t in times), sum(t[1] for t in times)
    return 2 * tokens / wall, cpu / (2 * tokens) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--decode", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.decode:
        decode(given.artifact, given.decode, given.tokens)
        return
    cores = len(os.sched_getaffinity(0))
    cases = {"all threads each": cores, "half of them each": max(cores // 2, 1)}
    results: dict[str, list[tuple[float, float]]] = {case: [] for case in cases}
    for _ in range(given.rounds):
        for case, threads in cases.items():
            results[case].append(both(given.artifact, threads, given.tokens))
    medians = {
        case: statistics.median(speed for speed, _ in rows) for case, rows in results.items()
    }
    for case, rows in results.items():
        least = min(cpu for _, cpu in rows)
        print(f"{case:<20}{medians[case]:>9.1f} tok/s of both{least:>9.2f} CPU ms a token")
    shared, half = medians.values()
    print(f"all of half: {shared / half:.2f}; load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
