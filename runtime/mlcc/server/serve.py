"""Binds the port, starts the engine, and runs uvicorn until a signal ends it."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.routing import BaseRoute

from mlcc.engine.batch.batch import Capacity
from mlcc.errors import MlccError
from mlcc.model.model import ModelText
from mlcc.server.app import Beside, create_app
from mlcc.server.asgi import Settings
from mlcc.server.auth.key_file import KeyFile
from mlcc.server.auth.keyring import Keyring
from mlcc.server.http.connection import (
    BACKLOG,
    Config,
    Connection,
    ConnectionLimits,
    affordable_connections,
    note_accept_errors,
)
from mlcc.server.http.drain import DrainState
from mlcc.server.http.pauses import shorten_pauses
from mlcc.server.http.tls import Tls, TlsHandshake
from mlcc.server.models.backends import (
    EngineHandle,
    LocalEngine,
    ModelPoolBackend,
    SingleModelBackend,
)
from mlcc.server.models.puller import Puller
from mlcc.server.models.sources import Source
from mlcc.server.prompts.prompt_pool import PromptPool
from mlcc.server.prompts.prompt_worker import OpenText
from mlcc.server.response_store import SqliteResponseStore
from mlcc.server.web import create_page_app
from mlcc.util.extras import require
from mlcc.worker.worker import OpenModel

log = logging.getLogger("mlcc.server")

StartEngine = Callable[[OpenModel, Settings], EngineHandle]
DEFAULT_LIMITS = ConnectionLimits()
_SHUTDOWN_S = 2


def serve(
    open_model: OpenModel,
    open_text: OpenText,
    settings: Settings,
    http: HttpOptions,
    when_ready: Callable[[str, Capacity], None],
    note: Callable[[str], None],
    aliases: Sequence[str] = (),
    begin: StartEngine = LocalEngine,
) -> None:
    """Serve one model until Ctrl-C, or until SIGTERM and the end of running requests.

    `when_ready` gets the URL and the engine's capacity, `note` gets messages about the model.
    `begin` starts the engine. Raises MlccError in one line if the port cannot be bound or the model
    cannot be loaded.
    """
    check_grpc(http)
    with ExitStack() as stack:
        listener = stack.enter_context(closing(bind(http.host, http.port)))
        stack.enter_context(_unwind_on_sigterm())
        store = _response_store(settings, stack)
        text, prompts = open_text(), stack.enter_context(closing(PromptPool(open_text)))
        with whole_tokenizer(text):
            engine = stack.enter_context(closing(begin(open_model, settings)))
        for line in engine.notes:
            note(line)
        url = _url(http, listener, settings.root_path)
        backend = SingleModelBackend(engine, text, prompts, settings, aliases, store)
        ready, drain_state = partial(when_ready, url, engine.capacity), DrainState()
        beside = _beside(settings, http, note)
        app = create_app(backend, settings, ready, http.routes, drain_state, beside)
        drain = partial(drain_state.drain, settings.drain_s)
        _Server(_config(app, http), engine.stop_soon, drain).run(sockets=[listener])


@contextmanager
def whole_tokenizer(text: ModelText) -> Iterator[None]:
    """Read all of a large tokenizer.json while the block loads the engine. The library does that in
    one call, a second for 262,144 tokens, in which the event loop would stand still later."""
    with ThreadPoolExecutor(1, "mlcc-tokenizer") as reading:
        reading.submit(lambda: text.tokenizer.longest)  # an error of it is the prompt processes'
        yield


def serve_models(
    sources: Sequence[Source],
    budgets: Mapping[str, int | None],
    settings: Settings,
    http: HttpOptions,
    when_ready: Callable[[str], None],
    note: Callable[[str], None],
    puller: Puller | None = None,
) -> None:
    """Serve several models until Ctrl-C or SIGTERM; each is loaded by its first request.

    `budgets` are bytes by device. `puller` fetches further models; None = none are added. Raises
    MlccError if the port cannot be bound.
    """
    check_grpc(http)
    with ExitStack() as stack:
        listener = stack.enter_context(closing(bind(http.host, http.port)))
        stack.enter_context(_unwind_on_sigterm())
        store = _response_store(settings, stack)
        url = _url(http, listener, settings.root_path)
        backend, drain_state = (
            ModelPoolBackend(sources, budgets, settings, note, store, puller),
            DrainState(),
        )
        ready, beside = partial(when_ready, url), _beside(settings, http, note)
        app = create_app(backend, settings, ready, http.routes, drain_state, beside)
        drain = partial(drain_state.drain, settings.drain_s)
        _Server(_config(app, http), backend.stop_soon, drain).run(sockets=[listener])


def _response_store(settings: Settings, stack: ExitStack) -> SqliteResponseStore | None:
    """Open the response store's file, if one was given; None = responses are stored in memory."""
    if settings.store is None:
        return None
    return stack.enter_context(closing(SqliteResponseStore(settings.store, settings.api_keys)))


def serve_page(
    model: Path,
    http: HttpOptions,
    when_ready: Callable[[str], None],
    hosts: frozenset[str] | None = None,
) -> None:
    """Serve the chat page and a model for browsers until Ctrl-C or SIGTERM. No engine runs here.

    Raises MlccError in one line if there is no page, or the model is not for browsers.
    """
    with closing(bind(http.host, http.port)) as listener, _unwind_on_sigterm():
        url = _url(http, listener)
        app = create_page_app(model, lambda: when_ready(url), hosts)
        _Server(_config(app, http)).run(sockets=[listener])


