"""The chat page: at / over the server's own engine, at /web/ with a model that runs in the
visitor's browser and lies beside it at /web/model/.

Files of two fixed lists (`listed.py`): what the page's folder holds, and what the model's manifest
names. The one answer that is made here is site.json, which tells the page what there is to ask.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from mlcc.artifact.folder import Artifact
from mlcc.artifact.integrity import resolve_inside
from mlcc.artifact.manifest import Manifest
from mlcc.artifact.schema import MANIFEST_NAME
from mlcc.errors import ArtifactError, UnsupportedError
from mlcc.model_cache.cache import is_compiled
from mlcc.server.auth.allowed_hosts import AllowedHosts
from mlcc.server.http.static_files import INDEX, SECURITY, StaticFiles, headers, not_found

TARGET = "webgpu"
PAGE_URL = "/web/"

_WHEEL = "mlcc_web"
"""The package that brings the page built."""
_IN_CLONE = Path(__file__).resolve().parents[3] / "web" / "dist" / "page"


def is_for_browsers(model: str) -> bool:
    """Whether it is a compiled model that browsers run. Raises ArtifactError if it is damaged."""
    return is_compiled(model) and _manifest(Path(model)).target.name == TARGET


def page_folder() -> Path:
    """The built page. Raises UnsupportedError if there is none."""
    wheel = find_spec(_WHEEL)
    found = wheel.submodule_search_locations if wheel else None
    for folder in (*(Path(place) / "page" for place in found or ()), _IN_CLONE):
        if (folder / INDEX).is_file():
            return folder
    raise UnsupportedError(
        "the chat page is not here; install the wheel mlcc-web, or in a clone of mlcc type "
        "`python3 dev.py web`, then try again"
    )


def model_files(folder: Path) -> dict[str, Path]:
    """What the page may fetch of a model. Raises ArtifactError if it is not for a browser."""
    manifest = _manifest(folder)
    if manifest.target.name != TARGET:
        raise ArtifactError(
            f"{folder}: compiled for target '{manifest.target.name}', which no browser runs; "
            f"compile the model with `mlcc compile MODEL --target {TARGET}`"
        )
    names = [MANIFEST_NAME, *(entry.path for entry in manifest.files)]
    return {name: resolve_inside(folder, name) for name in names}


def page_files(folder: Path) -> dict[str, Path]:
    """The page, whose address without a name is its index."""
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    files = {name: path for name, path in found.items() if path.is_file()}
    return {"": files[INDEX], **files}


@dataclass(frozen=True)
class Site:
    """What a page is told of the server, by addresses relative to its own; None = there is none."""

    api: str | None
    """Where the API's /v1 stands."""
    model: str | None
    """The folder of a model for the visitor's GPU."""

    async def answer(self, request: Request) -> Response:
        """site.json."""
        return JSONResponse({"api": self.api, "model": self.model}, headers=headers("site.json"))


def page_routes(page: Path, model: Path | None = None) -> list[BaseRoute]:
    """The page at / over the API's engine, and with a model for browsers at /web/ as well. To stand
    before the API's addresses. Raises ArtifactError."""
    files = StaticFiles(page_files(page), packs=True, elsewhere=model is not None)
    site = Site("./", "web/model/" if model else None)
    routes: list[BaseRoute] = [Route("/site.json", site.answer)]
    routes += [_at_root(files, name) for name in sorted({_first(name) for name in files.files})]
    return [*routes, *(web_routes(page, model, api="../") if model else no_web_routes())]


def web_routes(page: Path, model: Path, api: str | None = None) -> list[BaseRoute]:
    """The page at /web/ and its model; `api` is where an API is, seen from there. Raises
    ArtifactError."""
    return [
        Route("/web", _to_page),
        Route("/web/site.json", Site(api, "model/").answer),
        Route("/web/model/{name:path}", StaticFiles(model_files(model)).answer),
        Route("/web/{name:path}", StaticFiles(page_files(page), packs=True).answer),
    ]


def no_page_routes(why: str) -> list[BaseRoute]:
    """What / says where the page could be and is not installed, as a person reads it."""

    async def answer(request: Request) -> Response:
        words = f"mlcc answers at /v1 and is described at /docs. {why[:1].upper()}{why[1:]}.\n"
        return PlainTextResponse(words, 404, SECURITY)

    return [Route("/", answer), *no_web_routes()]


def no_web_routes() -> list[BaseRoute]:
    """What /web says on a server without a model for browsers."""
    return [Route("/web", _no_page), Route("/web/{name:path}", _no_page)]


def _first(name: str) -> str:
    """The folder at the root that a file is in, with its slash, or the file."""
    folder, slash, _ = name.partition("/")
    return folder + slash


def _at_root(files: StaticFiles, first: str) -> Route:
    """A file at the root, or all of a folder there, leaving every other address to the API."""

    async def answer(request: Request) -> Response:
        return await files.send(request, first + request.path_params.get("rest", ""))

    return Route(f"/{first}{'{rest:path}' if first.endswith('/') else ''}", answer)


def create_page_app(
    model: Path,
    when_ready: Callable[[], None] = lambda: None,
    hosts: frozenset[str] | None = None,
) -> Starlette:
    """The page and its model without an API: that is in each visitor's tab. `hosts` are the names
    to answer to, None = all."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        when_ready()
        yield

    page = web_routes(page_folder(), model)
    routes = [Route("/", _to_page), *page, Route("/{name:path}", _no_api)]
    doors = [Middleware(AllowedHosts, names=hosts)]
    return Starlette(routes=routes, lifespan=lifespan, middleware=doors)


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
