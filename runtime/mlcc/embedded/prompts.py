"""Prompts of a tab: texts in the event loop, grammars and images by the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlcc.embedded.vision import prepare_in_tab
from mlcc.engine.sampling.grammar import Structure
from mlcc.errors import UnsupportedError
from mlcc.model.model import ModelText
from mlcc.multimodal.audio.encoded import EncodedAudio
from mlcc.multimodal.placeholders import PromptMedia
from mlcc.multimodal.prompt import PreparedImage, PreparedSound, Prompt, detailed
from mlcc.service.served_model import NO_VARIABLES, DirectPrompts


class TabPrompts(DirectPrompts):
    """Prompts in this event loop. grammars: the page's `GrammarPort` (web/src/worker/python.ts);
    towers: `TabTowers`; None = it has none."""

    def __init__(self, text: ModelText, grammars: Any = None, towers: Any = None) -> None:
        super().__init__(text)
        self._grammars, self._towers = grammars, towers

    async def chat_with_media(
        self,
        messages: Sequence[Mapping[str, Any]],
        media: PromptMedia,
        context: int,
        seconds: float | None,
        variables: Mapping[str, Any] = NO_VARIABLES,
    ) -> Prompt:
        """The prompt of a conversation with images."""
        prepared = await self._prepared(media, context)
        return self._text.chat_of_prepared(messages, media, prepared, context, variables)

    async def text_with_media(
        self, prompt: str, media: PromptMedia, context: int, seconds: float | None
    ) -> Prompt:
        """The prompt of a raw text with images."""
        prepared = await self._prepared(media, context)
        return self._text.prompt_of_prepared(prompt, media, prepared, context)

    async def _prepared(
        self, media: PromptMedia, context: int
    ) -> list[PreparedImage | PreparedSound]:
        """Images and sounds, one at a time: a decoded image takes a hundred times its bytes."""
        text, seen = self._text, media.images
        processor = text.processor_for(media, context) if seen else None
        shown = iter(detailed(processor, seen) if processor is not None else ())
        made: list[PreparedImage | PreparedSound] = []
        for given in media.items:
            if not isinstance(given, EncodedAudio):
                assert processor is not None
                made.append(await prepare_in_tab(self._towers.images, processor, next(shown)))
            elif (heard := text.audio_processor) is not None:
                from mlcc.embedded.audio import prepare_sound_in_tab  # rarely needed

                made.append(prepare_sound_in_tab(self._towers.sound, heard, given))
            else:
                raise UnsupportedError(f"'{text.name}' hears nothing; leave sound out")
        return made

    async def structure(self, structure: Structure, seconds: float | None) -> None:
        """Check that answers can be constrained to a structure, once the page has fetched what
        reads grammars. Raises UnsupportedError if its package has none, and what `Grammars.check`
        raises."""
        if self._grammars is None:
            await super().structure(structure, seconds)
            return
        if why := str(await self._grammars.ready()):
            raise UnsupportedError(
                f"'{structure.field}' is not built here: this page has nothing that reads grammars "
                f"({why[:200]}); leave it out, or build the page where Rust is",
                param=structure.field or None,
                code="unsupported_parameter",
            )
        assert self._text.grammars is not None
        self._text.grammars.check(structure)
