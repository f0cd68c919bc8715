"""The port of `mlcc.engine.grammar` over llguidance, which reads schemas, expressions and grammars.

Its masks come from an Earley parser over derivatives of regular expressions, of which only what an
answer needs is made (https://github.com/guidance-ai/llguidance). What it reads is a stranger's: all
of it has bounds in size, memory and time, and goes on in a thread that nobody else waits for.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from mlcc.engine.adjust_tables import MASK_BITS
from mlcc.engine.grammar import Grammars, Kind, Structure
from mlcc.engine.tables import WORD
from mlcc.errors import InvalidRequestError, UnsupportedError
from mlcc.extras import advice, is_here
from mlcc.model.json_schema import check_schema

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

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


class NoGrammars:
    """Where llguidance is not installed."""

    def check(self, structure: Structure) -> None:
        """Raises UnsupportedError, which says what to type."""
        raise UnsupportedError(
            f"'{structure.field}' needs {advice('llguidance', 'structured')}",
            param=structure.field or None,
            code="unsupported_parameter",
        )

    def open(self, structure: Structure) -> LlGrammar:
        """The same."""
        self.check(structure)
        raise AssertionError


def open_grammars(tokenizer: Path, vocab_size: int, eos_ids: Collection[int]) -> Grammars:
    """For a model whose tokenizer.json is at `tokenizer`. Reads nothing before it is asked."""
    if not is_here("llguidance"):
        return NoGrammars()
    return LlGrammars(lambda: tokenizer.read_text(encoding="utf-8"), vocab_size, eos_ids)


class LlGrammars:
    """Grammars over one tokenizer, those of late kept."""

    def __init__(
        self, tokenizer: Callable[[], str], vocab_size: int, eos_ids: Collection[int]
    ) -> None:
        """tokenizer: gives the text of its tokenizer.json."""
        self._read, self._vocab_size, self._eos_ids = tokenizer, vocab_size, sorted(eos_ids)
        self._tokenizer: LLTokenizer | None = None
        self._kept: OrderedDict[Structure, LLMatcher] = OrderedDict()
        self._lock = Lock()

    def check(self, structure: Structure) -> None:
        """Read it. Raises InvalidRequestError or UnsupportedError."""
        with self._lock:
            self._matcher(structure)

    def open(self, structure: Structure) -> LlGrammar:
        """For one answer. Raises as `check`."""
        with self._lock:
            return LlGrammar(self._matcher(structure).deep_copy(), self._vocab_size)

    def _matcher(self, structure: Structure) -> LLMatcher:
        """One at its start, to be copied."""
        if structure not in self._kept:
            self._kept[structure] = self._read_new(structure)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(structure)
        return self._kept[structure]

    def _read_new(self, structure: Structure) -> LLMatcher:
        from llguidance import LLMatcher, LLParserLimits

        if len(structure.text) > LONGEST:
            raise _refusal(structure, f"has more than {LONGEST} characters; shorten it")
        limits = LLParserLimits(
            max_lexer_states=LEXER_STATES, max_grammar_size=GRAMMAR_SYMBOLS, verbose_errors=False
        )
        grammar, tokenizer = _source(structure), self._opened(structure)
        matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=limits)
        matcher.compute_bitmask()  # what it learns by this, its copies know
        if matcher.is_error():
            why = _first_line(matcher.get_error())
            if "coerce_one_of" in why:
                why = "of 'oneOf' more than one may hold; use 'anyOf'"
            raise _refusal(structure, f"cannot be held to: {why}")
        return matcher

    def _opened(self, structure: Structure) -> LLTokenizer:
        if self._tokenizer is None:
            from llguidance import LLTokenizer

            try:
                self._tokenizer = LLTokenizer(
                    self._read(), n_vocab=self._vocab_size, eos_token=self._eos_ids or None
                )
            except (OSError, ValueError) as error:
                raise UnsupportedError(
                    f"'{structure.field}' is not built for this model's tokenizer: "
                    f"{_first_line(str(error))}; leave it out",
                    param=structure.field or None,
                    code="unsupported_parameter",
                ) from None
        return self._tokenizer


class LlGrammar:
    """Of one answer."""

    def __init__(self, matcher: LLMatcher, vocab_size: int) -> None:
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

    def forced(self) -> Sequence[int]:
        """As the tokenizer writes the text that must follow."""
        return self._matcher.compute_ff_tokens()


def _source(structure: Structure) -> str:
    """As llguidance reads it."""
    from llguidance import LLMatcher, grammar_from

    text = structure.text
    if structure.kind == "json_schema":
        schema = _parsed(structure)
        check_schema(schema, structure.field)
        if isinstance(schema, bool):
            text = "{}" if schema else '{"not": {}}'  # which is refused: nothing could be said
        overrides = {"whitespace_pattern": WHITESPACE, "lenient": False, "coerce_one_of": False}
        return LLMatcher.grammar_from_json_schema(text, overrides=overrides)  # type: ignore[arg-type]
    if structure.kind == "regex":
        return LLMatcher.grammar_from_regex(text)
    if structure.kind == "choice":
        choices = (json.dumps(choice, ensure_ascii=False) for choice in _parsed(structure))
        return LLMatcher.grammar_from_lark(f"start: {' | '.join(choices)}")
    try:
        return grammar_from("grammar", text)
    except (ValueError, IndexError, RecursionError) as error:
        raise _refusal(structure, f"cannot be read: {_first_line(str(error))}") from None


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
