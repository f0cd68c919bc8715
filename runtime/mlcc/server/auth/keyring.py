"""API key authentication: finds the key of a request and applies its scopes and rate limit. Each
key is a tenant of the engine."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Sequence

from starlette.requests import Request

from mlcc.api.errors import AuthenticationError, ForbiddenError
from mlcc.errors import MlccError
from mlcc.server.auth.key_file import ApiKey, KeyFile, digest_of
from mlcc.server.auth.rate_limit import RateLimiter
from mlcc.server.http.errors import ROUTER, path_of
from mlcc.service.http.routes import ADMIN, ANY_KEY, INFERENCE, SCOPES

TENANT = "mlcc.tenant"
"""Key in a scope's `state`: the tenant of the request."""
METRICS_PATH = "/metrics"
RESPONSE_HEADERS = "mlcc.headers"
"""Key in a scope's `state`: headers to add to the response."""


class Keyring:
    """All valid keys: those of the command line, named "key 1" and so on, and those of the key
    file."""

    def __init__(self, given: Sequence[str] = (), file: KeyFile | None = None) -> None:
        self._given = tuple(
            ApiKey(f"key {number}", digest_of(key)) for number, key in enumerate(given, 1)
        )
        self._file = file

    @property
    def open(self) -> bool:
        """Whether no key is needed."""
        return not self._given and self._file is None

    def find(self, sent: bytes) -> ApiKey | None:
        """Return the matching key, or None. Takes constant time."""
        keys = self._keys()
        digests = [hashlib.sha256(spelling).digest() for spelling in _spellings(sent)]
        found = [
            True in [hmac.compare_digest(key.digest, digest) for digest in digests] for key in keys
        ]
        return keys[found.index(True)] if any(found) else None

    def admits(self, sent: bytes) -> bool:
        """Whether requests with this key are answered."""
        return self.open or self.find(sent) is not None

    def scopes(self, key: ApiKey) -> tuple[str, ...]:
        """Return what a key is for. Without an entry in the file: everything if it is the only key,
        else inference, so that no tenant changes what the others get."""
        if key.scopes is not None:
            return key.scopes
        return SCOPES if len(self._keys()) == 1 else (INFERENCE,)

    @property
    def has_admin(self) -> bool:
        """Whether a key has the scope `admin`, or none is needed."""
        return self.open or any(ADMIN in self.scopes(key) for key in self._keys())

    def _keys(self) -> tuple[ApiKey, ...]:
        return (*self._given, *(self._file.keys() if self._file else ()))


class ApiKeyAuth:
    """Checks the key of a request: raises AuthenticationError without a valid one, ForbiddenError
    without the scope that the path needs, and RateLimitError above the key's limits. Stores the
    tenant in the scope."""

    def __init__(self, keyring: Keyring, rate_limiter: RateLimiter) -> None:
        self._keyring = keyring
        self._rate_limiter = rate_limiter

    async def __call__(self, request: Request) -> None:
        if self._keyring.open:
            return
        sent = sent_key(request.scope["headers"])
        key = self._keyring.find(sent)
        if key is None:
            what = "is not one of this server" if sent else "is missing"
            raise AuthenticationError(
                f"the API key {what}; send the header 'Authorization: Bearer KEY' or "
                "'x-api-key: KEY'",
                code="invalid_api_key",
            )
        state = request.scope.setdefault("state", {})
        state[TENANT] = key.name
        self._check_scope(request, key)
        if request.method == "POST":  # other methods do not use the engine
            state[RESPONSE_HEADERS] = self._rate_limiter.headers(key)
            state[RESPONSE_HEADERS] = self._rate_limiter.enter(key)

    async def identify(self, request: Request) -> None:
        """For routes that need no key: stores the tenant of a valid one."""
        if not self._keyring.open and (key := self._find(request)):
            request.scope.setdefault("state", {})[TENANT] = key.name

    def _find(self, request: Request) -> ApiKey | None:
        return self._keyring.find(sent_key(request.scope["headers"]))

    def _check_scope(self, request: Request, key: ApiKey) -> None:
        path = path_of(request.scope)
        needed, scopes = _needed_scope(request.method, path), self._keyring.scopes(key)
        if needed and needed not in scopes:
            raise ForbiddenError(
                f"{request.method} {path[:80]} needs the scope '{needed}', and the API key "
                f"'{key.name}' has: {', '.join(scopes)}; send another key, or give this one "
                f'"scopes": {json.dumps(sorted({*scopes, needed}))} in the file of --api-keys of '
                "`mlcc serve`",
                code="insufficient_scope",
            )


def _needed_scope(method: str, path: str) -> str:
    """Return the scope of a route, by the router that selects the handler. A path without a route
    needs none: a valid key gets its 404."""
    if path == METRICS_PATH:  # it has the numbers of all keys, by name
        return ADMIN
    try:
        return ROUTER.find("GET" if method == "HEAD" else method, path)[0].scope
    except MlccError:
        return ANY_KEY


def sent_key(headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return the key that was sent: the first header that contains one. Names are lower-case."""
    for name, value in headers:
        if name == b"authorization":
            scheme, _, key = bytes(value).partition(b" ")
            if scheme.lower() == b"bearer" and key.strip():
                return key.strip()
    return next((bytes(value).strip() for name, value in headers if name == b"x-api-key"), b"")


def _spellings(sent: bytes) -> tuple[bytes, bytes]:
    """Clients encode keys as UTF-8 (curl) or Latin-1 (Python's http.client); return the UTF-8 of
    both readings."""
    return sent, sent.decode("latin-1").encode()
