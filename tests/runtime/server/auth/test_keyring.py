"""Keys, scopes, limits and host names in this process: every byte of a digest counts."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from mlcc.api.errors import AuthenticationError, ForbiddenError, RateLimitError
from mlcc.errors import InvalidRequestError
from mlcc.server.auth.allowed_hosts import (
    FROM_CONTAINERS,
    LOOPBACK,
    AllowedHosts,
    allowed_hosts,
    check_origin,
    is_local,
)
from mlcc.server.auth.key_file import (
    MAX_BYTES,
    MOST_A_MINUTE,
    ApiKey,
    KeyFile,
    check_new_key,
    digest_of,
    read_keys,
)
from mlcc.server.auth.keyring import RESPONSE_HEADERS, TENANT, ApiKeyAuth, Keyring
from mlcc.server.auth.rate_limit import RateLimiter, TokenBucket
from mlcc.service.observer import FinishedRequest

KEY = "a-long-random-key"


def written(path: Path, *keys: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"keys": keys}))
    return path


def request(
    *headers: tuple[bytes, bytes], method: str = "POST", path: str = "/v1/chat/completions"
) -> Request:
    scope = {"type": "http", "method": method, "path": path, "headers": list(headers)}
    return Request({**scope, "root_path": "", "query_string": b""})


def bearer(key: str) -> tuple[bytes, bytes]:
    return b"authorization", b"Bearer " + key.encode()


@pytest.mark.parametrize("byte", range(32))
def test_every_byte_of_a_digest_is_compared(tmp_path: Path, byte: int) -> None:
    digest = bytearray(hashlib.sha256(KEY.encode()).digest())
    digest[byte] ^= 1
    keyring = Keyring(file=KeyFile(written(tmp_path / "k", {"name": "a", "sha256": digest.hex()})))
    assert keyring.find(KEY.encode()) is None
    digest[byte] ^= 1
    written(tmp_path / "k", {"name": "b", "sha256": digest.hex().upper()})
    found = keyring.find(KEY.encode())
    assert found is not None and found.name == "b"


def test_keys_with_digests_that_begin_alike_are_different() -> None:
    first, second = _alike(4)
    assert Keyring([first]).find(second.encode()) is None
    found = Keyring([first, second]).find(second.encode())
    assert found is not None and found.name == "key 2"


def _alike(count: int) -> tuple[str, str]:
    """Two keys whose digests begin with the same bytes: a birthday of some 80,000 for 4."""
    seen: dict[bytes, str] = {}
    for number in range(1 << 20):
        key = f"k{number}"
        other = seen.setdefault(hashlib.sha256(key.encode()).digest()[:count], key)
        if other != key:
            return other, key
    raise AssertionError


@pytest.mark.parametrize(
    "sent", [b"", KEY[:-1].encode(), (KEY + "x").encode(), KEY.upper().encode()]
)
def test_a_part_of_a_key_is_no_key(sent: bytes) -> None:
    assert Keyring([KEY, "other"]).find(sent) is None


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_both_spellings_of_a_key_are_the_key(encoding: str) -> None:
    found = Keyring(["x", "clé"]).find("clé".encode(encoding))
    assert found is not None and found.name == "key 2"


def test_a_key_is_stored_as_its_whole_sha256() -> None:
    assert digest_of("ab\udc80") == hashlib.sha256(b"ab\x80").digest()
    assert len(digest_of(KEY)) == 32


def test_open_means_no_key_of_either_kind(tmp_path: Path) -> None:
    file = KeyFile(written(tmp_path / "k", {"name": "a", "key": KEY}))
    assert Keyring().open and Keyring().has_admin
    assert not Keyring([KEY]).open and not Keyring(file=file).open
    assert not Keyring(["other"], file).open


def test_scopes_of_one_key_and_of_several(tmp_path: Path) -> None:
    one = Keyring([KEY])
    key = one.find(KEY.encode())
    assert key is not None and set(one.scopes(key)) == {"inference", "admin"} and one.has_admin
    two = Keyring([KEY, "other"])
    assert two.scopes(key) == ("inference",) and not two.has_admin
    rows = {"name": "a", "key": "a", "scopes": ["admin"]}, {"name": "b", "key": "b"}
    file = Keyring(file=KeyFile(written(tmp_path / "k", *rows)))
    admin, plain = file.find(b"a"), file.find(b"b")
    assert admin and plain and file.has_admin
    assert file.scopes(admin) == ("admin",) and file.scopes(plain) == ("inference",)


async def enter(auth: ApiKeyAuth, sent: Request) -> dict[str, Any]:
    await auth(sent)
    return dict(sent.scope.get("state", {}))


def auth_of(*keys: str, limits: RateLimiter | None = None) -> ApiKeyAuth:
    return ApiKeyAuth(Keyring(keys), limits or RateLimiter())


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [bearer("wrong")],
        [bearer("")],
        [(b"authorization", b"Basic " + KEY.encode())],
        [(b"authorization", KEY.encode())],
        [(b"x-api-key", b"wrong")],
        [(b"api-key", KEY.encode())],
        [bearer("wrong"), (b"x-api-key", KEY.encode())],  # the first that names one counts
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_without_a_valid_key_a_request_is_refused(
    headers: list[tuple[bytes, bytes]], method: str
) -> None:
    sent = request(*headers, method=method)
    with pytest.raises(AuthenticationError) as error:
        asyncio.run(enter(auth_of(KEY), sent))
    assert error.value.code == "invalid_api_key"
    assert ("is missing" in error.value.message) == (not headers or headers[0][1] in (
        b"Bearer ", b"Basic " + KEY.encode(), KEY.encode()))  # fmt: skip
    assert not sent.scope.get("state")


@pytest.mark.parametrize(
    "headers",
    [
        [bearer(KEY)],
        [(b"authorization", b"bearer  " + KEY.encode() + b" ")],
        [(b"x-api-key", b" " + KEY.encode())],
        [(b"authorization", b"Basic eA=="), (b"x-api-key", KEY.encode())],
        [bearer(""), (b"x-api-key", KEY.encode())],
    ],
)
def test_a_valid_key_names_the_tenant(headers: list[tuple[bytes, bytes]]) -> None:
    state = asyncio.run(enter(auth_of("other", KEY), request(*headers)))
    assert state == {TENANT: "key 2", RESPONSE_HEADERS: {}}
    got = request(*headers, method="GET")
    assert asyncio.run(enter(auth_of("other", KEY), got)) == {TENANT: "key 2"}
    assert asyncio.run(enter(auth_of(), request())) == {}


def test_a_route_without_keys_learns_the_tenant_of_a_valid_one() -> None:
    async def identified(auth: ApiKeyAuth, sent: Request) -> dict[str, Any]:
        await auth.identify(sent)
        return dict(sent.scope.get("state", {}))

    assert asyncio.run(identified(auth_of(KEY), request(bearer(KEY)))) == {TENANT: "key 1"}
    assert asyncio.run(identified(auth_of(KEY), request(bearer("wrong")))) == {}
    assert asyncio.run(identified(auth_of(), request(bearer(KEY)))) == {}


@pytest.mark.parametrize(("method", "path"), [
    ("GET", "/metrics"), ("HEAD", "/metrics"), ("POST", "/v1/load_lora_adapter"),
])  # fmt: skip
def test_a_scope_that_a_key_lacks_is_named(method: str, path: str) -> None:
    keys = auth_of(KEY, "other")
    with pytest.raises(ForbiddenError, match="needs the scope 'admin'") as error:
        asyncio.run(enter(keys, request(bearer(KEY), method=method, path=path)))
    assert error.value.code == "insufficient_scope"
    assert '"scopes": ["admin", "inference"]' in error.value.message
    asyncio.run(enter(auth_of(KEY), request(bearer(KEY), method=method, path=path)))
    asyncio.run(enter(keys, request(bearer(KEY), method=method, path="/nothing/here")))
    asyncio.run(enter(keys, request(bearer(KEY), method="HEAD", path="/v1/models")))


GOOD = {"name": "a", "key": KEY}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({}, "name is to be"),
        ({"name": ""}, "name is to be"),
        ({"name": 3}, "name is to be"),
        ({"name": "x" * 101}, "name is to be"),
        ({"name": "a\x00"}, "name is to be"),
        ({"name": "key 1"}, "would be one"),
        ({"name": "key 123"}, "would be one"),
        ({"nmae": "a"}, "unknown field 'nmae'"),
        ({"name": "a", "key": KEY, "sha256": "0" * 64}, "needs one of"),
        ({"name": "a"}, "needs one of"),
        ({"name": "a", "key": ""}, "not empty"),
        ({"name": "a", "key": 7}, "not empty"),
        ({"name": "a", "key": " x"}, "not empty"),
        ({"name": "a", "key": "a\x7f"}, "not empty"),
        ({"name": "a", "sha256": "0" * 63}, "64 hexadecimal"),
        ({"name": "a", "sha256": "0" * 65}, "64 hexadecimal"),
        ({"name": "a", "sha256": "g" * 64}, "64 hexadecimal"),
        ({"name": "a", "sha256": 1}, "64 hexadecimal"),
        ({**GOOD, "requests_per_minute": 0}, "from 1 to"),
        ({**GOOD, "requests_per_minute": 0.9}, "from 1 to"),
        ({**GOOD, "tokens_per_minute": MOST_A_MINUTE + 1}, "from 1 to"),
        ({**GOOD, "tokens_per_minute": 10**400}, "from 1 to"),
        ({**GOOD, "tokens_per_minute": True}, "from 1 to"),
        ({**GOOD, "tokens_per_minute": "9"}, "from 1 to"),
        ({**GOOD, "tokens_per_minute": float("inf")}, "from 1 to"),
        ({**GOOD, "tokens_per_minute": float("nan")}, "from 1 to"),
        ({**GOOD, "scopes": []}, "one or more of"),
        ({**GOOD, "scopes": "admin"}, "one or more of"),
        ({**GOOD, "scopes": ["admin", "root"]}, "one or more of"),
        ([], "is no object"),
    ],
)
def test_a_row_that_is_not_good_is_named(tmp_path: Path, row: Any, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=rf"keys\[1\].*{words}") as error:
        read_keys(written(tmp_path / "k", {"name": "good", "key": "other"}, row))
    assert KEY not in error.value.message, "errors never contain a key"


def test_a_pipe_instead_of_the_file_stops_nothing(tmp_path: Path) -> None:
    """Opening it to read would wait for a writer, in the event loop."""
    path = tmp_path / "k"
    path.write_text('{"keys": [{"name": "a", "key": "b"}]}')
    file = KeyFile(path)
    path.unlink()
    os.mkfifo(path)
    (key,) = file.keys()
    assert key.name == "a"
    with pytest.raises(InvalidRequestError, match="cannot be read: it is no regular file"):
        KeyFile(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", 'one field, "keys"'),
        ('{"keys": {}}', 'one field, "keys"'),
        ('{"keys": [], "more": 1}', 'one field, "keys"'),
        ('{"keys": []}', "leave the server open"),
        ('{"keys": [{"name": "a", "key": "b"}]}' + " " * MAX_BYTES, "larger than 4 MiB"),
        ('{"keys": [{"name": "a", "key": "b"}, {"name": "a", "key": "c"}]}', r"\[1\] has the name"),
        ('{"keys": [{"name": "a", "key": "b"}, {"name": "c", "key": "b"}]}', r"\[1\] has the key"),
    ],
)
def test_a_file_that_is_not_good_is_refused(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "k").write_text(content)
    with pytest.raises(InvalidRequestError, match=words):
        read_keys(tmp_path / "k")


def test_what_a_row_may_say(tmp_path: Path) -> None:
    rows = (
        {"name": "x" * 100, "key": "a", "requests_per_minute": 1, "tokens_per_minute": 2.5},
        {"name": "most", "key": "most", "tokens_per_minute": MOST_A_MINUTE},
        {"name": "key 1a", "sha256": "A" * 64, "requests_per_minute": None},
        {"name": "b", "key": "b", "scopes": ["inference"]},
    )
    first, most, second, third = read_keys(written(tmp_path / "k", *rows))
    assert first == ApiKey("x" * 100, digest_of("a"), 1, 2.5)
    assert most.tokens_per_minute == 10**12
    assert second == ApiKey("key 1a", b"\xaa" * 32)
    assert third.scopes == ("inference",)


@pytest.mark.parametrize("key", ["", " ", " a", "a ", "a\n", "a\x7fb"])
def test_a_key_that_no_header_carries_is_refused(key: str) -> None:
    with pytest.raises(InvalidRequestError, match="the API key "):
        check_new_key(key)


def test_a_key_that_a_header_carries_is_taken() -> None:
    assert check_new_key("a b-é") == "a b-é"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_reading_needs_a_scope_too(tmp_path: Path, method: str) -> None:
    file = KeyFile(written(tmp_path / "k", {"name": "a", "key": KEY, "scopes": ["admin"]}))
    auth = ApiKeyAuth(Keyring(file=file), RateLimiter())
    with pytest.raises(ForbiddenError, match="needs the scope 'inference'"):
        asyncio.run(enter(auth, request(bearer(KEY), method=method, path="/v1/responses/resp_1")))


def test_a_file_of_the_most_bytes_is_read(tmp_path: Path) -> None:
    text = json.dumps({"keys": [GOOD]})
    (tmp_path / "k").write_text(text + " " * (MAX_BYTES - len(text)))
    assert len(read_keys(tmp_path / "k")) == 1
    assert MAX_BYTES == 4 * 1024 * 1024


def test_an_invalid_change_keeps_the_keys_and_a_valid_one_replaces_them(tmp_path: Path) -> None:
    file = KeyFile(written(tmp_path / "k", GOOD))
    before = file.keys()
    assert before is file.keys(), "an unchanged file is not read again"
    (tmp_path / "k").write_text("{")
    assert file.keys() == before
    (tmp_path / "k").unlink()
    assert file.keys() == before
    written(tmp_path / "new", {"name": "b", "key": "bbb"})
    (tmp_path / "new").replace(tmp_path / "k")
    now = file.keys()
    assert [key.name for key in now] == ["b"]


def test_a_bucket_refills_to_its_level_and_no_further() -> None:
    bucket = TokenBucket(60, 0, 0)
    assert bucket.wait(2) == 2 and bucket.wait(0) == 0
    bucket.fill(2)
    assert bucket.level == 2 and bucket.wait(2) == 0 and bucket.wait(3) == 1
    bucket.fill(1000)
    assert bucket.level == 60


def limited(clock: Callable[[], float]) -> tuple[RateLimiter, ApiKey]:
    return RateLimiter(clock), ApiKey("a", b"", requests_per_minute=2, tokens_per_minute=100)


def usage(tenant: str, prompt_tokens: int, background: bool = False) -> FinishedRequest:
    return FinishedRequest(tenant, "stop", prompt_tokens, 0, 40, 0.1, 0.2, background)


def test_limits_of_requests_and_tokens() -> None:
    now = [0.0]
    limits, key = limited(lambda: now[0])
    assert limits.headers(key)["x-ratelimit-remaining-requests"] == "2", "asking costs nothing"
    assert limits.enter(key) == {
        "x-ratelimit-limit-requests": "2", "x-ratelimit-remaining-requests": "1",
        "x-ratelimit-reset-requests": "30.000s", "x-ratelimit-limit-tokens": "100",
        "x-ratelimit-remaining-tokens": "100", "x-ratelimit-reset-tokens": "0.000s",
    }  # fmt: skip
    limits.enter(key)
    with pytest.raises(RateLimitError, match="its 2 requests a minute") as error:
        limits.enter(key)
    assert error.value.retry_after == 30
    now[0] = 30
    limits.enter(key)
    now[0] = 120
    limits.done(usage("a", 70))
    limits.done(usage("b", 70))
    limits.done(usage("a", 70, background=True))
    with pytest.raises(RateLimitError, match="its 100 tokens a minute") as error:
        limits.enter(key)
    assert error.value.retry_after == 7, "11 tokens of 100 a minute, from 10 below zero"
    assert limits.headers(key)["x-ratelimit-remaining-tokens"] == "0"
    assert limits.headers(key)["x-ratelimit-remaining-requests"] == "2", "a refusal costs nothing"
    now[0] = 127
    limits.enter(key)


def test_exactly_no_tokens_left_is_none_left() -> None:
    limits, key = limited(lambda: 0.0)
    limits.enter(key)
    limits.done(usage("a", 60))
    with pytest.raises(RateLimitError) as error:
        limits.enter(key)
    assert error.value.retry_after == 1


def test_a_changed_limit_starts_anew_and_none_has_no_headers() -> None:
    limits, key = limited(lambda: 0.0)
    limits.enter(key)
    assert limits.headers(ApiKey("a", b"")) == {}
    assert limits.headers(key)["x-ratelimit-remaining-requests"] == "2"
    more = ApiKey("a", b"", requests_per_minute=9)
    assert limits.enter(more)["x-ratelimit-remaining-requests"] == "8"


async def messages(names: frozenset[str] | None, origins: list[str], **headers: str) -> list[Any]:
    """What a request through the middleware is sent; a status alone = it passed."""
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        sent.append({"status": 200})

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    scope = {"type": headers.pop("kind", "http"), "method": "GET", "path": "/", "root_path": ""}
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    await AllowedHosts(app, names, origins)({**scope, "headers": pairs}, receive, send)
    return sent


async def passes(names: frozenset[str] | None, origins: list[str], **headers: str) -> int:
    """The status of a request through the middleware; 200 = it passed."""
    first = (await messages(names, origins, **headers))[0]
    return int(first["status"]) if "status" in first else 403


LOCAL = allowed_hosts("127.0.0.1", False)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:8000"}, 200),
        ({"host": "LOCALHOST"}, 200),
        ({"host": "[::1]:80"}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": "127.0.0.1.evil.example"}, 403),
        ({"host": ""}, 403),
        ({"host": "[::1"}, 403),
        ({"host": "localhost", "origin": "http://localhost:3000"}, 200),
        ({"host": "localhost", "origin": "http://evil.example"}, 403),
        ({"host": "localhost", "origin": "null"}, 403),
        ({"host": "localhost", "origin": "https://good.example"}, 200),
        ({"host": "evil.example", "origin": "https://good.example"}, 403),
        ({"host": "evil.example", "kind": "lifespan"}, 200),
    ],
)
def test_host_and_origin_must_be_names_of_this_machine(
    headers: dict[str, str], status: int
) -> None:
    assert asyncio.run(passes(LOCAL, ["https://good.example"], **headers)) == status
    assert asyncio.run(passes(None, [], **headers)) == 200


@pytest.mark.parametrize("name", ["Host", "Origin"])
def test_a_refusal_names_the_header(name: str) -> None:
    evil = "evil.example" if name == "Host" else "http://evil.example"
    headers = {"host": "localhost", name.lower(): evil}
    body = asyncio.run(messages(LOCAL, [], **headers))[-1]["body"]
    assert f"the header '{name}' names" in body.decode()


def test_all_origins_are_not_all_hosts() -> None:
    assert asyncio.run(passes(LOCAL, ["*"], host="localhost", origin="http://evil.example")) == 200
    assert asyncio.run(passes(LOCAL, ["*"], host="evil.example")) == 403


def test_which_names_are_allowed() -> None:
    assert {*LOOPBACK, *FROM_CONTAINERS} == LOCAL
    assert allowed_hosts("127.0.0.1", True) is None and allowed_hosts("0.0.0.0", False) is None
    assert allowed_hosts("127.9.9.9", False) == {*LOCAL, "127.9.9.9"}
    assert allowed_hosts("0.0.0.0", True, ["A.example", "[fe80::1]"]) == {
        *LOOPBACK, "0.0.0.0", "a.example", "fe80::1"
    }  # fmt: skip
    assert is_local("localhost") and is_local("::1") and not is_local("128.0.0.1")


@pytest.mark.parametrize("origin", ["*", "https://a.example", "http://A.example:80"])
def test_an_origin_is_taken_as_browsers_send_it(origin: str) -> None:
    assert check_origin(origin) == origin.lower()


@pytest.mark.parametrize(
    "origin",
    ["", "a.example", "https://", "https://a.example/", "https://a.example/x", "http://[", "**"],
)
def test_what_is_no_origin_is_refused(origin: str) -> None:
    with pytest.raises(InvalidRequestError, match="is no origin"):
        check_origin(origin)
