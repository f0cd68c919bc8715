"""The audio tower of a checkpoint that hears: a checkpoint of its own, and the tokens that ask for
a transcript. The family is Whisper's. Opens no tensor.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from mlcc.artifact.schema import AudioInfo
from mlcc.errors import CheckpointError
from mlcc_compiler.checkpoint.files import read_object
from mlcc_compiler.checkpoint.folder import PROCESSOR, Checkpoint
from mlcc_compiler.checkpoint.tokenizer.tokenizer_files import token_ids
from mlcc_compiler.checkpoint.towers.audio_tensors import AudioTensors
from mlcc_compiler.checkpoint.towers.tower import TowerCheckpoint
from mlcc_compiler.models.audio.whisper import DEFAULTS, slice_width
from mlcc_compiler.models.fields import refuse, require

PREPROCESSOR = "preprocessor_config.json"
_EXPECTED = {"hop_length": 160, "n_fft": 400, "sampling_rate": 16000}
"""The frames that Whisper was trained on, which the host makes."""
NO_MORE: Mapping[str, int] = MappingProxyType({})
DECODER_DEFAULTS = {"decoder_layers": 4, "decoder_attention_heads": 6}
_LANGUAGE = re.compile(r"<\|([a-z]{2,3})\|>")
ROWS_PER_SECOND = 50
_MULTILINGUAL = 51865
"""Fewest tokens of a model of several languages, whose tokenizer has one more than the English
one."""


def audio_tower_of(checkpoint: Checkpoint) -> TowerCheckpoint | None:
    """The checkpoint's audio tower; None if it has none. Raises CheckpointError for values that
    make no sense."""
    outer = checkpoint.outer_config
    if outer.get("model_type") != "whisper":
        return None
    config = {**DEFAULTS, "vocab_size": 1, **_own(outer), "model_type": "whisper_audio"}
    rows, bins = require(config, "max_source_positions"), require(config, "num_mel_bins")
    config["max_rows"] = rows
    _check_processor(checkpoint, bins, rows)
    tensors = AudioTensors(checkpoint.tensors, bins, slice_width(bins))
    return TowerCheckpoint(checkpoint, config, _info(checkpoint, bins, rows), tensors)


def alignment_heads(checkpoint: Checkpoint) -> tuple[tuple[int, int], ...]:
    """Layer and head of the decoder's attention that follows speech; without a list in
    generation_config.json all of its upper half, as Whisper's own program has it. Raises
    CheckpointError."""
    config = {**DECODER_DEFAULTS, **checkpoint.outer_config}
    layers, heads = require(config, "decoder_layers"), require(config, "decoder_attention_heads")
    found = checkpoint.generation_config.get("alignment_heads")
    if found is None:
        return tuple((i, head) for i in range(layers // 2, layers) for head in range(heads))
    pairs = found if isinstance(found, list) else [found]
    good = all(
        isinstance(pair, list)
        and len(pair) == 2
        and all(isinstance(number, int) for number in pair)
        and 0 <= pair[0] < layers
        and 0 <= pair[1] < heads
        for pair in pairs
    )
    if not pairs or not good:
        raise CheckpointError(
            f"generation_config.json: 'alignment_heads' is {found!r:.40}, and must be pairs of a "
            f"layer of {layers} and a head of {heads}; fetch the file again"
        )
    return tuple(sorted({(layer, head) for layer, head in pairs}))


def _own(outer: Mapping[str, Any]) -> dict[str, Any]:
    """The config's fields that the tower reads."""
    shared = ("d_model", "num_mel_bins", "max_source_positions", "activation_function")
    return {n: v for n, v in outer.items() if n in shared or n.startswith(("encoder_", "decoder_"))}


def _check_processor(checkpoint: Checkpoint, bins: int, rows: int) -> None:
    """Raises CheckpointError for windows that the host does not make."""
    seconds, rest = divmod(rows, ROWS_PER_SECOND)
    check_frames(checkpoint, bins, {} if rest else {"chunk_length": seconds})


def check_frames(checkpoint: Checkpoint, bins: int, more: Mapping[str, int] = NO_MORE) -> None:
    """Raises CheckpointError for frames that the host does not make; more: further values that are
    expected."""
    found = read_object(checkpoint.folder, PREPROCESSOR) or {}
    found = found or read_object(checkpoint.folder, PROCESSOR) or {}
    found = found.get("feature_extractor") or found
    for key, wanted in {**_EXPECTED, "feature_size": bins, **more}.items():
        if found.get(key, wanted) != wanted:
            raise CheckpointError(
                f"{PREPROCESSOR}: '{key}' is {found[key]!r:.20}, and {wanted} alone is built; "
                "fetch the file again"
            )


def _info(checkpoint: Checkpoint, bins: int, rows: int) -> AudioInfo:
    ids, settings = token_ids(checkpoint.tokenizer), checkpoint.generation_config
    start = ids.get("<|startoftranscript|>")
    if start is None:
        raise CheckpointError(
            "tokenizer.json has no <|startoftranscript|>, with which a transcript begins; fetch "
            "tokenizer.json again"
        )
    plain = settings.get("no_timestamps_token_id") or ids.get("<|notimestamps|>")
    vocabulary = require(checkpoint.config, "vocab_size")
    if not isinstance(plain, int) or not 0 < plain < vocabulary:
        raise refuse("no_timestamps_token_id", f"a token of {vocabulary}", plain)
    transcribe, translate = (ids.get(f"<|{task}|>", -1) for task in ("transcribe", "translate"))
    english = not settings.get("is_multilingual", vocabulary >= _MULTILINGUAL)
    latest = settings.get("max_initial_timestamp_index")
    first_task = min(transcribe, translate)
    languages = {
        match[1]: token
        for text, token in ids.items()
        if (match := _LANGUAGE.fullmatch(text)) and start < token < first_task
    }
    return AudioInfo(
        processor="whisper",
        bins=bins,
        rows=rows,
        start_id=start,
        no_timestamps_id=plain,
        languages={} if english else languages,
        transcribe_id=-1 if english else transcribe,
        translate_id=-1 if english else translate,
        previous_id=ids.get("<|startofprev|>", -1),
        alignment_heads=len(alignment_heads(checkpoint)),
        latest_start=latest if isinstance(latest, int) else -1,
        no_speech_id=ids.get("<|nospeech|>", ids.get("<|nocaptions|>", -1)),
    )
