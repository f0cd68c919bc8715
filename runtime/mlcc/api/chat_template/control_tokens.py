"""Injection guard: a control token counts where the template writes it, never inside a message.

In every string of a request, the characters that each control token needs (the `|` of `<|im_end|>`)
are replaced by stand-ins, one for one, so that lengths, positions and whatever a template does to
the string stay the same. The rendered text then has a control token only where the template itself
wrote those characters. `pieces` restores the text and says where to cut it, so that a tokenizer
finds no other control token. Stand-ins are Unicode noncharacters, which valid text never contains.

Known limit: a template that writes both ends of a token around a name from the request
(`<` name `>`) makes that token, if its ends are the token's only replaced characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from itertools import pairwise
from typing import Any

_NONCHARACTERS = [chr(code) for code in range(0xFDD0, 0xFDF0)]
_STRAY = re.compile("[\ufdd0-\ufdef]")
_PREFERRED = "|｜]>"
"""Found in nearly all control tokens, and seldom looked for in messages by a template."""
_ESCAPED = re.compile(r"\\\\|\\ufd[de][0-9a-f]")


class TemplateText(str):
    """Text that counts as the template's own: it stays as it is."""


class ControlTokenGuard:
    """The exchange for one set of control tokens. Immutable."""

    def __init__(self, control: Iterable[str] = ()) -> None:
        # A single character cannot be cut. No tokenizer has such tokens, or ones longer than a
        # line.
        self._tokens = sorted({token for token in control if 1 < len(token) <= 100})
        pairs = list(zip(_covering(self._tokens), _NONCHARACTERS, strict=False))
        self._there = pairs
        self._pattern: re.Pattern[str] | None = None

    def mark(self, value: Any) -> Any:
        """A value of a request, in which all strings are marked."""
        if not self._there:
            return value
        if isinstance(value, TemplateText):
            return value
        if isinstance(value, str):
            text = value if value.isascii() else _STRAY.sub("\ufffd", value)
            return self._exchanged(text, self._there)
        if isinstance(value, dict):
            return {self.mark(key): self.mark(entry) for key, entry in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(map(self.mark, value))
        return value

    def plain(self, value: Any) -> Any:
        """The text without marks; a value without marks is returned unchanged."""
        if not isinstance(value, str) or not self._marked(value):
            return value
        return self._exchanged(value, [(twin, char) for char, twin in self._there])

    def concerns(self, text: str, other: str) -> bool:
        """Whether one text is searched for in the other and only one of them is marked."""
        if text.isascii() and other.isascii():
            return False
        return (self._marked(text) and self._unmarked(other)) or (
            self._marked(other) and self._unmarked(text)
        )

    def unescaped(self, text: str) -> str:
        """Restore marks that Python's repr or JSON escaped."""
        if not self._there or "\\ufd" not in text:
            return text
        return _ESCAPED.sub(lambda m: m[0] if m[0] == "\\\\" else chr(int(m[0][2:], 16)), text)

    def pieces(self, text: str) -> list[str]:
        """The text without marks, cut inside every control token that is not the template's own."""
        plain = self.plain(text)
        if plain is text:
            return [text]
        if self._pattern is None:
            self._pattern = re.compile(_trie(self._tokens))
        shortest = min(map(len, self._tokens))
        edges, at = {0, len(plain)}, 0
        while found := self._pattern.search(plain, at):
            first, last = found.span()
            if text[first:last] != found[0]:  # before its end, and that of any shorter one here
                edges.add(min(_inside(plain, first, last), first + shortest - 1))
            at = first + 1
        cuts = sorted(edges)
        return [plain[a:b] for a, b in pairwise(cuts)]

    def _exchanged(self, text: str, pairs: Sequence[tuple[str, str]]) -> str:
        for old, new in pairs:
            if old in text:
                text = text.replace(old, new)
        return text

    def _marked(self, text: str) -> bool:
        return not text.isascii() and any(twin in text for _, twin in self._there)

    def _unmarked(self, text: str) -> bool:
        return any(char in text for char, _ in self._there)


def aligned(operation: Callable[..., Any], text: str, other: Any, *more: Any) -> Any:
    """`operation(text, other, *more)`, where `other` is searched for in `text`.

    A template's own `|` matches a message's. The result counts as the message's.
    """
    guard = GUARD.get()
    others = other if isinstance(other, tuple) else (other,)
    if not any(isinstance(one, str) and guard.concerns(text, one) for one in others):
        return operation(text, other, *more)
    plain = tuple(map(guard.plain, others))
    made = operation(guard.plain(text), plain if isinstance(other, tuple) else plain[0], *more)
    return guard.mark(made)


def _covering(tokens: Sequence[str]) -> list[str]:
    """Few characters such that every token has one of them: punctuation, if possible."""
    chars: list[str] = []
    rest = set(tokens)

    def take(char: str) -> None:
        chars.append(char)
        rest.difference_update([token for token in rest if char in token])

    for char in _PREFERRED:
        if any(char in token for token in rest):
            take(char)
    while rest:
        token = min(rest)
        take(next((char for char in token if not char.isalnum() and not char.isspace()), token[0]))
    return chars


def _inside(text: str, first: int, last: int) -> int:
    """Where to cut a token's text: before its first letter, as most tokenizers do."""
    inner = range(first + 1, last)
    return next((at for at in inner if text[at].isalnum() > text[at - 1].isalnum()), first + 1)


def _trie(tokens: Sequence[str]) -> str:
    """A regular expression for the longest token at a position, in time independent of their
    number."""
    heads: dict[str, list[str]] = {}
    for token in tokens:
        heads.setdefault(token[:1], []).append(token[1:])
    ends = heads.pop("", None)
    branches = "|".join(re.escape(head) + _trie(tails) for head, tails in heads.items())
    return f"(?:{branches}){'?' if ends else ''}" if branches else ""


GUARD: ContextVar[ControlTokenGuard] = ContextVar("mlcc_template_twins")
"""The guard of the rendering in this thread."""
