"""The registry of architectures: a row each, keyed by the checkpoint's `model_type`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from mlcc.errors import CheckpointError, UnsupportedError
from mlcc_compiler.models.architectures import (
    bert,
    cohere2,
    deepseek_v2,
    deepseek_v3,
    ernie4_5,
    ernie4_5_moe,
    exaone4,
    falcon_h1,
    gemma,
    gemma2,
    gemma3,
    gemma3n,
    gemma4,
    glm,
    glm4,
    glm4_moe,
    glm4_moe_lite,
    gpt_oss,
    granite,
    granitemoe,
    granitemoehybrid,
    hunyuan_v1_dense,
    kimi_linear,
    lfm2,
    lfm2_moe,
    llama,
    llama4_text,
    mamba2,
    minimax_m2,
    ministral,
    ministral3,
    mistral,
    mistral4,
    mixtral,
    modernbert,
    nemotron,
    nemotron_h,
    olmo2,
    olmo3,
    olmoe,
    phi3,
    qwen2,
    qwen2_moe,
    qwen3,
    qwen3_5,
    qwen3_5_moe,
    qwen3_moe,
    qwen3_next,
    roberta,
    smollm3,
    starcoder2,
    whisper,
)
from mlcc_compiler.models.audio import audio_input
from mlcc_compiler.models.audio import gemma3n as gemma3n_audio
from mlcc_compiler.models.audio import gemma4 as gemma4_audio
from mlcc_compiler.models.audio import whisper as whisper_audio
from mlcc_compiler.models.causal_lm import CausalLM, Decoder
from mlcc_compiler.models.closest_architecture import closest_architecture
from mlcc_compiler.models.config import DecoderConfig, Mtp, rope_parameters
from mlcc_compiler.models.eagle_config import EAGLE, eagle_of
from mlcc_compiler.models.encoder import DecoderEncoder, Encoder
from mlcc_compiler.models.fields import HfConfig, require
from mlcc_compiler.models.pooling import EncoderHead
from mlcc_compiler.models.vision import clip, idefics3, pixtral
from mlcc_compiler.models.vision import gemma3 as gemma3_vision
from mlcc_compiler.models.vision import gemma4 as gemma4_vision
from mlcc_compiler.models.vision import llama4 as llama4_vision
from mlcc_compiler.models.vision import qwen2_5_vl as qwen2_5_vl_vision
from mlcc_compiler.models.vision import qwen2_vl as qwen2_vl_vision
from mlcc_compiler.models.vision import qwen3_vl as qwen3_vl_vision

ARCHITECTURES: dict[str, Any] = {
    "llama": llama,
    "mistral": mistral,
    "mistral4": mistral4,
    "qwen2": qwen2,
    "qwen2_vl": qwen2,
    "qwen2_vl_text": qwen2,
    "qwen2_5_vl": qwen2,
    "qwen2_5_vl_text": qwen2,
    "qwen2_5_omni": qwen2,
    "qwen2_5_omni_thinker": qwen2,
    "qwen2_5_omni_text": qwen2,
    "qwen2_audio": qwen2,
    "voxtral": llama,
    "qwen3": qwen3,
    "qwen3_moe": qwen3_moe,
    "qwen3_next": qwen3_next,
    "qwen3_vl": qwen3,
    "qwen3_vl_text": qwen3,
    "qwen3_vl_moe": qwen3_moe,
    "qwen3_vl_moe_text": qwen3_moe,
    "qwen3_5": qwen3_5,
    "qwen3_5_text": qwen3_5,
    "qwen3_5_moe": qwen3_5_moe,
    "qwen3_5_moe_text": qwen3_5_moe,
    "gemma2": gemma2,
    "gemma3": gemma3,
    "gemma3_text": gemma3,
    "gemma3n": gemma3n,
    "gemma3n_text": gemma3n,
    "gemma4": gemma4,
    "gemma4_text": gemma4,
    "phi3": phi3,
    "deepseek_v2": deepseek_v2,
    "deepseek_v3": deepseek_v3,
    "kimi_k2": deepseek_v3,
    "kimi_linear": kimi_linear,
    "glm4_moe_lite": glm4_moe_lite,
    "cohere2": cohere2,
    "ernie4_5": ernie4_5,
    "exaone4": exaone4,
    "falcon_h1": falcon_h1,
    "gemma": gemma,
    "glm": glm,
    "glm4": glm4,
    "granite": granite,
    "granitemoehybrid": granitemoehybrid,
    "hunyuan_v1_dense": hunyuan_v1_dense,
    "lfm2": lfm2,
    "lfm2_moe": lfm2_moe,
    "mamba2": mamba2,
    "ministral": ministral,
    "ministral3": ministral3,
    "nemotron": nemotron,
    "nemotron_h": nemotron_h,
    "olmo2": olmo2,
    "olmo3": olmo3,
    "smollm3": smollm3,
    "starcoder2": starcoder2,
    "ernie4_5_moe": ernie4_5_moe,
    "glm4_moe": glm4_moe,
    "gpt_oss": gpt_oss,
    "granitemoe": granitemoe,
    "granitemoeshared": granitemoe,
    "llama4_text": llama4_text,
    "mimo": qwen2,
    "minimax_m2": minimax_m2,
    "mixtral": mixtral,
    "olmoe": olmoe,
    "qwen2_moe": qwen2_moe,
}

HEARING: dict[str, Any] = {"whisper": whisper}
"""Decoders that attend to the rows of an audio tower."""

ENCODERS: dict[str, Any] = {
    "bert": bert,
    "roberta": roberta,
    "xlm-roberta": roberta,
    "modernbert": modernbert,
}
"""Encoder-only architectures, each with its own `Model`."""

TOWERS: dict[str, Any] = {
    "idefics3_vision": idefics3,
    "gemma3_vision": gemma3_vision,
    "gemma4_vision": gemma4_vision,
    "qwen2_vl_vision": qwen2_vl_vision,
    "qwen2_5_vl_vision": qwen2_5_vl_vision,
    "qwen3_vl_vision": qwen3_vl_vision,
    "clip_vision": clip,
    "pixtral_vision": pixtral,
    "llama4_vision": llama4_vision,
    "whisper_audio": whisper_audio,
    "audio_input": audio_input,
    "gemma3n_audio": gemma3n_audio,
    "gemma4_audio": gemma4_audio,
}
"""Towers of multimodal checkpoints (`checkpoint/towers/vision.py`, `checkpoint/towers/audio.py`,
`checkpoint/towers/audio_input.py`), which are encoders too."""


@dataclass(frozen=True)
class Architecture:
    """A model ready to trace, and the config it was built from."""

    config: DecoderConfig
    model: CausalLM | Encoder


def with_defaults(hf: HfConfig) -> HfConfig:
    """A checkpoint's config under its architecture's names, completed by its defaults."""
    module = _module(hf)
    aliases: dict[str, str] = getattr(module, "ALIASES", {})
    renamed = {field: hf[alias] for alias, field in aliases.items() if alias in hf}
    whole = {**module.DEFAULTS, **hf, **renamed}
    return module.complete(whole) if hasattr(module, "complete") else whole


def max_context(hf: HfConfig) -> int:
    """Longest sequence that the model's positions support."""
    module, hf = _module(hf), with_defaults(hf)
    own = module in (*ENCODERS.values(), *TOWERS.values())
    found: int = module.max_context(hf) if own else 0
    return found or require(hf, "max_position_embeddings")


