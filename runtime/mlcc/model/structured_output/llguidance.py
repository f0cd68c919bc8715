"""A `Reader` over llguidance's Python package, and refusals if it is not installed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mlcc.api.schema.json_grammar import SETTINGS
from mlcc.engine.sampling.grammar import Grammar, Grammars, Structure
from mlcc.errors import UnsupportedError
from mlcc.model.structured_output.grammars import (
    GRAMMAR_SYMBOLS,
    LEXER_STATES,
    LlGrammars,
    Matcher,
    Tag,
)
from mlcc.util.extras import advice, is_here

if TYPE_CHECKING:
    from llguidance import LLTokenizer


class NoGrammars:
    """Refuses all structures: llguidance is not installed."""

    def check(self, structure: Structure) -> None:
        """Raises UnsupportedError with the command that installs it."""
        raise UnsupportedError(
            f"'{structure.field}' needs {advice('llguidance', 'structured')}",
            param=structure.field or None,
            code="unsupported_parameter",
        )

    def open(self, structure: Structure) -> Grammar:
        """Raises UnsupportedError with the command that installs it."""
        self.check(structure)
        raise AssertionError


class NativeReader:
    """A `Reader` with one tokenizer."""

    def __init__(self, tokenizer: str, vocab_size: int, eos_ids: Collection[int]) -> None:
        """tokenizer: text of tokenizer.json. Raises ValueError if llguidance does not support
        it."""
        from llguidance import LLTokenizer

        self._tokenizer: LLTokenizer = LLTokenizer(
            tokenizer, n_vocab=vocab_size, eos_token=sorted(eos_ids) or None
        )

    def read(self, tag: Tag, text: str) -> Matcher:
        """See `Reader.read`."""
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

    def text_of(self, token: int) -> bytes:
        """See `Reader.text_of`."""
        return self._tokenizer.decode_bytes([token])

    def quote_tokens(self) -> Mapping[int, bytes]:
        """See `Reader.quote_tokens`."""
        texts = map(self.text_of, range(self._tokenizer.vocab_size))
        return {token: text for token, text in enumerate(texts) if b'"' in text}


def native_grammars(
    tokenizer: Callable[[], str], vocab_size: int, eos_ids: Collection[int]
) -> LlGrammars:
    """Grammars; tokenizer: returns the text of tokenizer.json, called for the first grammar."""
    return LlGrammars(lambda: NativeReader(tokenizer(), vocab_size, eos_ids), vocab_size)


def open_grammars(tokenizer: Path, vocab_size: int, eos_ids: Collection[int]) -> Grammars:
    """Grammars for a model with its tokenizer.json at `tokenizer`, which is read on first use."""
    if not is_here("llguidance"):
        return NoGrammars()
    return native_grammars(lambda: tokenizer.read_text(encoding="utf-8"), vocab_size, eos_ids)
