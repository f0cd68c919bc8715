"""`Engine` for Python in a browser's tab: a notebook over Pyodide, such as JupyterLite.

    from mlcc import Engine
    engine = await Engine.load("model/", "https://example.org/mlcc/index.js")   # in this tab
    engine = Engine.of_server("https://example.org")                           # or on a server
    answer = await engine.chat.completions.create(messages=[...])

In this tab, the npm package loads the model in a worker and computes on the visitor's GPU. Requests
and answers are those of `AsyncEngine`; `js` and `pyodide` are modules of that Python.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from importlib import import_module
from typing import Any

from mlcc.errors import InvalidRequestError, MlccError
from mlcc.local.view import View, encoded

_DATA, _DONE, _EVENT_END = "data: ", "[DONE]", "\n\n"
_JSON = {"content-type": "application/json"}


class Engine:
    """A model that answers requests; make one with `load` or `of_server`."""

    def __init__(self, fetch: Any, base: str, engine: Any = None) -> None:
        """fetch: JavaScript's function. engine: the npm package's, if the model is in this tab."""
        self._fetch, self._base, self._engine = fetch, base.rstrip("/"), engine
        self.chat = _Chat(_Answers(self, "/v1/chat/completions"))
        """Chats: `await chat.completions.create(messages=[...])`."""
        self.completions = _Answers(self, "/v1/completions")
        """Text that is continued: `await create(prompt=...)`."""
        self.embeddings = _Answers(self, "/v1/embeddings")
        """For encoders: `await create(input=...)`."""
        self.rerank = _Answers(self, "/v1/rerank")
        """For rerankers: `await create(query=..., documents=[...])`."""

    @classmethod
    async def load(cls, model: str, package: str, **options: Any) -> Engine:
        """Load a model in this tab. model: the URL of its folder; package: that of the npm
        package's index.js; the options are those of its `CreateEngine`. Raises MlccError."""
        place = import_module("js").location.href
        address = str(import_module("js").URL.new(package, place).href)
        try:
            module = await import_module("pyodide.code").run_js(f"import({json.dumps(address)})")
            engine = await module.CreateEngine(model, _object(options))
        except import_module("pyodide.ffi").JsException as error:
            raise MlccError(f"the model cannot be loaded in this tab: {error}") from error
        return cls(engine.fetch, str(import_module("js").location.origin), engine)

    @classmethod
    def of_server(cls, url: str, key: str = "") -> Engine:
        """A model that a server has, which must allow this page's origin. key: its API key."""
        engine = cls(import_module("js").fetch, url)
        engine._headers = {**_JSON, "authorization": f"Bearer {key}"} if key else _JSON
        return engine

    _headers: Mapping[str, str] = _JSON

    async def ask(self, path: str, fields: Mapping[str, Any]) -> View:
        """The whole answer to a request. Raises MlccError."""
        response = await self._response(path, fields)
        return View(json.loads(str(await response.text())))

    async def stream(self, path: str, fields: Mapping[str, Any]) -> AsyncIterator[View]:
        """The pieces of an answer, which ends when the iterator is closed. Raises MlccError."""
        response = await self._response(path, fields)
        reader, left = response.body.getReader(), b""
        try:
            while not (read := await reader.read()).done:
                *events, left = (left + bytes(read.value.to_py())).split(_EVENT_END.encode())
                for event in events:
                    text = event.decode().removeprefix(_DATA).strip()
                    if text == _DONE:
                        return
                    yield View(_checked(json.loads(text)))
        finally:
            await reader.cancel()

    async def close(self) -> None:
        """Free the model's memory, if it is in this tab. Idempotent."""
        if self._engine is not None:
            await self._engine.unload()

    async def _response(self, path: str, fields: Mapping[str, Any]) -> Any:
        body = encoded(fields).decode()
        init = {"method": "POST", "headers": dict(self._headers), "body": body}
        try:
            response = await self._fetch(f"{self._base}{path}", _object(init))
        except import_module("pyodide.ffi").JsException as error:
            raise MlccError(f"{self._base} does not answer: {error}") from error
        if response.status != 200:
            _checked(_parsed(str(await response.text())), int(response.status))
        return response


class _Answers:
    """`create` of a kind of requests, as `AsyncEngine` has it."""

    def __init__(self, engine: Engine, path: str) -> None:
        self._engine, self._path = engine, path

    async def create(self, **fields: Any) -> Any:
        """An answer, or with `stream=True` an iterator over its pieces. Raises MlccError."""
        if fields.get("stream"):
            return self._engine.stream(self._path, fields)
        return await self._engine.ask(self._path, fields)


class _Chat:
    def __init__(self, completions: _Answers) -> None:
        self.completions = completions


def _object(fields: Mapping[str, Any]) -> Any:
    """A JavaScript object."""
    js = import_module("js")
    return import_module("pyodide.ffi").to_js(dict(fields), dict_converter=js.Object.fromEntries)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return {"error": {"message": text[:200]}}


def _checked(body: Any, status: int = 200) -> Any:
    """A body that is no error. Raises MlccError, or InvalidRequestError for the caller's own."""
    error = body.get("error") if isinstance(body, dict) else None
    if error is None and status == 200:
        return body
    given = error if isinstance(error, dict) else {}
    kind = InvalidRequestError if 400 <= status < 500 else MlccError
    message = str(given.get("message") or f"the answer has the status {status}")
    raise kind(message, param=given.get("param"), code=given.get("code"))
