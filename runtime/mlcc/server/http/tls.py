"""TLS: the certificate's files, and connections until their handshake is complete.

asyncio's own TLS server creates a protocol only after the handshake and waits 60 s for it, so that
clients which never begin it would be neither counted nor bounded by `ConnectionLimits`.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uvicorn.server import ServerState

from mlcc.errors import MlccError
from mlcc.server.http.connection import REFUSED, Config, Connection


@dataclass(frozen=True)
class Tls:
    """A certificate chain and its private key: PEM files."""

    certfile: Path
    keyfile: Path | None = None
    """None = the key is in `certfile`."""

    def context(self) -> ssl.SSLContext:
        """Return the server's TLS settings. Raises MlccError if the files cannot be used
        together."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.certfile, self.keyfile, password="")
        except (OSError, ssl.SSLError) as error:
            raise MlccError(
                f"--ssl-certfile {self.certfile} and --ssl-keyfile {self.keyfile or self.certfile} "
                f"cannot be used ({error.strerror or error}); give a certificate and its key, PEM, "
                "without a password"
            ) from None
        return context


class TlsHandshake(asyncio.Protocol):
    """uvicorn's protocol object of a TLS connection until the handshake is complete. Counted among
    the connections from accept on; one timer bounds the handshake and the first request's headers.
    """

    _transport: asyncio.Transport
    _timer: asyncio.TimerHandle
    _task: asyncio.Task[None]

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._config = config
        self._arguments = (config, server_state, app_state)
        self._loop = _loop or asyncio.get_running_loop()
        self._connections: set[Any] = server_state.connections
        self._received = bytearray()
        """Data that arrives before `Connection` takes over, in the same round of the event loop."""
        self._lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connections.add(self)
        if len(self._connections) > self._config.limits.connections + REFUSED:
            return transport.abort()  # an error message would need a handshake
        self._timer = self._loop.call_later(self._config.limits.head_s, transport.abort)
        transport.pause_reading()
        self._task = self._loop.create_task(self._shake_hands())

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._connections.discard(self)

    def data_received(self, data: bytes) -> None:
        self._received += data

    def shutdown(self) -> None:
        """Close the connection: the server stops."""
        self._transport.abort()

    async def _shake_hands(self) -> None:
        transport: asyncio.Transport | None = None
        assert self._config.tls is not None
        if self._lost:
            return self._timer.cancel()
        seconds = self._config.limits.head_s
        with suppress(OSError):  # which errors of TLS and timeouts are
            transport = await self._loop.start_tls(
                self._transport,
                self,
                self._config.tls,
                server_side=True,
                ssl_handshake_timeout=seconds,
            )
        self._connections.discard(self)
        if transport is None or self._lost:  # None: lost during the handshake
            self._timer.cancel()
            return self._transport.abort()
        connection = Connection(*self._arguments)
        connection.take_over(self._transport, self._timer)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        if self._received:
            connection.data_received(bytes(self._received))
