"""Every encoder's embeddings against `transformers`: compiled, opened and used in batches.

f32, small random checkpoints, the oracle in float64. Bounds are absolute, on embeddings whose
numbers have a standard deviation near 1.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from mlcc.cli import cli
from mlcc.engine.request import Request
from mlcc.errors import MlccError
from mlcc.loader import open_model
from mlcc.model.encoder_driver import EncoderDriver
from mlcc.model.model import Model
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.cli import compile_command
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.compiler.models.helpers.encoder_checkpoints import (
    CASES,
    CLASSIFIERS,
    RERANKERS,
    VOCAB,
    expected,
    make_encoder,
)
from tests.feature_matrix import PARTS

BOUND = 1e-4
OFTEN = ("roberta", "modernbert")
"""On a GPU always; the rest repeats their parts."""
LENGTHS = (1, 17, 64, 2, 33, 128, 5, 9)


def compiled(folder: Path, target: str, **options: Any) -> Path:
    row = get_target(target, Choices(f16=False) if target == "vulkan" else Choices())
    wanted = Options(**{"quant": "f32", **options})
    return compile_model(Checkpoint.open(folder), row, folder / target, wanted, Progress())


def rows_of(model: Model, texts: list[list[int]]) -> list[Any]:
    driver = EncoderDriver(model)
    for i, ids in enumerate(texts):
        driver.engine.add(Request(str(i), ids, tenant=str(i % 3)))
    found = {}
    while driver.has_work:
        for event in driver.step():
            found[event.request_id] = np.frombuffer(event.vector, np.float32)
    assert driver.engine.stats().steps < len(texts), "texts share steps"
    return [found[str(i)] for i in range(len(texts))]


def texts_of(most: int, seed: int = 1) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(5, VOCAB, min(n, most)).tolist() for n in LENGTHS]


def check(case: str, target: str, folder: Path) -> float:
    oracle = make_encoder(CASES[case], folder)
    model = open_model(compiled(folder, target))
    try:
        texts = texts_of(model.capacity.context)
        rows = rows_of(model, texts)
    finally:
        model.close()
    wanted = [expected(CASES[case], oracle, folder, ids) for ids in texts]
    assert np.std(wanted) > 0.2
    return max(float(np.abs(a - b).max()) for a, b in zip(rows, wanted, strict=True))


def shown(case: str, target: str, long: bool = False) -> Any:
    name = case if case in PARTS else case.partition("-")[0]
    marks = [pytest.mark.feature(name, target, "runs")]
    return pytest.param(case, marks=[*marks, *([pytest.mark.long] if long else [])])


@pytest.mark.parametrize("case", [shown(case, "cpu") for case in CASES])
def test_cpu_equals_transformers(case: str, tmp_path: Path, record_property: Any) -> None:
    error = check(case, "cpu", tmp_path)
    record_property("max_abs_error", error)
    assert error < BOUND


@pytest.mark.parametrize("case", [shown(case, "reference") for case in CASES if case in PARTS])
def test_reference_equals_transformers(case: str, tmp_path: Path) -> None:
    assert check(case, "reference", tmp_path) < BOUND


@pytest.mark.usefixtures("vulkan")
@pytest.mark.parametrize(
    "case", [shown(case, "vulkan", case not in OFTEN) for case in CASES if case in PARTS]
)
def test_vulkan_equals_transformers(case: str, tmp_path: Path) -> None:
    assert check(case, "vulkan", tmp_path) < BOUND


@pytest.mark.feature("rerank", "cpu", "runs")
@pytest.mark.parametrize("case", RERANKERS)
def test_rerankers_equal_transformers(case: str, tmp_path: Path) -> None:
    """Token by token as the engine gets them: of a pair, with segments where the model has some."""
    oracle = make_encoder(RERANKERS[case], tmp_path)
    model = open_model(compiled(tmp_path, "cpu"))
    encoder = model.encoder
    assert encoder is not None
    assert (encoder.task, encoder.width) == ("score", 1)
    assert encoder.segments == (2 if case == "bert-reranker" else 1)
    before, between, behind = encoder.pair
    assert between == ((3, 3) if case == "roberta-reranker" else (3,))
    pairs = [([7, 8, 9], [10, 11]), ([12], [13, 14, 15, 16, 17, 18]), ([20] * 20, [21] * 30)]
    given, wanted = [], []
    for one, other in pairs:
        first, second = [*before, *one, *between], [*other, *behind]
        shift = VOCAB if encoder.segments == 2 else 0
        given.append([*first, *(token + shift for token in second)])
        kinds = {"token_type_ids": torch.tensor([[0] * len(first) + [1] * len(second)])}
        ids = torch.tensor([[*first, *second]])
        with torch.no_grad():
            answer = oracle(ids, **(kinds if shift else {}))
        wanted.append(float(answer.logits[0, 0]))
    found = [float(row[0]) for row in rows_of(model, given)]
    model.close()
    assert np.std(wanted) > 0.01
    np.testing.assert_allclose(found, wanted, rtol=0, atol=BOUND)


def classified(case: str, target: str, folder: Path) -> float:
    """The largest error of a logit, beside transformers' classifier of several labels."""
    oracle = make_encoder(CLASSIFIERS[case], folder)
    model = open_model(compiled(folder, target))
    try:
        encoder = model.encoder
        assert encoder is not None and encoder.task == "classify"
        assert encoder.labels == tuple(oracle.config.id2label.values())
        assert encoder.width == len(encoder.labels) > 1
        multi = oracle.config.problem_type == "multi_label_classification"
        assert encoder.activation == ("sigmoid" if multi else "softmax")
        texts = texts_of(model.capacity.context)
        rows = rows_of(model, texts)
    finally:
        model.close()
    with torch.no_grad():
        wanted = [oracle(torch.tensor([ids])).logits[0].numpy() for ids in texts]
    assert np.std(wanted) > 0.1
    return max(float(np.abs(a - b).max()) for a, b in zip(rows, wanted, strict=True))


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, marks=pytest.mark.feature("classify", "cpu", "runs")) for c in CLASSIFIERS],
)
def test_classifiers_equal_transformers(case: str, tmp_path: Path) -> None:
    assert classified(case, "cpu", tmp_path) < BOUND


