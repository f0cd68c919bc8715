"""Words of a transcript: tokens that are joined, and their times, as transformers and Whisper's own
program join them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

WITHOUT_SPACES = frozenset({"zh", "ja", "th", "lo", "my", "yue"})
"""Languages that are written without them: each character is a word."""
_ALONE = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
_BEFORE = "\"'“¡¿([{-"
_BEHIND = "\"'.。,，!！?？:：”)]}、"
"""Marks that belong to the word after them, and to the word before."""
_HALF = "\ufffd"
"""What half of a character decodes to."""
Decode = Callable[[Sequence[int]], str]


class Word(NamedTuple):
    """A word with the marks around it."""

    text: str
    first: int
    """Index of its first token."""
    last: int


def words_of(tokens: Sequence[int], decode: Decode, language: str) -> list[Word]:
    """The words of tokens of text. language: ISO 639-1."""
    parts = _characters(tokens, decode)
    if language not in WITHOUT_SPACES:
        parts = _by_spaces(parts)
    return _with_marks(parts)


def _characters(tokens: Sequence[int], decode: Decode) -> list[Word]:
    """Tokens that are whole characters together."""
    whole, found, begin, before = decode(tokens), list[Word](), 0, 0
    for last in range(len(tokens)):
        text = decode(tokens[begin : last + 1])
        half = before + text.find(_HALF)
        if _HALF not in text or half >= len(whole) or whole[half] == _HALF:
            found.append(Word(text, begin, last))
            begin, before = last + 1, before + len(text)
    return found


def _by_spaces(parts: Sequence[Word]) -> list[Word]:
    found = list[Word]()
    for part in parts:
        begins = part.text.startswith(" ") or part.text.strip() in _ALONE
        if begins or not found:
            found.append(part)
        else:
            found[-1] = _joined(found[-1], part)
    return found


def _with_marks(parts: Sequence[Word]) -> list[Word]:
    """Marks joined with the word after or before them."""
    backwards = list[Word]()
    for part in reversed(parts):
        opens = part.text.startswith(" ") and part.text.strip() in _BEFORE
        if opens and backwards:
            backwards[-1] = _joined(part, backwards[-1])
        else:
            backwards.append(part)
    found = list[Word]()
    for part in reversed(backwards):
        if found and not found[-1].text.endswith(" ") and part.text in _BEHIND:
            found[-1] = _joined(found[-1], part)
        else:
            found.append(part)
    return found


def _joined(left: Word, right: Word) -> Word:
    return Word(left.text + right.text, left.first, right.last)
