"""Small random language models that read sound in their prompts, made by `transformers`, and its
arguments for sounds."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    AutoModel,
    Gemma3nAudioFeatureExtractor,
    Gemma4AudioFeatureExtractor,
    WhisperFeatureExtractor,
)
from transformers.models.gemma3n import modeling_gemma3n

from mlcc.engine.request import Request
from tests.compiler.models.helpers.checkpoints import GEMMA3N, GEMMA4, SMALL, save_initialised

AUDIO, BEGIN, END = 130, 129, 128
SECONDS, BINS = 2, 80
ROWS = 50 * SECONDS
"""Of the encoder, for the longest clip."""
CHUNK = 20
"""Rows that Qwen2.5-Omni's encoder reads apart: two windows of ten frames."""
TOWER: dict[str, Any] = {
    "num_mel_bins": BINS,
    "d_model": 32,
    "encoder_layers": 2,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 48,
    "max_source_positions": ROWS,
}
Samples = np.ndarray[Any, Any]


def qwen2_audio(folder: Path) -> torch.nn.Module:
    """A Qwen2-Audio in `folder`, and transformers' model of it in float64."""
    config = transformers.Qwen2AudioConfig(
        audio_config={"model_type": "qwen2_audio_encoder", **TOWER},
        text_config={"model_type": "qwen2", **SMALL, "rope_theta": 1000.0},
        audio_token_index=AUDIO,
        tie_word_embeddings=False,
    )
    return _saved(transformers.Qwen2AudioForConditionalGeneration, config, folder)


def voxtral(folder: Path) -> torch.nn.Module:
    """A Voxtral in `folder`, and transformers' model of it in float64."""
    tower = {
        "hidden_size": 32,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_mel_bins": BINS,
        "max_source_positions": ROWS,
    }
    config = transformers.VoxtralConfig(
        audio_config={"model_type": "voxtral_encoder", **tower},
        text_config={"model_type": "llama", **SMALL, "rope_theta": 1000.0},
        audio_token_id=AUDIO,
        tie_word_embeddings=False,
    )
    return _saved(transformers.VoxtralForConditionalGeneration, config, folder)


MROPE = {"rope_type": "default", "rope_theta": 1000.0, "mrope_section": [2, 3, 3]}


def qwen2_5_omni(folder: Path) -> torch.nn.Module:
    """The thinker of a Qwen2.5-Omni in `folder`, and transformers' model of it in float64."""
    config = transformers.Qwen2_5OmniThinkerConfig(
        audio_config={
            "model_type": "qwen2_5_omni_audio_encoder",
            **TOWER,
            "n_window": CHUNK,
            "output_dim": SMALL["hidden_size"],
        },
        vision_config={
            "depth": 1,
            "hidden_size": 32,
            "num_heads": 2,
            "intermediate_size": 60,
            "out_hidden_size": SMALL["hidden_size"],
            "patch_size": 4,
            "fullatt_block_indexes": [0],
        },
        text_config={"model_type": "qwen2_5_omni_text", **SMALL, "rope_parameters": MROPE},
        audio_token_index=AUDIO,
        audio_start_token_id=BEGIN,
        audio_end_token_id=END,
        image_token_index=127,
        video_token_index=126,
        vision_start_token_id=125,
        tie_word_embeddings=False,
    )
    return _saved(transformers.Qwen2_5OmniThinkerForConditionalGeneration, config, folder)


GEMMA4_BINS = 24
GEMMA4_TOWER: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "subsampling_conv_channels": [GEMMA4_BINS, 8],
    "attention_chunk_size": 5,
    "attention_context_left": 6,
    "attention_logit_cap": 5.0,
    "conv_kernel_size": 3,
    "output_proj_dims": 40,
}


def gemma4(folder: Path) -> torch.nn.Module:
    """A Gemma 4 of the small ones' kind without a vision tower in `folder`, and transformers' model
    of it in float64, but for the audio tower, which computes attention in float32 alone."""
    config = transformers.Gemma4Config(
        audio_config=GEMMA4_TOWER,
        text_config={"model_type": "gemma4_text", **SMALL, **GEMMA4, "pad_token_id": 3},
        vision_config=None,
        audio_token_id=AUDIO,
        boa_token_id=BEGIN,
        eoa_token_index=END,
        image_token_id=127,
        boi_token_id=126,
        eoi_token_id=125,
        video_token_id=None,
        tie_word_embeddings=True,
    )
    oracle = _saved(transformers.Gemma4ForConditionalGeneration, config, folder)
    settings = {"feature_extractor": gemma4_extractor().to_dict(), "audio_seq_length": 750}
    (folder / "preprocessor_config.json").unlink()
    oracle.model.audio_tower.float()
    oracle.model.embed_audio.float()
    (folder / "processor_config.json").write_text(
        json.dumps(settings, default=lambda array: array.tolist())
    )
    return oracle


