"""What a generation_config.json forbids holds in a compiled model, alone, streamed, in a batch and
with speculation: the answer is that of transformers' generate with the same file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mlcc import Engine
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import get_target
from tests.helpers.demo_model import DEMO

CHECKPOINT = DEMO / "model"
PROMPT = "Once upon a time there was a dog and a cat and a dog and a cat and"
LENGTH = 30


def answers(folder: Path, speculate: str) -> dict[str, str]:
    """The text of each way of asking."""
    with Engine(folder, speculate=speculate) as engine:
        asked: dict[str, Any] = {"prompt": PROMPT, "max_tokens": LENGTH, "temperature": 0}
        create = engine.completions.create
        batch = create(**{**asked, "prompt": [PROMPT, "A dog", PROMPT]}).choices
        stream = create(**asked, stream=True)
        return {
            "alone": create(**asked).choices[0].text,
            "streamed": "".join(choice.text for chunk in stream for choice in chunk.choices),
            "first of a batch": batch[0].text,
            "last of a batch": batch[2].text,
            "second choice": create(**asked, n=2).choices[1].text,
        }


@pytest.mark.parametrize("ngrams", [0, 2])
def test_it_is_transformers_answer(ngrams: int, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(CHECKPOINT)
    model = transformers.AutoModelForCausalLM.from_pretrained(CHECKPOINT, dtype=torch.float32)
    ids = tokenizer(PROMPT, return_tensors="pt")["input_ids"]

    def generated(**config: Any) -> list[int]:
        whole = {"do_sample": False, "max_new_tokens": LENGTH, "pad_token_id": 0, **config}
        made = model.generate(ids, generation_config=transformers.GenerationConfig(**whole))
        found: list[int] = made[0, ids.shape[1] :].tolist()
        return found

    ends = json.loads((CHECKPOINT / "generation_config.json").read_text())["eos_token_id"]
    free = generated(eos_token_id=ends)
    config = {
        "eos_token_id": ends,
        "suppress_tokens": [free[3]],
        "begin_suppress_tokens": [free[0]],
        "bad_words_ids": [[free[1]], [free[2], free[4]]],
        "no_repeat_ngram_size": ngrams,
    }
    right = tokenizer.decode(generated(**config), skip_special_tokens=True)
    assert right != tokenizer.decode(free, skip_special_tokens=True)
    source = shutil.copytree(CHECKPOINT, tmp_path / "model")
    (source / "generation_config.json").write_text(json.dumps(config))
    out, options = tmp_path / "out", Options(quant="f32", context=128)
    compile_model(Checkpoint.open(source), get_target("reference"), out, options, Progress())
    for speculate in ("off", "lookup:4"):
        found = answers(out, speculate)
        assert found == dict.fromkeys(found, right)
