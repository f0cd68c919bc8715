"""An opened model: its text side, which needs no device, and the executor that runs it.

The seam between artifacts and drivers: the server's HTTP process opens only the text side, the
engine's process both. Neither how an artifact is read (`text_side.py`, `mlcc.loader`) nor a driver
(`driver.py`).
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any

from mlcc.api.chat_template.template import ChatTemplate, ChatText, without_double_bos
from mlcc.api.openai.infill import Infill, family_of
from mlcc.api.openai.model_info import About
from mlcc.api.openai.sampling_params import Wishes
from mlcc.api.parsers.output_format import REASONING_PARSERS, TOOL_PARSERS, Dialect, dialect_of
from mlcc.artifact.schema import AdaptersInfo, EncoderInfo
from mlcc.engine.admission import too_long
from mlcc.engine.batch.batch import Capacity
from mlcc.engine.batch.executor import Executor
from mlcc.engine.encoder_engine import EncoderEngine
from mlcc.engine.engine import Engine
from mlcc.engine.migration import Identity
from mlcc.engine.sampling.grammar import Grammars
from mlcc.engine.spec_decode.draft_model import DraftModel
from mlcc.errors import InvalidRequestError, UnsupportedError
from mlcc.model.speculation import Speculation
from mlcc.model.tokenizer.special_tokens import ending_of, grammar_marks, hidden_marks
from mlcc.model.tokenizer.tokenizer import TextTokenizer
from mlcc.util.fast_dataclass import fast_dataclass


@fast_dataclass(frozen=True)
class ModelText:
    """What turns conversations into token ids and ids into text. Thread-safe."""

    name: str
    tokenizer: TextTokenizer
    chat_template: ChatTemplate
    eos_ids: frozenset[int]
    sampling: Wishes = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What the user should know, one line each."""
    grammars: Grammars | None = None
    """Holds answers to what a request says; None = such requests are refused."""
    about: About = field(default_factory=About)
    tool_template: ChatTemplate | None = None
    """Instead of `chat_template` where there are tools, if the model brings two."""
    tool_parser: str | None = None
    """The way in which it writes calls, by name; None = as its template shows."""
    reasoning_parser: str | None = None
    """The same of reasoning; "none" = it is left in the text."""
    encoder: EncoderInfo | None = None
    """What its rows are; None = it writes."""

    @property
    def dialect(self) -> Dialect:
        """How it writes calls of tools and reasoning."""
        return self._dialect.named(self.tool_parser, self.reasoning_parser)

    @cached_property
    def _dialect(self) -> Dialect:
        tools = self.tool_template.source if self.tool_template else None
        return dialect_of(self.chat_template.source, tools)

    @cached_property
    def shown(self) -> tuple[tuple[int, str], ...]:
        """Control tokens that its dialect must see in an answer, and what they are seen as."""
        return hidden_marks(self.tokenizer, self.dialect.control)

    @cached_property
    def marks(self) -> dict[str, int]:
        """Of the marks of its dialect, what grammars take for control tokens."""
        return grammar_marks(self.tokenizer, self.dialect.control, self.shown)

    def ending(self, prompt: Sequence[int]) -> str:
        """How a prompt ends, with the control tokens of its dialect."""
        return ending_of(self.tokenizer, prompt, dict(self.shown))

    @cached_property
    def infill(self) -> Infill | None:
        """How it is asked for what lies between two texts; None = it was not trained for it."""
        return family_of(self.token)

    def token(self, text: str) -> int | None:
        """The id of a text that is one token."""
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        return ids[0] if len(ids) == 1 else None

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        context: int | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> array[int]:
        """The prompt of a conversation. Raises what `ChatTemplate.render` raises, and
        InvalidRequestError without encoding what is surely longer than a context of tokens.

        Control tokens are those that the template writes. In a message they are text, unless the
        model was opened `with_special`. variables: of the template, `tools` among them.
        """
        chat, template = self.render(messages, variables or {})
        self._check_length(chat.text, context)
        first, *rest = chat.pieces
        ids = self.tokenizer.encode(first, add_special_tokens=chat.add_special_tokens)
        if rest:
            # Some tokenizers put a space before the first word of a text, not after a control token
            before = template.control_tokens[0]
            start = self.tokenizer.encode(before, add_special_tokens=False)
            for piece in rest:
                more = self.tokenizer.encode(before + piece, add_special_tokens=False)
                ids += more[len(start) :]
        return ids

    def render(
        self, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any]
    ) -> tuple[ChatText, ChatTemplate]:
        """The text of a conversation, and the template that wrote it."""
        template = self.chat_template
        if variables.get("tools") and self.tool_template is not None:
            template = self.tool_template
        return template.render(messages, **variables), template

    def encode_prompt(
        self, text: str, context: int | None = None, add_special: bool = True
    ) -> array[int]:
        """A raw prompt, with the start token the model wants, once, or without it. Control tokens
        in it count. Raises InvalidRequestError without encoding what is surely longer than a
        context."""
        self._check_length(text, context)
        if not add_special:
            return self.tokenizer.encode(text, add_special_tokens=False)
        bos = self.chat_template.special_tokens.get("bos_token")
        text = without_double_bos(text, bos, self._adds_bos(bos))
        return self.tokenizer.encode(text, add_special_tokens=True)

    def with_special(self) -> ModelText:
        """The same, but control tokens count in messages, too: for those who write them there."""
        tools = self.tool_template and replace(self.tool_template, control_tokens=())
        plain = replace(self.chat_template, control_tokens=())
        return replace(self, chat_template=plain, tool_template=tools)

    def with_parsers(self, tools: str | None, reasoning: str | None) -> ModelText:
        """The same, read by other parsers, by their names; None = as its template shows. Raises
        InvalidRequestError for names that there are not."""
        for option, name, names in (
            ("--tool-parser", tools, TOOL_PARSERS),
            ("--reasoning-parser", reasoning, REASONING_PARSERS),
        ):
            if name is not None and name not in names:
                raise InvalidRequestError(
                    f"{option} is {name[:40]!a}; it must be one of {', '.join(names)}"
                )
        return replace(self, tool_parser=tools, reasoning_parser=reasoning)

    def new_engine(
        self,
        capacity: Capacity,
        prefix_cache: bool = True,
        speculation: Speculation | None = None,
        draft: Capacity | None = None,
        defer_text: bool = False,
    ) -> Engine:
        """A fresh engine for an executor of this model. draft: what the executor of its draft model
        holds, if there is one; defer_text: as `Engine` has it.

        Requests without a seed get one from the system's randomness, not the same in every process.
        Raises UnsupportedError for speculation that these executors cannot do.
        """
        seed = int.from_bytes(os.urandom(8), "little")
        guessing = None if draft is None else DraftModel(draft, capacity)
        return Engine(
            capacity,
            self.eos_ids,
            self.tokenizer,
            seed=seed,
            prefix_cache=prefix_cache,
            defer_text=defer_text,
            speculator=None if speculation is None else speculation.speculator(capacity, guessing),
            draft=guessing,
        )

    def _check_length(self, text: str, context: int | None) -> None:
        if context is None or len(text) <= context:
            return  # `longest` looks at the whole vocabulary: 50 ms for 128,000 tokens
        longest = self.tokenizer.longest
        if longest is not None and len(text) > context * longest:
            raise too_long(f"at least {-(-len(text) // longest)} tokens", context)

    def _adds_bos(self, bos: str | None) -> bool:
        if not bos:
            return False
        first = self.tokenizer.encode("", add_special_tokens=True)[:1]
        return bool(first) and first == self.tokenizer.encode(bos, add_special_tokens=False)


