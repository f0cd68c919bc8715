"""Models out of memory and back, through vLLM's routes: /sleep, /wake_up, /is_sleeping."""

from __future__ import annotations

from urllib.parse import parse_qs

from mlcc.api.errors import ForbiddenError
from mlcc.errors import InvalidRequestError, UnsupportedError
from mlcc.service.http.router import ServiceHandlers
from mlcc.service.http.routes import IS_SLEEPING, SLEEP, WAKE_UP
from mlcc.service.http.types import TEXT_TYPE, ApiRequest, ApiResponse, is_page, json_response
from mlcc.service.served_model import Models

_TAGS = {"weights", "kv_cache"}
_LEVELS = ("1", "2")


async def sleep(models: Models, request: ApiRequest) -> ApiResponse:
    """POST /sleep: answers when the memory is free. Both levels free all of it."""
    _check_sender(request)
    query = parse_qs(request.query)
    level, mode = (query.get(name, [word])[0] for name, word in (("level", "1"), ("mode", "abort")))
    if level not in _LEVELS:
        raise UnsupportedError(
            f"'level' {level[:20]!a} is not built; 1 and 2 are, which both free all memory, and "
            "/wake_up reads the weights again",
            param="level",
            code="unsupported_parameter",
        )
    if mode not in ("abort", "wait"):
        raise UnsupportedError(
            f"'mode' {mode[:20]!a} is not built; send 'abort', which fails running requests, or "
            "'wait', which lets them finish",
            param="mode",
            code="unsupported_parameter",
        )
    await models.sleep(mode == "wait")
    return _done()


async def wake_up(models: Models, request: ApiRequest) -> ApiResponse:
    """POST /wake_up: answers when requests are answered again."""
    _check_sender(request)
    tags = set(parse_qs(request.query).get("tags", ()))
    if unknown := sorted(tags - _TAGS):
        raise InvalidRequestError(
            f"'tags' has {unknown[0][:40]!a}; leave it out, or send 'weights' and 'kv_cache'",
            param="tags",
            code="invalid_value",
        )
    if tags and tags != _TAGS:
        raise UnsupportedError(
            f"weights and caches wake together, not '{tags.pop()}' alone; leave 'tags' out",
            param="tags",
            code="unsupported_parameter",
        )
    await models.wake()
    return _done()


async def is_sleeping(models: Models, request: ApiRequest) -> ApiResponse:
    """GET /is_sleeping."""
    return json_response({"is_sleeping": models.asleep})


def _check_sender(request: ApiRequest) -> None:
    """Raise ForbiddenError for a request that a web page sent: without a body, its browser would
    not ask first whether it may."""
    if is_page(request):
        raise ForbiddenError(
            f"web pages cannot ask {request.path}; use a program such as curl",
            code="forbidden_page",
        )


def _done() -> ApiResponse:
    return ApiResponse(200, {"content-type": TEXT_TYPE}, "")


SERVICE_HANDLERS: ServiceHandlers = {
    SLEEP: sleep,
    WAKE_UP: wake_up,
    IS_SLEEPING: is_sleeping,
}
