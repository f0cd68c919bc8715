"""Grammars for `mlcc.engine.sampling.grammar`, by llguidance: JSON Schemas, regular expressions,
Lark.

Its masks come from an Earley parser over derivatives of regular expressions, built lazily
(https://github.com/guidance-ai/llguidance). Grammars are untrusted: size, memory and, on a server,
time are bounded, and they are compiled in a thread of their own. `Reader` is the port to a build of
llguidance: Python's package (`llguidance.py`) or wasm in a tab (`mlcc.embedded.grammars`).
"""

from __future__ import annotations

import json
import re
from array import array
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, Literal, Protocol

from mlcc.api.parsers.tools.syntax.lark import Lark
from mlcc.api.schema.json_grammar import prepared
from mlcc.engine.batch.adjust_tables import MASK_BITS
from mlcc.engine.batch.tables import WORD
from mlcc.engine.sampling.grammar import Grammar, Kind, Structure
from mlcc.errors import InvalidRequestError, UnsupportedError
from mlcc.model.structured_output.schema_keywords import check_schema
from mlcc.model.structured_output.unique_names import QuoteTokens, UniqueNames

LONGEST = 128 << 10
"""Most characters of a schema, an expression or a grammar."""
KEPT = 24
"""Number of compiled grammars that are cached."""
LEXER_STATES = 20_000
"""Most lexer states of one answer, at 1 to 2 kB each."""
GRAMMAR_SYMBOLS = 200_000
_DEAD_END = "NoExtension"
"""In llguidance's error for a text that nothing may follow."""
_WHAT: dict[Kind, str] = {
    "json_schema": "JSON Schema",
    "regex": "regular expression",
    "choice": "list of choices",
    "grammar": "grammar",
}
Tag = Literal["json_schema", "regex", "lark"]
"""llguidance's names of grammar kinds."""


class Matcher(Protocol):
    """llguidance's state of one answer, with its own method names. After a failure it stays failed,
    and allows only tokens that end an answer."""

    def deep_copy(self) -> Matcher: ...

    def compute_bitmask(self) -> bytes:
        """The mask of the next token, one bit per token, possibly with padding."""
        ...

    def consume_token(self, token: int, /) -> object: ...

    def compute_ff_tokens(self) -> Sequence[int]:
        """Tokens that must follow."""
        ...

    def is_stopped(self) -> bool: ...

    def is_error(self) -> bool: ...

    def get_error(self) -> str: ...


class Reader(Protocol):
    """llguidance with one model's tokenizer."""

    def read(self, tag: Tag, text: str) -> Matcher:
        """A matcher at its start, with SETTINGS and within LEXER_STATES and GRAMMAR_SYMBOLS; the
        matcher reports errors."""
        ...

    def text_of(self, token: int) -> bytes:
        """The bytes of a token."""
        ...

    def quote_tokens(self) -> Mapping[int, bytes]:
        """The tokens whose bytes contain a quotation mark. Slow."""
        ...


class LlGrammars:
    """Grammars over one tokenizer, with a cache of recent ones."""

    def __init__(self, reader: Callable[[], Reader], vocab_size: int) -> None:
        """reader: opens the reader on first use; raises OSError or ValueError if it cannot."""
        self._open_reader, self._vocab_size = reader, vocab_size
        self._reader: Reader | None = None
        self._quotes: QuoteTokens | None = None
        self._kept: OrderedDict[Structure, Matcher] = OrderedDict()
        self._lock = Lock()

    def check(self, structure: Structure) -> None:
        """Compile a structure. Raises InvalidRequestError or UnsupportedError."""
        with self._lock:
            self._matcher(structure)

    def open(self, structure: Structure) -> Grammar:
        """A grammar for one answer. Raises as `check`."""
        start = structure.json_start
        if start is None and structure.kind == "json_schema":
            start = ""
        with self._lock:
            grammar = LlGrammar(self._matcher(structure).deep_copy(), self._vocab_size)
            if start is None:
                return grammar
            reader = self._opened(structure)
            if self._quotes is None:
                self._quotes = QuoteTokens(reader.quote_tokens())
            return UniqueNames(grammar, self._quotes, reader.text_of, start)

    def _matcher(self, structure: Structure) -> Matcher:
        """A matcher at its start, to be copied."""
        if structure not in self._kept or self._kept[structure].is_error():  # it was invalidated
            self._kept[structure] = self._read_new(structure)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(structure)
        return self._kept[structure]

    def _read_new(self, structure: Structure) -> Matcher:
        if len(structure.text) > LONGEST:
            raise _refusal(structure, f"has more than {LONGEST} characters; shorten it")
        matcher = self._opened(structure).read(*_source(structure))
        matcher.compute_bitmask()  # its copies share the computed states
        if matcher.is_error():
            why = _first_line(matcher.get_error())
            if "coerce_one_of" in why:
                why = "of 'oneOf' more than one may hold; use 'anyOf'"
            raise _refusal(structure, f"cannot be held to: {why}")
        return self._by_rules(structure) or matcher

    def _by_rules(self, structure: Structure) -> Matcher | None:
        """The matcher of a schema that llguidance accepted, by rules that allow all of JSON."""
        if structure.kind != "json_schema" or not isinstance(_parsed(structure), dict):
            return None
        lark = Lark()
        text = lark.written(lark.json(_parsed(structure)))
        matcher = self._opened(structure).read("lark", text)
        matcher.compute_bitmask()
        return None if matcher.is_error() else matcher

    def _opened(self, structure: Structure) -> Reader:
        if self._reader is None:
            try:
                self._reader = self._open_reader()
            except (OSError, ValueError) as error:
                raise UnsupportedError(
                    f"'{structure.field}' is not built for this model's tokenizer: "
                    f"{_first_line(str(error))}; leave it out",
                    param=structure.field or None,
                    code="unsupported_parameter",
                ) from None
        return self._reader


