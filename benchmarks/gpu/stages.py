"""Runs the stages of a packed folder, each in a process of its own with a time limit.

What a stage printed as JSON lines is in OUT/day.json as soon as it ended, whatever becomes of the
others. Standard library only: it must start where nothing is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LEAST = 15
"""Seconds that must be left of all to start a stage."""
_TAIL = 1500
"""Characters that are kept of what a failed stage printed."""
_CARD = "name,memory.total,driver_version,clocks.sm,clocks.max.sm,power.limit"


@dataclass(frozen=True)
class Stage:
    """One process."""

    name: str
    seconds: float
    """At most."""
    command: Sequence[str]
    ours: bool = True
    """Whether it sees the folder's sources and packages, and not only those of this machine."""


def run(given: argparse.Namespace) -> int:
    """Run the stages. Returns the exit code: 1 if one failed or was not reached."""
    folder: Path = given.folder.absolute()
    out: Path = given.out or folder / "out"
    row = _read_pack(folder)
    out.mkdir(parents=True, exist_ok=True)
    stages = [stage for stage in stages_of(folder, given) if _chosen(stage.name, given.only)]
    if not stages:
        sys.exit(f"no stage begins with {given.only}; leave out --only to see all names")
    day = {"date": time.strftime("%Y-%m-%d %H:%M"), "quick": given.quick, "stages": {}, **row}
    start = time.monotonic()
    for stage in stages:
        left = given.limit - (time.monotonic() - start)
        found = run_stage(stage, folder, left) if left >= LEAST else {"skipped": "no time is left"}
        day["stages"][stage.name] = found
        (out / "day.json").write_text(json.dumps(day) + "\n")
        say(f"[{time.monotonic() - start:4.0f} s] {stage.name}: {verdict(found)}")
    text = table(day["stages"])
    (out / "table.txt").write_text(text + "\n")
    print(text)
    say(f"all of it: {out / 'day.json'}")
    return 0 if all(found.get("rc") == 0 for found in day["stages"].values()) else 1


def _read_pack(folder: Path) -> dict[str, Any]:
    """What `pack` says of the folder. Exits if this Python cannot run it."""
    try:
        row = json.loads((folder / "pack.json").read_text())
    except OSError:
        sys.exit(f"{folder} is not packed; type `python -m benchmarks.gpu pack FOLDER` in a clone")
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if row["python"] not in ("any", here):
        sys.exit(
            f"{folder} was packed for Python {row['python']}, and this is {here}; start it with "
            f"python{row['python']}, or pack it with `--packages-from DIR`, site-packages of {here}"
        )
    command = [sys.executable, "-c", "import numpy"]
    done = subprocess.run(command, env=_environment(folder), capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"{sys.executable} has no numpy; install it, or pack the folder with --numpy")
    return {key: row[key] for key in ("commit", "python", "targets", "arch") if key in row}


def stages_of(folder: Path, given: argparse.Namespace) -> Iterator[Stage]:
    """The stages, in the order that finds a broken machine first; then the largest shapes."""
    options = ["--quick"] if given.quick else []
    device = [] if given.device is None else ["--device", str(given.device)]
    here = str(Path(__file__).parent)
    yield Stage("machine", 20, [sys.executable, f"{here}/stages.py"], ours=False)
    if (folder / "kernels" / "kernels.so").exists():
        yield Stage("kernels", 80, _module("replay", folder / "kernels", *device))
    for number, target in enumerate(filter(lambda t: (folder / t).is_dir(), TARGETS)):
        place = folder / target
        if (place / "demo.json").exists():
            yield Stage(f"demo_{target}", 60, _module("figures", place, "demo", *device))
        names = sorted((path.stem for path in place.glob("*-*.json")), reverse=True)
        for name in names:
            arguments = (place, name, *device, *options)
            yield Stage(f"figures_{target}_{name}", 60, _module("figures", *arguments))
        if number == 0:
            command = [sys.executable, f"{here}/torch_peer.py", *options]
            yield Stage("torch", 100, command, ours=False)
        for name in names:
            arguments = (place, name, *device, *options)
            yield Stage(f"kernel_times_{target}_{name}", 50, _module("kernel_times", *arguments))


