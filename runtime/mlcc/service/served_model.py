"""A model that answers requests: its engine, its text side, and the limits of one request.

It checks what is common to all requests (size of the body, model name, unknown fields, deadline).
`generate.py` and `embeddings.py` are built on it and make answers.
"""

from __future__ import annotations

import logging
import time
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from mlcc.api.errors import NotFoundError
from mlcc.api.openai.embeddings import writes_nothing
from mlcc.api.schema.schema import Object, header, unknown
from mlcc.limits import default
from mlcc.model.model import ModelText
from mlcc.service.adapters import AdapterFolders
from mlcc.service.engine_client import EngineClient
from mlcc.service.http.types import ApiRequest, read_json
from mlcc.service.prompts import DirectPrompts, Prompts
from mlcc.service.response_store.conversations import Conversations
from mlcc.util.fast_dataclass import fast_dataclass

log = logging.getLogger("mlcc.service")
MOST_LOGGED = 256
"""Distinct unknown fields that the log names."""


@fast_dataclass(frozen=True)
class ServiceBounds:
    """Limits of one request."""

    max_body_bytes: int = default("max_body_bytes")
    timeout_s: float | None = default("timeout_s")
    strict_fields: bool = False
    """Refuse unknown fields, instead of ignoring and naming them."""


class ServedModel:
    """One model with its engine. Shared by all requests."""

    def __init__(
        self,
        engine: EngineClient,
        text: ModelText,
        bounds: ServiceBounds | None = None,
        prompts: Prompts | None = None,
        conversations: Conversations | None = None,
        aliases: Sequence[str] = (),
        folders: AdapterFolders | None = None,
    ) -> None:
        self.folders = folders or AdapterFolders()
        """Folders from which requests may load LoRA adapters."""
        self.engine = engine
        self.aliases = tuple(aliases)
        """Names beside its own that requests may use."""
        self.text = text
        self.prompts = prompts or DirectPrompts(text)
        self.conversations = conversations or Conversations()
        self.created = int(time.time())
        self._bounds = bounds or ServiceBounds()
        self._logged: set[str] = set()
        """Messages about unknown fields that the log already has."""

    async def body(self, request: ApiRequest) -> Any:
        """The parsed JSON body. Raises BusyError before it is read if the queue is full."""
        self.engine.check_queue(1, request.tenant)
        return await read_json(request, self._bounds.max_body_bytes)

    def unknown(self, table: Object, body: Any) -> dict[str, str]:
        """The response header that names unknown fields of a body; each is logged once. Raises
        InvalidRequestError for the first one if fields are strict."""
        found = unknown(table, body)
        if found and self._bounds.strict_fields:
            raise found[0]
        for error in found:
            if len(self._logged) < MOST_LOGGED and error.message not in self._logged:
                self._logged.add(error.message)
                log.warning("ignored: %s", ascii(error.message)[1:-1])
        return header(found)

    def check_model(self, name: str | None) -> None:
        """Raise NotFoundError for a name that is neither this model's nor one of its adapters'."""
        names = self.text.name, *self.aliases
        if name is not None and name not in names and name not in self.engine.adapters:
            loaded = ", ".join(f"'{adapter}'" for adapter in sorted(self.engine.adapters)[:8])
            beside = f" with the adapters {loaded}" if loaded else ""
            raise NotFoundError(
                f"the model here is '{self.text.name}'{beside}, not '{name[:80]}'; ask for it, or "
                "leave 'model' out",
                param="model",
                code="model_not_found",
            )

    def check_generates(self) -> None:
        """Raise UnsupportedError if the model is an encoder, which generates no text."""
        if self.text.encoder is not None:
            raise writes_nothing(self.text.name)

    async def encode(self, prompt: str | list[int], seconds: float | None) -> array[int]:
        """The token ids of a raw prompt."""
        if isinstance(prompt, list):
            return array("i", prompt)
        return await self.prompts.text(prompt, self.engine.capacity.context, seconds)

    def clock(self, started: float, wanted: float | None) -> Callable[[], float | None]:
        """A function for the seconds left of a request, which began at `started` (monotonic) and
        asked for a timeout of `wanted`; None = no limit."""
        bounds = [bound for bound in (wanted, self._bounds.timeout_s) if bound is not None]
        if not bounds:
            return lambda: None
        end = started + min(bounds)
        return lambda: max(0.0, end - time.monotonic())