@pytest.mark.usefixtures("vulkan")
@pytest.mark.feature("classify", "vulkan", "runs")
def test_a_classifier_on_vulkan(tmp_path: Path) -> None:
    assert classified("roberta-classifier", "vulkan", tmp_path) < BOUND


@pytest.mark.feature("classify", "reference", "runs")
def test_a_classifier_of_the_reference(tmp_path: Path) -> None:
    assert classified("modernbert-classifier", "reference", tmp_path) < BOUND


FLIPPED = {
    "bert": {"hidden_act": "gelu_new", "layer_norm_eps": 1e-2, "type_vocab_size": 1},
    "roberta": {"pad_token_id": 3},
    "modernbert": {
        "local_attention": 6,
        "norm_eps": 1e-2,
        "hidden_activation": "gelu_new",
        "global_attn_every_n_layers": 2,
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 500.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 90.0},
        },
    },
    "embeddinggemma": {"sliding_window": 20, "query_pre_attn_scalar": 9},
}


@pytest.mark.parametrize(
    "case, field",
    [
        pytest.param(case, field, marks=[] if case == "modernbert" else [pytest.mark.long])
        for case, fields in FLIPPED.items()
        for field in fields
    ],
)
def test_fields_that_change_the_arithmetic(
    case: str, field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changed field of config.json changes the result: with the numpy executor, as kernels are
    the same."""
    fields = {**CASES[case].fields, field: FLIPPED[case][field]}
    monkeypatch.setitem(CASES, case, replace(CASES[case], fields=fields))
    assert check(case, "reference", tmp_path) < BOUND


@pytest.mark.parametrize(
    "change, text",
    [
        ({"1_Pooling/config.json": {"pooling_mode_max_tokens": True}}, "pooling_mode_max_tokens"),
        ({"modules.json": [{"type": "a.Transformer", "path": "0_T"}]}, "Transformer is not built"),
        ({"modules.json": [{"type": "a.Transformer", "path": "../x"}]}, "names the folder"),
        ({"config.json": {"position_embedding_type": "relative_key"}}, "relative_key"),
        ({"config.json": {"architectures": ["BertForSequenceClassification"],
                          "num_labels": -1}}, "'num_labels' must be"),
        ({"config.json": {"architectures": ["BertForSequenceClassification"],
                          "id2label": {"0": "a", "2": "b"}}}, "a name for each of 2 labels"),
        ({"config.json": {"architectures": ["BertForSequenceClassification"],
                          "problem_type": "ranking"}}, "'problem_type' must be"),
    ],
)  # fmt: skip
def test_what_is_not_built_is_named(change: dict[str, Any], text: str, tmp_path: Path) -> None:
    make_encoder(CASES["bert"], tmp_path)
    for name, value in change.items():
        path = tmp_path / name
        old = json.loads(path.read_text())
        path.write_text(json.dumps({**old, **value} if isinstance(value, dict) else value))
    with pytest.raises(MlccError, match=text):
        compiled(tmp_path, "reference")


def test_options_of_models_that_write_are_refused(tmp_path: Path) -> None:
    make_encoder(CASES["bert"], tmp_path)
    given: list[dict[str, Any]] = [{"kv": "int8"}, {"calibrate": "default"}, {"max_rows": 4}]
    for options, text in zip(given, ("--kv", "--calibrate", "--max-rows"), strict=True):
        with pytest.raises(MlccError, match=f"{text} is for models that write"):
            compiled(tmp_path, "reference", **options)
    with pytest.raises(MlccError, match="--max-step-tokens 3: an encoder computes a text"):
        compiled(tmp_path, "reference", max_step_tokens=3)
    with pytest.raises(MlccError, match="--reranker reads a Qwen3"):
        compiled(tmp_path, "reference", reranker=True)


def test_pull_says_what_an_encoder_is_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_encoder(CASES["bert"], tmp_path / "small")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    words = ["pull", str(tmp_path / "small"), "--target", "reference"]
    pulled = CliRunner().invoke(cli, words)
    assert pulled.exit_code == 0, pulled.output
    assert pulled.stdout.endswith(f": mlcc embed {tmp_path / 'small'}\n")


def test_a_compile_says_what_an_encoder_is_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for case, use in (("bert", "embed with it: mlcc embed"), ("bert-reranker", "serve it:")):
        make_encoder({**CASES, **RERANKERS}[case], tmp_path / case)
        result = CliRunner().invoke(compile_command, [case, "--target", "reference"])
        assert result.exit_code == 0, result.stderr
        assert use in result.stderr and "chat with" not in result.stderr
        assert "more sensitive than answers are; --quant q8" in result.stderr
