"""The keys that llama.cpp's converter writes for a tokenizer, from a tokenizer.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4


def metadata_of(folder: Path, pre: str = "gpt-2") -> dict[str, Any]:
    """GGUF's metadata of a byte-level BPE tokenizer."""
    tree = json.loads((folder / "tokenizer.json").read_text())
    special = json.loads((folder / "tokenizer_config.json").read_text())
    keys = bpe_keys(tree, pre)
    if not tree["model"]["merges"]:  # there are no empty arrays: the last token is two others
        tokens = keys["tokenizer.ggml.tokens"]
        keys["tokenizer.ggml.merges"] = [f"{tokens[-3]} {tokens[-2]}"]
        tokens[-1] = tokens[-3] + tokens[-2]
    ids = {t: i for i, t in enumerate(keys["tokenizer.ggml.tokens"])}
    for role in ("bos", "eos"):
        if (text := special.get(f"{role}_token")) is not None:
            keys[f"tokenizer.ggml.{role}_token_id"] = ids[text]
    if "chat_template" in special:
        keys["tokenizer.chat_template"] = special["chat_template"]
    return keys


def bpe_keys(tree: dict[str, Any], pre: str) -> dict[str, Any]:
    vocab = dict(tree["model"]["vocab"])
    added = {token["content"]: token for token in tree["added_tokens"]}
    vocab |= {text: token["id"] for text, token in added.items()}
    tokens = [text for text, _ in sorted(vocab.items(), key=lambda row: row[1])]
    kinds = [
        NORMAL if t not in added else CONTROL if added[t]["special"] else USER_DEFINED
        for t in tokens
    ]
    merges = [m if isinstance(m, str) else " ".join(m) for m in tree["model"]["merges"]]
    found = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
    }
    return found | ({"tokenizer.ggml.merges": merges} if merges else {})


SCRIPTS = (
    "The quick brown fox can't jump over 12345 lazy dogs; it's 3.14 o'clock.\n\n\tdef f(x): pass",
    "Příliš žluťoučký kůň úpěl ďábelské ódy, naïve café",
    "Съешь ещё этих мягких французских булок, да выпей чаю 2024",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία",
    "نص حكيم له سر قاطع وذو شأن عظيم ١٢٣",
    "דג סקרן שט בים מאוכזב ולפתע מצא חברה",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण १२३",
    "いろはにほへと ちりぬるを 漢字カタカナ、１２３",
    "天地玄黃，宇宙洪荒。日月盈昃，辰宿列張。",
    "키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า ๑๒๓",
    "👩‍👩‍👧 🇫🇷 🏳️‍🌈 ½ ﬁ \u00a0 \u200b e\u0301 🤷🏽‍♀️  three   spaces    ",
    "", " ", "\n", "  leading", "trailing  ", "a\r\nb\tc",
)  # fmt: skip
"""Text in ten scripts and more, and the edges."""
