"""`test_config_flips` for encoders: every field of their config classes gets another value, and the
embeddings follow `transformers` or the compile is refused. Only with --long except for one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

from mlcc.errors import MlccError
from mlcc.loader import open_model
from tests.compiler.models.config.test_config_flips import NO_ARITHMETIC, flipped
from tests.compiler.models.helpers.encoder_checkpoints import CASES, SIZES, expected, make_encoder
from tests.compiler.models.test_encoders import compiled, rows_of, texts_of

SHOWN = "roberta"
ENCODERS = ("bert", "roberta", "xlm-roberta", "modernbert")
SILENT = {
    "attention_probs_dropout_prob", "classifier_activation", "classifier_bias",
    "classifier_dropout", "classifier_pooling", "cls_token_id", "compiled_mlp",
    "decoder_bias", "deterministic_flash_attn", "gradient_checkpointing", "hidden_dropout_prob",
    "initializer_cutoff_factor", "mlp_dropout", "pooler_activation", "problem_type",
    "reference_compile", "repad_logits_with_grad", "sparse_pred_ignore_index",
    "sparse_prediction", "tie_word_embeddings",
}  # fmt: skip
"""Fields of training and of heads that are left out."""
OTHER: dict[str, Any] = {
    "type_vocab_size": 3,
    "local_attention": 8,
    "sliding_window": 4,
    "hidden_act": "gelu_new",
    "hidden_activation": "silu",
    "global_attn_every_n_layers": 2,
    "position_embedding_type": "relative_key",
    "is_decoder": True,
}


def fields_of(case: str) -> list[tuple[str, Any]]:
    """(name, another value) of each field worth changing."""
    row = CASES[case]
    config = getattr(transformers, row.config)(**row.fields)
    skipped = (set(SIZES) | NO_ARITHMETIC | SILENT) - set(OTHER)
    named = {k: v for k, v in config.to_dict().items() if k not in skipped}
    found = {k: OTHER[k] if k in OTHER else flipped(k, v) for k, v in named.items()}
    return [(k, v) for k, v in found.items() if v is not None and v != named[k]]


def cases() -> list[Any]:
    marks = {case: [] if case == SHOWN else [pytest.mark.long] for case in ENCODERS}
    return [
        pytest.param(case, field, value, id=f"{case}-{field}", marks=marks[case])
        for case in ENCODERS
        for field, value in fields_of(case)
    ]


def test_fields_are_found() -> None:
    assert {field for field, _ in fields_of("roberta")} >= {"layer_norm_eps", "hidden_act"}
    assert {field for field, _ in fields_of("modernbert")} >= {"local_attention", "norm_eps"}


@pytest.mark.parametrize(("case", "field", "value"), cases())
def test_another_value_is_followed_or_refused(
    case: str, field: str, value: Any, tmp_path: Path
) -> None:
    row = CASES[case]
    row = replace(row, fields={**row.fields, field: value})
    try:
        oracle = make_encoder(row, tmp_path)
    except (ValueError, KeyError, RuntimeError, NotImplementedError) as error:
        pytest.skip(f"transformers takes no such value: {type(error).__name__}")
    try:
        folder = compiled(tmp_path, "reference")
    except MlccError as refusal:
        assert field in str(refusal) or "support" in str(refusal), refusal
        return
    model = open_model(folder)
    try:
        texts = texts_of(min(40, model.capacity.context))
        rows = rows_of(model, texts)
    finally:
        model.close()
    wanted = [expected(row, oracle, tmp_path, ids) for ids in texts]
    worst = max(float(np.abs(a - b).max()) for a, b in zip(rows, wanted, strict=True))
    assert worst < 1e-4
