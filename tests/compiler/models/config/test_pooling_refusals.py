"""Values of wrong types in the files that configure an encoder's pooling: refused in one line that
names them, for every checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mlcc.errors import CheckpointError
from mlcc_compiler.checkpoint.sentence_transformers import encoder_head_of

MODULES = [
    {"type": "sentence_transformers.models.Transformer", "path": ""},
    {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
]
CLASSIFIER = ["BertForSequenceClassification"]


def opened(folder: Path, config: dict[str, Any], files: dict[str, Any]) -> Any:
    for name, value in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(value))
    whole = {"model_type": "bert", **config}
    return SimpleNamespace(folder=folder, config=whole, outer_config=whole)


@pytest.mark.parametrize(
    ("config", "gist"),
    [
        ({"architectures": 5}, "'architectures' must be a list"),
        ({"architectures": CLASSIFIER, "id2label": 5}, "'id2label' must be an object"),
        (
            {"architectures": CLASSIFIER, "id2label": {"0": "a", "1": 5}},
            "'id2label' must be a name",
        ),
        ({"architectures": CLASSIFIER, "num_labels": 1 << 20}, "'num_labels' must be a number"),
    ],
)
def test_config(config: dict[str, Any], gist: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=gist):
        encoder_head_of(opened(tmp_path, config, {}))


def test_name_of_a_prompt(tmp_path: Path) -> None:
    files = {
        "modules.json": MODULES,
        "1_Pooling/config.json": {"pooling_mode_cls_token": True},
        "config_sentence_transformers.json": {"prompts": {}, "default_prompt_name": ["query"]},
    }
    with pytest.raises(CheckpointError, match="its prompts are none"):
        encoder_head_of(opened(tmp_path, {}, files))