def gemma4_extractor() -> Gemma4AudioFeatureExtractor:
    """Transformers' own, for the small tower."""
    return Gemma4AudioFeatureExtractor(feature_size=GEMMA4_BINS)


GEMMA3N_TOKENS = 14
"""Of a sound, beside the one behind it."""
GEMMA3N_TOWER: dict[str, Any] = {
    "hidden_size": 32,
    "input_feat_size": GEMMA4_BINS,
    "vocab_size": 6,
    "vocab_offset": 125,
    "conf_num_hidden_layers": 2,
    "conf_num_attention_heads": 2,
    "conf_attention_chunk_size": 5,
    "conf_attention_context_left": 6,
    "conf_attention_logit_cap": 5.0,
    "conf_conv_kernel_size": 3,
    "sscp_conv_channel_size": [GEMMA4_BINS, 8],
}


def gemma3n(folder: Path) -> torch.nn.Module:
    """A Gemma 3n without its vision tower, which is of another library, in `folder`, and
    transformers' model of it in float64, but for the audio tower, as in `gemma4`."""
    text = {**SMALL, **GEMMA3N, "vocab_size_per_layer_input": 120}
    config = transformers.Gemma3nConfig(
        audio_config=GEMMA3N_TOWER,
        text_config={"model_type": "gemma3n_text", **text, "pad_token_id": 0},
        vision_config={"hidden_size": 8, "vocab_size": 5, "vocab_offset": 120},
        audio_soft_tokens_per_image=GEMMA3N_TOKENS,
        audio_token_id=AUDIO,
        boa_token_id=119,
        eoa_token_id=END,
        image_token_id=123,
        boi_token_id=118,
        eoi_token_id=122,
        tie_word_embeddings=True,
    )
    made = AutoModel.from_config
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            modeling_gemma3n.AutoModel,
            "from_config",
            lambda part: torch.nn.Identity() if part is config.vision_config else made(part),
        )
        oracle = _saved(transformers.Gemma3nForConditionalGeneration, config, folder)
    oracle.model.audio_tower.float()
    oracle.model.embed_audio.float()
    settings = {"feature_extractor": gemma3n_extractor().to_dict()}
    settings["audio_seq_length"] = GEMMA3N_TOKENS
    (folder / "preprocessor_config.json").unlink()
    (folder / "processor_config.json").write_text(
        json.dumps(settings, default=lambda array: array.tolist())
    )
    _hears_alone(oracle.model)
    return oracle


def gemma3n_extractor() -> Gemma3nAudioFeatureExtractor:
    """Transformers' own, for the small tower."""
    return Gemma3nAudioFeatureExtractor(feature_size=GEMMA4_BINS)


def _hears_alone(model: Any) -> None:
    """Has transformers' model hear each sound of a prompt without the frames that fill it up to the
    longest, which would change it."""
    whole = model.get_audio_features

    def features(frames: torch.Tensor, filled: torch.Tensor, **options: Any) -> Any:
        found = [
            whole(each[~mask][None], mask[~mask][None], **options)
            for each, mask in zip(frames, filled, strict=True)
        ]
        rows = [each.pooler_output[0] for each in found]
        masks = [each.audio_mel_mask[0] for each in found]
        made = found[0]
        made.pooler_output = pad_sequence(rows, batch_first=True)
        made.audio_mel_mask = pad_sequence(masks, batch_first=True, padding_value=True)
        return made

    model.get_audio_features = features


