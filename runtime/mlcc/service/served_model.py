"""The models of a service. `ServedModel` is one: its engine, its text side, a request's limits.

It checks what is common to all requests (size of the body, model name, unknown fields, deadline).
`generate.py` and `embeddings.py` are built on it and make answers. Two ports:

- `Prompts` renders and tokenizes prompts. A chat template is untrusted code and long texts take
  long, so a server does it in a pool of processes (`mlcc.server.prompts.prompt_pool`).
- `Models` selects the model of a request. `OneModel` serves one (tab, phone, Python program); a
  server with several loads them on demand (`mlcc.server.models.pool`). A lease keeps a model loaded
  while a request uses it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from array import array
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any, Protocol, TypeVar

from mlcc.api.errors import NotFoundError
from mlcc.api.openai.embeddings import writes_nothing
from mlcc.api.openai.models import ModelInfo
from mlcc.api.openai.shapes import ModelState
from mlcc.api.schema.modalities import Modalities
from mlcc.api.schema.schema import Object
from mlcc.api.schema.unknown_fields import MOST, header, merged_headers, unknown
from mlcc.engine.sampling.grammar import Structure
from mlcc.errors import InvalidRequestError, UnsupportedError
from mlcc.limits import default
from mlcc.model.model import ModelText
from mlcc.multimodal.placeholders import PromptMedia, TextWithMedia
from mlcc.multimodal.prompt import Prompt
from mlcc.service.adapters import AdapterFolders
from mlcc.service.engine_client import EngineClient
from mlcc.service.http.types import BYTES_TYPE, JSON_TYPE, ApiRequest, read_bytes, read_json
from mlcc.service.response_store.conversations import Conversations
from mlcc.service.sound import SoundHost, SoundThreads
from mlcc.util.fast_dataclass import fast_dataclass

NO_VARIABLES: Mapping[str, Any] = {}
T = TypeVar("T")


class Prompts(Protocol):
    """Renders and tokenizes. `context`: longest prompt in tokens; `seconds`: time limit. All
    methods raise MlccError."""

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        context: int,
        seconds: float | None,
        variables: Mapping[str, Any] = NO_VARIABLES,
    ) -> array[int]:
        """The token ids of a conversation; `variables` of the template include `tools`."""
        ...

    async def text(
        self, prompt: str, context: int, seconds: float | None, add_special: bool = True
    ) -> array[int]:
        """The token ids of a raw prompt, with the model's start token or without."""
        ...

    async def chat_with_media(
        self,
        messages: Sequence[Mapping[str, Any]],
        media: PromptMedia,
        context: int,
        seconds: float | None,
        variables: Mapping[str, Any] = NO_VARIABLES,
    ) -> Prompt:
        """The prompt of a conversation with images, for which its messages have placeholders."""
        ...

    async def text_with_media(
        self, prompt: str, media: PromptMedia, context: int, seconds: float | None
    ) -> Prompt:
        """The prompt of a raw text with placeholders of images."""
        ...

    async def written(
        self,
        messages: Sequence[Mapping[str, Any]],
        seconds: float | None,
        variables: Mapping[str, Any] = NO_VARIABLES,
        media: PromptMedia | None = None,
    ) -> str:
        """The text that the template renders for a conversation."""
        ...

    async def structure(self, structure: Structure, seconds: float | None) -> None:
        """Raise MlccError if answers cannot be constrained to the structure."""
        ...


def check_built(text: ModelText, structure: Structure) -> None:
    """Raise UnsupportedError if there is no grammar backend."""
    if text.grammars is None:
        raise UnsupportedError(
            f"'{structure.field}' is not built here: this host of the model has nothing that reads "
            "grammars; leave it out or ask `mlcc serve`; to a program over mlcc.h llguidance is "
            "given by its `path`",
            param=structure.field,
            code="unsupported_parameter",
        )


class DirectPrompts:
    """Renders and tokenizes in this process, for hosts without a pool."""

    def __init__(self, text: ModelText) -> None:
        self._text = text

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        context: int,
        seconds: float | None,
        variables: Mapping[str, Any] = NO_VARIABLES,
    ) -> array[int]:
        """The token ids of a conversation."""
        return self._text.encode_chat(messages, context, variables)

    async def text(
        self, prompt: str, context: int, seconds: float | None, add_special: bool = True
    ) -> array[int]:
        """The token ids of a raw prompt, with the model's start token or without."""
        return self._text.encode_prompt(prompt, context, add_special)

    async def chat_with_media(
        self,
        messages: Sequence[Mapping[str, Any]],
        media: PromptMedia,
        context: int,
        seconds: float | None,
        variables: Mapping[str, Any] = NO_VARIABLES,
    ) -> Prompt:
        """The prompt of a conversation with images; decoded in a thread, as that takes long."""
        work = self._text.encode_chat_with_media
        return await asyncio.to_thread(work, messages, media, context, variables)

    async def text_with_media(
        self, prompt: str, media: PromptMedia, context: int, seconds: float | None
    ) -> Prompt:
        """The prompt of a raw text with images."""
        work = self._text.encode_prompt_with_media
        return await asyncio.to_thread(work, prompt, media, context)

    async def written(
        self,
        messages: Sequence[Mapping[str, Any]],
        seconds: float | None,
        variables: Mapping[str, Any] = NO_VARIABLES,
        media: PromptMedia | None = None,
    ) -> str:
        """The text that the template renders for a conversation."""
        return self._text.written(messages, variables, media)

    async def structure(self, structure: Structure, seconds: float | None) -> None:
        """Raise MlccError if answers cannot be constrained to it; runs in a thread, as it is
        slow."""
        if (grammars := self._text.grammars) is not None:
            await asyncio.to_thread(grammars.check, structure)


