"""The chat page: at / on top of this server's engine, or at /web/ with a model that runs in the
visitor's browser and is served at /web/model/.

Only files of two fixed lists are served (`static_files.py`): the page's folder, and the files that
the model's manifest names. The only generated response is site.json, which tells the page which API
and model exist.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from mlcc.api.ollama.models import RUNNING
from mlcc.artifact.checks.integrity import resolve_inside
from mlcc.artifact.folder import Artifact
from mlcc.artifact.manifest import Manifest
from mlcc.artifact.schema import MANIFEST_NAME
from mlcc.errors import ArtifactError, InvalidRequestError, UnsupportedError
from mlcc.model_cache.cache import is_compiled
from mlcc.server.auth.allowed_hosts import AllowedHosts, is_local
from mlcc.server.http.static_files import (
    ANY_HOST,
    INDEX,
    SECURITY,
    StaticFiles,
    headers,
    not_found,
)

TARGET = "webgpu"
PAGE_URL = "/web/"

_WHEEL = "mlcc_web"
"""The package that contains the built page."""
_IN_CLONE = Path(__file__).resolve().parents[3] / "web" / "dist" / "page"
_FOR_SERVERS = Path(__file__).with_name("page")
"""The page without the parts that run a model in the visitor's tab."""
_WORKER = "worker.js"


def is_for_browsers(model: str) -> bool:
    """Return whether this is a compiled model for browsers. Raises ArtifactError if it is
    damaged."""
    return is_compiled(model) and _manifest(Path(model)).target.name == TARGET


def page_folder(*, in_tab: bool = False) -> Path:
    """Return the folder of the built page; in_tab: one that runs models in the visitor's tab.
    Raises UnsupportedError if there is none."""
    wheel = find_spec(_WHEEL)
    found = wheel.submodule_search_locations if wheel else None
    for folder in (*(Path(place) / "page" for place in found or ()), _IN_CLONE, _FOR_SERVERS):
        if (folder / INDEX).is_file() and (not in_tab or (folder / _WORKER).is_file()):
            return folder
    if in_tab and (_FOR_SERVERS / INDEX).is_file():
        raise UnsupportedError(
            "the chat page that is here has no engine for a tab; install the wheel mlcc-web, or in "
            "a clone of mlcc type `python3 dev.py web`, then try again"
        )
    raise UnsupportedError(
        "the chat page is not here; install the wheel mlcc-web, or in a clone of mlcc type "
        "`python3 dev.py web`, then try again"
    )


def model_files(folder: Path) -> dict[str, Path]:
    """Return the files of a model that the page may fetch. Raises ArtifactError if it is not for
    browsers."""
    manifest = _manifest(folder)
    if manifest.target.name != TARGET:
        raise ArtifactError(
            f"{folder}: compiled for target '{manifest.target.name}', which no browser runs; "
            f"compile the model with `mlcc compile MODEL --target {TARGET}`"
        )
    names = [MANIFEST_NAME, *(entry.path for entry in manifest.files)]
    return {name: resolve_inside(folder, name) for name in names}


def page_files(folder: Path) -> dict[str, Path]:
    """Return the page's files by name; the empty name is the index."""
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    files = {name: path for name, path in found.items() if path.is_file()}
    return {"": files[INDEX], **files}


@dataclass(frozen=True)
class Manages:
    """What requests may change of the models of a server."""

    loads: bool = False
    """Models are loaded and unloaded."""
    pulls: bool = False
    """Models are fetched."""


@dataclass(frozen=True)
class PageAccess:
    """What a page may do beside asking this server's models."""

    manages: Manages = Manages()
    mcp: tuple[str, ...] = ()
    """URLs of MCP servers (`checked_mcp`); the page's policy permits these, exactly."""


def checked_mcp(url: str) -> str:
    """Return the URL of an MCP server as browsers write it. Raises InvalidRequestError for one that
    is neither https nor on this machine, or that a Content-Security-Policy cannot name."""
    with suppress(ValueError):
        found = urlsplit(url)
        is_safe = found.scheme == "https" or (
            found.scheme == "http" and is_local(found.hostname or "")
        )
        if is_safe and found.hostname and _MCP_URL.fullmatch(url):
            host = found.netloc.lower()
            return f"{found.scheme}://{host}{found.path or '/'}"
    raise InvalidRequestError(
        f"--mcp {url[:80]!a} is no address of an MCP server; write it as https://a.example/mcp, or "
        "as http://127.0.0.1:9000/mcp on this machine, without a query"
    )


