"""The API key file: keys with names, scopes and per-minute limits. Validated strictly, and reloaded
when it changes.

    {"keys": [
      {"name": "ops", "key": "sk-...", "scopes": ["inference", "admin"]},
      {"name": "alice", "key": "sk-...", "requests_per_minute": 60},
      {"name": "bob", "sha256": "9f86...", "tokens_per_minute": 20000}
    ]}

Only the SHA-256 of a key is kept; errors never contain a key.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcc.errors import InvalidRequestError, MlccError, printable
from mlcc.service.http.routes import SCOPES
from mlcc.util.files import FileError, read_regular

MAX_BYTES = 4 << 20
_LIMITS = ("requests_per_minute", "tokens_per_minute")
MOST_A_MINUTE = 10**12
_FIELDS = ("name", "key", "sha256", "scopes", *_LIMITS)
_RESERVED_NAME = re.compile(r"key [0-9]+")
"""Names of the keys from the command line (`keyring.py`)."""
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")

log = logging.getLogger("mlcc.server")


@dataclass(frozen=True)
class ApiKey:
    """An API key and its limits."""

    name: str
    """Used in logs and metrics; never the key itself."""
    digest: bytes
    """SHA-256 of the key in UTF-8."""
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    """Prompt and completion tokens together; None = no limit."""
    scopes: tuple[str, ...] | None = None
    """What the key is for; None = the default (`keyring.py`)."""


def digest_of(key: str) -> bytes:
    """Return the stored form of a key."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def check_new_key(key: str) -> str:
    """Return a key that clients can send in a header. Raises InvalidRequestError."""
    if not key:
        raise InvalidRequestError(
            "the API key is empty, which would leave the server open; give --api-key (or the "
            "variable MLCC_API_KEY) a value, or leave both out to serve without a key"
        )
    if key != key.strip() or not key.isprintable():
        raise InvalidRequestError(
            "the API key has a space at an end, a line break or a control character, which no "
            "header can carry; choose another --api-key (or MLCC_API_KEY)"
        )
    return key


class KeyFile:
    """The keys of a file. Raises InvalidRequestError, with the position, if it is invalid."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last_stat = self._stat()
        self._keys = read_keys(path)

    def keys(self) -> Sequence[ApiKey]:
        """Return the current keys; checks the file for changes each time. An invalid change is
        ignored, and logged once."""
        seen = self._stat()
        if seen != self._last_stat:
            self._last_stat = seen
            try:
                self._keys = read_keys(self._path)
            except MlccError as error:
                log.error("%s; the keys that were read before still hold", error)
            else:
                log.warning("%d API keys are read from %s", len(self._keys), self._path)
        return self._keys

    def _stat(self) -> tuple[int, ...]:
        try:
            stat = os.stat(self._path)  # noqa: PTH116
        except OSError:
            return ()
        return stat.st_mtime_ns, stat.st_size, stat.st_ino


def read_keys(path: Path) -> tuple[ApiKey, ...]:
    """Read the keys of a file. Raises InvalidRequestError."""
    where = f"--api-keys {printable(str(path))}"
    try:
        raw = read_regular(path, MAX_BYTES)  # a pipe would stop the event loop
    except OSError as error:
        raise InvalidRequestError(f"{where}: {error.strerror or error}") from None
    except FileError as error:
        raise InvalidRequestError(f"{where} cannot be read: {error}") from None
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{where} is not JSON: {error}") from None
    keys = found.get("keys") if isinstance(found, dict) and len(found) == 1 else None
    if not isinstance(keys, list):
        raise InvalidRequestError(f'{where} is to be an object with one field, "keys": a list')
    if not keys:
        raise InvalidRequestError(f"{where} has no keys, which would leave the server open")
    read = tuple(_read(one, f"{where}: keys[{i}]") for i, one in enumerate(keys))
    for what, values in (("name", [k.name for k in read]), ("key", [k.digest for k in read])):
        if len({*values}) < len(values):
            second = next(i for i, value in enumerate(values) if value in values[:i])
            raise InvalidRequestError(f"{where}: keys[{second}] has the {what} of an earlier one")
    return read


def _read(value: Any, where: str) -> ApiKey:
    if not isinstance(value, dict):
        raise InvalidRequestError(f"{where} is no object")
    for name in value:
        if name not in _FIELDS:
            raise InvalidRequestError(
                f"{where} has an unknown field {name[:80]!a}; there are {', '.join(_FIELDS)}"
            )
    name = value.get("name")
    if not isinstance(name, str) or not name or not name.isprintable() or len(name) > 100:
        raise InvalidRequestError(f"{where}.name is to be a text of 1 to 100 characters")
    if _RESERVED_NAME.fullmatch(name):
        raise InvalidRequestError(
            f"{where}.name is {name[:40]!a}, as a key of --api-key is called; they would be one "
            "tenant: choose another"
        )
    limits = {limit: value[limit] for limit in _LIMITS if value.get(limit) is not None}
    for limit, number in limits.items():
        good = isinstance(number, (int, float)) and not isinstance(number, bool)
        if not good or not 1 <= number <= MOST_A_MINUTE:  # an integer of JSON may fit no float
            raise InvalidRequestError(
                f"{where}.{limit} is to be a number from 1 to {MOST_A_MINUTE}; leave it out for no "
                "limit"
            )
    return ApiKey(name, _digest(value, where), scopes=_scopes(value, where), **limits)


def _scopes(value: dict[str, Any], where: str) -> tuple[str, ...] | None:
    scopes = value.get("scopes")
    if scopes is None:
        return None
    if not isinstance(scopes, list) or not scopes or not all(one in SCOPES for one in scopes):
        known = ", ".join(f'"{scope}"' for scope in SCOPES)
        raise InvalidRequestError(f"{where}.scopes is to be a list with one or more of {known}")
    return tuple(scopes)


def _digest(value: dict[str, Any], where: str) -> bytes:
    key, digest = value.get("key"), value.get("sha256")
    if (key is None) == (digest is None):
        raise InvalidRequestError(f"{where} needs one of key and sha256")
    if digest is not None:
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise InvalidRequestError(f"{where}.sha256 is to be 64 hexadecimal digits")
        return bytes.fromhex(digest)
    if not isinstance(key, str) or not key or key != key.strip() or not key.isprintable():
        raise InvalidRequestError(
            f"{where}.key is to be a text that a header can carry: not empty, no space at an end, "
            "no control character"
        )
    return digest_of(key)