def _checked(
    parse: Callable[[Any], T], table: Object, body: Any
) -> tuple[T, list[InvalidRequestError]]:
    """The parsed body, and its unknown fields."""
    return parse(body), unknown(table, body)


log = logging.getLogger("mlcc.service")
MOST_PATH = 200
"""Most characters of a keyword's path that are named."""
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
        sound: SoundHost | None = None,
    ) -> None:
        self.sound = sound or SoundThreads()
        """Decodes recordings."""
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
        if not request.background:
            self.engine.check_queue(1, request.tenant)
        return await read_json(request, self._bounds.max_body_bytes)

    async def raw_body(self, request: ApiRequest) -> bytes:
        """The body, JSON with or without bytes behind it. Raises as `body`."""
        self.engine.check_queue(1, request.tenant)
        return await read_bytes(request, self._bounds.max_body_bytes, (JSON_TYPE, BYTES_TYPE))

    async def checked(
        self, request: ApiRequest, body: Any, parse: Callable[[Any], T], table: Object
    ) -> tuple[T, dict[str, str]]:
        """`parse(body)`, and the response header that names unknown fields. Raises MlccError."""
        work = partial(_checked, parse, table, body)
        parsed, found = await request.offload.check(work)
        return parsed, self._ignored(found)

    def named(self, headers: Mapping[str, str], keywords: Sequence[str]) -> dict[str, str]:
        """The response header, which also names these keywords of schemas, by their paths. Raises
        InvalidRequestError for the first one if fields are strict."""
        if not keywords:
            return dict(headers)
        errors = [
            InvalidRequestError(
                f"'{path[:MOST_PATH]}' is a keyword that answers cannot be held to; leave it out, "
                "and check it yourself",
                param=path[:MOST_PATH],
                code="unsupported_keyword",
            )
            for path in keywords[:MOST]
        ]
        return merged_headers(headers, self._ignored(errors))

    def _ignored(self, found: list[InvalidRequestError]) -> dict[str, str]:
        """The response header that names unknown fields; each is logged once. Raises
        InvalidRequestError for the first one if fields are strict."""
        if not found:
            return {}
        if self._bounds.strict_fields:
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

    @property
    def sees(self) -> bool:
        """Whether the model reads images."""
        return self.text.vision is not None

    @property
    def hears(self) -> bool:
        """Whether prompts may have sound."""
        return self.text.hears

    @property
    def reads(self) -> Modalities:
        """What the model reads beside text."""
        return Modalities(self.sees, self.hears)

    def check_generates(self) -> None:
        """Raise UnsupportedError if the model is an encoder, which generates no text."""
        if self.text.encoder is not None:
            raise writes_nothing(self.text.name)

    async def encode(self, prompt: str | list[int], seconds: float | None) -> Prompt:
        """A raw prompt in token ids."""
        if isinstance(prompt, list):
            return Prompt(array("i", prompt))
        context = self.engine.capacity.context
        if isinstance(prompt, TextWithMedia):
            return await self.prompts.text_with_media(prompt, prompt.media, context, seconds)
        return Prompt(await self.prompts.text(prompt, context, seconds))

    def clock(
        self, request: ApiRequest, started: float, wanted: float | None
    ) -> Callable[[], float | None]:
        """A function for the seconds left of a request, which began at `started` (monotonic) and
        asked for a timeout of `wanted`; None = no limit. A line of a batch may wait for long: the
        batch itself expires."""
        general = None if request.background else self._bounds.timeout_s
        bounds = [bound for bound in (wanted, general) if bound is not None]
        if not bounds:
            return lambda: None
        end = started + min(bounds)
        return lambda: max(0.0, end - time.monotonic())


@fast_dataclass(frozen=True)
class ModelEntry:
    """One model in a list of models."""

    name: str
    created: int
    """Unix time since which it is available."""
    state: ModelState
    context: int
    """Longest sequence in tokens: as loaded, or the most it can be loaded with."""
    aliases: tuple[str, ...] = ()
    """Other names of the model."""
    memory_bytes: int | None = None
    """Planned bytes; None = not loaded, or without a plan."""
    in_flight: int = 0
    """Requests waiting or running."""
    info: ModelInfo = field(default_factory=ModelInfo)
    """Metadata for Ollama's routes."""
    parent: str | None = None
    """The base model of an adapter."""
    progress: float | None = None
    """Share of its bytes that have been read while it is loaded, 0 to 1; None = unknown."""


