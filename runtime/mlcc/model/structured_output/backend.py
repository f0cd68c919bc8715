"""The port of `mlcc.engine.sampling.grammar` over llguidance, which reads schemas, expressions and
grammars.

Its masks come from an Earley parser over derivatives of regular expressions, of which only what an
answer needs is made (https://github.com/guidance-ai/llguidance). What it reads is a stranger's: all
of it has bounds in size and memory, and on a server in time, in a thread that nobody else waits
for. Which build of llguidance that is, is behind `Reader`: Python's package (`native_grammars`) or
wasm in a tab (`mlcc.embedded.grammars`).
"""

from __future__ import annotations

import json
import re
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, Literal, Protocol

from mlcc.engine.batch.adjust_tables import MASK_BITS
from mlcc.engine.batch.tables import WORD
from mlcc.engine.sampling.grammar import Kind, Structure
from mlcc.errors import InvalidRequestError, UnsupportedError
from mlcc.model.structured_output.json_schema import check_schema

LONGEST = 128 << 10
"""Characters of a schema, an expression or a grammar."""
KEPT = 24
"""Grammars that are not read again."""
LEXER_STATES = 20_000
"""Of one answer, at 1 to 2 kB each."""
GRAMMAR_SYMBOLS = 200_000
WHITESPACE = r" |\n[ \t]{0,32}"
"""Between the parts of JSON: a space, or a new line with its indent. A model that may write any
number of spaces sometimes writes nothing else."""
_WHAT: dict[Kind, str] = {
    "json_schema": "JSON Schema",
    "regex": "regular expression",
    "choice": "list of choices",
    "grammar": "grammar",
}
SETTINGS = {"whitespace_pattern": WHITESPACE, "lenient": False, "coerce_one_of": False}
"""llguidance's of a schema. Not lenient: what it cannot hold to is an error."""
Tag = Literal["json_schema", "regex", "lark"]
"""What llguidance calls the kinds of text that it reads."""


class Matcher(Protocol):
    """llguidance's state of one answer; methods by its own names. Once it has failed it stays so,
    and allows what ends an answer."""

    def deep_copy(self) -> Matcher: ...

    def compute_bitmask(self) -> bytes:
        """A bit a token that may follow, and perhaps some more at the end."""
        ...

    def consume_token(self, token: int, /) -> object: ...

    def compute_ff_tokens(self) -> Sequence[int]:
        """What must follow."""
        ...

    def is_stopped(self) -> bool: ...

    def is_error(self) -> bool: ...

    def get_error(self) -> str: ...


class Reader(Protocol):
    """llguidance with one model's tokenizer."""

    def read(self, tag: Tag, text: str) -> Matcher:
        """One at its start, by SETTINGS and within LEXER_STATES and GRAMMAR_SYMBOLS; errors are the
        matcher's to tell."""
        ...


class LlGrammars:
    """Grammars over one tokenizer, those of late kept."""

    def __init__(self, reader: Callable[[], Reader], vocab_size: int) -> None:
        """reader: opens it when the first is read; raises OSError or ValueError if it cannot."""
        self._open_reader, self._vocab_size = reader, vocab_size
        self._reader: Reader | None = None
        self._kept: OrderedDict[Structure, Matcher] = OrderedDict()
        self._lock = Lock()

    def check(self, structure: Structure) -> None:
        """Read it. Raises InvalidRequestError or UnsupportedError."""
        with self._lock:
            self._matcher(structure)

    def open(self, structure: Structure) -> LlGrammar:
        """For one answer. Raises as `check`."""
        with self._lock:
            return LlGrammar(self._matcher(structure).deep_copy(), self._vocab_size)

    def _matcher(self, structure: Structure) -> Matcher:
        """One at its start, to be copied."""
        if structure not in self._kept or self._kept[structure].is_error():  # its memory was lost
            self._kept[structure] = self._read_new(structure)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(structure)
        return self._kept[structure]

    def _read_new(self, structure: Structure) -> Matcher:
        if len(structure.text) > LONGEST:
            raise _refusal(structure, f"has more than {LONGEST} characters; shorten it")
        matcher = self._opened(structure).read(*_source(structure))
        matcher.compute_bitmask()  # what it learns by this, its copies know
        if matcher.is_error():
            why = _first_line(matcher.get_error())
            if "coerce_one_of" in why:
                why = "of 'oneOf' more than one may hold; use 'anyOf'"
            raise _refusal(structure, f"cannot be held to: {why}")
        return matcher

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
    """Of one answer."""

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
        """Whether a limit was met."""
        return self._matcher.is_error()

    def allowed(self) -> array[int]:
        """The mask of the next token; of end tokens alone once it has failed."""
        if self._allowed is None:
            mask = self._matcher.compute_bitmask()
            self._allowed = array("i", mask[: self._mask_bytes])  # it has a bit more
        return self._allowed

    def accept(self, token: int) -> None:
        """A token was said."""
        self._matcher.consume_token(token)
        self._allowed = None

    def lookahead(self, tokens: Sequence[int]) -> Sequence[array[int]]:
        """The masks behind these tokens, as a copy of the matcher says."""
        ahead, masks = LlGrammar(self._matcher.deep_copy(), 0), list[array[int]]()
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
        """As the tokenizer writes the text that must follow."""
        return self._matcher.compute_ff_tokens()


def _source(structure: Structure) -> tuple[Tag, str]:
    """As llguidance reads it."""
    text = structure.text
    if structure.kind == "json_schema":
        schema = _parsed(structure)
        check_schema(schema, structure.field)
        if isinstance(schema, bool):
            text = "{}" if schema else '{"not": {}}'  # which is refused: nothing could be said
        return "json_schema", text
    if structure.kind == "regex":
        return "regex", text
    if structure.kind == "choice":
        choices = (json.dumps(choice, ensure_ascii=False) for choice in _parsed(structure))
        return "lark", f"start: {' | '.join(choices)}"
    return "lark", _lark(structure)


def _lark(structure: Structure) -> str:
    """A grammar as Lark writes it."""
    from llguidance.gbnf_to_lark import any_to_lark  # of llguidance all that a tab has

    try:
        return any_to_lark(structure.text)
    except Exception as error:  # it raises whatever its parser met
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
    """What an error of llguidance says, without the picture below it."""
    return re.sub(r"\s+", " ", text)[:300].strip()
