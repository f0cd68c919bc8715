"""GGUF files of one model in several formats, unconverted, beside llama.cpp on the same file.

    python -m benchmarks.peers.gguf_formats FOLDER --llama-bench PATH [--contexts 0 8192]

Compiles each file of the folder for this CPU (`--quant keep`), then runs mlcc and llama-bench on
one file after the other, in turn, round after round. Prints medians of the quiet rounds, ratios,
and one JSON line. `--inside FOLDER` is the folder as llama-bench sees it, if that is in a chroot.
docs/quantization.md has the quality of each format.

Floor: a decode step reads the matrices of the file once; prefill is bound by byte products.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.peers.cpu import (
    DECODE,
    PREFILL,
    Engine,
    Sizes,
    compile_checkpoint,
    llama_speeds,
    mlcc_speeds,
    report,
    run,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--llama-bench", required=True, help="a path, or 'chroot ROOT llama-bench'")
    parser.add_argument("--inside", type=Path)
    parser.add_argument("--contexts", type=int, nargs="*", default=[0])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    sizes = Sizes(given.threads, PREFILL, given.contexts, batches=[])
    context = max(PREFILL, *given.contexts) + 4 * DECODE
    files = sorted(given.folder.glob("*.gguf"))
    engines: dict[str, Engine] = {}
    nbytes = {}
    with tempfile.TemporaryDirectory() as scratch:
        for file in files:
            out, _ = compile_checkpoint(file, "keep", Path(scratch) / file.stem, "host", context)
            nbytes[file.stem] = sum(f.stat().st_size for f in out.glob("*.safetensors"))
            path = (given.inside or given.folder) / file.name
            engines[f"mlcc {file.stem}"] = Engine(partial(mlcc_speeds, out, sizes))
            measure = partial(llama_speeds, given.llama_bench, path, sizes)
            engines[f"llama.cpp {file.stem}"] = Engine(measure)
        rounds = run(engines, given.rounds)
    table = report(rounds)
    cells = ("prefill", *(f"decode@{at}" for at in given.contexts))
    print(f"{'tok/s, llama.cpp, ratio':<24}{'MB':>7}" + "".join(f"{c:>26}" for c in cells))
    for file in files:
        own, peer = table[f"mlcc {file.stem}"], table[f"llama.cpp {file.stem}"]
        columns = [f"{own[c]:>10.1f}{peer[c]:>9.1f}{own[c] / peer[c]:>7.2f}" for c in cells]
        print(f"{file.stem:<24}{nbytes[file.stem] / 1e6:>7.0f}{''.join(columns)}")
    print(json.dumps({"threads": given.threads, "median": table, "rounds": rounds}))


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit(__doc__)
    main()
