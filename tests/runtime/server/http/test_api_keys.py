"""A file of API keys: names, limits, refusals, and changes while the server runs."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from mlcc.api.errors import RateLimitError
from mlcc.errors import InvalidRequestError
from mlcc.server.auth.key_file import ApiKey, KeyFile, read_keys
from mlcc.server.auth.rate_limit import RateLimiter
from mlcc.service.observer import FinishedRequest
from tests.runtime.server.helpers.server_process import RunningServer, running

HELLO = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, "ignore_eos": True}
DIGEST = hashlib.sha256(b"ouvre-toi").hexdigest()


def write(path: Path, *keys: Any) -> Path:
    """Into its place at once, as a secret that is mounted changes."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"keys": keys}))
    return new.replace(path)


def ask(server: RunningServer, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.post(f"{server.url}/v1/chat/completions", json=HELLO, headers=named, timeout=60)


class Streams:
    """Streaming chats of one key that have begun."""

    def __init__(self, server: RunningServer, key: str, count: int) -> None:
        self._client = httpx.Client(headers={"x-api-key": key}, timeout=60)
        body = {**HELLO, "stream": True, "max_tokens": 40}
        build = partial(self._client.build_request, "POST", f"{server.url}/v1/chat/completions")
        self._open = [self._client.send(build(json=body), stream=True) for _ in range(count)]
        self._lines = [each.iter_lines() for each in self._open]
        self.begun = [next(lines) for lines in self._lines]

    def ends(self) -> list[str]:
        """The last line of each."""
        found = [[line for line in lines if line][-1] for lines in self._lines]
        self._client.close()
        return found


def test_keys_change_under_load(tmp_path: Path) -> None:
    """Answers in flight go on, the old key stops at once, and a broken file changes nothing."""
    file = write(tmp_path / "keys.json", {"name": "a", "key": "old", "scopes": ["inference"]})
    with running("--api-keys", str(file), "--delay", "0.02", "--log-level", "info") as server:
        old = Streams(server, "old", 4)
        write(file, {"name": "a", "key": "new", "scopes": ["inference"]})
        assert ask(server, x_api_key="old").status_code == 401
        assert old.ends() == ["data: [DONE]"] * 4
        new = Streams(server, "new", 4)
        file.write_text('{"keys": [{"name": "a", "key": ')
        assert ask(server, x_api_key="new").status_code == 200
        assert ask(server, x_api_key="old").status_code == 401
        assert new.ends() == ["data: [DONE]"] * 4
        file.unlink()
        assert ask(server, x_api_key="new").status_code == 200
        write(file, {"name": "b", "key": "third"})
        assert ask(server, x_api_key="new").status_code == 401
        assert ask(server, x_api_key="third").status_code == 200
        server.process.terminate()
        log = server.process.communicate(timeout=60)[1]
    assert "is not JSON" in log and "No such file" in log
    assert log.count("the keys that were read before still hold") == 2
    assert "'key'" not in log and "third" not in log, "a key is never logged"


def test_keys_their_limits_and_a_change(tmp_path: Path) -> None:
    file = write(
        tmp_path / "keys.json",
        {"name": "alice", "key": "sesame", "requests_per_minute": 2},
        {"name": "bob", "sha256": DIGEST, "tokens_per_minute": 5},
        {"name": "ops", "key": "watch", "scopes": ["admin"]},
    )
    with running("--api-keys", str(file), "--api-key", "third") as server:
        for headers in ({}, {"Authorization": "Bearer no"}, {"x_api_key": "no"}):
            assert ask(server, **headers).status_code == 401
        assert ask(server, Authorization="Bearer third").status_code == 200
        first = ask(server, x_api_key="sesame")
        assert first.status_code == 200
        assert first.headers["x-ratelimit-limit-requests"] == "2"
        assert first.headers["x-ratelimit-remaining-requests"] == "1"
        bob = ask(server, Authorization="Bearer ouvre-toi")
        assert bob.status_code == 200 and bob.headers["x-ratelimit-remaining-tokens"] == "5"
        refused = ask(server, Authorization="Bearer ouvre-toi")  # it owes some by now
        assert refused.status_code == 429 and int(refused.headers["retry-after"]) >= 1
        assert refused.headers["x-ratelimit-remaining-tokens"] == "0"
        error = refused.json()["error"]
        assert error["code"] == "rate_limit_exceeded" and "'bob'" in error["message"]
        bearer = {"Authorization": "Bearer ouvre-toi"}
        listed = httpx.get(f"{server.url}/v1/models", headers=bearer)
        assert listed.status_code == 200, "it asks nothing of the engine"
        watching = {"Authorization": "Bearer watch"}
        metrics = httpx.get(f"{server.url}/metrics", headers=watching).text
        assert 'mlcc_completion_tokens_total{key="bob",model="toy"} 2.0' in metrics
        assert "sesame" not in metrics and "ouvre" not in metrics

        write(file, {"name": "carol", "key": "fresh"})
        assert ask(server, Authorization="Bearer sesame").status_code == 401
        assert ask(server, Authorization="Bearer fresh").status_code == 200
        file.write_text("{")
        assert ask(server, Authorization="Bearer fresh").status_code == 200
        assert ask(server, Authorization="Bearer fresh").status_code == 200
        file.unlink()
        assert ask(server, Authorization="Bearer fresh").status_code == 200
        server.process.terminate()
        assert server.process.stderr
        log = server.process.stderr.read()
    assert log.count("is not JSON") == 1 and log.count("the keys that were read before") == 2
    assert not any(key in log for key in ("sesame", "fresh", DIGEST))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is not JSON"),
        ("[]", "an object with one field"),
        ('{"keys": {}}', "an object with one field"),
        ('{"keys": [], "more": 1}', "an object with one field"),
        ('{"keys": []}', "leave the server open"),
        ('{"keys": [1]}', "keys[0] is no object"),
        ('{"keys": [{"key": "a"}]}', "keys[0].name"),
        ('{"keys": [{"name": "a"}]}', "one of key and sha256"),
        ('{"keys": [{"name": "key 1", "key": "a"}]}', "choose another"),
        ('{"keys": [{"name": "a", "key": "a", "sha256": "a"}]}', "one of key and sha256"),
        ('{"keys": [{"name": "a", "key": "a "}]}', "keys[0].key"),
        ('{"keys": [{"name": "a", "sha256": "12"}]}', "64 hexadecimal"),
        ('{"keys": [{"name": "a", "key": "a", "limit": 1}]}', "unknown field 'limit'"),
        ('{"keys": [{"name": "a", "key": "a", "scopes": []}]}', "keys[0].scopes"),
        ('{"keys": [{"name": "a", "key": "a", "scopes": "admin"}]}', "keys[0].scopes"),
        ('{"keys": [{"name": "a", "key": "a", "scopes": ["root"]}]}', '"inference", "admin"'),
        ('{"keys": [{"name": "a", "key": "a", "scopes": [["admin"]]}]}', "keys[0].scopes"),
        ('{"keys": [{"name": "a", "key": "a", "requests_per_minute": 0}]}', "from 1 to"),
        (
            f'{{"keys": [{{"name": "a", "key": "a", "tokens_per_minute": 1{"0" * 400}}}]}}',
            "from 1 to",
        ),
        ('{"keys": [{"name": "a", "key": "a", "tokens_per_minute": Infinity}]}', "from 1 to"),
        (
            '{"keys": [{"name": "a", "key": "a"}, {"name": "a", "key": "b"}]}',
            "[1] has the name",
        ),
        ('{"keys": [{"name": "a", "key": "a"}, {"name": "b", "key": "a"}]}', "[1] has the key"),
    ],
)
def test_a_file_that_is_not_good(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "keys.json"
    file.write_text(content)
    with pytest.raises(InvalidRequestError) as caught:
        read_keys(file)
    assert message in caught.value.message and str(file) in caught.value.message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="No such file"):
        KeyFile(tmp_path / "none.json")


def done(tenant: str, prompt: int, completion: int) -> FinishedRequest:
    return FinishedRequest(tenant, "stop", prompt, 0, completion, 0.1, 0.2)


def test_buckets() -> None:
    now = 0.0
    rates = RateLimiter(lambda: now)
    key = ApiKey("a", b"", requests_per_minute=60, tokens_per_minute=120)
    for left in range(59, -1, -1):
        assert rates.enter(key)["x-ratelimit-remaining-requests"] == str(left)
    with pytest.raises(RateLimitError) as caught:
        rates.enter(key)
    assert caught.value.retry_after == 1
    now = 1.0
    rates.enter(key)
    rates.done(done("a", 200, 100))  # 180 more than there were
    rates.done(done("b", 1000, 0))
    now = 61.0
    with pytest.raises(RateLimitError, match="120 tokens a minute") as caught:
        rates.enter(key)
    assert caught.value.retry_after == 31
    now = 92.0
    assert rates.enter(key)["x-ratelimit-remaining-tokens"] == "2"
    more = ApiKey("a", b"", tokens_per_minute=1000)
    assert rates.enter(more)["x-ratelimit-remaining-tokens"] == "1000"
    assert rates.enter(ApiKey("a", b"")) == {}