_MCP_URL = re.compile(r"https?://[\w.:\[\]-]+(/[\w./~%-]*)?", re.ASCII)


@dataclass(frozen=True)
class Site:
    """Content of site.json: URLs relative to the page; None = absent."""

    api: str | None
    """URL under which /v1 is found."""
    model: str | None
    """Folder of a model for the visitor's GPU."""
    access: PageAccess = PageAccess()

    async def answer(self, request: Request) -> Response:
        """Endpoint of site.json."""
        # A page with remote models may reach any host (`static_files.policy`).
        mcp = None if self.model else list(self.access.mcp)
        site = {"api": self.api, "model": self.model, "mcp": mcp, **asdict(self.access.manages)}
        return JSONResponse(site, headers=headers("site.json"))


def page_routes(
    page: Path, model: Path | None = None, access: PageAccess | None = None
) -> list[BaseRoute]:
    """Return the routes of the page at / for this server's API and, with a model for browsers, at
    /web/ too. They go before the API's routes. Raises ArtifactError."""
    access = access or PageAccess()
    connects = ANY_HOST if model else access.mcp
    files = StaticFiles(page_files(page), gzip_code=True, connects=connects)
    site = Site("./", "web/model/" if model else None, access)
    routes: list[BaseRoute] = [Route("/site.json", site.answer)]
    routes += [
        _root_route(files, name) for name in sorted({_top_level(name) for name in files.files})
    ]
    return [*routes, *(web_routes(page, model, api="../") if model else no_web_routes())]


def web_routes(page: Path, model: Path, api: str | None = None) -> list[BaseRoute]:
    """Return the routes of the page at /web/ and its model; `api` is the API's URL relative to the
    page. Raises ArtifactError."""
    return [
        Route("/web", _to_page),
        Route("/web/site.json", Site(api, "model/").answer),
        Route("/web/model/{name:path}", StaticFiles(model_files(model)).answer),
        Route("/web/{name:path}", StaticFiles(page_files(page), gzip_code=True).answer),
    ]


def no_page_routes(why: str) -> list[BaseRoute]:
    """Return routes that explain why there is no page at /. Its status is 200, as clients of Ollama
    look for a server there."""

    async def answer(request: Request) -> Response:
        words = f"{RUNNING}, described at /docs. {why[:1].upper()}{why[1:]}.\n"
        return PlainTextResponse(words, 200, SECURITY)

    return [Route("/", answer), *no_web_routes()]


def no_web_routes() -> list[BaseRoute]:
    """Return routes for /web on a server without a model for browsers."""
    return [Route("/web", _no_page), Route("/web/{name:path}", _no_page)]


def _top_level(name: str) -> str:
    """Return the top-level folder of a file with its slash, or the file's name."""
    folder, slash, _ = name.partition("/")
    return folder + slash


def _root_route(files: StaticFiles, first: str) -> Route:
    """Return the route of a top-level file or folder; all other paths are left to the API."""

    async def answer(request: Request) -> Response:
        return await files.send(request, first + request.path_params.get("rest", ""))

    return Route(f"/{first}{'{rest:path}' if first.endswith('/') else ''}", answer)


def create_page_app(
    model: Path,
    when_ready: Callable[[], None] = lambda: None,
    hosts: frozenset[str] | None = None,
) -> Starlette:
    """Create an application with the page and its model, without an API: the model runs in the
    visitor's tab. `hosts` are the accepted host names, None = all."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        when_ready()
        yield

    page = web_routes(page_folder(in_tab=True), model)
    routes = [Route("/", _to_page), *page, Route("/{name:path}", _no_api)]
    middleware = [Middleware(AllowedHosts, names=hosts)]
    return Starlette(routes=routes, lifespan=lifespan, middleware=middleware)


def _manifest(folder: Path) -> Manifest:
    return Artifact.open(folder, verify=False, host=False).manifest


async def _to_page(request: Request) -> Response:
    return RedirectResponse(PAGE_URL)


async def _no_page(request: Request) -> Response:
    return not_found(
        "this server has no model for browsers; start it with `mlcc serve MODEL --web FOLDER`, "
        f"where FOLDER was made by `mlcc compile MODEL --target {TARGET}`"
    )


async def _no_api(request: Request) -> Response:
    return not_found(
        f"this server has only the chat page, at {PAGE_URL}; its model answers in the browser. "
        "For an API here, serve a model that was compiled for this machine"
    )
