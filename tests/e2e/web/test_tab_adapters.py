"""Adapters in a tab, in Node and in Chromium: streams of the base and of adapters in one batch
equal those of models with merged weights.

There are more adapters than slots, so that they are swapped. The oracle is transformers in float64.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import torch
import transformers

from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.ir.lora import LoraConfig
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.compiler.models.helpers.checkpoints import SMALL, make_checkpoint
from tests.helpers import needs
from tests.helpers.letter_tokens import letters, tokens_of
from tests.helpers.web_package import bridge
from tests.runtime.lora.folders import ALL, merged, save

PROMPT, TOKENS = [5, 9, 30, 41, 7, 88, 100, 12, 64], 6
TIE = 1e-3
"""Tolerance of the comparison, as in test_architectures.py."""
UNLOAD, COMPLETIONS = "/v1/unload_lora_adapter", "/v1/completions"


class Made(NamedTuple):
    """A model for tabs, its adapters, and by name the checkpoint that each one's answers are of."""

    tab: Path
    adapters: dict[str, Path]
    models: dict[str, Path]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    needs.require_target("webgpu")
    root = tmp_path_factory.mktemp("adapted")
    base = root / "base"
    make_checkpoint("llama", base)
    (base / "tokenizer.json").write_text(letters(SMALL["vocab_size"]))
    whole = save(root / "whole", 4, 8, ALL, 1, 0.1, model=base, targets="all-linear")
    half = save(root / "half", 3, 6, ("k_proj", "up_proj"), 2, 0.3, "float16", base)
    few = save(root / "few", 2, 4, ("q_proj", "down_proj"), 3, 0.3, model=base)
    adapters = {"whole": whole, "half": half, "few": few}
    models = {"base": base} | {
        name: merged(root / f"m-{name}", folder, 2.0, base) for name, folder in adapters.items()
    }
    row = get_target("webgpu", Choices(f16=False))
    options = Options(quant="f32", context=64, adapters=LoraConfig(4, 2))
    tab = compile_model(Checkpoint.open(base), row, root / "webgpu", options, Progress())
    return Made(tab, adapters, models)


@pytest.mark.feature("adapters", "webgpu", "runs")
@pytest.mark.parametrize("mode", ["node", pytest.param("chromium", marks=pytest.mark.long)])
def test_each_stream_is_its_own_models(made: Made, mode: str, record_property: Any) -> None:
    given = [f"{name}={folder}" for name, folder in made.adapters.items()]
    with bridge(mode, made.tab, *given) as url, httpx.Client(base_url=url, timeout=300) as tab:

        def answer(name: str) -> list[int]:
            asked = {"model": name, "prompt": PROMPT, "max_tokens": TOKENS, "temperature": 0}
            tokens_said = tab.post(COMPLETIONS, json={**asked, "ignore_eos": True}).json()
            return tokens_of(tokens_said["choices"][0]["text"])

        listed = [each["id"] for each in tab.get("/v1/models").json()["data"]]
        assert listed[1:] == [*made.adapters]
        names = {"base": listed[0]} | {name: name for name in made.adapters}
        with ThreadPoolExecutor(len(names)) as pool:
            answers = dict(zip(names, pool.map(answer, names.values()), strict=True))
        assert len({tuple(tokens_said) for tokens_said in answers.values()}) == len(names)
        record_property("largest_gap", max(gap(made.models[n], a) for n, a in answers.items()))

        assert tab.post(UNLOAD, json={"lora_name": "half"}).status_code == 200
        gone = tab.post(COMPLETIONS, json={"model": "half", "prompt": PROMPT})
        assert gone.status_code == 404 and "'few', 'whole'" in gone.text
        assert answer("few") == answers["few"]
        refused = tab.post("/v1/load_lora_adapter", json={"lora_name": "x", "lora_path": "x"})
        assert refused.status_code == 400 and "engine.loadAdapter" in refused.text


def gap(checkpoint: Path, answer: list[int]) -> float:
    """How far a token is below the likeliest, at most: a tie, or it is another model's."""
    assert len(answer) == TOKENS
    model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint).double().eval()
    with torch.no_grad():
        logits = model(torch.tensor([PROMPT + answer[:-1]])).logits[0, len(PROMPT) - 1 :]
    tokens = torch.tensor(answer)[:, None]
    found = float((logits.max(1).values - logits.gather(1, tokens)[:, 0]).max())
    assert found <= TIE
    return found
