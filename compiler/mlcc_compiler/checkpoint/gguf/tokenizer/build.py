"""Builds tokenizer.json from a GGUF file's vocabulary: selects the kind, and adds the common
parts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from mlcc.errors import UnsupportedError
from mlcc_compiler.checkpoint.gguf.tokenizer.bpe import bpe
from mlcc_compiler.checkpoint.gguf.tokenizer.spm import spm, spm_merged
from mlcc_compiler.checkpoint.gguf.tokenizer.ugm import ugm
from mlcc_compiler.checkpoint.gguf.tokenizer.vocabulary import Vocabulary
from mlcc_compiler.checkpoint.gguf.tokenizer.wpm import wpm

KINDS: Mapping[str, Callable[[Vocabulary], dict[str, Any]]] = {
    "llama": spm,
    "gemma4": spm_merged,
    "gpt2": bpe,
    "t5": ugm,
    "bert": wpm,
}
"""Converters by `tokenizer.ggml.model`."""


def tokenizer_of(words: Vocabulary) -> bytes:
    """tokenizer.json's bytes. Raises UnsupportedError for an unknown kind, CheckpointError."""
    kind = words.text("model", "none")
    if kind not in KINDS:
        raise UnsupportedError(
            f"the GGUF file's tokenizer is of kind {kind!r:.40}; mlcc reads {', '.join(KINDS)}: "
            "use the checkpoint of Hugging Face"
        )
    head = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": words.added()}
    return json.dumps(head | KINDS[kind](words), ensure_ascii=False).encode(errors="replace")
