"""tokenizer.json of a GGUF file's vocabulary: which kind it is, and what all kinds share."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from mlcc.errors import UnsupportedError
from mlcc_compiler.checkpoint.gguf.tokenizer.bpe import bpe
from mlcc_compiler.checkpoint.gguf.tokenizer.spm import spm
from mlcc_compiler.checkpoint.gguf.tokenizer.ugm import ugm
from mlcc_compiler.checkpoint.gguf.tokenizer.vocabulary import Vocabulary
from mlcc_compiler.checkpoint.gguf.tokenizer.wpm import wpm

KINDS: Mapping[str, Callable[[Vocabulary], dict[str, Any]]] = {
    "llama": spm,
    "gpt2": bpe,
    "t5": ugm,
    "bert": wpm,
}
"""By `tokenizer.ggml.model`."""


def tokenizer_of(words: Vocabulary) -> bytes:
    """The file's bytes. Raises UnsupportedError for a kind that is not here, CheckpointError."""
    kind = words.text("model", "none")
    if kind not in KINDS:
        raise UnsupportedError(
            f"the GGUF file's tokenizer is of kind {kind!r:.40}; mlcc reads {', '.join(KINDS)}: "
            "use the checkpoint of Hugging Face"
        )
    head = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": words.added()}
    return json.dumps(head | KINDS[kind](words), ensure_ascii=False).encode(errors="replace")
