"""Checks of the options of `mlcc serve`, before anything is loaded."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from mlcc.commands.server_registry import KEY_VARIABLE
from mlcc.engine_args import EngineArgs
from mlcc.errors import InvalidRequestError, UnsupportedError
from mlcc.limits import body_bytes

if TYPE_CHECKING:
    from mlcc.server.asgi import Settings
    from mlcc.server.http.tls import Tls

_OF_THE_API = (
    "aliases",
    "adapters",
    "lora_dir",
    "max_queue",
    "max_body_bytes",
    "timeout_s",
    "tool_parser",
    "reasoning_parser",
    "store",
    "mcp",
    "key_file",
    "drain",
    "cors_origins",
    "root_path",
    "grpc_port",
    "otel",
    "strict_fields",
    "ray",
)
"""Parameters that have no effect if only the page is served."""


def with_body(settings: Settings, sees: bool) -> Settings:
    """The settings, with room for images unless --max-body says how large a request may be."""
    source = click.get_current_context().get_parameter_source("max_body_bytes")
    if source not in (None, ParameterSource.DEFAULT):
        return settings
    return replace(settings, max_body_bytes=max(settings.max_body_bytes, body_bytes(sees)))


def refuse_web(web: Path | None) -> None:
    """Raises UnsupportedError: only a server of one model can show --web."""
    if web is not None:
        raise UnsupportedError(
            "--web shows one model in the visitor's browser, beside one model here; serve the "
            "page by itself (`mlcc serve FOLDER` of a model for webgpu) on another --port"
        )


def checked_keys(given: tuple[str, ...]) -> tuple[str, ...]:
    """Raises InvalidRequestError for an empty key: click treats an empty variable as unset."""
    from mlcc.server.auth.key_file import check_new_key

    alone = os.environ.get(KEY_VARIABLE)
    return tuple(map(check_new_key, given or (() if alone is None else (alone,))))


def tls_of(certfile: Path | None, keyfile: Path | None) -> Tls | None:
    """The certificate and key. Raises MlccError for files that cannot be used."""
    from mlcc.server.http.tls import Tls

    if certfile is None:
        if keyfile is not None:
            raise InvalidRequestError("--ssl-keyfile needs --ssl-certfile, the certificate")
        return None
    tls = Tls(certfile, keyfile)
    tls.context()
    return tls


def checked_root(path: str) -> str:
    """`/llm`, normalized as a prefix. Raises InvalidRequestError."""
    found = path.rstrip("/")
    if found and (not found.startswith("/") or not found.isprintable() or " " in found):
        raise InvalidRequestError(f"--root-path {path!a} is no path; write it as /llm")
    return found


def check_no_engine(args: EngineArgs, web: Path | None, no_page: bool, parse_special: bool) -> None:
    """Raises UnsupportedError for options of an engine, which does not run here."""
    from mlcc.model_cache.cache import is_compiled

    engine = ("threads", "device", "memory", "kv_pages")
    bounds = ("context", "max_batch", "max_step_tokens", "max_rows")
    sizes = bounds if is_compiled(args.model) else ()  # else they are options of the compile
    given = {name: getattr(args, name) for name in (*engine, *sizes)}
    given |= {"speculate": args.speculate, "draft": args.draft}
    given["no_prefix_cache"] = None if args.prefix_cache else True
    given |= {"web": web, "no_page": no_page or None, "parse_special": parse_special or None}
    refused = [f"--{name.replace('_', '-')}" for name in given if given[name] is not None]
    if refused := [*refused, *_given_for_the_api()]:
        raise UnsupportedError(
            f"{args.model} runs in the visitor's browser, not here; leave out {refused[0]}"
        )


def _given_for_the_api() -> list[str]:
    context = click.get_current_context()
    return [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name in _OF_THE_API
        and context.get_parameter_source(parameter.name) is not ParameterSource.DEFAULT
    ]
