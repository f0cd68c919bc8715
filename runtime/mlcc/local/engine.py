"""The Python API: `Engine` for threads, `AsyncEngine` for asyncio, in the style of OpenAI's client.

    with Engine("path/to/model") as engine:
        answer = engine.chat.completions.create(messages=[{"role": "user", "content": "Hi"}])
        print(answer.choices[0].message.content)

Fields and answers are the server's (`mlcc.api`), which checks them.
"""

from __future__ import annotations

import asyncio
import weakref
from pathlib import Path
from typing import TypeVar

from mlcc.engine_args import EngineArgs
from mlcc.limits import check_all
from mlcc.local.caller import Caller
from mlcc.local.resources import (
    AsyncChatCompletions,
    AsyncCompletions,
    AsyncEmbeddings,
    AsyncRerank,
    Audio,
    Chat,
    ChatCompletions,
    Completions,
    Embeddings,
    Rerank,
    wait,
    wait_async,
)
from mlcc.worker.worker import OpenModel

S = TypeVar("S", bound="_Base")
EMBEDDINGS, RERANK = "/v1/embeddings", "/v1/rerank"
CHAT, COMPLETIONS, MODELS = "/v1/chat/completions", "/v1/completions", "/v1/models"


class _Base:
    """A loaded model. Threads and tasks may call it concurrently; their requests are batched.

    model: a compiled model's folder, or a checkpoint (a Hugging Face folder, hf://org/name), which
    is compiled first and cached. The options are those of `mlcc serve`. Raises MlccError.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        target: str | None = None,
        quant: str | None = None,
        context: int | None = None,
        max_batch: int | None = None,
        max_step_tokens: int | None = None,
        max_rows: int | None = None,
        threads: int | None = None,
        device: int | None = None,
        memory: float | None = None,
        kv_pages: int | None = None,
        kv: str | None = None,
        prefix_cache: bool = True,
        speculate: str | None = None,
        draft: str | Path | None = None,
    ) -> None:
        check_all(
            {
                "context": context, "max_batch": max_batch, "max_step_tokens": max_step_tokens,
                "max_rows": max_rows, "threads": threads, "device": device, "memory": memory,
                "kv_pages": kv_pages,
            }
        )  # fmt: skip
        args = EngineArgs(
            str(model), target, quant, threads=threads, context=context,
            max_batch=max_batch, max_step_tokens=max_step_tokens, max_rows=max_rows, device=device,
            memory=memory, kv_pages=kv_pages, kv=kv, prefix_cache=prefix_cache,
            speculate=speculate, draft=None if draft is None else Path(draft),
        )  # fmt: skip
        from mlcc.loader import opener
        from mlcc.model_cache.resolve import resolve

        self._run(opener(resolve(args), args))

    @classmethod
    def of(cls: type[S], open_model: OpenModel) -> S:
        """An engine for the model that `open_model` opens, in the thread that will run it."""
        engine = cls.__new__(cls)
        engine._run(open_model)
        return engine

    def _run(self, open_model: OpenModel) -> None:
        self._caller = Caller(open_model)
        self.model: str = self._caller.name
        """The model's name, as in answers."""
        self.notes: tuple[str, ...] = self._caller.notes
        """Messages for the user, one line each."""
        self._end = weakref.finalize(self, self._caller.close)  # at the latest when Python ends


class Engine(_Base):
    """`create` returns the whole answer, or an iterator over its pieces with `stream=True`."""

    def _run(self, open_model: OpenModel) -> None:
        super()._run(open_model)
        self.chat = Chat(ChatCompletions(self._caller, CHAT))
        """Chats: `chat.completions.create(messages=[...])`."""
        self.completions = Completions(self._caller, COMPLETIONS)
        """Text that is continued: `create(prompt=...)`."""
        self.embeddings = Embeddings(self._caller, EMBEDDINGS)
        """For encoders: `create(input=...)`."""
        self.rerank = Rerank(self._caller, RERANK)
        """For rerankers: `create(query=..., documents=[...])`."""
        self.audio = Audio(self._caller)
        """For models that hear: `audio.transcriptions.create(file="speech.wav")`."""

    def load_adapter(self, name: str, folder: str | Path, in_place: bool = False) -> None:
        """Load a LoRA adapter (a PEFT folder) as `model=name`. `in_place`: replace a loaded adapter
        of this name. Raises MlccError for a folder that does not fit."""
        wait(self._caller, self._caller.load_adapter(name, folder, in_place))

    def unload_adapter(self, name: str) -> None:
        """Refuse the adapter to new requests; running ones finish with it. Raises NotFoundError."""
        wait(self._caller, self._caller.unload_adapter(name))

    def close(self) -> None:
        """Free the model's memory. Waiting requests get an error. Idempotent."""
        self._end()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncEngine(_Base):
    """`Engine` for asyncio, in any event loop: `await` `create`, `async for` over a stream.

    The constructor blocks until the model is loaded: `await asyncio.to_thread(AsyncEngine, model)`.
    """

    def _run(self, open_model: OpenModel) -> None:
        super()._run(open_model)
        self.chat = Chat(AsyncChatCompletions(self._caller, CHAT))
        self.completions = AsyncCompletions(self._caller, COMPLETIONS)
        self.embeddings = AsyncEmbeddings(self._caller, EMBEDDINGS)
        self.rerank = AsyncRerank(self._caller, RERANK)

    async def load_adapter(self, name: str, folder: str | Path, in_place: bool = False) -> None:
        """See `Engine.load_adapter`."""
        await wait_async(self._caller, self._caller.load_adapter(name, folder, in_place))

    async def unload_adapter(self, name: str) -> None:
        """See `Engine.unload_adapter`."""
        await wait_async(self._caller, self._caller.unload_adapter(name))

    async def close(self) -> None:
        """Free the model's memory. Waiting requests get an error. Idempotent."""
        await asyncio.to_thread(self._end)

    async def __aenter__(self) -> AsyncEngine:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
