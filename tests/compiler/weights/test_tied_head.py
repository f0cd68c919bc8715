"""`tie_word_embeddings` against the tensors: the head that transformers uses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from safetensors.numpy import load_file, save_file

from mlcc_compiler.checkpoint.folder import Checkpoint, flatten_config
from mlcc_compiler.options import Options
from mlcc_compiler.plan import Plan, make_plan
from mlcc_targets import get_target
from tests.compiler.models.helpers.checkpoints import make_checkpoint
from tests.compiler.weights.hf_folder import TOKENIZER

HEAD, TABLE = "lm_head.weight", "model.embed_tokens.weight"


def folder_of(path: Path, case: str = "llama", **tensors: Any) -> Path:
    """A checkpoint with a tied head; `tensors`: None removes one."""
    make_checkpoint(case, path)
    (path / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    found = {**load_file(path / "model.safetensors"), **tensors}
    kept = {name: tensor for name, tensor in found.items() if tensor is not None}
    save_file(kept, path / "model.safetensors", metadata={"format": "pt"})
    return path


def plan_of(path: Path) -> Plan:
    options = Options(context=64, quant="f32")
    return make_plan(Checkpoint.open(path), get_target("reference"), options)


def matrices(plan: Plan) -> tuple[Any, Any]:
    """Embedding and head of the plan."""
    head = TABLE if plan.config.tie_embeddings else HEAD
    return tuple(plan.checkpoint.tensors.read(plan.sources[name]) for name in (TABLE, head))


@pytest.mark.parametrize("case", ["other", "equal", "head alone", "embedding alone"])
def test_the_matrices_of_transformers(case: str, tmp_path: Path) -> None:
    """Oracle: transformers' embedding and head of the same folder."""
    table = load_file(folder_of(tmp_path) / "model.safetensors")[TABLE]
    changes: dict[str, Any] = {
        "other": {HEAD: np.flip(table).copy()},
        "equal": {HEAD: table.copy()},
        "head alone": {HEAD: table.copy(), TABLE: None},
        "embedding alone": {},
    }[case]
    plan = plan_of(folder_of(tmp_path, **changes))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    right = [theirs.get_input_embeddings(), theirs.get_output_embeddings()]
    for found, module in zip(matrices(plan), right, strict=True):
        np.testing.assert_array_equal(found, module.weight.detach().float().numpy())
    assert plan.config.tie_embeddings == (case != "other")
    note = f"config.json ties the head to the embedding, but '{HEAD}' differs: it is used"
    assert plan.checkpoint.notes == ((note,) if case == "other" else ())


def test_older_names_of_the_flag(tmp_path: Path) -> None:
    folder_of(tmp_path, "lfm2")
    config = json.loads((tmp_path / "config.json").read_text())
    del config["tie_word_embeddings"]
    (tmp_path / "config.json").write_text(json.dumps(config | {"tie_embedding": True}))
    table = load_file(tmp_path / "model.safetensors")[TABLE]
    save_file(
        {**load_file(tmp_path / "model.safetensors"), HEAD: np.flip(table).copy()},
        tmp_path / "model.safetensors",
        metadata={"format": "pt"},
    )
    assert not plan_of(tmp_path).config.tie_embeddings


@pytest.mark.parametrize(("outer", "inner"), [(True, False), (False, True), (None, True)])
def test_the_flag_of_a_multimodal_config(outer: bool | None, inner: bool) -> None:
    config = {"tie_word_embeddings": outer, "text_config": {"tie_word_embeddings": inner}}
    assert flatten_config(config)["tie_word_embeddings"]
