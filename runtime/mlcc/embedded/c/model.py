"""One model of a C host, from loading to closing: its requests, their events, and its memory."""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from mlcc.api.errors import CancelledError, EngineDiedError, error_body, internal_error
from mlcc.artifact.text_files import TOKENIZER
from mlcc.embedded.c.codes import Code, Kind, NoCallbackError, StalledError, Trim, code_of
from mlcc.embedded.c.engine import InProcessClient
from mlcc.embedded.c.form import form_in_memory
from mlcc.embedded.c.images import HostImages
from mlcc.embedded.c.options import Options
from mlcc.embedded.c.tokenizer import HostTokenizer
from mlcc.embedded.calls import Call, Calls
from mlcc.errors import CapacityError, InvalidRequestError, MlccError
from mlcc.limits import body_bytes
from mlcc.model.model import Model, ModelText
from mlcc.model.tokenizer.tokenizer import TextTokenizer
from mlcc.service.adapters import AdapterFolders
from mlcc.service.http.types import FormPart, error_response
from mlcc.service.served_model import OneModel, ServedModel, ServiceBounds
from mlcc.service.service import Service
from mlcc.util.executor_library import why_absent
from mlcc.util.extras import is_here


class Events(Protocol):
    """Receives events."""

    def put(self, call: int, kind: Kind, status: int, text: str) -> None:
        """Send an event to the host."""
        ...


class EventReply:
    """A `Reply` as events: HEAD, BODY as often as needed, and END exactly once."""

    def __init__(self, events: Events, number: int) -> None:
        self.call: Call | None = None
        self.ended = False
        self._events, self._number = events, number
        self._why: MlccError | None = None

    def start(self, status: int, headers: str) -> None:
        """Send the status and the headers."""
        self._events.put(self._number, Kind.HEAD, status, headers)

    def write(self, text: str) -> None:
        """Send a piece of the body."""
        self._events.put(self._number, Kind.BODY, Code.OK, text)

    def end(self, failure: MlccError | None) -> None:
        """The response is complete, or has failed. Idempotent."""
        if self.ended:
            return
        self.ended = True
        if failure is None:
            self._events.put(self._number, Kind.END, Code.OK, "")
            return
        why = self._why if self._why and isinstance(failure, CancelledError) else failure
        self._events.put(self._number, Kind.END, code_of(why), json.dumps(error_body(why)))

    def fail(self, message: str) -> None:
        """A bug ended the response."""
        self.end(internal_error())

    def stop(self, why: MlccError) -> None:
        """Cancel the response, unless it has ended."""
        if self.call is None:
            self.end(why)
        else:
            self._why = self._why or why
            self.call.cancel()

    def answer(self, error: MlccError) -> None:
        """Send this error as the whole response."""
        response = error_response(error)
        assert isinstance(response.body, str)
        self.start(response.status, json.dumps(dict(response.headers)))
        self.write(response.body)
        self.end(None)


BOUNDS = ServiceBounds(timeout_s=None)
"""No timeout: the app that sends a request can also cancel it."""
PROGRESS_STEPS = 100
"""Largest number of PROGRESS events."""
_LOW_MEMORY = "memory is short, and the app takes no new requests for now; try again later"
_STALLED = (
    "the engine's events are not taken, and the answer is lost; poll, or return from `events`"
)
_IN_BACKGROUND = "the app is in the background, where it gives the model's memory back; ask again"


class BackgroundError(CancelledError):
    """The app went into the background, and its model was unloaded."""

    http_status = 503


