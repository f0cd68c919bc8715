"""Audio towers in mmproj files without a vision tower that is read, by `clip.projector_type`:
Hugging Face's config and tensor names for llama.cpp's. All are Whisper's encoder and a projector.

Gemma 4's, which is in one file with its vision tower, is `audio_projector.py`. `mmproj.py` reads
the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mlcc_compiler.checkpoint.gguf.keys import Keys

_POSITIONS = "a.position_embd"
_ENCODER = {
    "a.conv1d.1": "audio_tower.conv1",
    "a.conv1d.2": "audio_tower.conv2",
    _POSITIONS: "audio_tower.embed_positions",
    "a.post_ln": "audio_tower.layer_norm",
}
_LAYER = {
    "ln1": "self_attn_layer_norm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_out": "self_attn.out_proj",
    "ln2": "final_layer_norm",
    "ffn_up": "fc1",
    "ffn_down": "fc2",
}
_OF_LAYER = re.compile(r"a\.blk\.(\d+)\.(\w+)\.(weight|bias)")
_SIZES = {
    "embedding_length": "d_model",
    "block_count": "encoder_layers",
    "attention.head_count": "encoder_attention_heads",
    "feed_forward_length": "encoder_ffn_dim",
    "num_mel_bins": "num_mel_bins",
}


@dataclass(frozen=True)
class SoundProjector:
    """One kind of tower. Names are without ".weight" and ".bias"."""

    texts: tuple[str, ...]
    """GGUF's architectures of the language models that it belongs to."""
    token: str
    """Text of the token that stands for sound."""
    model_type: str
    """Of the whole model in config.json."""
    outer: Mapping[str, str]
    """GGUF's name of a tensor -> Hugging Face's."""
    computed: tuple[str, ...] = ()
    """Tensors of the file that are not read, as they are computed."""

    def config(self, keys: Keys) -> dict[str, Any]:
        """audio_config. Raises CheckpointError."""
        found = {own: keys.whole(f"audio.{key}") for key, own in _SIZES.items()}
        rows, *_ = keys.shapes.get(f"{_POSITIONS}.weight", (0,))
        if not rows:
            raise keys.refuse("audio.block_count", f"of a file with a matrix '{_POSITIONS}.weight'")
        return {**found, "max_source_positions": rows}

    def names(self, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[str, str]]:
        """(GGUF's name, Hugging Face's) of each tensor of the tower; of an unknown one GGUF's,
        below the tower's, to be refused by name."""
        for name in shapes:
            if not name.startswith(("a.", "mm.a.")) or name.startswith(self.computed):
                continue
            if layer := _OF_LAYER.fullmatch(name):
                part = _LAYER.get(layer[2], layer[2])
                yield name, f"audio_tower.layers.{layer[1]}.{part}.{layer[3]}"
                continue
            stem, _, kind = name.rpartition(".")
            known = self.outer.get(stem)
            yield name, f"{known}.{kind}" if known else f"audio_tower.{name}"


SOUND_PROJECTORS: dict[str, SoundProjector] = {
    "qwen2a": SoundProjector(
        texts=("qwen2",),
        token="<|AUDIO|>",
        model_type="qwen2_audio",
        outer={**_ENCODER, "mm.a.fc": "multi_modal_projector.linear"},
    ),
    "voxtral": SoundProjector(
        texts=("llama",),
        token="[AUDIO]",
        model_type="voxtral",
        outer={
            **_ENCODER,
            "mm.a.mlp.1": "multi_modal_projector.linear_1",
            "mm.a.mlp.2": "multi_modal_projector.linear_2",
        },
    ),
    "qwen2.5o": SoundProjector(
        texts=("qwen2vl",),
        token="<|AUDIO|>",
        model_type="qwen2_5_omni_thinker",
        outer={**_ENCODER, "a.post_ln": "audio_tower.ln_post", "mm.a.fc": "audio_tower.proj"},
        computed=(_POSITIONS,),
    ),
}
"""Qwen2.5-Omni's file has a vision tower too, which is not built."""
