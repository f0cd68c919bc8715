"""The audio tower of a language model that reads sound in its prompts: a checkpoint of its own, and
how sound is prepared for it.

A family is a row of `AUDIO_FAMILIES`. Opens no tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mlcc.artifact.schema import AudioInputInfo
from mlcc.errors import CheckpointError
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.checkpoint.tokenizer.tokenizer_files import token_ids
from mlcc_compiler.checkpoint.towers.audio import ROWS_PER_SECOND, check_frames
from mlcc_compiler.checkpoint.towers.audio_tensors import InputTensors
from mlcc_compiler.checkpoint.towers.conformer_tensors import PREFIXES
from mlcc_compiler.checkpoint.towers.gemma3n_audio import gemma3n_audio_of
from mlcc_compiler.checkpoint.towers.gemma4_audio import gemma4_audio_of
from mlcc_compiler.checkpoint.towers.tower import TowerCheckpoint
from mlcc_compiler.models.audio.audio_input import ALIASES, DEFAULTS
from mlcc_compiler.models.audio.whisper import slice_width
from mlcc_compiler.models.fields import HfConfig, refuse, require

_ENCODER = {
    "model.audio_tower.": "",
    "audio_tower.": "",
    "model.multi_modal_projector.": "projector.",
    "multi_modal_projector.": "projector.",
}
_BEFORE_MEAN = {"layer_norm.": "projector.layer_norm."}


@dataclass(frozen=True)
class AudioFamily:
    """How a checkpoint holds its audio tower."""

    most_seconds: int
    """The longest sound that the model was trained on."""
    pool: int = 2
    """Rows of the encoder that become one row of the prompt."""
    stacked: bool = False
    """Whether these rows are side by side; else their mean is taken."""
    chunked: bool = False
    """Whether the encoder reads parts of two windows of `n_window` frames apart."""
    renamed: Mapping[str, str] = field(default_factory=lambda: _BEFORE_MEAN)
    """Beginnings of names, behind `_ENCODER`'s, in the checkpoint -> in the tower."""
    around: tuple[str, str] = ("", "")
    """Tokens before and after sound, where the chat template has none."""


_OMNI = AudioFamily(
    300,
    chunked=True,
    renamed={"ln_post.": "projector.layer_norm.", "proj.": "projector.linear."},
    around=("<|audio_bos|>", "<|audio_eos|>"),
)
AUDIO_FAMILIES: dict[str, AudioFamily] = {
    "qwen2_audio": AudioFamily(30, around=("<|audio_bos|>", "<|audio_eos|>")),
    "qwen2_5_omni": _OMNI,
    "qwen2_5_omni_thinker": _OMNI,
    "voxtral": AudioFamily(600, pool=4, stacked=True, around=("[BEGIN_AUDIO]", "")),
}
"""By `model_type` of the whole model."""
_CONFORMERS = {"gemma3n": gemma3n_audio_of, "gemma4": gemma4_audio_of}
"""Those with towers of another kind."""


def audio_input_of(checkpoint: Checkpoint) -> TowerCheckpoint | None:
    """The checkpoint's audio tower; None if it has none, or one that is not built. Raises
    CheckpointError for values that make no sense."""
    outer = checkpoint.outer_config
    kind, audio = str(outer.get("model_type")), outer.get("audio_config")
    if not isinstance(audio, dict):
        return None
    names = checkpoint.vision_tensors.shapes
    if kind in _CONFORMERS and any(name.startswith(tuple(PREFIXES)) for name in names):
        return _CONFORMERS[kind](checkpoint, audio, _audio_token(outer, checkpoint))
    family = AUDIO_FAMILIES.get(kind)
    if family is None or not any(
        name.startswith(tuple(_ENCODER)) for name in checkpoint.vision_tensors.shapes
    ):
        return None  # a text part that was saved with the whole model's config
    config = _config(checkpoint, family, audio)
    bins, rows = require(config, "num_mel_bins"), require(config, "max_source_positions")
    check_frames(checkpoint, bins)
    tensors = InputTensors(
        checkpoint.vision_tensors,
        bins,
        slice_width(bins),
        prefixes=_ENCODER,
        renamed=family.renamed,
        chunk_rows=config["chunk_rows"],
    )
    text, token = _audio_token(outer, checkpoint)
    begin, end = (each if each in token_ids(checkpoint.tokenizer) else "" for each in family.around)
    info = AudioInputInfo(
        processor=kind.removesuffix("_thinker"),
        audio_token=text,
        audio_token_id=token,
        bins=bins,
        clip_rows=rows,
        pool=family.pool,
        most_seconds=min(family.most_seconds, rows // ROWS_PER_SECOND)
        if kind == "qwen2_audio"
        else family.most_seconds,
        chunk_rows=config["chunk_rows"],
        begin=begin,
        end=end,
    )
    return TowerCheckpoint(checkpoint, config, info, tensors)


def _config(checkpoint: Checkpoint, family: AudioFamily, audio: HfConfig) -> dict[str, Any]:
    """The tower's config, from audio_config."""
    names = {alias: name for alias, name in ALIASES.items() if alias in audio}
    config = {**DEFAULTS, **audio, **{name: audio[alias] for alias, name in names.items()}}
    chunk = require({"n_window": 100, **audio}, "n_window") if family.chunked else 0
    rows = require(config, "max_source_positions")
    if chunk % family.pool or (chunk and rows % chunk) or rows % family.pool:
        raise refuse("n_window", f"a multiple of {family.pool} that divides {rows}", chunk)
    return {
        **{name: value for name, value in config.items() if name not in ALIASES},
        "model_type": "audio_input",
        "vocab_size": 1,
        "pool": family.pool,
        "stacked": family.stacked,
        "chunk_rows": chunk,
        "max_rows": rows // family.pool,
        "text_hidden_size": require(checkpoint.config, "hidden_size"),
    }


def _audio_token(outer: HfConfig, checkpoint: Checkpoint) -> tuple[str, int]:
    """Text and id of the placeholder token."""
    key = "audio_token_id" if outer.get("audio_token_id") is not None else "audio_token_index"
    wanted = require(outer, key)
    for text, number in token_ids(checkpoint.tokenizer).items():
        if number == wanted:
            return text, wanted
    raise CheckpointError(
        f"config.json: '{key}' is {wanted}, which tokenizer.json does not have; fetch both again"
    )


def unbuilt_audio(checkpoint: Checkpoint) -> str | None:
    """A note about an audio tower that is not compiled, as it is none of `AUDIO_FAMILIES`; None =
    there is none."""
    outer = checkpoint.outer_config
    kind, audio = str(outer.get("model_type")), outer.get("audio_config")
    if not isinstance(audio, dict) or kind in (*AUDIO_FAMILIES, *_CONFORMERS):
        return None
    if not any(_is_audio(name) for name in checkpoint.tensors.shapes):
        return None
    built = ", ".join((*AUDIO_FAMILIES, *_CONFORMERS))
    return f"the audio tower of {kind!r:.40} is not built: it reads no sound; built are {built}"


def _is_audio(name: str) -> bool:
    return name.removeprefix("model.").startswith(("audio_tower.", "embed_audio."))
