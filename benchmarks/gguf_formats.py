"""GGUF files of one model in several formats: speed as they lie, beside llama.cpp on the same file.

    python benchmarks/gguf_formats.py FOLDER --llama-bench PATH [--inside FOLDER] [--rounds 5]

Compiles each file of the folder for this CPU (`--quant keep`), then runs mlcc and llama-bench on
one file after the other, in turn, round after round. Prints medians of the quiet rounds, ratios,
and one JSON line. `--inside` is where llama-bench finds the folder, if that is in a chroot. Which
formats keep what quality is in docs/quantization.md.

Floor: a decode step reads what a file has of matrices once; prefill is bound by byte products.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cpu import PREFILL, Speeds, compile_checkpoint, llama_speeds, mlcc_speeds, report, run

KEYS = ("prefill", "decode")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--llama-bench", required=True, help="a path, or 'chroot ROOT llama-bench'")
    parser.add_argument("--inside", type=Path)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    files = sorted(given.folder.glob("*.gguf"))
    engines: dict[str, Callable[[], Speeds]] = {}
    sizes = {}
    with tempfile.TemporaryDirectory() as scratch:
        for file in files:
            out, _ = compile_checkpoint(file, "keep", Path(scratch) / file.stem)
            sizes[file.stem] = sum(f.stat().st_size for f in out.glob("*.safetensors"))
            theirs = (given.inside or given.folder) / file.name
            engines[f"mlcc {file.stem}"] = partial(mlcc_speeds, out, given.threads, PREFILL)
            engines[f"llama.cpp {file.stem}"] = partial(
                llama_speeds, given.llama_bench, theirs, given.threads, PREFILL
            )
        rounds = run(engines, given.rounds)
    table = report(rounds)
    print(
        f"{'file':<16}{'MB':>7}  prefill tok/s, llama.cpp, ratio    decode tok/s, llama.cpp, ratio"
    )
    for file in files:
        ours, peer = table[f"mlcc {file.stem}"], table[f"llama.cpp {file.stem}"]
        cells = [f"{ours[k]:>10.1f}{peer[k]:>10.1f}{ours[k] / peer[k]:>8.2f}" for k in KEYS]
        print(f"{file.stem:<16}{sizes[file.stem] / 1e6:>7.0f}  {'      '.join(cells)}")
    print(json.dumps({"threads": given.threads, "median": table, "rounds": rounds}))


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit(__doc__)
    main()