@fast_dataclass(frozen=True)
class Model:
    """A model that is ready to run. `close` gives its memory back."""

    text: ModelText
    executor: Executor
    prefix_cache: bool = True
    """Whether requests that begin alike share what was computed."""
    speculation: Speculation | None = None
    """How its answers are guessed ahead; None = they are not."""
    draft: Executor | None = None
    """Of the model that guesses, if one does."""
    adapters: AdaptersInfo | None = None
    """Room for adapters on the device; None = it was compiled without."""
    identity: Identity | None = None
    """Whose pages its executor has, for `model.transfer`; None = they go nowhere."""

    @property
    def encoder(self) -> EncoderInfo | None:
        """What its rows are; None = it writes."""
        return self.text.encoder

    @property
    def depth(self) -> int:
        """Steps to keep in flight."""
        return self.executor.depth

    @property
    def capacity(self) -> Capacity:
        return self.executor.capacity

    def with_special(self) -> Model:
        """The same, with a text side `with_special`."""
        return replace(self, text=self.text.with_special())

    def with_parsers(self, tools: str | None, reasoning: str | None) -> Model:
        """The same, with a text side `with_parsers`."""
        return replace(self, text=self.text.with_parsers(tools, reasoning))

    def new_engine(self, defer_text: bool = False) -> Engine:
        """A fresh engine for this model. One at a time: they would share the pages. Raises
        UnsupportedError for an encoder, which writes nothing."""
        if self.encoder is not None:
            raise UnsupportedError(
                f"'{self.text.name}' is an encoder and writes nothing; ask it for embeddings "
                "(`mlcc embed`, `mlcc serve`, engine.embeddings.create), or use a chat model here"
            )
        draft = None if self.draft is None else self.draft.capacity
        return self.text.new_engine(
            self.capacity, self.prefix_cache, self.speculation, draft, defer_text
        )

    def new_encoder(self) -> EncoderEngine:
        """The same of an encoder. Raises UnsupportedError for a model that writes."""
        if self.encoder is None:
            raise UnsupportedError(f"'{self.text.name}' writes, and is no encoder")
        return EncoderEngine(self.capacity, self.encoder.pooling, self.encoder.width)

    def close(self) -> None:
        self.executor.close()
        if self.draft is not None:
            self.draft.close()
