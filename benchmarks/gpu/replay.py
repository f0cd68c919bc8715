"""A stage of `run`: repeats recorded kernel calls on this GPU and compares what they write.

    python -m benchmarks.gpu.replay FOLDER [--device N]

FOLDER is `recorder.py`'s. Integers must be equal, and so must arguments that the call only read;
floats may differ by TOLERANCE of their norm. Prints a JSON line for each call that differs, then
one with the counts. After an error that costs the process its GPU, the calls that are left are
repeated in another process.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

TOLERANCE = 2e-3
WORKSPACES = ("sample", "sample_rows", "top_logprobs")
"""Kernels whose u32 arguments also hold floats, word by word."""
_SMALLEST, _LARGEST = 0x00800000, 0x7F800000
"""Bits of the normal float32 numbers."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first call")
    given = parser.parse_args()
    return replay(given.folder, given.device, given.first)


def replay(folder: Path, index: int, first: int = 0) -> int:
    """Repeat the calls from number `first` on. Returns the exit code: 1 if one of them differs."""
    from mlcc.device.tvm import cuda
    from mlcc.device.tvm.runtime import open_device, runtime
    from mlcc.errors import DeviceLostError

    calls = json.loads((folder / "calls.json").read_text())
    device, start = open_device(cuda.KIND, index), time.perf_counter()
    library = runtime().runtime.load_module(str(folder / "kernels.so"))
    bad, worst = 0, 0.0
    for number, call in enumerate(calls[first:], first):
        with np.load(folder / "calls" / f"{call['name']}.npz") as file:
            arrays = dict(file)
        try:
            found = _repeat(library[call["key"]], call, arrays, device)
        except Exception as error:  # of whatever kind: the other calls are still worth repeating
            _say(call, failed=str(error).splitlines()[-1][:200])
            bad += 1
            if isinstance(cuda.translate(RuntimeError(str(error)), ""), DeviceLostError):
                return _in_another_process(folder, index, number + 1) or 1
            continue
        faults, error_of_call = compare(call, arrays, found)
        worst = max(worst, error_of_call)
        if faults:
            bad += 1
            _say(call, **faults)
    seconds = round(time.perf_counter() - start, 2)
    count = len(calls) - first
    print(json.dumps({"calls": count, "bad": bad, "worst": worst, "seconds": seconds}), flush=True)
    return 1 if bad else 0


def _repeat(function: Any, call: dict[str, Any], arrays: dict[str, Any], device: Any) -> list[Any]:
    """The arguments after the call."""
    from mlcc.device.tvm.runtime import runtime

    before = [arrays[f"b{i}"] for i in range(call["arguments"])]
    tensor = runtime().runtime.tensor
    given = [int(a) if i in call["sizes"] else tensor(a, device) for i, a in enumerate(before)]
    function(*given)
    device.sync()
    return [a if isinstance(a, int) else a.numpy() for a in given]


def compare(
    call: dict[str, Any], arrays: dict[str, Any], found: list[Any]
) -> tuple[dict[str, Any], float]:
    """What differs from the recorded call, and the largest error of its floats, of their norm."""
    faults: dict[str, Any] = {}
    worst = 0.0
    words = call["kernel"].rpartition(".")[2] in WORKSPACES
    for i, array in enumerate(found):
        wanted = arrays.get(f"a{i}", arrays[f"b{i}"])
        if i in call["sizes"]:
            continue
        if i not in call["changed"]:
            if array.tobytes() != wanted.tobytes():
                faults["input_changed"] = i
        elif array.dtype.kind == "f":
            worst = max(worst, _distance(array, wanted))
        elif differ := int(_unequal(array, wanted, words).sum()):
            faults.setdefault("unequal", []).append([i, differ, int(array.size)])
    if worst >= TOLERANCE:
        faults["error"] = worst
    return faults, worst if np.isfinite(worst) else 0.0


def _distance(found: Any, wanted: Any) -> float:
    """The norm of the difference, of the norm; infinite if other numbers are finite."""
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(np.isfinite(a), finite):
        return float("inf")
    norm = float(np.linalg.norm(b[finite])) or 1.0
    return float(np.linalg.norm(a[finite] - b[finite])) / norm


def _unequal(found: Any, wanted: Any, words: bool) -> Any:
    """Which integers differ. With `words`, bits of normal floats may differ by TOLERANCE."""
    unequal = found != wanted
    if not words or found.dtype.itemsize != 4:
        return unequal
    normal = np.ones(found.shape, bool)
    for array in (found, wanted):
        bits = array.view(np.uint32) & 0x7FFFFFFF
        normal &= (bits >= _SMALLEST) & (bits < _LARGEST)
    a, b = (
        np.where(normal, array.view(np.float32), 0).astype(np.float64) for array in (found, wanted)
    )
    return unequal & ~(normal & (np.abs(a - b) <= TOLERANCE * np.abs(b)))


def _in_another_process(folder: Path, index: int, first: int) -> int:
    command = [sys.executable, "-m", "benchmarks.gpu.replay", str(folder)]
    command += ["--device", str(index), "--first", str(first)]
    return subprocess.run(command, check=False).returncode


def _say(call: dict[str, Any], **faults: Any) -> None:
    row = {key: call[key] for key in ("name", "test", "kernel")}
    print(json.dumps(row | faults), flush=True)


if __name__ == "__main__":
    sys.exit(main())