def extends_context(hf: HfConfig) -> bool:
    """Whether longer sequences are supported: the base of `dynamic` rope grows with any length."""
    given = rope_parameters(hf)
    kind = given.get("rope_type") or given.get("type")
    return kind == "dynamic" and not given.get("alpha")  # HunYuan's base is always the same


def build_model(
    hf: HfConfig,
    context: int,
    activation_dtype: str = "float32",
    encoder_head: EncoderHead | None = None,
    reads_images: bool = False,
    deepstack: int = 0,
    mtp: bool = False,
    draft_head: bool = False,
) -> Architecture:
    """The model for a checkpoint's config; encoder_head: the head of an encoder; reads_images:
    whether ids beyond the vocabulary name rows of a vision tower, whose further parts `deepstack`
    layers read; mtp: with the checkpoint's multi-token-prediction layer; draft_head: and with a
    copy of the head for it. Raises UnsupportedError for an unknown `model_type`, or one whose layer
    is not known."""
    module = _module(hf)
    try:
        config = module.read_config(with_defaults(hf), context)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise CheckpointError(
            f"config.json: a value is missing or does not fit ({type(error).__name__}: {error}); "
            "fetch the checkpoint's config.json again"
        ) from error
    config = replace(
        config,
        activation_dtype=activation_dtype,
        reads_images=reads_images,
        deepstack=deepstack,
    )
    config = _with_mtp(module, config, hf, mtp)
    if config.mtp is not None and config.mtp.eagle is None:
        config = replace(config, mtp=replace(config.mtp, own_head=draft_head))
    if encoder_head is None:
        stack = getattr(module, "Stack", Decoder)
        return Architecture(config, CausalLM(config, module.Layer, stack))
    config = replace(config, tie_embeddings=False, ignored=(*config.ignored, r"^lm_head\."))
    made = module in (*ENCODERS.values(), *TOWERS.values())
    model = module.Model(config, encoder_head, with_defaults(hf)) if made else None
    return Architecture(config, model or DecoderEncoder(config, encoder_head, module.Layer))


def _with_mtp(module: Any, config: DecoderConfig, hf: HfConfig, mtp: bool) -> DecoderConfig:
    """The config with its multi-token-prediction layer or EAGLE-3 head, or with its tensors left
    out."""
    if not mtp:
        return replace(config, ignored=(*config.ignored, r"^mtp\."))
    of_type: dict[str, Mtp] = getattr(module, "MTP_OF_TYPE", {})
    layer = of_type.get(str(hf.get("model_type")), getattr(module, "MTP", None))
    heads = getattr(module, "EAGLE_HEADS", False) and EAGLE in hf
    if (layer is None and not heads) or config.growth is not None:
        known = sorted(name for name, each in ARCHITECTURES.items() if hasattr(each, "MTP"))
        own = f"the multi-token-prediction layer of {config.architecture!r} is not supported"
        reason = own if EAGLE in hf else getattr(module, "NO_MTP", own)
        raise UnsupportedError(
            f"--mtp and --draft-head: {reason}; they are for {', '.join(known)}; leave them out"
        )
    layer = eagle_of(hf, config) if EAGLE in hf else layer
    return replace(config, mtp=layer, ignored=(*config.ignored, r"^mtp\.copies\."))


def _module(hf: HfConfig) -> Any:
    kind = str(hf.get("model_type"))
    known = {**ARCHITECTURES, **ENCODERS, **HEARING}
    if kind in TOWERS:
        return TOWERS[kind]
    if kind not in known:
        near = closest_architecture(kind, known)
        hint = "" if near is None else f"; the nearest that is: '{near}'"
        raise UnsupportedError(
            f"architecture {kind!r:.40} is not supported{hint}; these are: "
            f"{', '.join(sorted(known))}"
        )
    return known[kind]