TARGETS = ("cuda", "cuda_sm_90", "vulkan", "cpu")
"""Folders in the order in which they run. cuda_sm_90: an H100 or H200 without `wgmma`."""


def _module(name: str, *arguments: object) -> list[str]:
    return [sys.executable, "-m", f"benchmarks.gpu.{name}", *map(str, arguments)]


def _chosen(name: str, only: str) -> bool:
    return not only or name.startswith(tuple(filter(None, only.split(","))))


def _environment(folder: Path) -> Mapping[str, str]:
    paths = [folder, folder / "site", *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONUNBUFFERED": "1"}


def run_stage(stage: Stage, folder: Path, left: float) -> dict[str, Any]:
    """Run one stage within its time limit. Every failure becomes a result; none is raised."""
    environment = _environment(folder) if stage.ours else os.environ
    start = time.monotonic()
    found: dict[str, Any] = {}
    try:
        process = subprocess.Popen(
            stage.command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        return {"rc": -1, "error": str(error)}
    try:
        printed, complaints = process.communicate(timeout=min(stage.seconds, left))
    except subprocess.TimeoutExpired as expired:
        os.killpg(process.pid, signal.SIGKILL)
        printed, complaints = process.communicate()
        found["timeout"] = f"ended after {expired.timeout:.0f} s"
    found |= {"rc": process.returncode, "rows": _rows(printed)}
    if process.returncode:
        found |= {"stdout": printed[-_TAIL:], "stderr": complaints[-_TAIL:]}
    return found | {"seconds": round(time.monotonic() - start, 1)}


def _rows(printed: str) -> list[dict[str, Any]]:
    """The JSON lines of a stage; one that a time limit cut off is left out."""
    rows = []
    for line in filter(lambda line: line.startswith("{"), printed.splitlines()):
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def verdict(found: Mapping[str, Any]) -> str:
    """A stage's result as one line."""
    if reason := found.get("skipped") or found.get("timeout") or found.get("error"):
        return str(reason)
    if found["rc"]:
        lines = (found["stderr"].strip() or found["stdout"].strip()).splitlines()
        return f"failed with {found['rc']}: {lines[-1] if lines else 'no message'}"
    rows = [{k: v for k, v in row.items() if k != "kernels"} for row in found["rows"]]
    return f"{found['seconds']} s; {json.dumps(rows)[:400]}"


COLUMNS = {
    "decode 1": "decode_1",
    "of copy": "decode_1_bytes_s",
    "decode 8": "decode_8",
    "decode 64": "decode_64",
    "prefill": "prefill_tok_s",
    "at 32k": "long_context_tok_s",
    "attention of copy": "attention_bytes_s",
}


def table(stages: Mapping[str, Mapping[str, Any]]) -> str:
    """Tokens a second, and fractions of the copy bandwidth, of the stages that measured them."""
    lines = [f"{'':<24}" + "".join(f"{name:>19}" for name in COLUMNS)]
    for name, found in stages.items():
        row: dict[str, Any] = {}
        for part in found.get("rows", ()):
            row |= part
        if name.startswith("figures") and "prefill_tok_s" in row:
            cells = (_cell(row, key) for key in COLUMNS.values())
            lines.append(f"{name.partition('_')[2]:<24}" + "".join(f"{c:>19}" for c in cells))
    return "\n".join(lines)


def _cell(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    if value is None:
        return ""
    return f"{value / row['copy_bytes_s']:.0%}" if key.endswith("_bytes_s") else f"{value:.0f}"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def machine() -> dict[str, Any]:
    """This machine, and what its GPU says of itself."""
    row: dict[str, Any] = {"python": sys.version.split()[0], "cores": os.cpu_count()}
    if shutil.which("nvidia-smi") is None:
        return row | {"gpu": "nvidia-smi is not here"}
    command = ["nvidia-smi", f"--query-gpu={_CARD}", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return row | {"gpu": (done.stdout or done.stderr).strip().splitlines()}


if __name__ == "__main__":
    print(json.dumps(machine()))
