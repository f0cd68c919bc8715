"""Writes unigram_fixture.json: the tokens of difficult texts by Python's `tokenizers`, with models
of unigrams as XLM-R's. Run by hand in the project's environment.

Vocabulary and map of characters are those of tests/compiler/checkpoint/unigram.json, with every
second character of the texts: much of them is unknown.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tokenizer_fixture import TEXTS
from tokenizers import Tokenizer

HERE = Path(__file__)
RECORDED = json.loads(
    (HERE.parents[3] / "tests/compiler/checkpoint/unigram.json").read_text(encoding="utf-8")
)
MORE = [
    "hello the playing field", "  two  spaces\tand\u00a0others\u2028end ", "ﬁ①½²٣ Ⅷ ㎏ ｶﾞ ĳ",
    "e\u0301e\u0301\u0327 \u1100\u1161\u11a8 क्षि 👩‍👩‍👧 🇩🇪", "漢字かなカナ混じり",
    "<s> a </s>b<mask> c", "▁▁a▁b", "",
    "\u0000\u0001\u200b\u00ad", "𝒳𝓎 \U00020000\U00020001x",
]  # fmt: skip
SPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
TABLE = {"type": "Precompiled", "precompiled_charsmap": RECORDED["charsmap"]}
FEWER = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
WORDS = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, SPACE]}


def vocabulary(byte_tokens: bool) -> list[list[Any]]:
    found = dict(zip(RECORDED["tokens"], RECORDED["scores"], strict=True))
    letters = sorted({sign for text in (*TEXTS, *MORE) for sign in text if ord(sign) > 0x20})[::2]
    dice = random.Random(5)
    for sign in letters:
        found.setdefault(sign, -round(dice.uniform(2, 9), 4))
    for text in ("<s>", "</s>", "<mask>"):
        found.setdefault(text, 0.0)
    if byte_tokens:
        found |= {f"<0x{byte:02X}>": -12.0 for byte in range(256)}
    return [list(row) for row in found.items()]


def tree(normalizer: Any, words: Any, byte_tokens: bool = False) -> dict[str, Any]:
    vocab = vocabulary(byte_tokens)
    ids = {piece: i for i, (piece, _) in enumerate(vocab)}
    special = [{"id": ids[name], "content": name, "single_word": False, "lstrip": name == "<mask>",
                "rstrip": False, "normalized": False, "special": True}
               for name in ("<s>", "</s>", "<mask>")]  # fmt: skip
    frame = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
             {"SpecialToken": {"id": "</s>", "type_id": 0}}]  # fmt: skip
    names = {n: {"id": n, "ids": [ids[n]], "tokens": [n]} for n in ("<s>", "</s>")}
    post = {"type": "TemplateProcessing", "single": frame, "pair": [*frame, *frame]}
    model = {"type": "Unigram", "unk_id": ids["<unk>"], "vocab": vocab}
    return {
        "version": "1.0",
        "added_tokens": special,
        "normalizer": normalizer,
        "pre_tokenizer": words,
        "post_processor": {**post, "special_tokens": names},
        "decoder": SPACE,
        "model": {**model, "byte_fallback": byte_tokens},
    }


KINDS = {
    "xlm-r": tree(TABLE, WORDS),
    "e5": tree({"type": "Sequence", "normalizers": [TABLE, FEWER]}, SPACE),
    "bytes": tree(None, SPACE, byte_tokens=True),
}


def main() -> None:
    texts = [*TEXTS, *MORE]
    kinds = {}
    for name, plain in KINDS.items():
        tokenizer = Tokenizer.from_str(json.dumps(plain))
        dice, size = random.Random(3), len(plain["model"]["vocab"])
        loose = [[dice.randrange(size) for _ in range(12)] for _ in range(12)]
        kinds[name] = {
            "tokenizer": plain,
            "start": tokenizer.encode("Hi").ids,
            "ids": [tokenizer.encode(text, add_special_tokens=False).ids for text in texts],
            "loose": [[ids, tokenizer.decode(ids)] for ids in loose],
        }
    text = json.dumps({"texts": texts, "kinds": kinds}, separators=(",", ":"))
    HERE.with_suffix(".json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
