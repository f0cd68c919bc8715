"""A small random model of every architecture in the tab, in Node: equal tokens with the reference.

Prompts of several lengths at once, longer than pages and windows. The kernels compute in float32.
All with --long; otherwise those with layers of parts that no other has. Of those with states and
latents all but Qwen3-Next run with --long only: their kernels are tested on Vulkan.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import httpx
import pytest

from mlcc.loader import open_model
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.compiler.models.helpers.checkpoints import (
    RECIPES,
    SMALL,
    long_if_repeated,
    make_checkpoint,
    proves,
)
from tests.compiler.models.helpers.hybrid_cases import HYBRIDS
from tests.e2e.demo.equality import last_logits
from tests.helpers import needs
from tests.helpers.letter_tokens import letters, tokens_of
from tests.helpers.web_package import bridge

TIE = 1e-3
"""The bound of the demo model in a tab, whose logits are as large."""
LENGTHS, TOKENS = (3, 20, 40), 12
LATENTS = ("deepseek_v2", "deepseek_v3", "mistral4", "glm4_moe_lite")
RARE = (*LATENTS, *(case for case in HYBRIDS if "-" not in case), "qwen3_5", "qwen3_5_moe")
QUANTS = {**RECIPES, **dict.fromkeys(RARE, "f32")}
LONG = ("llama", "gemma2", "gemma3", "gemma3n", "cohere2", "nemotron", "qwen3_moe", "glm4_moe")
"""Their kernels always run on Vulkan, and Llama's parts in the tab with the demo. Gemma 4 shares
the parts of those before it, of which Gemma 3n takes two minutes of SwiftShader; gpt-oss has
experts."""


def shown(case: str) -> Any:
    weights = QUANTS[case].partition("_")[0]
    marks = [*proves(case, "webgpu"), pytest.mark.feature(weights, "webgpu", "runs")]
    rare = [pytest.mark.long] if case in (*RARE, *LONG) else long_if_repeated(case)
    return pytest.param(case, marks=[*marks, *rare])


@pytest.mark.parametrize("case", [shown(case) for case in QUANTS])
def test_tokens_are_the_references(case: str, tmp_path: Path, record_property: Any) -> None:
    needs.require_target("webgpu")
    source = tmp_path / case
    make_checkpoint(case, source)
    (source / "tokenizer.json").write_text(letters(SMALL["vocab_size"]))
    compiled = {
        name: compile_model(
            Checkpoint.open(source),
            get_target(name, Choices(f16=False) if name == "webgpu" else Choices()),
            tmp_path / name,
            Options(quant=QUANTS[case], context=64),
            Progress(),
        )
        for name in ("webgpu", "reference")
    }
    draw = random.Random(case)
    prompts = [[draw.randrange(3, SMALL["vocab_size"]) for _ in range(n)] for n in LENGTHS]
    asked = {"prompt": prompts, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    with bridge("node", compiled["webgpu"]) as url:
        answer = httpx.post(f"{url}/v1/completions", json=asked, timeout=300).json()
    model, gap = open_model(compiled["reference"]), 0.0
    for prompt, choice in zip(prompts, answer["choices"], strict=True):
        tokens = tokens_of(choice["text"])
        assert len(tokens) == TOKENS
        for at, token in enumerate(tokens):
            logits = last_logits(model, prompt + tokens[:at])
            gap = max(gap, float(logits.max() - logits[token]))
    record_property("largest_gap", gap)
    assert gap <= TIE
