"""The chat page at /web/, and beside it at /web/model/ a model that runs in the visitor's browser.

Files and nothing but files, of two fixed lists: what the page's folder holds, and what the model's
manifest names. A name that is on neither list is not looked for on the disk.
"""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from mlcc.api.errors import NotFoundError, error_body
from mlcc.artifact.folder import Artifact
from mlcc.artifact.integrity import resolve_inside
from mlcc.artifact.manifest import Manifest
from mlcc.artifact.schema import MANIFEST_NAME
from mlcc.compiled.cache import is_compiled
from mlcc.errors import ArtifactError, UnsupportedError
from mlcc.server.hosts import AllowedHosts

TARGET = "webgpu"
PAGE_URL = "/web/"

_WHEEL = "mlcc_web"
"""The package that brings the page built."""
_IN_CLONE = Path(__file__).resolve().parents[3] / "web" / "dist" / "page"
_INDEX = "index.html"

MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".jinja": "text/plain; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
    ".zip": "application/zip",
}
"""Not the system's table: it differs, and a browser compiles only what is application/wasm."""

# A script comes from here or not at all; WebAssembly may be compiled. A model may be fetched from
# where the visitor says, which is the one thing that leaves this host.
POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'wasm-unsafe-eval'",
        "connect-src 'self' https: http://localhost:* http://127.0.0.1:*",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
SECURITY = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

_CODE = (".css", ".html", ".js", ".mjs", ".svg", ".wasm")
_GZIP_LEVEL = 4
"""Within 4 % of the smallest, in less than half its time."""

_HASHED = re.compile(r"assets/.+-[\w-]{8}\.\w+")
"""What the page's build names after its content: another content has another name."""


@dataclass(frozen=True)
class Listed:
    """The files that may be asked for, by the path after their prefix."""

    files: Mapping[str, Path]
    packs: bool = False
    """Code goes compressed to whom takes it so. Not a model: it is fetched in ranges."""

    async def answer(self, request: Request) -> Response:
        """GET and HEAD, with ranges and conditions. 404 for what is not listed."""
        name = request.path_params["name"]
        path = self.files.get(name)
        try:
            stat = await asyncio.to_thread(path.stat) if path else None
        except OSError:
            stat = None  # it was there when the server started
        if path is None or stat is None:
            return _not_found(f"there is no {request.url.path[:80]} here")
        whole: Response = FileResponse(
            path, stat_result=stat, headers=_headers(name), media_type=_media_type(path)
        )
        if self.packs and path.suffix in _CODE and _takes_gzip(request):
            whole = await _packed(whole, path, stat.st_mtime_ns)
        if request.headers.get("if-none-match") == whole.headers["etag"]:
            kept = ("etag", "cache-control", "content-security-policy")
            return Response(status_code=304, headers={k: whole.headers[k] for k in kept})
        return whole


def _takes_gzip(request: Request) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "") and "range" not in request.headers


async def _packed(whole: Response, path: Path, changed: int) -> Response:
    """The same answer with its body compressed, which makes it another entity."""
    kept = {k: v for k, v in whole.headers.items() if k not in ("content-length", "accept-ranges")}
    own = {"etag": whole.headers["etag"][:-1] + '-gzip"', "content-encoding": "gzip"}
    data = await asyncio.to_thread(_gzip, path, changed)
    return Response(data, headers={**kept, **own, "vary": "accept-encoding"})


@cache
def _gzip(path: Path, changed: int) -> bytes:
    """A file compressed once, until it changes: 4 MB for the whole page, 0.2 s."""
    return gzip.compress(path.read_bytes(), _GZIP_LEVEL)


def is_for_browsers(model: str) -> bool:
    """Whether it is a compiled model that browsers run. Raises ArtifactError if it is damaged."""
    return is_compiled(model) and _manifest(Path(model)).target.name == TARGET


def page_folder() -> Path:
    """The built page. Raises UnsupportedError if there is none."""
    wheel = find_spec(_WHEEL)
    found = wheel.submodule_search_locations if wheel else None
    for folder in (*(Path(place) / "page" for place in found or ()), _IN_CLONE):
        if (folder / _INDEX).is_file():
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
    return {"": files[_INDEX], **files}


def web_routes(page: Path, model: Path) -> list[BaseRoute]:
    """The page and its model, to stand before the API's addresses. Raises ArtifactError."""
    return [
        Route("/", _to_page),
        Route("/web", _to_page),
        Route("/web/model/{name:path}", Listed(model_files(model)).answer),
        Route("/web/{name:path}", Listed(page_files(page), packs=True).answer),
    ]


def no_web_routes() -> list[BaseRoute]:
    """What /web says on a server without a page."""
    return [Route("/web", _no_page), Route("/web/{name:path}", _no_page)]


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

    routes = [*web_routes(page_folder(), model), Route("/{name:path}", _no_api)]
    doors = [Middleware(AllowedHosts, names=hosts)]
    return Starlette(routes=routes, lifespan=lifespan, middleware=doors)


def _manifest(folder: Path) -> Manifest:
    return Artifact.open(folder, verify=False, host=False).manifest


def _headers(name: str) -> dict[str, str]:
    is_fixed = _HASHED.fullmatch(name)
    cache = "public, max-age=31536000, immutable" if is_fixed else "no-cache"
    return {"Cache-Control": cache, **SECURITY}


def _media_type(path: Path) -> str:
    return MEDIA_TYPES.get(path.suffix, "application/octet-stream")


async def _to_page(request: Request) -> Response:
    return RedirectResponse(PAGE_URL)


async def _no_page(request: Request) -> Response:
    return _not_found(
        "this server has no chat page; start it with `mlcc serve MODEL --web FOLDER`, where FOLDER "
        f"was made by `mlcc compile MODEL --target {TARGET}`"
    )


async def _no_api(request: Request) -> Response:
    return _not_found(
        f"this server has only the chat page, at {PAGE_URL}; its model answers in the browser. "
        "For an API here, serve a model that was compiled for this machine"
    )


def _not_found(message: str) -> Response:
    error = NotFoundError(message, code="not_found")
    return JSONResponse(error_body(error), error.http_status, SECURITY)
