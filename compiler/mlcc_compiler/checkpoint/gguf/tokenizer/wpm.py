"""WordPiece (`tokenizer.ggml.model` "bert"): repeatedly the longest token that the rest of a word
starts with.

llama.cpp's files mark tokens that begin a word; tokenizer.json marks those that do not, with `##`.
"""

from __future__ import annotations

from typing import Any

from mlcc_compiler.checkpoint.gguf.tokenizer.vocabulary import (
    NORMAL,
    PREFIX,
    SPACE,
    Vocabulary,
    around,
    refuse,
)

_LONGEST_WORD = 100


def wpm(words: Vocabulary) -> dict[str, Any]:
    """The WordPiece-specific parts of tokenizer.json. Raises CheckpointError."""
    unknown = words.id_of("unknown")
    if unknown is None:
        raise refuse(f"has no {PREFIX}unknown_token_id")
    first = words.id_of("cls")
    first = words.id_of("bos") if first is None else first
    vocab = {_piece(words, i): i for i in range(len(words.tokens))}
    if len(vocab) != len(words.tokens):
        raise refuse("has a token twice")
    return {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": around(words, first, words.id_of("seperator")),
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": words.tokens[unknown],
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": _LONGEST_WORD,
            "vocab": vocab,
        },
    }


def _piece(words: Vocabulary, i: int) -> str:
    text = words.tokens[i]
    if words.types[i] != NORMAL:
        return text
    return text[1:] if text.startswith(SPACE) and len(text) > 1 else f"##{text}"
