"""Prefill and decode speed on a CPU beside llama.cpp, OpenVINO and transformers, in turns.

    python -m benchmarks.peers.cpu --peers [--shape 135m] [--rounds 3] [--out build/cpu]
        [--work FOLDER]
    python -m benchmarks.peers.cpu --shape moe --quant q4_g32 --llama-bench PATH --gguf FILE
    python -m benchmarks.peers.cpu --shape hybrid --quant q4 --prefill 2048
    python -m benchmarks.peers.cpu --quant q4 --cpu avx512-vnni host

Makes a random checkpoint of the shape, compiles it (q4, q8), then runs every engine in turn, round
after round, in a process of its own: prefill of 512 tokens, decode of 128 at contexts of 0, 512 and
8192, and batches of 4, 16 and 64. `--peers` builds or installs the other engines (`install.py`) and
makes their files of the same weights: Q4_0, Q8_0 and BF16, to match `--quant`. llama.cpp runs with
and without flash attention, OpenVINO in bfloat16 and in float32, and the better of each cell
counts. Prints medians, ratios to the best peer, the instructions that each engine uses, and one
JSON line, with the load of other processes. `--cpu` compiles mlcc for these levels, not for all
that this CPU has. `--out` writes
table.txt, result.json and plot.svg. `--work` keeps checkpoints and compiled models and reuses them;
with `--rounds 0` the script only prepares them. `moe` is OLMoE-1B-7B's shape, with a GGUF by
`random_moe_gguf.py`; `moe-small` a quarter of its layers, beside a dense model with as many weights
as a token uses; `hybrid` is Qwen3.5-0.8B's, beside as many weights in attention layers alone (GGUF:
`random_hybrid_gguf.py`).

Floors for 135M at q4 (about 90 MB read per token): decode = bytes / bandwidth, about 2 ms at 45
GB/s; prefill = 2 x 107 M multiply-adds per token over the int8 dot product's peak.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.peers import install, instructions

HERE = Path(__file__).resolve().parent
RUN_MLCC = (sys.executable, "-m", "benchmarks.peers.run_mlcc")
RUN_TRANSFORMERS = (sys.executable, "-m", "benchmarks.peers.run_transformers")
PREFILL, DECODE = 512, 128
QUIET = 0.25
"""The most cores that other processes may use in a round that counts."""
Speeds = dict[str, float]
FAMILIES = ("moe", "moe-small", "moe-small-dense", "hybrid", "hybrid-dense")
"""Shapes of `models/published_shapes.py`."""
FORMATS = {"q8": "Q8_0", "bf16": "BF16"}
"""Recipe -> format of the peers' files; Q4_0 for all other recipes."""
OPENVINO_FORMATS = {"BF16": "F16"}
"""OpenVINO reads no BF16 from a GGUF. It computes either in bfloat16 on a CPU that can."""
BASELINES = {"hybrid": "hybrid-dense", "moe-small": "moe-small-dense"}
"""Shape -> the shape that mlcc also runs for comparison."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of a run. Speeds are named prefill, decode@CONTEXT and batch N."""

    threads: int
    prefill: int
    contexts: list[int]
    batches: list[int]


def mlcc_speeds(artifact: Path, sizes: Sizes) -> Speeds:
    """Speeds of a compiled model, in a child process."""
    command = [*RUN_MLCC, artifact, sizes.threads, sizes.prefill]
    command += ["--contexts", *sizes.contexts, "--batches", *sizes.batches]
    speeds = _last_json(command)
    return {name: value for name, value in speeds.items() if name not in ("decode", "decode_after")}


def transformers_speeds(checkpoint: Path, sizes: Sizes) -> Speeds:
    speeds = _last_json([*RUN_TRANSFORMERS, checkpoint, sizes.threads])
    return {"prefill": speeds["prefill"], "decode@0": speeds["decode"]}


def openvino_speeds(python: Path, gguf: Path, sizes: Sizes) -> Speeds:
    """Prefill and decode, the better of both precisions; OpenVINO has no batched decode here, so
    those cells stay empty."""
    words = [gguf, sizes.threads, sizes.prefill, *sizes.contexts]
    return _better(
        _last_json([python, HERE / "run_openvino.py", "--precision", precision, *words])
        for precision in ("bf16", "f32")
    )


def llama_speeds(bench: str, gguf: Path, sizes: Sizes) -> Speeds:
    """The better results of llama-bench with and without flash attention: behind a context, on some
    CPUs, one is 2 to 4 times as fast as the other."""
    return _better(_llama_speeds(bench, gguf, sizes, flash) for flash in (True, False))


def _better(runs: Iterable[Speeds]) -> Speeds:
    """The best speed of each cell; each run's own is printed."""
    first, second = runs
    print(first, second, sep="\n", file=sys.stderr, flush=True)
    return {cell: max(speed, second[cell]) for cell, speed in first.items()}


