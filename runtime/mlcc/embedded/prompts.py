"""Prompts of a tab: texts in the event loop, grammars and images by the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlcc.embedded.vision import prepare_in_tab
from mlcc.engine.sampling.grammar import Structure
from mlcc.errors import UnsupportedError
from mlcc.model.model import ModelText
from mlcc.multimodal.placeholders import PromptMedia
from mlcc.multimodal.prompt import PreparedImage, Prompt, detailed
from mlcc.service.served_model import NO_VARIABLES, DirectPrompts


class TabPrompts(DirectPrompts):
    """Prompts in this event loop. grammars, images: the page's `GrammarPort` and `ImagePort`
    (web/src/worker/python.ts); None = it has none."""

    def __init__(self, text: ModelText, grammars: Any = None, images: Any = None) -> None:
        super().__init__(text)
        self._grammars, self._images = grammars, images

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

    async def _prepared(self, media: PromptMedia, context: int) -> list[PreparedImage]:
        """The images, one at a time: a decoded one takes a hundred times its bytes."""
        processor = self._text.processor_for(media, context)
        shown = detailed(processor, media.images)
        return [await prepare_in_tab(self._images, processor, image) for image in shown]

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