class HostedModel:
    """Model number `number`; `host` is the module `_mlcc`. Lives in the event loop."""

    def __init__(self, host: Any, number: int, options: bytes) -> None:
        self._host, self._number = host, number
        self._text = options
        self._options = Options()
        self._state = "loading"
        self._failure: MlccError | None = None
        self._trim = Trim.NONE
        self._model: Model | None = None
        self._client: InProcessClient | None = None
        self._calls: Calls | None = None
        self._live: dict[int, EventReply] = {}
        self._pending: list[Callable[[], None]] = []
        """Requests that arrived during loading."""
        self._flushing = False
        self._last_progress = 0

    def load(self) -> None:
        """Load the model, and send READY or FAILED. Blocks the event loop."""
        if self._state != "loading" or self._host.closing(self._number):
            return
        try:
            self._options = Options.read(self._text)
            self._model = self._options.open_model(self._tokenizer(), self._progress)
        except MlccError as error:
            return self._fail(error)
        except Exception:
            traceback.print_exc()
            return self._fail(internal_error())
        capacity = self._model.capacity
        text = self._model.text
        if (
            find_spec("llguidance") is None
        ):  # its error, with a command to type, would not help an app
            text = replace(text, grammars=None)
        if not is_here("PIL"):  # likewise
            text = self._with_host_images(text)
        self._client = InProcessClient(self._model, self._options.max_queue, self._flush)
        path = self._options.lora_dir
        folders = AdapterFolders(Path(path) if path else None)
        bounds = replace(BOUNDS, max_body_bytes=body_bytes(text.vision is not None or text.hears))
        served = ServedModel(self._client, text, bounds, folders=folders)
        self._calls = Calls(Service(OneModel(served)))
        self._state = "ready"
        self._refuse()
        ready = {
            "model": text.name,
            "context": capacity.context,
            "max_batch": capacity.max_batch,
            "notes": text.notes,
        }
        self.put(0, Kind.READY, Code.OK, json.dumps(ready))
        self._start_pending()

    def request(self, call: int, method: bytes, path: bytes, headers: bytes, body: bytes) -> None:
        """Answer a request, now or once the model is loaded."""
        reply = self._live[call] = EventReply(self, call)
        try:
            verb, target, names = (part.decode() for part in (method, path, headers))
            if not isinstance(known := json.loads(names), dict):
                raise ValueError("the headers are no JSON object")
        except ValueError as error:
            message = f"method, path or headers cannot be read: {error}"
            return reply.end(InvalidRequestError(message, code="bad_argument"))

        async def read() -> bytes:
            return body

        def form(most: int) -> AsyncIterator[FormPart]:
            return form_in_memory(known, body, most)

        def start() -> None:
            if self._calls is not None:
                reply.call = self._calls.start(verb, target, names, read, reply, form)
            elif self._state == "background":
                reply.answer(BackgroundError(_IN_BACKGROUND, code="in_background"))
            else:
                assert self._failure is not None
                reply.end(self._failure)

        if self._state == "loading":
            self._pending.append(lambda: None if reply.ended else start())
        else:
            start()

    def cancel(self, call: int) -> None:
        """Cancel a request, if it is running."""
        if reply := self._live.get(call):
            reply.stop(CancelledError("the request was cancelled", code="cancelled"))

    def trim(self, level: Trim) -> None:
        """Reduce memory to the given level."""
        self._trim = level
        if self._client is not None and level is not Trim.NONE:
            self._client.forget_prefixes()
        # in the next loop iteration: requests sent before this call still run
        asyncio.get_running_loop().call_soon(self._refuse)

    def background(self, away: bool) -> None:
        """The app went into the background, or came back."""
        if away and self._state == "ready" and self._options.unload_in_background:
            self._state = "background"
            self._unload(BackgroundError(_IN_BACKGROUND, code="in_background"))
        elif not away and self._state == "background":
            self._state = "loading"
            asyncio.get_running_loop().call_soon(self.load)

    def stats(self) -> str:
        """Return the state and the engine's counters."""
        engine = self._client.stats() if self._client else None
        return json.dumps({"state": self._state, "trim": self._trim, "engine": engine})

    async def close(self) -> None:
        """End every request and free the memory."""
        closed = EngineDiedError("the engine was closed", code="engine_closed")
        self._failure, self._state = closed, "failed"
        for reply in list(self._live.values()):
            reply.stop(closed)
        calls = self._calls
        self._unload(closed)
        if calls is not None:
            await calls.ended()
        self._flush()

    def put(self, call: int, kind: Kind, status: int, text: str) -> None:
        """Queue an event; the host receives all events of a loop iteration together."""
        data = text.encode("utf-8", "replace")
        unread = self._host.put(self._number, call, kind, status, data)
        if kind is Kind.BODY and not 0 <= unread <= self._options.max_unread_bytes:
            self._live[call].stop(StalledError(_STALLED, code="stalled"))
        if kind is Kind.END:
            self._live.pop(call, None)
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _refuse(self) -> None:
        if self._client is not None:
            low = self._trim is Trim.REFUSE
            self._client.refusal = CapacityError(_LOW_MEMORY, code="low_memory") if low else None

    def _flush(self) -> None:
        if self._flushing:
            self._flushing = False
            self._host.flush(self._number)

    def _with_host_images(self, text: ModelText) -> ModelText:
        """Images by the host's decoder, or refused; mlcc resizes in libmlcc_executor."""
        if not self._host.has_images(self._number) or why_absent():
            return text.without_images()
        return replace(text, decode_image=HostImages(self._host, self._number).decode)

    def _tokenizer(self) -> TextTokenizer | None:
        """Return the host's tokenizer; None = the model's own file is read, by `tokenizers` or by
        libmlcc_executor."""
        if self._host.has_tokenizer(self._number):
            folder = self._options.model
            file = Path(folder) / TOKENIZER if folder else None
            return HostTokenizer(self._host, self._number, file)
        if self._options.open is None and why_absent() and find_spec("tokenizers") is None:
            raise NoCallbackError(
                "the host brings no tokenizer (`encode`, `decode` and `special_tokens` of "
                "mlcc_host), libmlcc_executor, which has one, is not beside libmlcc, and Python "
                "finds no `tokenizers`; ship libmlcc_executor with the app",
                code="no_callback",
            )
        return None

    def _progress(self, done: int, total: int) -> None:
        if self._host.closing(self._number):
            raise EngineDiedError("the engine was closed", code="engine_closed")
        step = done * PROGRESS_STEPS // max(1, total)
        if step != self._last_progress:
            self._last_progress = step
            self.put(0, Kind.PROGRESS, Code.OK, json.dumps({"done": done, "total": total}))
            self._flush()

    def _fail(self, error: MlccError) -> None:
        self._state, self._failure = "failed", error
        self.put(0, Kind.FAILED, code_of(error), json.dumps(error_body(error)))
        self._start_pending()

    def _start_pending(self) -> None:
        pending, self._pending = self._pending, []
        for start in pending:
            start()

    def _unload(self, why: MlccError) -> None:
        client, model = self._client, self._model
        self._client = self._model = self._calls = None
        if client is not None:
            client.stop(why)
        if model is not None:
            model.close()
