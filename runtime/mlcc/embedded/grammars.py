"""Grammar backend of a tab: llguidance as WebAssembly in the page's memory, behind
`mlcc.model.structured_output.grammars`.

JavaScript's part is `web/src/worker/grammar.ts`. The module is fetched, asynchronously, for the
first request with a grammar; compiling grammars and computing masks are synchronous calls. An
expensive grammar only costs the tab that asked for it; the module's memory is bounded.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from mlcc.api.schema.json_grammar import SETTINGS
from mlcc.embedded.bridge import to_bytes, typed_array
from mlcc.engine.batch.adjust_tables import MASK_BITS
from mlcc.engine.batch.tables import WORD
from mlcc.model.structured_output.grammars import (
    GRAMMAR_SYMBOLS,
    LEXER_STATES,
    LlGrammars,
    Matcher,
    Tag,
)


def tab_grammars(js: Any, vocab_size: int, eos_ids: Collection[int]) -> LlGrammars:
    """Create the grammar backend of one model on JavaScript's functions; call it after `js.ready()`
    has succeeded."""
    return LlGrammars(lambda: TabReader(js, vocab_size, eos_ids), vocab_size)


class TabReader:
    """A `Reader` in JavaScript."""

    def __init__(self, js: Any, vocab_size: int, eos_ids: Collection[int]) -> None:
        """Raises ValueError if llguidance does not support the model's tokenizer."""
        ends = typed_array()(array("i", sorted(eos_ids)))
        if why := str(js.open(vocab_size, ends, LEXER_STATES, GRAMMAR_SYMBOLS)):
            raise ValueError(why)
        self._js, self._ends = js, _mask(vocab_size, eos_ids)

    def read(self, tag: Tag, text: str) -> Matcher:
        """Compile a grammar; see `Reader.read`."""
        return TabMatcher(self._js.read(tag, text, json.dumps(SETTINGS)), self._ends)

    def text_of(self, token: int) -> bytes:
        """See `Reader.text_of`."""
        return to_bytes(self._js.text(token))

    def quote_tokens(self) -> Mapping[int, bytes]:
        """See `Reader.quote_tokens`."""
        tokens = array("i", to_bytes(self._js.quoteTokens()))
        return {token: self.text_of(token) for token in tokens}


class TabMatcher:
    """A `Matcher` in the page's memory, freed with the last reference."""

    def __init__(self, js: Any, ends: bytes) -> None:
        """`ends`: mask of the end-of-answer tokens, used if the module's memory is lost."""
        self._js, self._ends = js, ends

    def __del__(self) -> None:
        self._js.discard()

    def deep_copy(self) -> TabMatcher:
        return TabMatcher(self._js.copy(), self._ends)

    def compute_bitmask(self) -> bytes:
        return to_bytes(self._js.allowed()) or self._ends

    def consume_token(self, token: int, /) -> None:
        self._js.accept(token)

    def compute_ff_tokens(self) -> Sequence[int]:
        return array("i", to_bytes(self._js.forced()))

    def is_stopped(self) -> bool:
        return bool(self._js.stopped())

    def is_error(self) -> bool:
        return bool(self._js.failed())

    def get_error(self) -> str:
        return str(self._js.why())


def _mask(vocab_size: int, tokens: Collection[int]) -> bytes:
    """Return a bit mask of tokens, in whole words."""
    bits = sum(1 << token for token in set(tokens))
    return bits.to_bytes(WORD * -(-vocab_size // MASK_BITS), "little")
