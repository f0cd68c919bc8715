"""Small random models compiled for several ranks, beside `transformers`' own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import transformers

from mlcc.artifact.folder import Artifact
from mlcc.engine_args import EngineArgs
from mlcc.loader import open_executor
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import get_target
from tests.compiler.models.helpers.checkpoints import CASES, SMALL, save_random

CASES_OF_RANKS: dict[str, dict[str, Any]] = {
    "llama": {"vocab_size": 132},  # tied: the head's part is beside the table
    # biases, a KV head that both ranks have, and a vocabulary that nothing divides:
    "llama-head-dim": {"num_key_value_heads": 1},
    "llama-one-kv-head": {"vocab_size": 132},
    "gemma3": {"vocab_size": 132},
    # a shared expert with a gate, and a dense layer:
    "qwen2_moe": {"vocab_size": 132, "num_hidden_layers": 2},
    "qwen3": {"vocab_size": 132},
    "qwen3_moe": {},
    "mistral": {},
    "phi3": {},
    "starcoder2": {},
    "cohere2": {},
    "exaone4": {},
    "nemotron": {},
    "glm4_moe": {},
}
"""Case of `models.checkpoints` -> fields that differ here."""


def checkpoint(case: str, folder: Path, **changes: Any) -> Any:
    """A random model as a folder; `transformers`' model in float64."""
    name, options = CASES[case]
    options = {**SMALL, **options, **CASES_OF_RANKS.get(case, {}), **changes}
    oracle = save_random(getattr(transformers, name)(**options), folder)
    (folder / "tokenizer.json").write_text('{"model": {"type": "BPE", "vocab": {}, "merges": []}}')
    return oracle


def compiled(folder: Path, ranks: int, **options: Any) -> Path:
    """Compile a checkpoint; returns the artifact's folder."""
    given = {"quant": "f32", "context": 128, "max_batch": 4, "max_step_tokens": 64, "max_rows": 64}
    made = Options(**{**given, **options, "ranks": ranks})
    out = folder.parent / f"{folder.name}-{ranks}"
    return compile_model(Checkpoint.open(folder), get_target("cpu"), out, made, Progress())


def opened(artifact: Path, threads: int = 2) -> Any:
    """Open an artifact's executor."""
    return open_executor(Artifact.open(artifact), EngineArgs(threads=threads))