def _llama_speeds(bench: str, gguf: Path, sizes: Sizes, flash: bool) -> Speeds:
    words = [*shlex.split(bench), "-m", gguf, "-t", sizes.threads, "-r", 1, "-fa", int(flash)]
    words += ["-o", "json"]
    (row,) = json.loads(_output([*words, "-p", sizes.prefill, "-n", 0]))
    speeds = {"prefill": float(row["avg_ts"])}
    depths = ",".join(map(str, sizes.contexts))
    for row in json.loads(_output([*words, "-p", 0, "-n", DECODE, "-d", depths])):
        speeds[f"decode@{row['n_depth']}"] = float(row["avg_ts"])
    batched = f"{bench.removesuffix('llama-bench')}llama-batched-bench"
    if sizes.batches and shutil.which(shlex.split(batched)[0]):
        tokens = max(sizes.batches) * 2 * DECODE
        words = [*shlex.split(batched), "-m", gguf, "-t", sizes.threads, "-c", tokens]
        words += ["-fa", "on" if flash else "off"]
        words += ["-npp", DECODE, "-ntg", DECODE, "-npl", ",".join(map(str, sizes.batches))]
        for line in _output([*words, "--output-format", "jsonl"]).splitlines():
            if line.startswith("{"):
                row = json.loads(line)
                speeds[f"batch {row['pl']}"] = float(row["speed_tg"])
    return speeds


def _output(command: Sequence[object]) -> str:
    words = [str(word) for word in command]
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout


def _last_json(command: Sequence[object]) -> Speeds:
    return dict(json.loads(_output(command).splitlines()[-1]))


def busy_seconds() -> float:
    """CPU seconds spent by every process so far; 0 if the system does not report them."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0.0
    fields = [int(f) for f in stat.read_text().splitlines()[0].split()[1:]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def other_load(seconds: float = 1.0) -> float:
    """Cores used by other processes, measured while this one sleeps."""
    before, start = busy_seconds(), time.perf_counter()
    time.sleep(seconds)
    return (busy_seconds() - before) / (time.perf_counter() - start)


def wait_until_quiet(longest: float = 20.0) -> float:
    """Wait until other processes are idle. Returns the cores that they still use."""
    end = time.perf_counter() + longest
    while (load := other_load()) > QUIET and time.perf_counter() < end:
        pass
    return load


class Engine(NamedTuple):
    """An engine with one model."""

    measure: Callable[[], Speeds]
    """Runs it once."""
    instructions: str = "not reported"
    """Those of the CPU that it uses."""


def run(engines: dict[str, Engine], rounds: int) -> dict[str, list[Speeds]]:
    """Every engine once per round, in turn, so that drift affects all equally."""
    results: dict[str, list[Speeds]] = {name: [] for name in engines}
    for number in range(rounds):
        for name, engine in engines.items():
            load = wait_until_quiet()
            speeds = engine.measure() | {"other_cores": round(load, 2)}
            results[name].append(speeds)
            print(f"round {number + 1} {name}: {speeds}", file=sys.stderr, flush=True)
    return results


def report(results: dict[str, list[Speeds]]) -> dict[str, Speeds]:
    """Medians per engine over the undisturbed rounds, and mlcc's ratios to the best peer."""
    table: dict[str, Speeds] = {}
    for name, rounds in results.items():
        quiet = [r for r in rounds if r["other_cores"] <= QUIET] or rounds
        cells = [cell for cell in rounds[0] if cell != "other_cores"]
        table[name] = {cell: statistics.median(r[cell] for r in quiet) for cell in cells}
        table[name]["rounds"] = len(quiet) if quiet is not rounds else 0
    for name, row in table.items():
        engine, quant = [*name.split(), ""][:2]
        peers = [row for peer, row in table.items() if peer.endswith(f" {format_of(quant)}")]
        for cell in [cell for cell in row if cell != "rounds" and engine == "mlcc"]:
            best = max((peer[cell] for peer in peers if cell in peer), default=None)
            if best:
                row[f"{cell} of best peer"] = row[cell] / best
    return table


def format_of(quant: str) -> str:
    """The format of the peers' file with as many bits."""
    return FORMATS.get(quant, "Q4_0")


def text_of(table: dict[str, Speeds]) -> str:
    """The table: engines by cells, with mlcc's ratio to the best peer in brackets."""
    cells = list(dict.fromkeys(c for row in table.values() for c in row if "peer" not in c))
    lines = [f"{'tok/s':<24}" + "".join(f"{cell:>16}" for cell in cells)]
    for name, row in table.items():
        line = f"{name:<24}"
        for cell in cells:
            ratio = row.get(f"{cell} of best peer")
            value = f"{row[cell]:.1f}" if cell in row else "-"
            line += f"{value + (f' ({ratio:.2f})' if ratio else ''):>16}"
        lines.append(line)
    return "\n".join(lines)


def make_checkpoint(shape: str, folder: Path) -> Path:
    """A checkpoint with random weights of a shape; made once."""
    if (folder / "config.json").exists():
        return folder
    module = "published_shapes" if shape in FAMILIES else "random_checkpoint"
    command = [sys.executable, "-m", f"benchmarks.models.{module}", str(folder), "--shape", shape]
    subprocess.run(command, check=True)
    return folder


