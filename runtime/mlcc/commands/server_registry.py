"""Registry of this user's running servers: each holds a locked file that `ps`, `stop` and `launch`
read. Also the HTTP client of these commands, on the standard library.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import OpenerDirector, ProxyHandler, Request, build_opener

from mlcc.errors import InvalidRequestError, MlccError, printable
from mlcc.util import user_folders

try:
    import fcntl
except ImportError:  # Windows, which has no such locks
    fcntl = None  # type: ignore[assignment]

KEY_VARIABLE = "MLCC_API_KEY"
DEFAULT_URL = "http://127.0.0.1:8000"
_ASK_S = 10.0


@dataclass(frozen=True)
class Server:
    """A server at `url`; `pid` is 0 if this user did not start it on this machine."""

    url: str
    pid: int = 0

    def models(self) -> list[dict[str, Any]]:
        """The list of /v1/models. Raises MlccError if no server answers."""
        found: list[dict[str, Any]] = ask(self.url, "/v1/models")["data"]
        return found


def state_folder() -> Path:
    """Folder for state between runs, such as history and the registry (XDG_STATE_HOME)."""
    return user_folders.state()


@contextmanager
def announced(url: str) -> Iterator[None]:
    """Register this process's server while the context is open. A folder that cannot be written is
    no error: the server is then not listed."""
    file = state_folder() / "servers" / f"{os.getpid()}.json"
    with ExitStack() as stack:
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            stack.callback(_remove, file)  # after it is closed, as Windows wants it
            opened = stack.enter_context(file.open("w", encoding="utf-8"))
            _lock(opened)
            opened.write(json.dumps({"url": url}))
            opened.flush()
        if fcntl is None:
            from mlcc.util import windows

            stack.enter_context(windows.stoppable())
        yield


def _remove(file: Path) -> None:
    with suppress(OSError):
        file.unlink(missing_ok=True)


def servers(url: str | None = None) -> list[Server]:
    """The running servers, or the one at a URL, which may be one of them."""
    if url is None:
        return _registered()
    address = checked_url(url)
    return [next((each for each in _registered() if each.url == address), Server(address))]


def _registered() -> list[Server]:
    found = []
    folder = state_folder() / "servers"
    for file in sorted(folder.glob("*.json")) if folder.is_dir() else []:
        with suppress(OSError, ValueError, KeyError, TypeError):
            pid = int(file.stem)
            with file.open(encoding="utf-8") as opened:
                if not _is_locked(opened, pid):
                    file.unlink()  # it was killed, and its number may be another program's by now
                    continue
                found.append(Server(str(json.load(opened)["url"]), pid))
    return found


def checked_url(url: str) -> str:
    """A server's URL without a trailing /v1. Raises InvalidRequestError if it is malformed."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidRequestError(f"--url {url!r} is no address; type --url http://HOST:PORT")
    return url.rstrip("/").removesuffix("/v1")


def ask(url: str, path: str, body: Any = None, seconds: float = _ASK_S) -> Any:
    """A whole answer as JSON. Raises MlccError with the server's message, or if none answers."""
    with opened(url, path, body, seconds) as response:
        try:
            return json.load(response)
        except ValueError:
            raise MlccError(f"{url}{path} answers something else than JSON") from None


@contextmanager
def opened(url: str, path: str, body: Any = None, seconds: float | None = None) -> Iterator[Any]:
    """Open a response for reading. Raises MlccError."""
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get(KEY_VARIABLE):
        headers["Authorization"] = f"Bearer {key}"
    data = None if body is None else json.dumps(body).encode()
    request = Request(url + path, data, headers)
    try:
        response = _opener(url).open(request, timeout=seconds)
    except HTTPError as error:
        raise _refused(url, error) from None
    except (OSError, HTTPException) as error:
        reason = printable(str(getattr(error, "reason", error)) or type(error).__name__)
        raise MlccError(
            f"no server answers at {url} ({reason}); start one with `mlcc serve`, or give --url"
        ) from None
    with response:
        try:
            yield response
        except (OSError, HTTPException) as error:
            raise _broken_off(url) from error


def _opener(url: str) -> OpenerDirector:
    """Without the environment's proxies for local servers, which a proxy cannot reach."""
    local = urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")
    return build_opener(ProxyHandler({})) if local else build_opener()


def _broken_off(url: str) -> MlccError:
    return MlccError(
        f"{url} broke off in the middle of its answer; `mlcc ps` lists the servers that run"
    )


def events(url: str, response: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The chunks of a stream from `url`. Raises MlccError if a chunk reports a failure, or if the
    stream ends early."""
    for line in response:
        text = line.decode("utf-8", "replace").strip()
        if not text.startswith("data:"):
            continue
        text = text.removeprefix("data:").strip()
        if text == "[DONE]":
            return
        try:
            chunk = json.loads(text)
        except ValueError:
            raise MlccError(f"{url} streams something else than JSON") from None
        if error := chunk.get("error"):
            raise MlccError(str(error.get("message") if isinstance(error, dict) else error))
        yield chunk
    raise _broken_off(url)


def _refused(url: str, error: HTTPError) -> MlccError:
    text, code = "", None
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        found = json.load(error)["error"]
        text, code = str(found["message"]), found.get("code")
    hint = f"; set {KEY_VARIABLE} to a key of it" if error.code == 401 else ""
    return MlccError(f"{url}: {text or f'answers {error.code} {error.reason}'}{hint}", code=code)


def _lock(file: IO[str]) -> None:
    """Lock a file until the process ends. Raises OSError."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX)


def _is_locked(file: IO[str], pid: int) -> bool:
    """Whether the process that registered it still runs."""
    if fcntl is None:
        from mlcc.util import windows

        return windows.runs(pid)
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