FAMILIES = {
    "qwen2_audio": qwen2_audio,
    "voxtral": voxtral,
    "qwen2_5_omni": qwen2_5_omni,
    "gemma3n": gemma3n,
    "gemma4": gemma4,
}
LENGTHS: dict[str, tuple[float, float, float]] = {
    "qwen2_audio": (SECONDS, 0.7131, 1.3),
    "voxtral": (SECONDS, 0.7131, 2.4),
    "qwen2_5_omni": (SECONDS, 0.7131, 2.37),
    "gemma3n": (SECONDS, 0.7131, 1.3),
    "gemma4": (SECONDS, 0.7131, 1.3),
}
"""Seconds of each of the sounds. Voxtral fills a clip, Qwen2.5-Omni hears several."""


def _saved(kind: Any, config: Any, folder: Path) -> torch.nn.Module:
    config._attn_implementation = "eager"
    for part in (config.audio_config, config.text_config):
        part._attn_implementation = "eager"
    torch.manual_seed(0)
    oracle = save_initialised(kind(config), folder)
    special = marks_of(config.model_type)
    words = {f"w{i}": i for i in range(END)} | special
    tokenizer = Tokenizer(WordLevel(words, "w0"))
    tokenizer.add_special_tokens([*special])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = extractor(SECONDS).to_dict()
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    return oracle


def marks_of(family: str) -> dict[str, int]:
    """Tokens after, before and of sound, with their ids."""
    names = ("<|audio_eos|>", "<|audio_bos|>", "<|AUDIO|>")
    if family == "gemma4":
        names = ("<audio|>", "<|audio>", "<|audio|>")
    if family == "gemma3n":
        names = ("<end_of_audio>", "<start_of_audio>", "<audio_soft_token>")
    return dict(zip(names, (END, BEGIN, AUDIO), strict=True))


def extractor(seconds: int) -> WhisperFeatureExtractor:
    """Transformers' own, for windows of this length in seconds."""
    return WhisperFeatureExtractor(feature_size=BINS, chunk_length=seconds)


def sounds(family: str) -> list[Samples]:
    """Three of float32 samples at 16 kHz: noise, tones, and tones that end."""
    rng, made = np.random.default_rng(0), []
    for kind, seconds in enumerate(LENGTHS[family]):
        time = np.arange(int(seconds * 16000)) / 16000
        tones = sum(np.sin(2 * np.pi * f * time * (1 + 0.1 * time)) for f in (220, 431, 1700))
        noise = rng.normal(0, 0.1, len(time))
        made.append((noise, 0.2 * tones, 0.1 * tones * (time < 1.1))[kind].astype(np.float32))
    return made


def array_of(samples: Samples) -> array[float]:
    return array("f", samples.tobytes())


def given(family: str, ids: torch.Tensor, heard: Sequence[Samples]) -> dict[str, Any]:
    """Arguments of transformers' model beside the ids of a prompt, as its processors make them."""
    if not heard:
        return {}
    if family == "voxtral":
        return {"input_features": torch.cat([_windows(each) for each in heard])}
    if family == "gemma4":
        return dict(gemma4_extractor()(heard, return_tensors="pt"))
    if family == "gemma3n":
        made = [gemma3n_extractor()(each, return_tensors="pt") for each in heard]
        parts = {name: [each[name][0] for each in made] for name in made[0]}
        return {name: pad_sequence(part, batch_first=True) for name, part in parts.items()}
    longest = {"qwen2_audio": SECONDS, "qwen2_5_omni": 300}[family]
    made = extractor(longest)(
        heard,
        sampling_rate=16000,
        padding="max_length",
        return_attention_mask=True,
        return_tensors="pt",
    )
    return {
        "input_features": made["input_features"].double(),
        "feature_attention_mask": made["attention_mask"],
        "attention_mask": torch.ones_like(ids),
    }


def ids_of(family: str, request: Request) -> list[int]:
    """The prompt as transformers' processors make it: Gemma 3n's sounds end with another token."""
    ids = list(request.prompt)
    for clip in request.media if family == "gemma3n" else ():
        ids[clip.start + clip.tokens - 1] = END
    return ids


def _windows(samples: Samples) -> torch.Tensor:
    """Of one sound f64[windows, bins, 2 * ROWS], as VoxtralProcessor cuts it."""
    made = extractor(SECONDS)(
        samples,
        sampling_rate=16000,
        padding=True,
        truncation=False,
        pad_to_multiple_of=SECONDS * 16000,
        return_tensors="pt",
    )
    return made["input_features"].reshape(BINS, -1, 2 * ROWS).transpose(0, 1).double()
