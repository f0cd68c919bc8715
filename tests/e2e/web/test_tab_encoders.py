"""Every family of encoders in the tab, in Node: embeddings equal those of `transformers`. The
kernels compute in float32."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.compiler.models.helpers.encoder_checkpoints import CASES, expected, make_encoder
from tests.compiler.models.test_encoders import BOUND, texts_of
from tests.helpers import needs
from tests.helpers.web_package import bridge

ENCODERS = ("bert", "roberta", "xlm-roberta", "modernbert", "qwen3-embedding", "embeddinggemma")
ALWAYS = ("bert",)
"""Encoders that run in a tab; the kernels of the rest run on Vulkan (`test_encoders.py`)."""


def compiled(folder: Path) -> Path:
    needs.require_target("webgpu")
    row, options = get_target("webgpu", Choices(f16=False)), Options(quant="f32")
    return compile_model(Checkpoint.open(folder), row, folder / "webgpu", options, Progress())


def shown(case: str) -> Any:
    marks = [pytest.mark.feature(case, "webgpu", "runs")]
    return pytest.param(case, marks=[*marks, *([] if case in ALWAYS else [pytest.mark.long])])


@pytest.mark.parametrize("case", map(shown, ENCODERS))
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


@pytest.mark.feature("xlm-roberta", "webgpu", "runs")
def test_text_by_unigrams_is_read_as_python_reads_it(tmp_path: Path) -> None:
    """XLM-R's tokenizer: a text's row is that of its ids."""
    make_encoder(CASES["xlm-roberta"], tmp_path)
    letters = [(json.loads(f'"{sign}"'), -1.0) for sign in ["<unk>", "<s>", "</s>", *"abc"]]
    tokenizer = Tokenizer(models.Unigram([*letters, ("ab", -1.5), ("\u2581", -2.0)], 0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    texts = ["ab abc cabx a", "b", "c  aab"]
    ids = [tokenizer.encode(text).ids for text in texts]
    assert any(0 in each for each in ids) and any(6 in each for each in ids)
    with bridge("node", compiled(tmp_path)) as url:
        answer = httpx.post(f"{url}/v1/embeddings", json={"input": texts}, timeout=300).json()
        same = httpx.post(f"{url}/v1/embeddings", json={"input": ids}, timeout=300).json()
    rows, expected_rows = ([each["embedding"] for each in body["data"]] for body in (answer, same))
    assert rows == expected_rows and rows[0] != rows[1]