@fast_dataclass(frozen=True)
class PullStep:
    """What is done while a model is fetched; bytes of the step where they are known."""

    status: str
    done: int | None = None
    total: int | None = None


def _nothing() -> None:
    return None


@fast_dataclass(frozen=True)
class Lease:
    """A loaded model, which stays loaded until `release` is called. `release` is idempotent."""

    served: ServedModel
    release: Callable[[], None] = _nothing


class Models(Protocol):
    """All models of a service."""

    @property
    def only(self) -> ServedModel | None:
        """The model, if the service has exactly one, always loaded."""
        ...

    @property
    def conversations(self) -> Conversations:
        """Stored conversations of /v1/responses, of all models."""
        ...

    def entries(self) -> list[ModelEntry]:
        """All models. Raises MlccError if the engine is dead."""
        ...

    def entry(self, name: str) -> ModelEntry:
        """The model with this name. Raises NotFoundError, and what `entries` raises."""
        ...

    async def lease(self, name: str | None) -> Lease:
        """The model with this name, loaded on demand; None = the default model.

        Raises NotFoundError, and what loading raises.
        """
        ...

    async def load(self, name: str) -> ModelEntry:
        """Load a model now. Raises what `lease` raises."""
        ...

    async def unload(self, name: str) -> ModelEntry:
        """Unload a model. Raises BusyError while it is in use, UnsupportedError if models cannot be
        unloaded, NotFoundError."""
        ...

    def pull(self, name: str) -> AsyncGenerator[PullStep, None]:
        """Fetch a model that is not here and add it. Raises UnsupportedError if models cannot be
        added, InvalidRequestError for what names none, BusyError while one is fetched."""
        ...

    async def counters(self) -> Mapping[str, Any]:
        """Counters for /health of each loaded model, by name."""
        ...

    @property
    def asleep(self) -> bool:
        """Whether all models are out of memory until `wake`."""
        ...

    async def sleep(self, wait: bool) -> None:
        """Free the memory of all models; requests get SleepingError until `wake`. wait: let running
        requests finish first, else they fail. Raises UnsupportedError where models cannot."""
        ...

    async def wake(self) -> None:
        """End the sleep. Raises what loading raises."""
        ...


class OneModel:
    """One model, always loaded."""

    def __init__(self, served: ServedModel) -> None:
        self._core = served

    @property
    def only(self) -> ServedModel | None:
        return self._core

    @property
    def conversations(self) -> Conversations:
        return self._core.conversations

    def entries(self) -> list[ModelEntry]:
        """The model, then its adapters. Raises `dead` of its engine."""
        served = self._core
        if served.engine.dead:
            served.engine.check_alive()
        state: ModelState = "sleeping" if served.engine.asleep else "loaded"
        context = served.engine.capacity.context
        in_flight, info = served.engine.in_flight, served.text.info
        name, created = served.text.name, served.created
        return [
            ModelEntry(
                name, created, state, context, served.aliases, in_flight=in_flight, info=info
            ),
            *(
                ModelEntry(each.name, each.created, state, context, parent=name, info=info)
                for each in served.engine.adapters.values()
            ),
        ]

    def entry(self, name: str) -> ModelEntry:
        """The model, by one of its names."""
        found = self.entries()
        self._core.check_model(name)
        return next((entry for entry in found if entry.name == name), found[0])

    async def lease(self, name: str | None) -> Lease:
        """The model; the caller checks its name."""
        return Lease(self._core)

    async def load(self, name: str) -> ModelEntry:
        """The model is always loaded."""
        return self.entry(name)

    async def unload(self, name: str) -> ModelEntry:
        """Raises UnsupportedError: the model stays loaded."""
        self.entry(name)
        raise UnsupportedError(
            f"'{name}' is the only model here and stays loaded; end the program instead "
            "(`mlcc stop` does, for a server)",
            param="model",
            code="model_stays",
        )

    def pull(self, name: str) -> AsyncGenerator[PullStep, None]:
        """Raises UnsupportedError: no model is added."""
        raise UnsupportedError(
            f"this server serves '{self._core.text.name}' and pulls nothing; fetch '{name[:80]}' "
            f"with `mlcc pull {name[:80]}`, then `mlcc serve` it",
            param="model",
            code="not_pulled",
        )

    async def counters(self) -> Mapping[str, Any]:
        """Counters of its engine."""
        return {self._core.text.name: await self._core.engine.counters()}

    @property
    def asleep(self) -> bool:
        return self._core.engine.asleep is not None

    async def sleep(self, wait: bool) -> None:
        """Free its memory."""
        await self._core.engine.sleep(wait)

    async def wake(self) -> None:
        """Load it again."""
        await self._core.engine.wake()
