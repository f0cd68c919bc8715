"""No name comes twice in an object of JSON.

A context-free grammar can hold names apart that a schema lists, not those that `patternProperties`
and `additionalProperties` leave open. So the names of the objects that are open are kept beside the
grammar, and the mask loses the tokens that would end a name which is there already.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from mlcc.engine.batch.adjust_tables import MASK_BITS
from mlcc.engine.sampling.grammar import Grammar, token_bit

_QUOTE, _BACKSLASH, _COMMA = b'"\\,'
_OBJECT, _ARRAY = b"{["
_ENDS = b"}]"


class JsonState(NamedTuple):
    """How far a text of JSON has come. Text outside of JSON changes nothing."""

    names: tuple[frozenset[str] | None, ...] = ()
    """The names of each open container, the outermost first; None = an array."""
    at_name: bool = False
    """Whether the open string, or the next one, is a name."""
    string: bytes | None = None
    """The open string: a name's text so far, else a backslash before its next byte; None = none."""

    def after(self, text: bytes) -> JsonState | None:
        """The state after more text. None = a name has come twice."""
        names, at_name, string = self
        for byte in text:
            if string is not None:
                if byte != _QUOTE or _is_escaped(string):
                    string = _longer(string, byte, at_name)
                    continue
                if at_name and names[-1] is not None:
                    if (name := _name_of(string)) in names[-1]:
                        return None
                    names = (*names[:-1], names[-1] | {name})
                string, at_name = None, False
            elif byte == _QUOTE:
                string = b""
            elif byte in (_OBJECT, _ARRAY):
                names, at_name = (*names, None if byte == _ARRAY else frozenset()), byte == _OBJECT
            elif byte in _ENDS and names:
                names, at_name = names[:-1], False
            elif byte == _COMMA and names:
                at_name = names[-1] is not None
        return JsonState(names, at_name, string)


def _longer(string: bytes, byte: int, at_name: bool) -> bytes:
    if at_name:
        return string + bytes((byte,))
    return b"\\" if byte == _BACKSLASH and not string else b""


def _is_escaped(string: bytes) -> bool:
    return (len(string) - len(string.rstrip(b"\\"))) % 2 == 1


def _name_of(string: bytes) -> str:
    """A name by its text in JSON."""
    try:
        return str(json.loads(f'"{string.decode()}"', strict=False))
    except ValueError:
        return string.decode(errors="replace")


class QuoteTokens:
    """The tokens of a vocabulary whose text contains a quotation mark."""

    def __init__(self, texts: Mapping[int, bytes]) -> None:
        self._texts = texts
        self._heads: dict[bytes, list[int]] = {}
        """Tokens by their text up to the mark, if no backslash is in it."""
        self._escaping: list[int] = []
        for token, text in texts.items():
            head = text.partition(b'"')[0]
            if b"\\" in head:
                self._escaping.append(token)
            else:
                self._heads.setdefault(head, []).append(token)
        self._two, self._three = (
            [token for token, text in texts.items() if text.count(b'"') >= count]
            for count in (2, 3)
        )

    def repeating(self, state: JsonState, mask: array[int]) -> list[int]:
        """The tokens of a mask after which a name would have come twice."""
        return [
            token
            for token in self._candidates(state)
            if mask[token // MASK_BITS] >> token % MASK_BITS & 1
            and state.after(self._texts[token]) is None
        ]

    def _candidates(self, state: JsonState) -> Iterable[int]:
        """The tokens that may end a name."""
        if state.string is None:
            return self._two if any(state.names) else self._three
        if not state.at_name or not state.names[-1]:
            return self._three
        if b"\\" in state.string:  # it may end amid an escape
            return self._texts
        names = (name.encode(errors="surrogatepass") for name in state.names[-1])
        begun = len(state.string)
        heads = [name[begun:] for name in names if name.startswith(state.string)]
        ends = [token for head in heads for token in self._heads.get(head, ())]
        return [*ends, *self._escaping, *self._three]


class UniqueNames:
    """A grammar whose answers are JSON in which no name of an object comes twice.

    start: the JSON begins with or behind this text. text_of: the bytes of a token.
    """

    def __init__(
        self, grammar: Grammar, quotes: QuoteTokens, text_of: Callable[[int], bytes], start: str
    ) -> None:
        self._grammar, self._quotes, self._text_of = grammar, quotes, text_of
        self._start = start.encode()
        self._state: JsonState | bytes | None = b"" if start else JsonState()
        """Bytes: the end of the text in which `start` has not come. None: a name came twice."""
        self._allowed: array[int] | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing may follow."""
        return self._grammar.ended

    @property
    def failed(self) -> bool:
        """Whether a limit was exceeded, or no token may follow."""
        return self._grammar.failed or self._is_stuck

    @property
    def dead_end(self) -> bool:
        """Whether it failed as no token may follow."""
        return self._grammar.dead_end or self._is_stuck

    @property
    def _is_stuck(self) -> bool:
        """Whether only a name that is there already may follow."""
        return self._allowed is not None and not any(self._allowed)

    def allowed(self) -> array[int] | None:
        """The mask of the next token; the grammar's own after a failure."""
        mask = self._grammar.allowed()
        if self._allowed is None and mask is not None:
            self._allowed = self._without_repeats(self._state, mask)
        return mask if self._is_stuck else self._allowed

    def accept(self, token: int) -> None:
        """Append a sampled token."""
        self._grammar.accept(token)
        self._allowed, self._state = None, self._after(self._state, token)

    def lookahead(self, tokens: Sequence[int]) -> Sequence[array[int] | None]:
        """The masks after each of these tokens."""
        masks: list[array[int] | None] = []
        state = self._state
        for token, mask in zip(tokens, self._grammar.lookahead(tokens), strict=False):
            state = self._after(state, token)
            left = None if mask is None else self._without_repeats(state, mask)
            if state is None or (left is not None and not any(left)):
                break
            masks.append(left)
        return masks

    def forced(self) -> Sequence[int]:
        """The tokens that must follow, up to a name that is there already."""
        tokens, state = list[int](), self._state
        for token in self._grammar.forced():
            if (state := self._after(state, token)) is None:
                break
            tokens.append(token)
        return tokens

    def _without_repeats(self, state: JsonState | bytes | None, mask: array[int]) -> array[int]:
        if not isinstance(state, JsonState) or self._grammar.failed:
            return mask
        tokens = self._quotes.repeating(state, mask)
        mask = mask[:] if tokens else mask
        for token in tokens:
            mask[token // MASK_BITS] &= ~token_bit(token)
        return mask

    def _after(self, state: JsonState | bytes | None, token: int) -> JsonState | bytes | None:
        if not isinstance(state, bytes):
            return None if state is None else state.after(self._text_of(token))
        text = state + self._text_of(token)
        found = text.find(self._start)
        return text[-len(self._start) :] if found < 0 else JsonState().after(text[found:])
