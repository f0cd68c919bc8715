"""Pre-tokenizers of byte-level vocabularies, by llama.cpp's names.

The patterns are those of the models' own tokenizer.json. Unknown names are refused: a tokenizer
that differs in one rule gives wrong answers without an error.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlcc_compiler.checkpoint.tokenizer.tiktoken import CUTS as KIMI


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

_CASED = (
    "B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376 377 37B-37D 37F 386 388-38A "
    "38C 38E-3A1 3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA "
    "1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A 1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D "
    "1F50-1F57 1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 1FC6-1FCC "
    "1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D "
    "2124 2126 2128 212A-212D 212F-2134 2139 213C-213F 2145-2149 214E 2183 2184 2C00-2C7B "
    "2C7E-2CE4 2CEB-2CEE 2CF2 2CF3 A640-A66D A680-A69B A722-A76F A771-A787 A78B-A78E "
    "AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F 104B0-104D3 104D8-104FB "
    "10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943"
)
"""Letters of scripts with cases as code points, as DeepSeek's tokenizer.json lists them."""


def _characters(ranges: str) -> str:
    """The contents of a character class."""
    return "".join(
        "-".join(chr(int(end, 16)) for end in each.split("-")) for each in ranges.split()
    )


_DEEPSEEK_LLM = (
    r"[\r\n]",
    rf"\s?[A-Za-z{_characters(_CASED)}]+",
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
    r"\s+$",
    "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
    r"\p{N}",
)
_SPARK_LINES = _DEEPSEEK3[2].replace(r"+[\r\n]*|\s*[\r\n]+", r"+|[\r\n]")
_YOUTU = (
    "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c"
    "\u3001-\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    _GPT4O.replace("{1,3}", ""),
)
_EXAONE_MOE = (
    rf"{_CONTRACTIONS}|{_BEFORE}(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
_SEED = (
    rf"{_CONTRACTIONS}|{_BEFORE}\p{{L}}+|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_MINICPM = rf"{_CONTRACTIONS}|{_BEFORE}\p{{L}}+|\p{{N}}+{_END}"
_WORDS = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_DEFAULT = (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")
_FALCON = (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]")

_OF_LLAMA3 = Rules((_LLAMA3,), ignore_merges=True, begin=True)
_OF_QWEN2 = Rules((_QWEN2,), composed=True)
_OF_GPT2 = Rules((_GPT2,))
_OF_DIGITS = Rules((r"\p{N}", _GPT2))

PRE_TOKENIZERS = {
    **dict.fromkeys(
        (
            "llama3",
            "llama-v3",
            "llama-bpe",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "lfm2",
            "midm-2.0",
            "jina-v5-nano",
        ),
        _OF_LLAMA3,
    ),
    **dict.fromkeys(("dbrx", "smaug-bpe", "chatglm-bpe"), Rules((_LLAMA3,))),
    **dict.fromkeys(("glm4", "glm5"), Rules((_LLAMA3,), ignore_merges=True)),
    **dict.fromkeys(
        ("qwen2", "deepseek-r1-qwen", "hunyuan", "megrez", "kormo", "f2llmv2"), _OF_QWEN2
    ),
    "qwen35": Rules((_QWEN35,), composed=True),
    **dict.fromkeys(("stablelm2", "solar-open", "grok-2"), Rules((_QWEN2,))),
    "ufakzeka": Rules((_QWEN2.removeprefix(_CONTRACTIONS + "|"),)),
    "minicpm5": Rules((r"\p{N}{1,3}", _MINICPM), ignore_merges=True),
    "seed-coder": Rules((_SEED,)),
    "exaone-moe": Rules((_EXAONE_MOE,)),
    **dict.fromkeys(
        (
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "exaone4",
            "granite-docling",
            "gigachat",
            "a.x-4.0",
            "mellum",
        ),
        _OF_GPT2,
    ),
    **dict.fromkeys(
        (
            "smollm",
            "starcoder",
            "refact",
            "command-r",
            "codeshell",
            "exaone",
            "minerva-7b",
            "mellum2",
        ),
        _OF_DIGITS,
    ),
    "tekken": Rules((_TEKKEN,), ignore_merges=True, begin=True),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "minimax-m2", "talkie"), Rules((_GPT4O,))),
    **dict.fromkeys(("tiny_aya", "cohere2moe"), Rules((r"\d{1,3}(?=(?:\d{3})*\b)", _GPT4O))),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"), Rules(_DEEPSEEK3)),
    "deepseek-llm": Rules(_DEEPSEEK_LLM),
    "deepseek-coder": Rules(_DEEPSEEK_CODER),
    "spark2_5": Rules((*_DEEPSEEK3[:2], _SPARK_LINES, r"\p{N}")),
    "youtu": Rules(_YOUTU, ignore_merges=True),
    "kimi-k2": Rules((KIMI,), ignore_merges=True),
    "superbpe": Rules((r"\p{N}+", r"(?=(\d{3})+(?!\d))")),
    "falcon": Rules(_FALCON),
    "viking": Rules((_WORDS, r"\p{N}")),
    "poro-chat": Rules((_WORDS,)),
    "default": Rules(_DEFAULT),
}
"""Rules by `tokenizer.ggml.pre`: of all families in llama.cpp's list whose architectures are read.
A file without the key is cut by "default", as in llama.cpp."""