@dataclass(frozen=True)
class HttpOptions:
    """Where and how to listen."""

    host: str
    port: int
    """0 = any that is free."""
    routes: Sequence[BaseRoute] = ()
    """Routes beside the API's."""
    limits: ConnectionLimits = DEFAULT_LIMITS
    tls: Tls | None = None
    """None = plain HTTP."""
    grpc_port: int | None = None
    """0 = any that is free; None = no gRPC."""


def _beside(settings: Settings, http: HttpOptions, note: Callable[[str], None]) -> Beside | None:
    """What runs beside the application: gRPC, if it has a port."""
    if http.grpc_port is None:
        return None
    from mlcc.server.grpc.listen import GrpcOptions, listening

    connections = affordable_connections(http.limits.connections)
    body = settings.max_body_bytes
    options = GrpcOptions(http.host, http.grpc_port, body, connections, http.tls)
    file = KeyFile(settings.api_key_file) if settings.api_key_file else None
    keyring = Keyring(settings.api_keys, file)
    return lambda app: listening(app, options, keyring, note)


def check_grpc(http: HttpOptions) -> None:
    """Raises UnsupportedError without gRPC's packages, and MlccError if its port is taken: before a
    model is loaded."""
    if http.grpc_port is None:
        return
    for package in ("grpc", "google.protobuf"):
        require(package, "grpc", "--grpc-port")
    bind(http.host, http.grpc_port, "--grpc-port").close()


def _config(app: Starlette, http: HttpOptions) -> Config:
    """uvicorn's configuration. The event loop and protocol are fixed, whatever else is installed,
    because the connection limits are implemented in them. Warnings are off: they would let
    strangers fill the log."""
    return Config(
        app,
        replace(http.limits, connections=affordable_connections(http.limits.connections)),
        tls=http.tls.context() if http.tls else None,
        http=TlsHandshake if http.tls else Connection,
        lifespan="on",
        loop="asyncio",
        ws="none",
        backlog=BACKLOG,
        proxy_headers=False,
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_SHUTDOWN_S,
    )


Drain = Callable[[], Coroutine[Any, Any, bool]]


class _Server(uvicorn.Server):
    """At Ctrl-C, closes open streams instead of waiting for them. At SIGTERM, drains first; another
    signal then ends it at once."""

    def __init__(
        self,
        config: Config,
        at_exit: Callable[[], None] = lambda: None,
        drain: Drain | None = None,
    ) -> None:
        super().__init__(config)
        self._log_throttle = config.log_throttle
        self._at_exit = at_exit
        self._drain = drain
        self._draining: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        note_accept_errors(self._loop, self._log_throttle)
        await super().startup(sockets)
        shorten_pauses(self._loop)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The last signal that counts ends the server within seconds and is raised again
        afterwards. Further ones are ignored: uvicorn would leave its own tasks running, and report
        that."""
        if sig == signal.SIGTERM and self._drain is not None and self._loop is not None:
            drain, self._drain = self._drain, None  # at once: a signal may interrupt this function
            self._loop.call_soon_threadsafe(self._begin_drain, drain)
        elif not self._ending:
            self._ending = True
            self._at_exit()
            super().handle_exit(sig, frame)

    def _begin_drain(self, drain: Drain) -> None:
        self._draining = asyncio.ensure_future(self._shut_down_after(drain))

    async def _shut_down_after(self, drain: Drain) -> None:
        log.info("shutting down: running answers finish, new requests are refused")
        if not await drain():
            log.warning("answers that took longer are ended (--drain of `mlcc serve`)")
        if not self._ending:
            self._ending = True
            self._at_exit()
            self.should_exit = True  # and no signal to raise again


def bind(host: str, port: int, option: str = "--port") -> socket.socket:
    """Return a listening socket. It is bound before the model is loaded, so that a taken port is
    reported at once."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # With an explicit protocol: else asyncio leaves Nagle's algorithm on (41 ms per response).
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except OSError as error:
        raise MlccError(f"--host {host} is no address of this machine ({error.strerror})") from None
    try:
        if hasattr(socket, "SO_REUSEPORT"):  # not Windows, where it would share the port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise MlccError(_bind_error_message(host, port, error, option)) from None
    return listener


def _bind_error_message(host: str, port: int, error: OSError, option: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is in use; stop what uses it or choose another {option}"
    if error.errno == errno.EACCES:
        return f"port {port} needs more rights than you have; choose a {option} above 1023"
    return f"cannot listen on {host}:{port} ({error.strerror}); choose another --host or {option}"


def _url(http: HttpOptions, listener: socket.socket, root: str = "") -> str:
    host = f"[{http.host}]" if ":" in http.host else http.host
    return f"{'https' if http.tls else 'http'}://{host}:{listener.getsockname()[1]}{root}"


@contextmanager
def _unwind_on_sigterm() -> Iterator[None]:
    """Let SIGTERM unwind the stack while there is no server to drain yet, so that the engine's
    process is stopped."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
