"""Pre-tokenizers of byte-level vocabularies, by llama.cpp's names.

The patterns are those of the models' own tokenizer.json. Unknown names are refused: a tokenizer
that differs in one rule gives wrong answers without an error.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """Patterns, applied in sequence to the remaining text."""

    rules: tuple[str, ...]
    ignore_merges: bool = False
    """Whether a word that is itself a token is not split by merges."""
    begin: bool = False
    """Default for adding the begin token to texts."""
    composed: bool = False
    """Whether texts are first normalised to Unicode NFC."""


_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_END = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_END_SLASH = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_BEFORE = r"[^\r\n\p{L}\p{N}]?"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTIONS}|{_BEFORE}\p{{L}}+|\p{{N}}{{1,3}}{_END}"
_QWEN2 = rf"{_CONTRACTIONS}|{_BEFORE}\p{{L}}+|\p{{N}}{_END}"
_QWEN35 = (
    rf"{_CONTRACTIONS}|{_BEFORE}[\p{{L}}\p{{M}}]+|\p{{N}}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_TEKKEN = rf"{_BEFORE}{_UPPER}*{_LOWER}+|{_BEFORE}{_UPPER}+{_LOWER}*|\p{{N}}{_END_SLASH}"
_GPT4O = (
    rf"{_BEFORE}{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|{_BEFORE}{_UPPER}+{_LOWER}*{_CONTRACTIONS}?"
    rf"|\p{{N}}{{1,3}}{_END_SLASH}"
)
_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
_DEEPSEEK_CODER = (
    r"[\r\n]",
    r"\s?\p{L}+",
    r"\s?\p{P}+",
    "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
    r"\p{N}",
)

_OF_LLAMA3 = Rules((_LLAMA3,), ignore_merges=True, begin=True)
_OF_QWEN2 = Rules((_QWEN2,), composed=True)
_OF_GPT2 = Rules((_GPT2,))
_OF_DIGITS = Rules((r"\p{N}", _GPT2))

PRE_TOKENIZERS = {
    **dict.fromkeys(
        ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "lfm2", "midm-2.0"),
        _OF_LLAMA3,
    ),
    **dict.fromkeys(("dbrx", "smaug-bpe", "chatglm-bpe", "glm4"), Rules((_LLAMA3,))),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "hunyuan", "megrez"), _OF_QWEN2),
    "qwen35": Rules((_QWEN35,), composed=True),
    "stablelm2": Rules((_QWEN2,)),
    **dict.fromkeys(
        ("gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "exaone4", "granite-docling"),
        _OF_GPT2,
    ),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"),
        _OF_DIGITS,
    ),
    "tekken": Rules((_TEKKEN,), ignore_merges=True, begin=True),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "minimax-m2"), Rules((_GPT4O,))),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense"), Rules(_DEEPSEEK3)),
    "deepseek-coder": Rules(_DEEPSEEK_CODER),
}
"""Rules by `tokenizer.ggml.pre`."""
