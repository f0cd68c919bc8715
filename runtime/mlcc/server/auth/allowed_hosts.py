"""Allowed host names, against DNS rebinding: a foreign page can make its own host name resolve to
this server, but its requests then carry that foreign name."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from mlcc.api.errors import ForbiddenError
from mlcc.errors import InvalidRequestError
from mlcc.server.asgi import headers_of
from mlcc.server.http.errors import error_response_for

LOOPBACK = ("127.0.0.1", "localhost", "::1")
FROM_CONTAINERS = ("host.docker.internal", "gateway.docker.internal", "host.containers.internal")
"""Names of this machine inside containers of Docker Desktop and Podman. No foreign page can have
one: `.internal` is reserved for private use (ICANN, 2024)."""


def is_local(host: str) -> bool:
    """Return whether only this machine can reach the host."""
    return host in LOOPBACK or host.startswith("127.")


def allowed_hosts(host: str, has_keys: bool, more: Sequence[str] = ()) -> frozenset[str] | None:
    """Return the accepted host names; None = all.

    A server that only this machine reaches, without keys, accepts this machine's own names, those
    inside containers too. In other cases only the operator knows the names (`more`).
    """
    if not more and (has_keys or not is_local(host)):
        return None
    local = (*LOOPBACK, *FROM_CONTAINERS) if is_local(host) else LOOPBACK
    return frozenset(name.lower().strip("[]") for name in (*local, host, *more))


def check_origin(origin: str) -> str:
    """Return an origin as browsers send it (RFC 6454), or "*". Raises InvalidRequestError."""
    good = origin == "*"
    with suppress(ValueError):
        found = urlsplit(origin)
        good = good or bool(found.hostname and origin == f"{found.scheme}://{found.netloc}")
    if not good:
        raise InvalidRequestError(
            f"--cors-origin {origin[:80]!a} is no origin; write it as https://a.example, with the "
            "port if it has one, or * for all"
        )
    return origin.lower()


class AllowedHosts:
    """ASGI middleware: 403 if Host or Origin is not an accepted name. `origins` are accepted as
    they are; "*" = all."""

    def __init__(
        self, app: ASGIApp, names: frozenset[str] | None, origins: Sequence[str] = ()
    ) -> None:
        self._app = app
        self._names = names
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._names is None or scope["type"] not in ("http", "websocket"):
            return await self._app(scope, receive, send)
        headers = headers_of(scope)
        origin = headers.get("origin")
        if origin in self._origins or "*" in self._origins:
            origin = None
        for name, found in (
            ("Host", _host_of("//" + headers["host"]) if "host" in headers else None),
            ("Origin", _host_of(origin) if origin is not None else None),
        ):
            if found is not None and found not in self._names:
                return await error_response_for(scope, _foreign(name, found))(scope, receive, send)
        await self._app(scope, receive, send)


def _host_of(url: str) -> str:
    """Return the host name in a URL, without port; "" if there is none (such as "null")."""
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def _foreign(header: str, found: str) -> ForbiddenError:
    return ForbiddenError(
        f"the header '{header}' names {found[:80]!a}, which is no name of this server; if it "
        "should be, start `mlcc serve` with --allowed-host NAME, --cors-origin ORIGIN or --api-key",
        code="foreign_host",
    )
