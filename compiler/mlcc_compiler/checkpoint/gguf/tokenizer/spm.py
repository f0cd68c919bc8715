"""SentencePiece's BPE (`tokenizer.ggml.model` "llama": Llama 2, Mistral, Gemma, Phi-3; "gemma4":
Gemma 4, whose files have its merges).

The other files have scores instead of merges: of neighbouring pairs that form a token, the one with
the best score is merged first (Kudo and Richardson, 2018). tokenizer.json expresses this as merges
in the order of scores; the library breaks ties by position, as SentencePiece does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mlcc_compiler.checkpoint.gguf.tokenizer.bpe import listed_merges
from mlcc_compiler.checkpoint.gguf.tokenizer.vocabulary import (
    BYTE,
    NORMAL,
    SPACE,
    USER_DEFINED,
    Vocabulary,
)

_LONGEST = 512
"""Maximum characters of a token to search merges for: the longest in use has some 60."""


def spm(words: Vocabulary) -> dict[str, Any]:
    """The SPM-specific parts of tokenizer.json."""
    found = _parts(words, words.flag("add_space_prefix", True))
    return found | {"model": found["model"] | {"merges": list(merges(words))}}


def _parts(words: Vocabulary, prefix: bool) -> dict[str, Any]:
    """All but the merges."""
    unknown = words.id_of("unknown")
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    prepend = {"type": "Prepend", "prepend": SPACE}
    back = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    decoders: list[dict[str, Any]] = [back, {"type": "ByteFallback"}, {"type": "Fuse"}]
    if prefix:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {
        "normalizer": {"type": "Sequence", "normalizers": [prepend, replace]}
        if prefix
        else replace,
        "pre_tokenizer": None,
        "post_processor": words.template(begin=True),
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None if unknown is None else words.tokens[unknown],
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": BYTE in words.types,
            "ignore_merges": False,
            "vocab": words.ids(),
        },
    }


def spm_merged(words: Vocabulary) -> dict[str, Any]:
    """The same of a file that has its merges. Raises CheckpointError."""
    found = _parts(words, words.flag("add_space_prefix", False))
    return found | {"model": found["model"] | {"merges": listed_merges(words)}}


def merges(words: Vocabulary) -> Iterator[tuple[str, str]]:
    """Every pair of tokens that forms a token, best first."""
    joined = {
        text: words.scores[i]
        for i, text in enumerate(words.tokens)
        if words.types[i] in (NORMAL, USER_DEFINED)
    }
    found = [
        (-score, cut, text)
        for text, score in joined.items()
        if 1 < len(text) <= _LONGEST
        for cut in range(1, len(text))
        if text[:cut] in joined and text[cut:] in joined
    ]
    found.sort(key=lambda row: row[:2])
    return ((text[:cut], text[cut:]) for _, cut, text in found)
