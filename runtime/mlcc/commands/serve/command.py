"""`mlcc serve MODEL`: OpenAI's API over HTTP. Options and words; the work is in `mlcc.server`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mlcc.commands.options import (
    SPECIAL_OPTION,
    bound_option,
    note,
    serving_options,
)
from mlcc.commands.serve.checks import (
    check_no_engine,
    checked_keys,
    checked_root,
    refuse_web,
    tls_of,
)
from mlcc.commands.serve.models import (
    adapters_of,
    aliases_of,
    check_adapters,
    chosen,
    names_of_one,
    names_text,
    refuse_adapters,
    refuse_adapters_uncompiled,
    say_open,
    say_page,
    sources_of,
)
from mlcc.commands.serve.replicas import Replicated, ray_options
from mlcc.commands.server_registry import announced
from mlcc.engine_args import EngineArgs
from mlcc.errors import ArtifactError, UnsupportedError, printable

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from mlcc.engine.batch.batch import Capacity
    from mlcc.server.models.sources import Source


@click.command("serve")
@serving_options
@SPECIAL_OPTION
@ray_options
@click.option("--models", "folder", type=click.Path(path_type=Path), metavar="DIR",
              help="Serve each compiled model of a folder.")  # fmt: skip
@click.option("--alias", "aliases", multiple=True, metavar="NAME[=MODEL]",
              help="Another name for a model, as tools ask for it. May be repeated.")  # fmt: skip
@click.option("--lora", "adapters", multiple=True, metavar="NAME=FOLDER",
              help="Answer requests for the model NAME with this adapter (a folder of PEFT). May "
              "be repeated.")  # fmt: skip
@click.option("--lora-dir", type=click.Path(exists=True, file_okay=False, path_type=Path),
              metavar="DIR", help="Requests may have adapters of this folder loaded.")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True)
@click.option("--api-key", "api_keys", multiple=True, metavar="KEY",
              help="Callers must send it. Of several, each gets an equal share of the device. "
              "[env: MLCC_API_KEY, one]")  # fmt: skip
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="A name that requests may be for and pages from, beside this machine's own, "
    "which are the default without a key on a local --host. May be repeated.",
)
@bound_option("max_queue")
@bound_option("max_body_bytes")
@bound_option("timeout_s")
@bound_option("max_connections")
@click.option("--tool-parser", metavar="NAME",
              help="How the model writes calls, where its template does not show it.")  # fmt: skip
@click.option("--reasoning-parser", metavar="NAME",
              help="How it marks reasoning; none = it is left in the text.")  # fmt: skip
@click.option("--store", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Keep answers of /v1/responses in this file, for 30 days; without, in memory, "
              "until the server ends.")  # fmt: skip
@click.option("--api-keys", "key_file", type=click.Path(path_type=Path), metavar="FILE",
              help="Keys with names and limits, as JSON; read again when it changes "
              "(docs/operations.md).")  # fmt: skip
@click.option("--drain", type=click.FloatRange(0), default=30, show_default=True, metavar="SECONDS",
              help="At SIGTERM, how long running answers may take to finish.")  # fmt: skip
@click.option("--cors-origin", "cors_origins", multiple=True, metavar="ORIGIN",
              help="Pages of this origin (https://a.example), or * = all, may ask. May be "
              "repeated.")  # fmt: skip
@click.option("--root-path", default="", metavar="PATH",
              help="What a proxy puts before the server's paths, as /llm.")  # fmt: skip
@click.option("--ssl-certfile", type=click.Path(path_type=Path),
              help="Speak HTTPS with this certificate (PEM, with its chain).")  # fmt: skip
@click.option("--ssl-keyfile", type=click.Path(path_type=Path),
              help="Its key, if that is in another file.")  # fmt: skip
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]),
              default="warning", show_default=True,
              help="What goes to stderr; info has a line for each request.")  # fmt: skip
@click.option("--log-json", is_flag=True, help="Log lines are objects of JSON.")
@click.option("--otel", is_flag=True,
              help="Send a span for each request to the collector that OTEL_EXPORTER_OTLP_ENDPOINT "
              "names. Needs the extra otel.")  # fmt: skip
@click.option("--strict-fields", is_flag=True,
              help="Refuse fields that nobody here knows, instead of ignoring them.")  # fmt: skip
@click.option("--web", type=click.Path(path_type=Path),
              help="The chat page also runs this folder's model, compiled for webgpu, on the "
              "visitor's GPU.")  # fmt: skip
@click.option("--no-page", is_flag=True, help="No chat page at /.")
def serve_command(
    args: EngineArgs,
    replicated: Replicated,
    models: tuple[str, ...],
    folder: Path | None,
    aliases: tuple[str, ...],
    adapters: tuple[str, ...],
    lora_dir: Path | None,
    host: str,
    port: int,
    api_keys: tuple[str, ...],
    allowed_hosts: tuple[str, ...],
    max_queue: int,
    max_body_bytes: int,
    timeout_s: float,
    max_connections: int,
    store: Path | None,
    key_file: Path | None,
    drain: float,
    cors_origins: tuple[str, ...],
    root_path: str,
    ssl_certfile: Path | None,
    ssl_keyfile: Path | None,
    log_level: str,
    log_json: bool,
    otel: bool,
    strict_fields: bool,
    web: Path | None,
    no_page: bool,
    parse_special: bool,
    tool_parser: str | None,
    reasoning_parser: str | None,
) -> None:
    """Serve models through OpenAI's API, and a chat page over them at /.

    MODEL is a folder made by `mlcc compile`, or a checkpoint, which is compiled first and kept. If
    its target is webgpu, a chat page is served that runs it in each visitor's browser.

    Of several, each is loaded when it is first asked for, and the least recently used makes room
    where memory is full. Without any, all that `mlcc pull` brought are served.
    """
    from mlcc.loader import opener
    from mlcc.model.memory.planner import plan_text
    from mlcc.model.text import open_text
    from mlcc.model_cache.resolve import resolve
    from mlcc.server.asgi import Settings
    from mlcc.server.auth.allowed_hosts import allowed_hosts as names
    from mlcc.server.auth.allowed_hosts import check_origin
    from mlcc.server.auth.key_file import read_keys
    from mlcc.server.http.connection import ConnectionLimits
    from mlcc.server.models.memory_budget import budgets
    from mlcc.server.observability.logs import configure
    from mlcc.server.serve import serve, serve_models, serve_page
    from mlcc.server.web import TARGET, is_for_browsers, page_folder
    from mlcc.service.adapters import check_name

    configure(log_level, log_json)
    api_keys, tls = checked_keys(api_keys), tls_of(ssl_certfile, ssl_keyfile)
    has_keys = bool(api_keys or (key_file and read_keys(key_file)))
    cors_origins = tuple(map(check_origin, cors_origins))
    hosts, limits = names(host, has_keys, allowed_hosts), ConnectionLimits(max_connections)
    settings = Settings(
        api_keys,
        max_queue,
        max_body_bytes,
        timeout_s,
        hosts=hosts,
        strict_fields=strict_fields,
        store=store,
        api_key_file=key_file,
        cors_origins=cors_origins,
        root_path=checked_root(root_path),
        drain_s=drain,
        adapters=adapters_of(adapters),
        lora_dir=lora_dir,
        traces=otel,
    )
    parsers = {"tool_parser": tool_parser, "reasoning_parser": reasoning_parser}
    called = aliases_of(aliases)
    models, alone = chosen(models, folder)
    replicated.check(settings, alone, args.devices)
    if not alone:
        refuse_web(web)
        refuse_adapters(settings)
        sources = sources_of(models, args, called, parse_special, parsers)
        more, _ = _page(None, no_page)
        _say_reachable(host, has_keys)
        serve_models(
            sources,
            budgets(sources, args.memory),
            settings,
            host,
            port,
            lambda url: _say_models(url, sources, has_keys),
            note,
            more,
            limits,
            tls,
        )
        return
    args = replace(args, model=models[0])
    if args.target == TARGET or is_for_browsers(args.model):
        check_no_engine(args, web, no_page, parse_special)
        page_folder()  # what it would say is worth more before a compile
        say_open(host, has_keys, tls is not None)
        serve_page(resolve(args, runs_here=False), host, port, say_page, hosts, limits, tls)
        return
    more, has_page = _page(web, no_page)
    refuse_adapters_uncompiled(settings, args)
    path = resolve(args)
    check_adapters(settings, path)
    reader = partial(open_text, path, parse_special=parse_special, **parsers)
    text = reader()
    _say_reachable(host, has_keys)
    try:
        if text.encoder is None:
            text.chat_template.check()
    except ArtifactError as error:
        note(f"/v1/chat/completions will fail: {error.message}")
    if web:
        say_open(host, has_keys, tls is not None)
    own = names_of_one(text.name, args.model, called)
    for entry in settings.adapters:
        check_name(entry.name, (text.name, *own), "--lora")

    def when_ready(url: str, capacity: Capacity) -> None:
        _announce(url)
        name, room = printable(text.name), plan_text(capacity)
        click.echo(f"{name} answers at {url}/v1 (Ctrl-C ends it): {room}. Try:")
        click.echo(_curl(url, has_keys, task=text.encoder.task if text.encoder else ""))
        if has_page:
            click.echo(f"Chat page: {url}/")

    serve(
        opener(path, args),
        reader,
        settings,
        host,
        port,
        when_ready,
        note,
        more,
        limits,
        tls,
        own,
        replicated.begin(text, args.devices),
    )


def _say_reachable(host: str, has_keys: bool) -> None:
    from mlcc.server.auth.allowed_hosts import is_local

    if not is_local(host) and not has_keys:
        note(f"anyone who reaches {host} can use this server; --api-key closes it")


def _announce(url: str) -> None:
    """Until the command ends, `mlcc ps` and others find the server."""
    click.get_current_context().with_resource(announced(url))


def _say_models(url: str, sources: Sequence[Source], has_keys: bool) -> None:
    _announce(url)
    click.echo(f"{len(sources)} models answer at {url}/v1 (Ctrl-C ends it), each loaded when it is")
    click.echo(f"first asked for: {names_text(sources)}. Try:")
    click.echo(_curl(url, has_keys, sources[0].name))


def _page(web: Path | None, no_page: bool) -> tuple[list[BaseRoute], bool]:
    """The addresses beside the API's, and whether the page is among them. Raises UnsupportedError
    if it is asked for and is not here, and ArtifactError."""
    from mlcc.server.web import no_page_routes, no_web_routes, page_folder, page_routes

    if web and no_page:
        raise UnsupportedError("--web is for the chat page; leave out --no-page")
    if no_page:
        return no_web_routes(), False
    try:
        folder = page_folder()
    except UnsupportedError as error:
        if web:
            raise
        return no_page_routes(error.message), False
    return page_routes(folder, web), True


def _curl(url: str, has_keys: bool, model: str = "", task: str = "") -> str:
    """An example to type; task: of an encoder."""
    place, question = _EXAMPLES[task]
    body = json.dumps({"model": model, **question} if model else question)
    key = ' -H "Authorization: Bearer $MLCC_API_KEY"' if has_keys else ""
    return f"curl {url}/v1/{place} -H 'Content-Type: application/json'{key} -d '{body}'"


_EXAMPLES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "": ("chat/completions", {"messages": [{"role": "user", "content": "Hello!"}]}),
    "embed": ("embeddings", {"input": ["Hello!"]}),
    "score": ("rerank", {"query": "What?", "documents": ["This.", "That."]}),
}
