"""Writes tokenizer_fixture.json: the tokens of difficult texts by Python's `tokenizers`.

Run by hand in the project's environment, with the path of a text file to train two small BPE models
on. Their merges cross word boundaries on purpose: a text that is split one character off gets other
ids. Each kind is the pipeline of a well-known family with one of them.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
RAW_BYTES = {**BYTES, "use_regex": False}
PIECES: list[dict[str, Any]] = [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def split(regex: str, behavior: str = "Isolated", invert: bool = False) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": invert}


def sequence(kind: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", kind: list(parts)}


def replace(old: str, new: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


def metaspace(scheme: str, split_words: bool) -> dict[str, Any]:
    return {
        "type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split_words,
    }  # fmt: skip


def pre(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"pre_tokenizer": sequence("pretokenizers", *parts)}


DIGITS = {"type": "Digits", "individual_digits": True}
PUNCTUATION = {"type": "Punctuation", "behavior": "Contiguous"}
LEGACY = sequence("normalizers", {"type": "Prepend", "prepend": "▁"}, replace(" ", "▁"))
GEMMA_SPLIT = {
    "type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False,
}  # fmt: skip
CUTS = "[,.]|é"

DEMO = Path(__file__).parents[3] / "examples/demo/model/tokenizer.json"

KINDS: dict[str, dict[str, Any]] = {
    "gpt2": {"pre_tokenizer": BYTES},
    "gpt2 prefix": {"pre_tokenizer": {**BYTES, "add_prefix_space": True}},
    "llama3": {**pre(split(LLAMA3), RAW_BYTES), "ignore_merges": True},
    "qwen2": {"normalizer": {"type": "NFC"}, **pre(split(QWEN2), RAW_BYTES)},
    "o200k": pre(split(O200K, "Removed", True), RAW_BYTES),
    "deepseek": pre(
        split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK), RAW_BYTES
    ),
    "smollm": pre(DIGITS, BYTES),
    "falcon": pre(
        PUNCTUATION, BYTES, {**DIGITS, "individual_digits": False}, split("[0-9][0-9][0-9]")
    ),
    "punctuation": pre({"type": "Punctuation", "behavior": "Isolated"}, RAW_BYTES),
    "merged with previous": pre(split(CUTS, "MergedWithPrevious"), RAW_BYTES),
    "merged with next": pre(split(CUTS, "MergedWithNext"), RAW_BYTES),
    "contiguous": pre(split(CUTS, "Contiguous"), RAW_BYTES),
    "removed": pre(split(CUTS, "Removed"), RAW_BYTES),
    "llama2": {
        "base": "pieces", "normalizer": LEGACY,
        "decoder": sequence("decoders", *PIECES, STRIP),
    },
    "gemma": {
        "base": "pieces", "normalizer": replace(" ", "▁"), "pre_tokenizer": GEMMA_SPLIT,
        "decoder": sequence("decoders", *PIECES),
    },
    "mistral": {
        "base": "pieces", "pre_tokenizer": metaspace("first", False),
        "decoder": sequence("decoders", *PIECES, STRIP),
    },
    "metaspace": {
        "base": "pieces", "pre_tokenizer": metaspace("always", True),
        "decoder": metaspace("always", True),
    },
    "metaspace never": {
        "base": "pieces", "pre_tokenizer": metaspace("never", True),
        "decoder": metaspace("never", True),
    },
}  # fmt: skip

SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
ADDED = [
    *(AddedToken(text, special=True, normalized=False) for text in SPECIAL),
    AddedToken("<|left|>", special=True, normalized=False, lstrip=True),
    AddedToken("<|right|>", special=True, normalized=False, rstrip=True),
    AddedToken("<tool_call>", special=False, normalized=False),
    AddedToken("own word", special=False, normalized=True),
]

TEXTS = [
    "", " ", "  ", "a", "Hello, world!", " leading", "trailing ", "two  spaces   three",
    "\n", "\n\n\n", "line\nline\r\nline\rline", "\ttab\t\ttabs", " \n \n  x", "x\n  ", "x \n",
    "I'm you're we'll they'd it's don't I've HE'S WE'LL 'tis 'S", "it\u2019s", "'\u017f x'\u017f",
    "1 12 123 1234 12345678 3.14159 1,000,000 0x1F", "x²³ ½ ٣٤٥ १२ Ⅷ ①②",
    "naïve café résumé Zürich ﬁne ŒUVRE", "e\u0301 o\u0308 n\u0303\u0327 \u0301alone",
    "Привет, мир! Ελληνικά עברית العربية", "日本語のテキスト。中文字符，混合English和123数字",
    "한국어 텍스트 \u1112\u1161\u11ab", "ไทย हिन्दी தமிழ் বাংলা",
    "😀 👍🏽 👩‍👩‍👧‍👦 🇩🇪 🏳️‍🌈 text😀text", "\U00020000\U0001f600\U000e0001",
    "a\u00a0b\u2003c\u3000d\u200be\u2028f\u2029g", "\ufeffbom \ufeff x\ufeffy", "a\u0085b \u0085 c",
    "\x00\x01\x1f\x7f control \u0080\u009f", "\ufffd \uffff \ue000 private",
    "<s>", "<s>Hi</s>", "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "a <s> b</s>  c", "a  <|left|>  b  <|right|>  c", "\u00a0<|left|>\u00a0<|right|>\u2003x",
    "<tool_call>{\"name\": \"f\"}</tool_call>", "my own word and own words, own  word",
    "<|im_start", "<s", "<<s>>", "<0x41>", "<0xE4><0xB8>", "▁▁x▁ y", "Ġx Ċ", "\u2581 \u2581",
    "def f(x):\n    return [i**2 for i in range(10)]  # done\n\n\nclass A:\n\tpass\n",
    "{\"a\": [1, 2.5e-3, null], \"b\": \"\\u00e9\"}", "https://example.org/a?b=c&d=%20#e",
    "!!!???...---===###$$$%%%^^^&&&***((()))", "«quotes» “curly” ‘single’ — – … ¿¡",
    "ALLCAPS CamelCase snake_case kebab-case iPhone XMLHttpRequest", "aaaaaaaaaaaaaaaaaaaaaaaaa",
    "a,b.c,,d..e,.f é,é", "ab" * 90, "word " * 30, " " * 40 + "x", "x" + "\n" * 40,
]  # fmt: skip


def main(corpus: Path, output: Path) -> None:
    text = corpus.read_text(encoding="utf-8")
    bases = {"bytes": train_bytes(text), "pieces": train_pieces(text)}
    answers: dict[tuple[int, ...], int] = {}
    kinds = {name: describe(*build(bases, dict(parts)), answers) for name, parts in KINDS.items()}
    demo = Tokenizer.from_file(str(DEMO))
    fixture = {
        "texts": TEXTS,
        "models": {name: json.loads(base.to_str())["model"] for name, base in bases.items()},
        "demo": answers_of(demo, answers),
        "answers": list(answers),
        "kinds": kinds,
    }
    output.write_text(json.dumps(fixture, ensure_ascii=True, separators=(",", ":")) + "\n")


def train_bytes(text: str) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    train(tokenizer, text, initial_alphabet=alphabet)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def train_pieces(text: str) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    train(tokenizer, text.replace(" ", "▁"), special_tokens=["<unk>", *fallback])
    return tokenizer


def train(tokenizer: Tokenizer, text: str, **options: Any) -> None:
    """On short lines cut anywhere, so that merges know no words."""
    dice = random.Random(1)
    hard = "".join(TEXTS).replace(" ", "▁" if "▁" in text else " ")
    text = text[:20_000] + hard * 8
    lines = [text[i : i + dice.randrange(20, 60)] for i in range(0, len(text), 40)]
    trainer = trainers.BpeTrainer(
        vocab_size=1200, max_token_length=8, show_progress=False, **options
    )
    tokenizer.train_from_iterator(lines, trainer)


def build(bases: dict[str, Tokenizer], parts: dict[str, Any]) -> tuple[str, Tokenizer]:
    base = parts.pop("base", "bytes")
    plain = json.loads(bases[base].to_str())
    plain["added_tokens"], plain["pre_tokenizer"] = [], None
    plain["model"]["ignore_merges"] = parts.pop("ignore_merges", False)
    tokenizer = Tokenizer.from_str(json.dumps({**plain, **parts}))
    tokenizer.add_tokens(ADDED)
    start = tokenizer.token_to_id("<s>")
    template = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [start], "tokens": ["<s>"]}},
    }  # fmt: skip
    plain = {**json.loads(tokenizer.to_str()), "post_processor": template}
    return base, Tokenizer.from_str(json.dumps(plain))


def describe(
    base: str, tokenizer: Tokenizer, answers: dict[tuple[int, ...], int]
) -> dict[str, Any]:
    plain = json.loads(tokenizer.to_str())
    plain["model"] = {"base": base, "ignore_merges": plain["model"]["ignore_merges"]}
    start = tokenizer.encode("Hi").ids
    return {"tokenizer": plain, "start": start, **answers_of(tokenizer, answers)}


def answers_of(tokenizer: Tokenizer, answers: dict[tuple[int, ...], int]) -> dict[str, Any]:
    """Ids of every text as places in `answers`, the texts of these ids, and of random ones."""
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]
    loose = random_ids(tokenizer.get_vocab_size())
    return {
        "ids": [answers.setdefault(tuple(some), len(answers)) for some in ids],
        "texts": [tokenizer.decode(some, skip_special_tokens=True) for some in ids],
        "loose": [[some, tokenizer.decode(some, skip_special_tokens=True)] for some in loose],
    }


def random_ids(size: int) -> list[list[int]]:
    """Ids in no order that a text would give: broken characters, special tokens, unknown ids."""
    dice = random.Random(2)
    low = [[dice.randrange(min(size, 262)) for _ in range(8)] for _ in range(12)]
    return [*low, *([dice.randrange(size + 3) for _ in range(12)] for _ in range(12))]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(__file__).with_suffix(".json"))
