"""Speeds on a GPU, from the libraries that `python -m benchmarks.gpu.prepare FOLDER` compiled.

    python -m benchmarks.gpu.run FOLDER [--device N] [--json FILE]

Needs a GPU and no compiler (`pip install "mlcc[cuda-runtime]"`). Compares the demo model's answers
with the reference's, measures the copy bandwidth, then for each shape decode at batch 1, 8 and
64, prefill, and decode at a context of 32k; beside `transformers` in the same run where torch has a
GPU. Prints a table and one JSON line.

`--quick` on a folder prepared with `--target vulkan` or `cpu` and `--shapes tiny` runs on any
machine: it shows that the script works, its times mean nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", type=int)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--no-transformers", action="store_true")
    parser.add_argument("--json", type=Path, help="also write the result here")
    given = parser.parse_args()
    if not (given.folder / "demo.json").exists():
        command = f"python -m benchmarks.gpu.prepare {given.folder}"
        sys.exit(f"{given.folder}: nothing prepared there; run `{command}`")
    result = run(given)
    print(table(result))
    line = json.dumps(result)
    print(line)
    if given.json:
        given.json.write_text(line + "\n")


def run(given: argparse.Namespace) -> dict[str, Any]:
    """All measurements, in the order that finds a broken machine first."""
    from benchmarks.gpu import measure
    from mlcc.errors import MlccError

    sizes = measure.QUICK if given.quick else measure.Sizes()
    try:
        handle = measure.handle_of(given.folder, given.device)
    except MlccError as error:
        sys.exit(str(error))
    result: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), "device": describe(handle)}
    result["quick"] = given.quick
    result["demo"] = measure.demo(given.folder, given.device)
    say(f"demo model beside the reference: {result['demo']}")
    result["copy_bytes_s"] = measure.copy_bandwidth(given.folder, handle, sizes)
    result["shapes"] = []
    for path in sorted(given.folder.glob("*-*.json")):
        row = json.loads(path.read_text())
        try:
            result["shapes"].append(measure.shape(given.folder, row, handle, sizes))
        except MlccError as error:
            result["shapes"].append({"name": row["name"], "error": str(error)})
        say(str(result["shapes"][-1]))
        if not given.no_transformers and row["name"].endswith("-bf16"):
            result["shapes"].append(transformers_speeds(path, given.quick))
            say(str(result["shapes"][-1]))
    return result


def describe(handle: Any) -> str:
    """The name of the device."""
    from mlcc.device.select import list_devices

    found, _ = list_devices(handle.kind)
    return found[handle.index] if found else handle.kind


def transformers_speeds(description: Path, quick: bool) -> dict[str, Any]:
    """The same shape in transformers, in a child process, so that its memory is freed."""
    command = [sys.executable, "-m", "benchmarks.gpu.run_transformers", str(description)]
    command += ["--quick"] if quick else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"name": f"transformers {description.stem}", "error": reason}
    return dict(json.loads(done.stdout.splitlines()[-1]))


COLUMNS = {
    "decode 1": "decode_1",
    "of copy": "decode_1_bytes_s",
    "decode 8": "decode_8",
    "decode 64": "decode_64",
    "prefill": "prefill_tok_s",
    "at 32k": "long_context_tok_s",
    "attention of copy": "attention_bytes_s",
}


def table(result: dict[str, Any]) -> str:
    """Tokens a second, and fractions of the copy bandwidth."""
    copy = result["copy_bytes_s"]
    lines = [
        f"{result['device']}: copies at {copy / 1e9:.0f} GB/s",
        f"{'':<24}" + "".join(f"{name:>19}" for name in COLUMNS),
    ]
    for row in result["shapes"]:
        if "error" in row:
            lines.append(f"{row['name']:<24}{row['error']}")
            continue
        cells = []
        for key in COLUMNS.values():
            value = row.get(key)
            bytes_s = key.endswith("_bytes_s")
            share = value / copy if value is not None and bytes_s else None
            text = "" if value is None else f"{share:.0%}" if share is not None else f"{value:.0f}"
            cells.append(f"{text:>19}")
        lines.append(f"{row['name']:<24}" + "".join(cells))
    return "\n".join(lines)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
