"""Every family of encoders in the tab, in Node: embeddings equal those of `transformers`. The
kernels compute in float32. XLM-R's own tokenizers are refused by name."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tokenizers import Tokenizer, models

from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.compiler.models.helpers.encoder_checkpoints import CASES, expected, make_encoder
from tests.compiler.models.test_encoders import BOUND, texts_of
from tests.helpers import needs
from tests.helpers.web_package import bridge, built_web, environment, node

ALWAYS = ("bert",)
"""Encoders that run in a tab; the kernels of the rest run on Vulkan (`test_encoders.py`)."""


def compiled(folder: Path) -> Path:
    needs.require_target("webgpu")
    row, options = get_target("webgpu", Choices(f16=False)), Options(quant="f32")
    return compile_model(Checkpoint.open(folder), row, folder / "webgpu", options, Progress())


def shown(case: str) -> Any:
    marks = [pytest.mark.feature(case, "webgpu", "runs")]
    return pytest.param(case, marks=[*marks, *([] if case in ALWAYS else [pytest.mark.long])])


@pytest.mark.parametrize(
    "case",
    [shown(c) for c in ("bert", "roberta", "modernbert", "qwen3-embedding", "embeddinggemma")],
)
def test_rows_are_those_of_transformers(case: str, tmp_path: Path, record_property: Any) -> None:
    oracle = make_encoder(CASES[case], tmp_path)
    texts = texts_of(126)
    with bridge("node", compiled(tmp_path)) as url:
        answer = httpx.post(f"{url}/v1/embeddings", json={"input": texts}, timeout=300).json()
    error = 0.0
    for ids, each in zip(texts, answer["data"], strict=True):
        row = expected(CASES[case], oracle, tmp_path, ids)
        error = max(error, float(np.abs(each["embedding"] - row / np.linalg.norm(row)).max()))
    record_property("max_abs_error", error)
    assert error < BOUND


@pytest.mark.feature("xlm-roberta", "webgpu", "refused")
def test_a_tokenizer_that_no_browser_computes_is_named(
    tmp_path: Path, record_property: Any
) -> None:
    """XLM-R's is of SentencePiece's unigrams."""
    needs.require("chromium")
    make_encoder(CASES["xlm-roberta"], tmp_path)
    pieces = [(json.loads(f'"{letter}"'), -1.0) for letter in ["<unk>", "<s>", "</s>", *"abc"]]
    Tokenizer(models.Unigram(pieces, 0)).save(str(tmp_path / "tokenizer.json"))
    program = built_web() / "dist" / "bridge.mjs"
    command = [node(), str(program), "--mode", "node", "--model", str(compiled(tmp_path))]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=300)
    assert done.returncode != 0
    error_line = next(line for line in done.stderr.splitlines() if "the model Unigram" in line)
    refusal = error_line.partition("Error: ")[2]
    assert refusal.endswith("this model answers with `mlcc serve` only")
    record_property("refusal", refusal)
