"""Byte-level BPE (`tokenizer.ggml.model` "gpt2": Llama 3, Qwen, Mistral's Tekken, Phi-4, SmolLM).

Bytes are written as GPT-2's printable characters; merges are in the file, and `tokenizer.ggml. pre`
names the pre-tokenizer (`pre_tokenizers.py`).
"""

from __future__ import annotations

from typing import Any

from mlcc.errors import UnsupportedError
from mlcc_compiler.checkpoint.gguf.tokenizer.pre_tokenizers import PRE_TOKENIZERS
from mlcc_compiler.checkpoint.gguf.tokenizer.vocabulary import PREFIX, Vocabulary, refuse

_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def bpe(words: Vocabulary) -> dict[str, Any]:
    """The BPE-specific parts of tokenizer.json. Raises UnsupportedError, CheckpointError."""
    name = words.text("pre", "default")
    if name not in PRE_TOKENIZERS:
        raise UnsupportedError(
            f"the GGUF file's tokenizer cuts texts by rules that it calls {name!r:.60}, which mlcc "
            "does not know; use the checkpoint of Hugging Face, or a file that was converted by a "
            "newer llama.cpp"
        )
    rules = PRE_TOKENIZERS[name]
    cuts = [
        {"type": "Split", "pattern": {"Regex": rule}, "behavior": "Isolated", "invert": False}
        for rule in rules.rules
    ]
    return {
        "normalizer": {"type": "NFC"} if rules.composed else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*cuts, _BYTES]},
        "post_processor": words.template(begin=rules.begin),
        "decoder": _BYTES,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": rules.ignore_merges,
            "vocab": words.ids(),
            "merges": listed_merges(words),
        },
    }


def listed_merges(words: Vocabulary) -> list[list[str]]:
    """The merges that a file has. Raises CheckpointError for an entry that is not a pair of tokens
    forming a token."""
    rows = words.metadata.get(PREFIX + "merges")
    if not isinstance(rows, list):
        raise refuse(f"has no {PREFIX}merges")
    there, found = set(words.tokens), []
    for row in rows:
        left, _, right = row.partition(" ")
        if left + right not in there or left not in there or right not in there:
            raise refuse(f"has merge {row!r:.60} of what is no token")
        found.append([left, right])
    return found