def gguf_of(shape: str, kind: str, folder: Path) -> Path:
    """The peers' file of a checkpoint; made once."""
    gguf = folder / f"{shape}-{kind}.gguf"
    if not gguf.exists():
        command = [sys.executable, "-m", "benchmarks.models.random_gguf", folder / shape, gguf]
        subprocess.run([*map(str, command), "--type", kind], check=True)
    return gguf


def compile_checkpoint(
    checkpoint: Path, quant: str, out: Path, level: str, context: int = 2048, batch: int = 4
) -> tuple[Path, float]:
    start = time.perf_counter()
    if (out / "mlcc.json").exists():
        return out, 0.0
    command = [sys.executable, "-m", "mlcc_compiler", "compile", str(checkpoint), "--quant", quant]
    command += ["--context", str(context), "--max-batch", str(batch)]
    subprocess.run([*command, "--cpu", level, "-o", str(out), "--quiet"], check=True)
    return out, time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", default="135m", choices=("135m", "1b", *FAMILIES))
    parser.add_argument("--prefill", type=int, default=PREFILL)
    parser.add_argument("--quant", nargs="*", default=["q4", "q8"])
    parser.add_argument("--cpu", nargs="*", default=["host"], help="levels; default: host")
    parser.add_argument("--contexts", type=int, nargs="*", default=[0, 512, 8192])
    parser.add_argument("--batches", type=int, nargs="*", default=[4, 16, 64])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--peers", action="store_true", help="build or install the peers, and measure them"
    )
    parser.add_argument("--llama-bench", help="a path, or words: 'chroot ROOT llama-bench'")
    parser.add_argument(
        "--gguf", type=Path, help="llama-bench's file, in the format of the first --quant"
    )
    parser.add_argument("--no-transformers", action="store_true")
    parser.add_argument("--out", type=Path, help="a folder for table.txt, result.json, plot.svg")
    parser.add_argument("--work", type=Path, help="a folder for checkpoints and compiled models")
    given = parser.parse_args()
    if given.peers and given.shape in FAMILIES:
        parser.error("--peers makes a GGUF of 135m and 1b; else give --llama-bench and --gguf")
    sizes = Sizes(given.threads, given.prefill, given.contexts, given.batches)
    with tempfile.TemporaryDirectory() as folder:
        engines = engines_of(given, sizes, given.work or Path(folder))
        results = run(engines, given.rounds)
    if not given.rounds:
        return
    table = report(results)
    uses = {name: engine.instructions for name, engine in engines.items()}
    text = text_of(table) + "\n\ninstructions\n"
    text += "".join(f"{name:<24}{used}\n" for name, used in uses.items())
    print(text)
    result = json.dumps(
        {"threads": given.threads, "median": table, "rounds": results, "uses": uses}
    )
    print(result)
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "table.txt").write_text(text)
        (given.out / "result.json").write_text(result + "\n")
        script = [install.plotting(), HERE / "plot.py", given.out / "result.json"]
        subprocess.run([*map(str, script), str(given.out / "plot.svg")], check=True)


def engines_of(given: Any, sizes: Sizes, folder: Path) -> dict[str, Engine]:
    """The engines by name. Compiles what is missing."""
    engines: dict[str, Engine] = {}
    context = max(given.prefill, *given.contexts, 0) + 4 * DECODE
    for shape in (given.shape, *filter(None, [BASELINES.get(given.shape)])):
        checkpoint = make_checkpoint(shape, folder / shape)
        for quant, level in product(given.quant, given.cpu):
            batch = max(given.batches, default=4)
            target = folder / f"{shape}-{quant}-{level}-{context}x{batch}"
            out, seconds = compile_checkpoint(checkpoint, quant, target, level, context, batch)
            size = sum(f.stat().st_size for f in out.iterdir())
            print(f"compile {quant} {level}: {seconds:.1f} s, {size / 1e6:.1f} MB", file=sys.stderr)
            name = f"{'mlcc' if shape == given.shape else shape} {quant}"
            name += f" {level}" if len(given.cpu) > 1 else ""
            engines[name] = Engine(partial(mlcc_speeds, out, sizes), instructions.of_mlcc(out))
    if given.peers:
        bench = install.llama() / "llama-bench"
        used = instructions.of_llama(bench)
        for kind in dict.fromkeys(map(format_of, given.quant)):
            gguf = gguf_of(given.shape, kind, folder)
            openvino_gguf = gguf_of(given.shape, OPENVINO_FORMATS.get(kind, kind), folder)
            measure = partial(openvino_speeds, install.openvino(), openvino_gguf, sizes)
            engines[f"OpenVINO {kind}"] = Engine(measure, instructions.OPENVINO)
            measure = partial(llama_speeds, str(bench), gguf, sizes)
            engines[f"llama.cpp {kind}"] = Engine(measure, used)
    elif given.llama_bench:
        kind = format_of(given.quant[0])
        measure = partial(llama_speeds, given.llama_bench, given.gguf, sizes)
        engines[f"llama.cpp {kind}"] = Engine(measure)
    if not given.no_transformers and given.shape not in FAMILIES:
        engines["transformers BF16"] = Engine(partial(transformers_speeds, checkpoint, sizes))
    return engines


if __name__ == "__main__":
    main()
