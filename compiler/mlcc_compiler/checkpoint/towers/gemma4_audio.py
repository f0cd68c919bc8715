"""The audio tower of a Gemma 4 (E2B, E4B): a checkpoint of its own, and how sound is prepared for
it. Opens no tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc.artifact.schema import AudioInputInfo
from mlcc.errors import CheckpointError
from mlcc_compiler.checkpoint.files import read_object
from mlcc_compiler.checkpoint.folder import PROCESSOR, Checkpoint
from mlcc_compiler.checkpoint.towers.audio import PREPROCESSOR
from mlcc_compiler.checkpoint.towers.conformer_tensors import ConformerTensors
from mlcc_compiler.checkpoint.towers.tower import TowerCheckpoint
from mlcc_compiler.models.audio.gemma4 import DEFAULTS, window_of
from mlcc_compiler.models.fields import HfConfig, refuse, require

ROWS_PER_SECOND = 25
_LONGEST_SECONDS = 30
_PROCESSOR = {"audio_seq_length": _LONGEST_SECONDS * ROWS_PER_SECOND, "audio_ms_per_token": 40}
_EXPECTED: dict[str, Any] = {
    "sampling_rate": 16000, "frame_length": 320, "hop_length": 160, "fft_length": 512,
    "min_frequency": 0.0, "max_frequency": 8000.0, "preemphasis": 0.0, "fft_overdrive": False,
    "dither": 0.0, "input_scale_factor": 1.0, "mel_floor": 0.001, "per_bin_mean": None,
    "per_bin_stddev": None,
}  # fmt: skip
"""The frames that Gemma 4 was trained on, which the host makes."""


def gemma4_audio_of(
    checkpoint: Checkpoint, audio: HfConfig, token: tuple[str, int]
) -> TowerCheckpoint:
    """The tower of a checkpoint with this audio_config; token: text and id of the placeholder.
    Raises CheckpointError for values that make no sense, or are none that the host makes."""
    whole = {**DEFAULTS, **audio}
    bins = _bins(whole)
    check_frames(checkpoint, {**_PROCESSOR, **_EXPECTED, "feature_size": bins})
    rows = _PROCESSOR["audio_seq_length"]
    config = {
        **whole,
        "model_type": "gemma4_audio",
        "vocab_size": 1,
        "num_mel_bins": bins,
        "max_rows": rows,
        "text_hidden_size": require(checkpoint.config, "hidden_size"),
    }
    heads = require(config, "num_attention_heads")
    tensors = ConformerTensors(checkpoint.vision_tensors, heads, window_of(config))
    info = AudioInputInfo(
        processor="gemma4",
        audio_token=token[0],
        audio_token_id=token[1],
        bins=bins,
        clip_rows=rows,
        pool=1,
        most_seconds=_LONGEST_SECONDS,
    )
    return TowerCheckpoint(checkpoint, config, info, tensors)


def _bins(config: HfConfig) -> int:
    """Mel bins of a frame, which the config does not name: as many as the first convolution has
    outputs."""
    channels = check_sizes(config)
    if channels[0] % 4:
        raise refuse("subsampling_conv_channels", "a multiple of 4 first", channels)
    chunk, after = window_of(config), config["attention_context_right"]
    if config["attention_chunk_size"] != chunk:
        raise refuse("attention_chunk_size", str(chunk), config["attention_chunk_size"])
    if after != 0:
        raise refuse("attention_context_right", "0", after)
    return channels[0]


def check_sizes(config: HfConfig) -> Sequence[int]:
    """The channels of both convolutions. Raises CheckpointError for what are none."""
    channels: Any = config["subsampling_conv_channels"]
    good = isinstance(channels, list | tuple) and len(channels) == 2
    if not good or not all(isinstance(each, int) and each > 0 for each in channels):
        raise refuse("subsampling_conv_channels", "two positive integers", channels)
    return tuple(channels)


def check_frames(checkpoint: Checkpoint, expected: HfConfig) -> None:
    """Raises CheckpointError for settings of a processor other than those expected: frames that the
    host does not make."""
    own, whole = dict[str, Any](), dict[str, Any]()
    if checkpoint.folder.is_dir():  # a GGUF file does not say
        own = read_object(checkpoint.folder, PREPROCESSOR) or {}
        whole = read_object(checkpoint.folder, PROCESSOR) or {}
    found = {**own, **whole, **(whole.get("feature_extractor") or {})}
    for key, wanted in expected.items():
        if found.get(key, wanted) != wanted:
            raise CheckpointError(
                f"{PROCESSOR}: '{key}' is {found[key]!r:.20}, and {wanted} alone is built; fetch "
                "the file again"
            )