class LlGrammar:
    """The grammar of one answer."""

    def __init__(self, matcher: Matcher, vocab_size: int) -> None:
        self._matcher = matcher
        self._mask_bytes = WORD * -(-vocab_size // MASK_BITS)
        self._allowed: array[int] | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing may follow."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    @property
    def failed(self) -> bool:
        """Whether a limit was exceeded, or no token may follow."""
        return self._matcher.is_error()

    @property
    def dead_end(self) -> bool:
        """Whether it failed as no token may follow."""
        return self.failed and _DEAD_END in self._matcher.get_error()

    def allowed(self) -> array[int]:
        """The mask of the next token; only end tokens after a failure."""
        if self._allowed is None:
            mask = self._matcher.compute_bitmask()
            self._allowed = array("i", mask[: self._mask_bytes])  # without padding
        return self._allowed

    def accept(self, token: int) -> None:
        """Append a sampled token."""
        self._matcher.consume_token(token)
        self._allowed = None

    def lookahead(self, tokens: Sequence[int]) -> Sequence[array[int]]:
        """The masks after each of these tokens, from a copy of the matcher."""
        ahead = LlGrammar(self._matcher.deep_copy(), 0)
        masks: list[array[int]] = []
        ahead._mask_bytes, ahead._allowed = self._mask_bytes, self._allowed
        for token in tokens:
            if not ahead.allowed()[token // MASK_BITS] >> token % MASK_BITS & 1:
                break
            ahead.accept(token)
            if ahead.ended or ahead.failed:
                break
            masks.append(ahead.allowed())
        return masks

    def forced(self) -> Sequence[int]:
        """The tokens of the text that must follow."""
        return self._matcher.compute_ff_tokens()


def _source(structure: Structure) -> tuple[Tag, str]:
    """The structure in llguidance's form."""
    text = structure.text
    if structure.kind == "json_schema":
        schema = _parsed(structure)
        check_schema(schema, structure.field)
        if isinstance(schema, bool):
            return (
                "json_schema",
                "{}" if schema else '{"not": {}}',
            )  # refused: no value satisfies it
        return "json_schema", json.dumps(prepared(schema))
    if structure.kind == "regex":
        return "regex", text
    if structure.kind == "choice":
        choices = (json.dumps(choice, ensure_ascii=False) for choice in _parsed(structure))
        return "lark", f"start: {' | '.join(choices)}"
    return "lark", _lark(structure)


def _lark(structure: Structure) -> str:
    """A grammar in Lark's notation."""
    from llguidance.gbnf_to_lark import any_to_lark  # the only part of llguidance that a tab has

    try:
        return any_to_lark(structure.text)
    except Exception as error:  # it raises exceptions of any type
        why = f"Failed to convert the grammar from GBNF to Lark: {error}"
        raise _refusal(structure, f"cannot be read: {_first_line(why)}") from None


def _parsed(structure: Structure) -> Any:
    try:
        return json.loads(structure.text)
    except (ValueError, RecursionError) as error:
        raise _refusal(structure, f"is no JSON: {error}") from None


def _refusal(structure: Structure, why: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"the {_WHAT[structure.kind]} in '{structure.field}' {why}",
        param=structure.field or None,
        code="invalid_structure",
    )


def _first_line(text: str) -> str:
    """The message of an llguidance error, without the source excerpt below it."""
    return re.sub(r"\s+", " ", text)[:300].strip()
