"""Writes src/model/tokenizer/bert_characters.ts: the character classes of `BertNormalizer` and
`BertPreTokenizer` of Python's `tokenizers`, which use tables of an older Unicode than browsers.

Run by hand in the project's environment: each code point is passed to both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from tokenizers import normalizers, pre_tokenizers

OUT = Path(__file__).parents[1] / "src/model/tokenizer/bert_characters.ts"
ALL = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
OFF = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False,
       "lowercase": False}  # fmt: skip
CLEAN = normalizers.BertNormalizer(**{**OFF, "clean_text": True})
STRIP = normalizers.BertNormalizer(**{**OFF, "strip_accents": True})
IDEOGRAPHS = normalizers.BertNormalizer(**{**OFF, "handle_chinese_chars": True})
WORDS = pre_tokenizers.BertPreTokenizer()


def ranges(codes: Iterable[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for code in codes:
        if found and found[-1][1] == code - 1:
            found[-1] = found[-1][0], code
        else:
            found.append((code, code))
    return found


def written(name: str, about: str, test: Callable[[str], bool]) -> str:
    """A table: first and last code point of each range, in hexadecimal, last left out if equal."""
    chosen = ranges(code for code in ALL if test(chr(code)))
    words = [f"{a:x}" if a == b else f"{a:x}-{b:x}" for a, b in chosen]
    lines, line = list[str](), ""
    for word in words:
        if len(line) + len(word) > 92:
            lines.append(line)
            line = ""
        line += word + " "
    text = " +\n".join(f"  '{each}'" for each in [*lines, line.rstrip()])
    return f"/** {about} */\nexport const {name} =\n{text};\n"


def main() -> None:
    blocks = [
        "// Written by web/tools/bert_characters.py: change that and run it again.\n\n"
        "/** Character classes of BERT's tokenizers, as ranges of code points in hexadecimal. */\n",
        written("REMOVED", "Control characters.", lambda c: CLEAN.normalize_str(c) == ""),
        written("SPACES", "White space that becomes a space.",
                lambda c: c != " " and CLEAN.normalize_str(c) == " "),
        written("IDEOGRAPHS", "Each is a word.", lambda c: IDEOGRAPHS.normalize_str(c) != c),
        written("MARKS", "Accents, after decomposition.", lambda c: STRIP.normalize_str(c) == ""),
        written("PUNCTUATION", "Each is a word.",
                lambda c: [t for t, _ in WORDS.pre_tokenize_str(f"a{c}b")] == ["a", c, "b"]),
    ]  # fmt: skip
    OUT.write_text("\n".join(blocks), encoding="utf-8")


if __name__ == "__main__":
    main()
