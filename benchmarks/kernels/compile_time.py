"""CPU seconds, LLVM instructions and bytes of each kernel of a CPU library: what a compile costs.

    python -m benchmarks.kernels.compile_time MODEL [--cpu host] [--quant q4] [--json]

Compiles MODEL into a temporary folder with an empty cache, one kernel at a time on one thread, so
that a kernel's seconds are its own (`mlcc compile` uses all cores, whose shared parts make each
slower). `passes`: TVM's passes and LLVM's optimizer; `emit`: machine code; `IR`: instructions of
LLVM IR after optimization, which do not depend on the machine's load. Prints the kernels by
seconds, then each level and all of the process.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mlcc_compiler import pipeline
from mlcc_compiler.ir._tvm import ir, tvm
from mlcc_compiler.kernels.called_functions import functions_of, without_calls
from mlcc_compiler.kernels.tir_pipeline import CPU_PIPELINE
from mlcc_compiler.object_files import key_of, target_for

_INSTRUCTION = re.compile(r"^  (?:%\S+ = |store|br|ret|call|tail|switch)", re.MULTILINE)


@dataclass(frozen=True)
class Kernel:
    """What one kernel of one library took."""

    name: str
    level: str
    passes: float
    emit: float
    instructions: int
    size: int


def measured(kernels: list[Kernel]) -> Callable[..., list[Path]]:
    """`object_files.compile_kernels` without cache and threads, which adds to `kernels` those that
    no earlier level has had."""
    found = dict[str, bytes]()

    def compile_kernels(
        modules: list[ir.IRModule],
        target: Any,
        folder: Path,
        report: Callable[[int, int], None] = lambda done, total: None,
    ) -> list[Path]:
        paths = []
        modules = [*functions_of(modules), *map(without_calls, modules)]
        for module in modules:
            (variable,) = module.functions
            path = folder / f"{variable.name_hint}.o"
            paths.append(path)
            key, needed = key_of(module, target), target_for(module[variable], target)
            if key in found:
                path.write_bytes(found[key])
                continue
            times = [time.thread_time()]
            with needed:
                built = tvm.tirx.build(module, needed, CPU_PIPELINE)
            times.append(time.thread_time())
            built.write_to_file(str(path))
            times.append(time.thread_time())
            count = len(_INSTRUCTION.findall(built.inspect_source("ll")))
            passes, emit = times[1] - times[0], times[2] - times[1]
            found[key] = path.read_bytes()
            size = len(found[key])
            kernels.append(Kernel(variable.name_hint, level_of(target), passes, emit, count, size))
            report(len(paths), len(modules))
        return paths

    return compile_kernels


def level_of(target: Any) -> str:
    """A target's CPU and the last of its features, by which levels differ."""
    features = [str(each).lstrip("+") for each in target.attrs.get("mattr", [])]
    return " ".join([str(target.attrs.get("mcpu", "")), *features[-1:]])


def table(kernels: list[Kernel]) -> str:
    """The kernels by seconds, and the sums of each level."""
    head = f"{'passes':>7}{'emit':>7}{'IR':>9}{'KB':>7}  kernel"
    rows = sorted(kernels, key=lambda kernel: -(kernel.passes + kernel.emit))
    lines = [head, *(_line(kernel, f"{kernel.name} ({kernel.level})") for kernel in rows)]
    levels: dict[str, list[Kernel]] = defaultdict(list)
    for kernel in kernels:
        levels[kernel.level].append(kernel)
    for level, own in levels.items():
        sums = [sum(getattr(k, name) for k in own) for name in _SUMMED]
        lines.append(_line(Kernel("", level, *sums), f"= {len(own)} kernels of {level}"))
    return "\n".join(lines)


_SUMMED = ("passes", "emit", "instructions", "size")


def _line(kernel: Kernel, name: str) -> str:
    numbers = f"{kernel.passes:7.2f}{kernel.emit:7.2f}{kernel.instructions:9d}"
    return f"{numbers}{kernel.size / 1e3:7.0f}  {name}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--cpu", default="host")
    parser.add_argument("--quant")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    given = parser.parse_args()
    kernels: list[Kernel] = []
    pipeline.compile_kernels = measured(kernels)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        words = ["compile", given.model, "--cpu", given.cpu, "-o", f"{folder}/out", "-q"]
        words += ["--quant", given.quant] if given.quant else []
        from mlcc.cli import main as mlcc

        try:
            mlcc(words)
        except SystemExit as end:
            if end.code:
                raise
    seconds = time.process_time()
    if given.json:
        print(json.dumps({"seconds": seconds, "kernels": [asdict(each) for each in kernels]}))
    else:
        print(f"{table(kernels)}\n{seconds:.1f} s of CPU, all of the process")


if __name__ == "__main__":
    main()
