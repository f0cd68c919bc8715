"""Access control: by host name (against DNS rebinding), and by key."""

from __future__ import annotations

from collections.abc import Iterator
from http.client import HTTPConnection
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from mlcc.commands.serve.command import note_access, serve_command
from mlcc.errors import InvalidRequestError
from mlcc.server.asgi import Settings
from mlcc.server.auth.allowed_hosts import FROM_CONTAINERS, allowed_hosts
from mlcc.server.auth.key_file import check_new_key
from tests.runtime.server.helpers.server_process import RunningServer, running

KEY = "schlüssel"


@pytest.fixture(scope="module")
def local() -> Iterator[RunningServer]:
    with running("--hosts", "known.example") as server:
        yield server


@pytest.fixture(scope="module")
def closed() -> Iterator[RunningServer]:
    with running("--api-key", KEY) as server:
        yield server


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/docs", "/web/", "/nothing"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:8000"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "evil.docker.internal"},
        {"Host": "host.docker.internal.evil.example"},
        {"Host": ""},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Host": "known.example", "Origin": "http://evil.example"},
    ],
)
def test_a_foreign_name_is_refused(
    local: RunningServer, path: str, headers: dict[str, str]
) -> None:
    answer = httpx.get(f"{local.url}{path}", headers=headers)
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "foreign_host"
    assert "--allowed-host" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Host": "localhost:9000"},
        {"Host": "[::1]:8000"},
        {"Host": "LOCALHOST"},
        {"Host": "known.example"},
        {"Host": "host.docker.internal:8000"},
        {"Host": "gateway.docker.internal"},
        {"Host": "host.containers.internal:8000"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "http://127.0.0.1:8000"},
        {"Origin": "https://known.example"},
    ],
)
def test_a_name_of_this_machine_is_not(local: RunningServer, headers: dict[str, str]) -> None:
    assert httpx.get(f"{local.url}/v1/models", headers=headers).status_code == 200


def test_where_names_are_looked_at() -> None:
    loopback = {"127.0.0.1", "localhost", "::1"}
    local = {*loopback, *FROM_CONTAINERS}
    assert allowed_hosts("127.0.0.1", False) == local
    assert allowed_hosts("localhost", False, ["A.example"]) == local | {"a.example"}
    assert allowed_hosts("127.0.0.1", True) is None
    assert allowed_hosts("0.0.0.0", False) is None
    assert allowed_hosts("0.0.0.0", True, ["a.example"]) == loopback | {"0.0.0.0", "a.example"}


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_key_that_is_not_ascii(closed: RunningServer, encoding: str) -> None:
    def status(key: str) -> int:
        connection = HTTPConnection(closed.url.removeprefix("http://"), timeout=60)
        connection.putrequest("GET", "/v1/models")
        connection.putheader("Authorization", f"Bearer {key}".encode(encoding))
        connection.endheaders()
        return connection.getresponse().status

    assert status(KEY) == 200
    assert status("schlussel") == status("schlüssal") == status("") == 401


def test_no_key_is_no_key_and_not_an_empty_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def error_of(*options: str) -> BaseException | None:
        return CliRunner().invoke(serve_command, ["no-such-model", *options]).exception

    assert "empty" in str(error_of("--api-key", ""))
    monkeypatch.setenv("MLCC_API_KEY", "")
    assert "empty" in str(error_of())
    monkeypatch.delenv("MLCC_API_KEY")
    assert "empty" not in str(error_of())


@pytest.mark.parametrize("key", ["", " k", "k\n", "a\nb", "a\0"])
def test_a_key_that_no_client_can_send(key: str) -> None:
    with pytest.raises(InvalidRequestError):
        check_new_key(key)


@pytest.mark.parametrize(("keys", "notes"), [((), 0), (("a",), 0), (("a", "b"), 1)])
def test_keys_of_which_none_is_an_administrators_are_noted(
    capsys: pytest.CaptureFixture[str], keys: tuple[str, ...], notes: int
) -> None:
    plan: Any = SimpleNamespace(
        server=SimpleNamespace(host="127.0.0.1"),
        settings=Settings(api_keys=keys),
        has_keys=bool(keys),
    )
    note_access(plan)
    assert capsys.readouterr().err.count("no API key has the scope 'admin'") == notes
