"""llguidance's own package for Python behind `mlcc.model.structured_output.backend`; refusals
where it is not."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

from mlcc.engine.sampling.grammar import Grammars, Structure
from mlcc.errors import UnsupportedError
from mlcc.model.structured_output.backend import (
    GRAMMAR_SYMBOLS,
    LEXER_STATES,
    SETTINGS,
    LlGrammar,
    LlGrammars,
    Matcher,
    Tag,
)
from mlcc.util.extras import advice, is_here

if TYPE_CHECKING:
    from llguidance import LLTokenizer


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


class NativeReader:
    """A `Reader` of one tokenizer."""

    def __init__(self, tokenizer: str, vocab_size: int, eos_ids: Collection[int]) -> None:
        """tokenizer: the text of its tokenizer.json. Raises ValueError if that is not known."""
        from llguidance import LLTokenizer

        self._tokenizer: LLTokenizer = LLTokenizer(
            tokenizer, n_vocab=vocab_size, eos_token=sorted(eos_ids) or None
        )

    def read(self, tag: Tag, text: str) -> Matcher:
        """As `Reader` has it."""
        from llguidance import LLMatcher, LLParserLimits

        limits = LLParserLimits(
            max_lexer_states=LEXER_STATES, max_grammar_size=GRAMMAR_SYMBOLS, verbose_errors=False
        )
        if tag == "json_schema":
            text = LLMatcher.grammar_from_json_schema(text, overrides=SETTINGS)  # type: ignore[arg-type]
        elif tag == "regex":
            text = LLMatcher.grammar_from_regex(text)
        else:
            text = LLMatcher.grammar_from_lark(text)
        return LLMatcher(self._tokenizer, text, log_level=0, limits=limits)


def native_grammars(
    tokenizer: Callable[[], str], vocab_size: int, eos_ids: Collection[int]
) -> LlGrammars:
    """tokenizer: gives the text of its tokenizer.json, once the first grammar is read."""
    return LlGrammars(lambda: NativeReader(tokenizer(), vocab_size, eos_ids), vocab_size)


def open_grammars(tokenizer: Path, vocab_size: int, eos_ids: Collection[int]) -> Grammars:
    """For a model whose tokenizer.json is at `tokenizer`. Reads nothing before it is asked."""
    if not is_here("llguidance"):
        return NoGrammars()
    return native_grammars(lambda: tokenizer.read_text(encoding="utf-8"), vocab_size, eos_ids)
