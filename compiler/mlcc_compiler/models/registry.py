"""The architectures there are: a row each, keyed by the checkpoint's `model_type`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from mlcc.errors import CheckpointError, UnsupportedError
from mlcc_compiler.models import (
    bert,
    cohere2,
    deepseek_v2,
    ernie4_5,
    exaone4,
    gemma,
    gemma2,
    gemma3,
    glm,
    glm4,
    granite,
    hunyuan_v1_dense,
    llama,
    ministral,
    ministral3,
    mistral,
    modernbert,
    nemotron,
    olmo2,
    olmo3,
    phi3,
    qwen2,
    qwen3,
    qwen3_moe,
    qwen3_next,
    roberta,
    smollm3,
    starcoder2,
)
from mlcc_compiler.models.causal_lm import CausalLM
from mlcc_compiler.models.config import DecoderConfig
from mlcc_compiler.models.encoder import DecoderEncoder, Encoder
from mlcc_compiler.models.fields import HfConfig, require
from mlcc_compiler.models.readout import Readout

ARCHITECTURES: dict[str, Any] = {
    "llama": llama,
    "mistral": mistral,
    "qwen2": qwen2,
    "qwen3": qwen3,
    "qwen3_moe": qwen3_moe,
    "qwen3_next": qwen3_next,
    "gemma2": gemma2,
    "gemma3": gemma3,
    "gemma3_text": gemma3,
    "phi3": phi3,
    "deepseek_v2": deepseek_v2,
    "cohere2": cohere2,
    "ernie4_5": ernie4_5,
    "exaone4": exaone4,
    "gemma": gemma,
    "glm": glm,
    "glm4": glm4,
    "granite": granite,
    "hunyuan_v1_dense": hunyuan_v1_dense,
    "ministral": ministral,
    "ministral3": ministral3,
    "nemotron": nemotron,
    "olmo2": olmo2,
    "olmo3": olmo3,
    "smollm3": smollm3,
    "starcoder2": starcoder2,
}

ENCODERS: dict[str, Any] = {
    "bert": bert,
    "roberta": roberta,
    "xlm-roberta": roberta,
    "modernbert": modernbert,
}
"""Those that never write: each has a `Model` of its own."""


@dataclass(frozen=True)
class Architecture:
    """A model ready to trace, and the config it was built from."""

    config: DecoderConfig
    model: CausalLM | Encoder


def with_defaults(hf: HfConfig) -> HfConfig:
    """A checkpoint's config, with its architecture's defaults for what it does not mention."""
    return {**_module(hf).DEFAULTS, **hf}


def longest(hf: HfConfig) -> int:
    """Tokens of a sequence that the model knows positions for."""
    module, hf = _module(hf), with_defaults(hf)
    found: int = module.longest(hf) if module in ENCODERS.values() else 0
    return found or require(hf, "max_position_embeddings")


def build_model(
    hf: HfConfig,
    context: int,
    activation_dtype: str = "float32",
    readout: Readout | None = None,
) -> Architecture:
    """The model for a checkpoint's config; readout: of an encoder. Raises UnsupportedError for an
    unknown `model_type`."""
    module = _module(hf)
    try:
        config = module.read_config(with_defaults(hf), context)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise CheckpointError(
            f"config.json: a value is missing or does not fit ({type(error).__name__}: {error}); "
            "fetch the checkpoint's config.json again"
        ) from error
    config = replace(config, activation_dtype=activation_dtype)
    if readout is None:
        return Architecture(config, CausalLM(config, module.Layer))
    config = replace(config, tie_embeddings=False, ignored=(*config.ignored, r"^lm_head\."))
    made = module in ENCODERS.values()
    model = module.Model(config, readout, with_defaults(hf)) if made else None
    return Architecture(config, model or DecoderEncoder(config, readout, module.Layer))


def _module(hf: HfConfig) -> Any:
    kind = str(hf.get("model_type"))
    known = {**ARCHITECTURES, **ENCODERS}
    if kind not in known:
        raise UnsupportedError(
            f"architecture '{kind}' is not supported; these are: {', '.join(sorted(known))}"
        )
    return known[kind]
