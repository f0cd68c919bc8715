"""Writes runtime/native/src/tokenizer/unicode_table.cc: the Unicode properties of the tokenizer.

    python -m tools.unicode_tables

Run by hand in the project's environment. The parts of Hugging Face's `tokenizers` use tables of
different Unicode versions, so each part is asked about every code point. Grapheme breaks and names
of categories come from the package `regex`, combining classes from `unicodedata`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path

import regex
from tokenizers import Regex, normalizers, pre_tokenizers

OUT = Path(__file__).parents[1] / "runtime/native/src/tokenizer/unicode_table.cc"
ALL = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
TEXT = "".join(map(chr, ALL))
CATEGORIES = [
    "Cn", "Cc", "Cf", "Co", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No",
    "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp",
]  # fmt: skip
"""In the order of `Category` in unicode.h."""
BREAKS = [
    "Other", "CR", "LF", "Control", "Extend", "ZWJ", "Regional_Indicator", "Prepend",
    "SpacingMark", "L", "V", "T", "LV", "LVT",
]  # fmt: skip
"""In the order of `Break` in unicode.h; a pictograph is Other with a flag."""
OFF = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False,
       "lowercase": False}  # fmt: skip
HANGUL = range(0xAC00, 0xAC00 + 11172)
WIDTH = 96


def matched(pattern: str) -> set[int]:
    """The code points that a regular expression of `tokenizers` matches."""
    split = pre_tokenizers.Split(Regex(f"{pattern}+"), "removed", invert=True)
    return {ord(sign) for piece, _ in split.pre_tokenize_str(TEXT) for sign in piece}


def kept(part: pre_tokenizers.PreTokenizer) -> set[int]:
    """The code points that a pre-tokenizer does not remove."""
    return {ord(sign) for piece, _ in part.pre_tokenize_str(TEXT) for sign in piece}


def alone(part: pre_tokenizers.PreTokenizer) -> set[int]:
    """The code points that a pre-tokenizer makes a word of their own."""
    return {
        code for code in ALL
        if [piece for piece, _ in part.pre_tokenize_str(f"a{chr(code)}b")] == ["a", chr(code), "b"]
    }  # fmt: skip


def changed(part: normalizers.Normalizer, test: Callable[[str, str], bool]) -> set[int]:
    return {code for code in ALL if test(chr(code), part.normalize_str(chr(code)))}


def bert(name: str) -> normalizers.Normalizer:
    return normalizers.BertNormalizer(**{**OFF, name: True})


def flags() -> list[set[int]]:
    """The sets of `Flag` in unicode.h, in its order."""
    words = kept(pre_tokenizers.Whitespace())
    spaces = set(ALL) - kept(pre_tokenizers.WhitespaceSplit())
    removed = changed(bert("clean_text"), lambda sign, made: made == "")
    ideographs = changed(bert("handle_chinese_chars"), lambda sign, made: made != sign)
    marks = changed(bert("strip_accents"), lambda sign, made: made == "")
    combining = changed(normalizers.StripAccents(), lambda sign, made: made == "")
    split = pre_tokenizers.Whitespace().pre_tokenize_str(" ".join(f"a{chr(c)}" for c in ALL))
    letters = {ord(piece[1]) for piece, _ in split if len(piece) == 2 and piece[0] == "a"}
    pictographs = {ord(s) for s in regex.findall(r"\p{Extended_Pictographic}", TEXT)}
    numeric = alone(pre_tokenizers.Digits(individual_digits=True))
    punctuation = alone(pre_tokenizers.BertPreTokenizer())
    if words | spaces != set(ALL):
        raise SystemExit("unicode_tables: `Whitespace` drops what is no white space")
    return [
        spaces, matched(r"\w"), letters, numeric, punctuation, removed, ideographs, marks,
        combining, pictographs, matched(r"\p{Han}"),
    ]  # fmt: skip


def records() -> tuple[list[tuple[int, ...]], list[int]]:
    """The different (category, combining class, break, flags), and which each code point has."""
    category, breaks, flag = {}, {}, dict.fromkeys(ALL, 0)
    for i, name in enumerate(CATEGORIES):
        category |= dict.fromkeys(matched(rf"\p{{{name}}}"), i)
    for i, name in enumerate(BREAKS):
        found = regex.findall(rf"\p{{Grapheme_Cluster_Break={name}}}", TEXT)
        breaks |= dict.fromkeys(map(ord, found), i)
    for bit, chosen in enumerate(flags()):
        for code in chosen:
            flag[code] |= 1 << bit
    known: dict[tuple[int, ...], int] = {}
    of = []
    for code in range(0x110000):
        ccc = unicodedata.combining(chr(code)) if code in flag else 0
        row = (category.get(code, 0), ccc, breaks.get(code, 0), flag.get(code, 0))
        of.append(known.setdefault(row, len(known)))
    return list(known), of


def numbers(values: Iterable[int]) -> str:
    lines, line = list[str](), "   "
    for value in values:
        word = f" {value}," if value < 1000 else f" {value:#x},"
        if len(line) + len(word) > WIDTH:
            lines.append(line)
            line = "   "
        line += word
    return "\n".join([*lines, line])


def table(kind: str, name: str, values: Sequence[int]) -> str:
    return (
        f"const {kind} {name}[] = {{\n{numbers(values)}\n}};\n"
        f"const size_t {name}_size = {len(values)};\n"
    )


def mappings(part: normalizers.Normalizer, leave: Callable[[int], bool]) -> list[int]:
    """Of each code point that a normalizer changes: it, how many it becomes, and those."""
    found: list[int] = []
    for code in ALL:
        made = part.normalize_str(chr(code))
        if made != chr(code) and not leave(code):
            found += [code, len(made), *map(ord, made)]
    return found


def compositions(canonical: Sequence[int]) -> list[int]:
    """(first, second, composed) of all pairs that NFC makes one."""
    nfc, found = normalizers.NFC(), list[int]()
    for code in ALL:
        step = unicodedata.decomposition(chr(code))
        if not step or step.startswith("<") or " " not in step:
            continue
        first, second = (int(part, 16) for part in step.split())
        if nfc.normalize_str(chr(first) + chr(second)) == chr(code):
            found += [first, second, code]
    return found


def main() -> None:
    rows, of = records()
    runs = [(len(list(group)), which) for which, group in groupby(of)]
    canonical = mappings(normalizers.NFD(), HANGUL.__contains__)
    same = normalizers.NFD()
    compatible = mappings(
        normalizers.NFKD(),
        lambda code: (
            code in HANGUL
            or same.normalize_str(chr(code)) == normalizers.NFKD().normalize_str(chr(code))
        ),
    )
    lower = mappings(normalizers.Lowercase(), lambda code: False)
    parts = [
        "// Written by tools/unicode_tables.py: change that and run it again.\n"
        '#include "tokenizer/unicode_table.h"\n\nnamespace mlcc::tokenizer {\n',
        table("uint16_t", "kRecords", [value for row in rows for value in row]),
        table("uint32_t", "kRuns", [value for run in runs for value in run]),
        table("uint32_t", "kCanonical", canonical),
        table("uint32_t", "kCompatible", compatible),
        table("uint32_t", "kCompositions", compositions(canonical)),
        table("uint32_t", "kLower", lower),
        "}  // namespace mlcc::tokenizer\n",
    ]
    OUT.write_text("\n".join(parts), encoding="ascii")
    print(f"{len(rows)} records, {len(runs)} runs, {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
