"""A loaded model: `ModelText` (tokenizer, chat templates, parsers) and `Model` (with an executor).

The HTTP process of a server loads only the `ModelText`, the engine process both. `text.py` and
`mlcc.loader` read artifacts, `driver.py` is the engine loop.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from mlcc.api.chat_template.media import MediaTexts
from mlcc.api.chat_template.template import ChatTemplate, ChatText, without_double_bos
from mlcc.api.openai.infill import Infill, family_of
from mlcc.api.openai.models import ModelInfo
from mlcc.api.openai.requests import SamplingOptions
from mlcc.api.parsers.output_format import (
    REASONING_PARSERS,
    TOOL_PARSERS,
    OutputFormat,
    new_content_parser,
    output_format_of,
)
from mlcc.artifact.schema import (
    AdaptersInfo,
    AudioInfo,
    AudioInputInfo,
    EncoderInfo,
    VisionInfo,
)
from mlcc.engine.batch.batch import Capacity
from mlcc.engine.request import too_long
from mlcc.engine.sampling.grammar import Grammars
from mlcc.errors import InvalidRequestError, UnsupportedError
from mlcc.model.tokenizer.special_tokens import ending_of, grammar_marks, hidden_marks
from mlcc.model.tokenizer.tokenizer import TextTokenizer
from mlcc.multimodal.audio.clips import AudioProcessor
from mlcc.multimodal.audio.encoded import EncodedAudio, is_sound
from mlcc.multimodal.image import decode
from mlcc.multimodal.placeholders import PromptMedia
from mlcc.multimodal.processors.processor import Processor
from mlcc.multimodal.processors.registry import processor_of
from mlcc.multimodal.prompt import (
    Decode,
    PreparedImage,
    PreparedSound,
    Prompt,
    detailed,
    least_tokens,
    prepare,
    prepare_sound,
    with_rows,
)
from mlcc.util.fast_dataclass import fast_dataclass

if TYPE_CHECKING:  # a process that only reads prompts makes none of these
    from mlcc.engine.batch.executor import Executor
    from mlcc.engine.encoder_engine import EncoderEngine
    from mlcc.engine.engine import Engine
    from mlcc.engine.migration import Identity
    from mlcc.model.audio_tower import AudioTower, ClipTower, Towers
    from mlcc.model.speculation import Speculation
    from mlcc.model.vision_tower import VisionTower

Tower: TypeAlias = "VisionTower | AudioTower | ClipTower | Towers"


@fast_dataclass(frozen=True)
class ModelText:
    """Turns conversations into token ids and ids into text; needs no device. Thread-safe."""

    name: str
    tokenizer: TextTokenizer
    chat_template: ChatTemplate
    eos_ids: frozenset[int]
    sampling: SamplingOptions = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """Messages for the user, one line each."""
    grammars: Grammars | None = None
    """Compiles grammars for structured output; None = such requests are refused."""
    info: ModelInfo = field(default_factory=ModelInfo)
    tool_template: ChatTemplate | None = None
    """Replaces `chat_template` for requests with tools, if the model has two templates."""
    tool_parser: str | None = None
    """Tool parser by name; None = detected from the chat template."""
    reasoning_parser: str | None = None
    """Reasoning parser by name; None = detected, "none" = reasoning stays in the text."""
    encoder: EncoderInfo | None = None
    """Pooling and prompts of an encoder; None = a generative model."""
    vision: VisionInfo | None = None
    """How images become rows of the prompt; None = the model reads text only."""
    decode_image: Decode = decode
    """Decodes the images of prompts: by Pillow, or as the program around mlcc does."""
    audio: AudioInfo | None = None
    """How sound becomes rows, and the tokens of transcripts; None = the model transcribes
    nothing."""
    audio_input: AudioInputInfo | None = None
    """How sound becomes rows of the prompt; None = prompts have no sound."""

    @property
    def output_format(self) -> OutputFormat:
        """The output format of tool calls and reasoning."""
        return self._output_format.named(self.tool_parser, self.reasoning_parser)

    @cached_property
    def _output_format(self) -> OutputFormat:
        tools = self.tool_template.source if self.tool_template else None
        return output_format_of(self.chat_template.source, tools)

    @cached_property
    def shown(self) -> tuple[tuple[int, str], ...]:
        """Control tokens that the output parsers need in the answer, each with its text."""
        return hidden_marks(self.tokenizer, self.output_format.control)

    @cached_property
    def marks(self) -> dict[str, int]:
        """Marks of the output format that grammars treat as control tokens, with their ids."""
        return grammar_marks(self.tokenizer, self.output_format.control, self.shown)

    def ending(self, prompt: Sequence[int]) -> str:
        """The end of a prompt as text, with the control tokens of the output format."""
        return ending_of(self.tokenizer, prompt, dict(self.shown))

    @cached_property
    def infill(self) -> Infill | None:
        """The fill-in-the-middle format; None = the model was not trained for infill."""
        return family_of(self.token)

    def token(self, text: str) -> int | None:
        """The id of a text that is exactly one token, else None."""
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        return ids[0] if len(ids) == 1 else None

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        context: int | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> array[int]:
        """The prompt of a conversation. Raises what `ChatTemplate.render` raises, and
        InvalidRequestError for a text that cannot fit `context` tokens, without encoding it.

        Only the template writes control tokens: in a message they are plain text, unless the model
        was opened `with_special`. variables: template variables, including `tools`.
        """
        return self._encode(*self.render(messages, variables or {}), context)

    def encode_chat_with_media(
        self,
        messages: Sequence[Mapping[str, Any]],
        media: PromptMedia,
        context: int | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> Prompt:
        """The prompt of a conversation with images, whose messages have placeholders for them.
        Raises the errors of `encode_chat`, and InvalidRequestError for an image that cannot be
        read."""
        prepared = self._prepared(media, context)
        return self.chat_of_prepared(messages, media, prepared, context, variables)

    def chat_of_prepared(
        self,
        messages: Sequence[Mapping[str, Any]],
        media: PromptMedia,
        prepared: Sequence[PreparedImage | PreparedSound],
        context: int | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> Prompt:
        """The prompt of a conversation whose images were prepared elsewhere, as a tab's are."""
        texts = MediaTexts(media, [image.text for image in prepared])
        chat, template = self.render(messages, variables or {}, texts)
        return self._with_rows(self._encode(chat, template, context), prepared, chat.media)

    def encode_prompt_with_media(
        self, text: str, media: PromptMedia, context: int | None = None
    ) -> Prompt:
        """The prompt of a raw text with placeholders of images; as `encode_prompt`."""
        return self.prompt_of_prepared(text, media, self._prepared(media, context), context)

    def prompt_of_prepared(
        self,
        text: str,
        media: PromptMedia,
        prepared: Sequence[PreparedImage | PreparedSound],
        context: int | None = None,
    ) -> Prompt:
        """The prompt of a raw text whose images were prepared elsewhere."""
        parts = media.split(text)
        whole = (prepared[p].text if isinstance(p, int) else p for p in parts)
        numbers = [part for part in parts if isinstance(part, int)]
        return self._with_rows(self.encode_prompt("".join(whole), context), prepared, numbers)

    @cached_property
    def processor(self) -> Processor | None:
        """Makes tiles of images; None = the model reads text only. Raises ArtifactError."""
        return None if self.vision is None else processor_of(self.vision)

    def processor_for(self, media: PromptMedia, context: int | None) -> Processor:
        """The processor, before anything is decoded. Raises UnsupportedError for a model that
        reads text only, and InvalidRequestError for images that cannot fit the context."""
        if self.processor is None:
            raise UnsupportedError(f"'{self.name}' reads no images; leave them out")
        shown = media.images
        if context is not None and (least := least_tokens(self.processor, shown)) > context:
            raise too_long(f"at least {least} tokens of images", context)
        return self.processor

    @cached_property
    def audio_processor(self) -> AudioProcessor | None:
        """Makes clips of sound; None = prompts have no sound. Raises ArtifactError."""
        return None if self.audio_input is None else AudioProcessor(self.audio_input)

    @property
    def hears(self) -> bool:
        """Whether prompts may have sound."""
        return self.audio_input is not None

    def _prepared(
        self, media: PromptMedia, context: int | None
    ) -> list[PreparedImage | PreparedSound]:
        """Images and sounds, decoded one at a time, unless they cannot fit the context."""
        processor = self.processor_for(media, context) if media.images else None
        shown = iter(detailed(processor, media.images) if processor is not None else ())
        made: list[PreparedImage | PreparedSound] = []
        for given in media.items:
            if not isinstance(given, EncodedAudio):
                assert processor is not None
                made.append(prepare(processor, next(shown), self.decode_image))
            elif self.audio_processor is not None:
                made.append(prepare_sound(self.audio_processor, given))
            else:
                raise UnsupportedError(f"'{self.name}' hears nothing; leave sound out")
        return made

    def _with_rows(
        self,
        ids: array[int],
        prepared: Sequence[PreparedImage | PreparedSound],
        numbers: Sequence[int],
    ) -> Prompt:
        tiles = [tile for number in numbers for tile in prepared[number].tiles]
        tokens = [] if self.vision is None else [self.vision.image_token_id]
        tokens += [] if self.audio_input is None else [self.audio_input.audio_token_id]
        return Prompt(*with_rows(ids, tokens, tiles))

    def _encode(self, chat: ChatText, template: ChatTemplate, context: int | None) -> array[int]:
        self._check_length(chat.text, context)
        first, *rest = chat.pieces
        ids = self.tokenizer.encode(first, add_special_tokens=chat.add_special_tokens)
        if rest:
            # Some tokenizers put a space before the first word of a text, not after a control token
            before = (*template.control_tokens, *template.image_marks, *template.audio_marks)[0]
            start = self.tokenizer.encode(before, add_special_tokens=False)
            for piece in rest:
                more = self.tokenizer.encode(before + piece, add_special_tokens=False)
                ids += more[len(start) :]
        return ids

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        variables: Mapping[str, Any],
        media: MediaTexts | None = None,
    ) -> tuple[ChatText, ChatTemplate]:
        """The text of a conversation, and the template that rendered it. media: the texts of the
        images and sounds in it."""
        template = self.chat_template
        if variables.get("tools") and self.tool_template is not None:
            template = self.tool_template
        if media is None:
            return template.render(messages, **variables), template
        return template.render(messages, media, **variables), template

    def written(
        self,
        messages: Sequence[Mapping[str, Any]],
        variables: Mapping[str, Any],
        media: PromptMedia | None = None,
    ) -> str:
        """The text of a conversation, with the template's marks of images as they are."""
        texts = None
        if media is not None:
            seen, heard = self.chat_template.image_marks, self.chat_template.audio_marks
            marks = [(heard if is_sound(each) else seen)[0] for each in media.items]
            texts = MediaTexts(media, marks)
        return self.render(messages, variables, texts)[0].text

    def encode_prompt(
        self, text: str, context: int | None = None, add_special: bool = True
    ) -> array[int]:
        """The ids of a raw prompt, with or without one BOS token. Control tokens in the text are
        parsed. Raises InvalidRequestError for a text that cannot fit `context` tokens, without
        encoding it."""
        self._check_length(text, context)
        if not add_special:
            return self.tokenizer.encode(text, add_special_tokens=False)
        bos = self.chat_template.special_tokens.get("bos_token")
        text = without_double_bos(text, bos, self._adds_bos(bos))
        return self.tokenizer.encode(text, add_special_tokens=True)

    def with_special(self) -> ModelText:
        """A copy that also parses control tokens in messages."""
        tools = self.tool_template and replace(self.tool_template, control_tokens=())
        plain = replace(self.chat_template, control_tokens=())
        return replace(self, chat_template=plain, tool_template=tools)

    def without_images(self) -> ModelText:
        """A copy that refuses images, as a model without a tower does: for a host that decodes
        none. It has a note about it."""
        if self.vision is None:
            return self
        note = f"'{self.name}' sees, but nothing here decodes images: they are refused"
        info = replace(self.info, image_size=None)
        return replace(self, vision=None, info=info, notes=(*self.notes, note))

    def without_sound(self) -> ModelText:
        """A copy that refuses sound, for a host without an audio tower. It has a note about it."""
        if self.audio_input is None:
            return self
        note = f"'{self.name}' hears, but nothing here computes sound: it is refused"
        info = replace(self.info, hears=False)
        return replace(self, audio_input=None, info=info, notes=(*self.notes, note))

    def with_parsers(self, tools: str | None, reasoning: str | None) -> ModelText:
        """A copy with these parsers; None = detected from the chat template. Raises
        InvalidRequestError for unknown names."""
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
        """A new engine for an executor of this model. draft: the capacity of the draft model's
        executor, if there is one; defer_text: as in `Engine`.

        Requests without a seed get a random one, different in every process. Raises
        UnsupportedError for speculation that these executors cannot do.
        """
        from mlcc.engine.engine import Engine

        seed = int.from_bytes(os.urandom(8), "little")
        drafter = None if speculation is None else speculation.drafter(capacity, draft)
        return Engine(
            capacity,
            self.eos_ids,
            self.tokenizer,
            seed=seed,
            prefix_cache=prefix_cache,
            defer_text=defer_text,
            speculator=None if speculation is None else speculation.speculator(capacity, drafter),
            draft=drafter,
            new_parser=new_content_parser,
        )

    def _check_length(self, text: str, context: int | None) -> None:
        if context is None or len(text) <= context:
            return  # `longest` scans the whole vocabulary: 50 ms for 128,000 tokens
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
    """A `ModelText` with the executor that runs the model. `close` frees its memory."""

    text: ModelText
    executor: Executor
    prefix_cache: bool = True
    """Whether requests with a common prefix share its KV pages."""
    speculation: Speculation | None = None
    """Options of speculative decoding; None = off."""
    draft: Executor | None = None
    """The executor of the draft model, if there is one."""
    adapters: AdaptersInfo | None = None
    """LoRA slots on the device; None = compiled without."""
    tower: Tower | None = None
    """Computes the rows of images or of sound; None = the model reads text only."""
    identity: Identity | None = None
    """Identity of its KV pages, for `kv_transfer.py`; None = not transferable."""

    @property
    def encoder(self) -> EncoderInfo | None:
        """Pooling and prompts of an encoder; None = a generative model."""
        return self.text.encoder

    @property
    def drafts_itself(self) -> bool:
        """Whether the model's multi-token-prediction layer drafts."""
        from mlcc.model.speculation import MTP

        return self.speculation is not None and self.speculation.kind == MTP

    @property
    def capacity(self) -> Capacity:
        return self.executor.capacity

    def with_special(self) -> Model:
        """A copy whose text is `with_special`."""
        return replace(self, text=self.text.with_special())

    def with_parsers(self, tools: str | None, reasoning: str | None) -> Model:
        """A copy whose text is `with_parsers`."""
        return replace(self, text=self.text.with_parsers(tools, reasoning))

    def new_engine(self, defer_text: bool = False) -> Engine:
        """A new engine for this model; only one at a time, since engines would share the pages.
        Raises UnsupportedError for an encoder."""
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
        """A new engine for an encoder. Raises UnsupportedError for a generative model."""
        from mlcc.engine.encoder_engine import EncoderEngine

        if self.encoder is None:
            raise UnsupportedError(f"'{self.text.name}' writes, and is no encoder")
        return EncoderEngine(self.capacity, self.encoder.pooling, self.encoder.width)

    def close(self) -> None:
        self.executor.close()
        if self.draft is not None:
            self.draft.close()
        if self.tower is not None:
            self.tower.close()
