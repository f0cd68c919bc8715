"""LoRA adapters under load: 16 adapters by a Zipf law over 32 streams, beside the base model.

    python -m benchmarks.server.lora CHECKPOINT [--rank 8] [--adapters 16] [--streams 32]
        [--requests 96] [--rounds 3] [--quant q4]

Compiles the checkpoint twice, with adapter slots and without, and makes adapters of random matrices
for all linear layers. Three cases with the same prompts, each in a server of its own, in turn,
round after round: `without room` (the library has no slots), `base` (the library has slots and no
request names an adapter; the same functions run) and `zipf` (requests for adapter k of 1 .. N in
proportion to 1 / k). Prints the table and JSON of `serve.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from benchmarks.server.load_generator import LoadRequest, RandomTokens, closed_loop, short
from benchmarks.server.serve import Command, serving, summary, table
from mlcc.artifact.folder import Artifact
from mlcc.artifact.schema import AdaptersInfo


def save_adapter(folder: Path, info: AdaptersInfo, rank: int, seed: int) -> Path:
    """A PEFT folder with small random matrices for every module."""
    rng = np.random.default_rng(seed)
    tensors = {}
    for site in info.sites:
        for module, outputs in zip(site.modules, site.outputs, strict=True):
            for side, shape in (("A", (rank, site.inputs)), ("B", (outputs, rank))):
                values = rng.normal(0, 0.01, shape).astype(np.float32)
                tensors[f"base_model.model.{module}.lora_{side}.weight"] = values
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": "all-linear"}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def zipf(requests: Sequence[LoadRequest], names: Sequence[str], seed: int) -> list[LoadRequest]:
    """The requests with an adapter name each, the k-th with weight 1 / k."""
    rng, weights = random.Random(seed), [1 / k for k in range(1, len(names) + 1)]
    return [replace(request, model=rng.choices(names, weights)[0]) for request in requests]


def compile_to(out: Path, given: argparse.Namespace, *more: str) -> Path:
    command = [sys.executable, "-m", "mlcc", "compile", str(given.checkpoint), "-q", "-o", str(out)]
    command += ["--cpu", "host"]
    command += ["--quant", given.quant, "--max-batch", str(given.streams), *more]
    subprocess.run(command, check=True)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--quant", default="q4")
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--adapters", type=int, default=16)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--requests", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        plain = compile_to(root / "plain", given)
        slots = ("--adapter-rank", str(given.rank), "--lora-slots", str(given.adapters))
        slotted = compile_to(root / "slotted", given, *slots)
        manifest = Artifact.open(slotted).manifest
        assert manifest.adapters is not None
        names = [f"a{number}" for number in range(given.adapters)]
        folders = [
            save_adapter(root / name, manifest.adapters, given.rank, number)
            for number, name in enumerate(names)
        ]
        options = [f"--lora={n}={f}" for n, f in zip(names, folders, strict=True)]
        cases: dict[str, tuple[Command, Sequence[str]]] = {
            "without room": (server(plain, given), ()),
            "base": (server(slotted, given, *options), ()),
            "zipf": (server(slotted, given, *options), names),
        }
        for number in range(given.rounds):
            seed = given.seed + 1000 * number
            for case, (command, names_used) in cases.items():
                requests = short(RandomTokens(seed, manifest.model.vocab_size), given.requests)
                if names_used:
                    requests = zipf(requests, names_used, seed)
                with serving(command) as url:
                    start = time.perf_counter()
                    results = asyncio.run(closed_loop(url, requests, given.streams))
                    figures = summary(results, time.perf_counter() - start)
                rows.append({"round": number, "workload": "adapters", "engine": case, **figures})
    rows.sort(key=lambda row: (row["engine"], row["round"]))
    print("\n".join(table(rows)))
    print(json.dumps({"streams": given.streams, "rank": given.rank, "rows": rows}))


def server(artifact: Path, given: argparse.Namespace, *options: str) -> Command:
    """The command line of a server for the artifact."""
    serve = [sys.executable, "-m", "mlcc", "serve", str(artifact), "--max-queue", "10000"]
    serve += ["--threads", str(given.threads), *options]
    return lambda port: [*serve, "--port", str(port)]


if __name__ == "__main__":
    main()
