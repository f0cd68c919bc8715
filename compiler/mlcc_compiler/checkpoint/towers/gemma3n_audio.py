"""The audio tower of a Gemma 3n: a checkpoint of its own, and how sound is prepared for it. Opens
no tensor."""

from __future__ import annotations

from typing import Any

from mlcc.artifact.schema import AudioInputInfo
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.checkpoint.towers.conformer_tensors import Gemma3nTensors
from mlcc_compiler.checkpoint.towers.gemma4_audio import (
    ROWS_PER_SECOND,
    check_frames,
    check_sizes,
)
from mlcc_compiler.checkpoint.towers.tower import TowerCheckpoint
from mlcc_compiler.models.audio.gemma3n import ALIASES, DEFAULTS, MARKED
from mlcc_compiler.models.audio.gemma4 import window_of
from mlcc_compiler.models.fields import HfConfig, refuse, require

_LONGEST_SECONDS = 30
_SOFT_TOKENS = "audio_soft_tokens_per_image"
"""Tokens of a sound, of any length, beside the one behind it."""
_EXPECTED: dict[str, Any] = {
    "sampling_rate": 16000, "frame_length": 512, "hop_length": 160, "fft_length": 1024,
    "min_frequency": 125.0, "max_frequency": 7600.0, "preemphasis": 0.97,
    "preemphasis_htk_flavor": True, "fft_overdrive": True, "dither": 0.0,
    "input_scale_factor": 1.0, "mel_floor": 1e-5, "per_bin_mean": None, "per_bin_stddev": None,
}  # fmt: skip
"""The frames that Gemma 3n was trained on, which the host makes."""
_BUILT: dict[str, Any] = {
    "conf_attention_context_right": 0,
    "sscp_conv_kernel_size": [[3, 3], [3, 3]],
    "sscp_conv_stride_size": [[2, 2], [2, 2]],
}


def gemma3n_audio_of(
    checkpoint: Checkpoint, audio: HfConfig, token: tuple[str, int]
) -> TowerCheckpoint:
    """The tower of a checkpoint with this audio_config; token: text and id of the placeholder.
    Raises CheckpointError for values that make no sense, or are none that the host makes."""
    config = _config(checkpoint, {**DEFAULTS, **audio})
    bins, pool = require(config, "num_mel_bins"), require(config, "conf_reduction_factor")
    wanted = {**_EXPECTED, "feature_size": bins, "audio_seq_length": config["max_rows"] - 1}
    check_frames(checkpoint, wanted)
    tensors = Gemma3nTensors(
        checkpoint.vision_tensors,
        require(config, "num_attention_heads"),
        window_of(config),
        fill=_of_table(checkpoint, config, "vocab_size of text_config", _last_token(checkpoint)),
        last=_of_table(checkpoint, config, "eoa_token_id", _end_token(checkpoint)),
        eps=float(config["rms_norm_eps"]),
    )
    info = AudioInputInfo(
        processor="gemma3n",
        audio_token=token[0],
        audio_token_id=token[1],
        bins=bins,
        clip_rows=config["max_source_positions"],
        pool=pool,
        most_seconds=min(_LONGEST_SECONDS, pool * (config["max_rows"] - 1) // ROWS_PER_SECOND),
    )
    return TowerCheckpoint(checkpoint, config, info, tensors)


def _config(checkpoint: Checkpoint, given: HfConfig) -> dict[str, Any]:
    """The tower's config, under the names of Gemma 4's."""
    for key, wanted in _BUILT.items():
        if _as_lists(given[key]) != wanted:
            raise refuse(key, str(wanted), given[key])
    bins, pool = require(given, "input_feat_size"), require(given, "conf_reduction_factor")
    if bins % 4:
        raise refuse("input_feat_size", "a multiple of 4", bins)
    soft = require({_SOFT_TOKENS: 188, **checkpoint.outer_config}, _SOFT_TOKENS)
    if pool < MARKED or pool * soft < ROWS_PER_SECOND:
        raise refuse("conf_reduction_factor", f"{MARKED} or more, for a second of sound", pool)
    config = {
        **{ALIASES.get(key, key): value for key, value in given.items()},
        # a row attends to this many, itself included; Gemma 4's field says one more
        "attention_context_left": require(given, "conf_attention_context_left") + 1,
        "model_type": "gemma3n_audio",
        "vocab_size": 1,
        "table_rows": require(given, "vocab_size"),
        "max_source_positions": pool * (soft + 1),
        "max_rows": soft + 1,
        "text_hidden_size": require(checkpoint.config, "hidden_size"),
    }
    check_sizes(config)
    return config


def _as_lists(value: Any) -> Any:
    return [_as_lists(each) for each in value] if isinstance(value, list | tuple) else value


def _last_token(checkpoint: Checkpoint) -> int:
    """The token whose embedding fills a sound up."""
    return require(checkpoint.config, "vocab_size") - 1


def _end_token(checkpoint: Checkpoint) -> int:
    return require({"eoa_token_id": 262272, **checkpoint.outer_config}, "eoa_token_id")


def _of_table(checkpoint: Checkpoint, config: HfConfig, key: str, token: int) -> int:
    """The row of a token in the table of the tower's own embeddings."""
    first, rows = config["vocab_offset"], config["table_rows"]
    if not isinstance(first, int) or not first <= token < first + rows:
        raise refuse(key, f"a token of {rows} from vocab_offset {first} on", token)
    return token - first
