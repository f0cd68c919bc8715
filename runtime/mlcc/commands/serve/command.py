"""`mlcc serve MODEL`: OpenAI's API over HTTP. Checks the options and starts `mlcc.server`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from mlcc.commands.grouped_help import GroupedCommand
from mlcc.commands.options import note
from mlcc.commands.serve.checks import (
    check_no_engine,
    checked_keys,
    checked_root,
    refuse_web,
    tls_of,
    with_body,
)
from mlcc.commands.serve.config import with_variables
from mlcc.commands.serve.models import (
    Alias,
    adapters_of,
    aliases_of,
    check_adapters,
    chosen,
    names_of_one,
    names_text,
    note_open,
    on_devices,
    print_page,
    puller_of,
    refuse_adapters,
    refuse_adapters_uncompiled,
    sources_of,
)
from mlcc.commands.serve.options import GROUPS, server_options
from mlcc.commands.serve.replicas import Replicated
from mlcc.commands.server_registry import announced
from mlcc.commands.terminal import LOADING_S
from mlcc.engine_args import EngineArgs
from mlcc.errors import ArtifactError, UnsupportedError, printable
from mlcc.util.progress import Progress

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from mlcc.engine.batch.batch import Capacity
    from mlcc.model.model import ModelText
    from mlcc.server.asgi import Settings
    from mlcc.server.models.sources import Source
    from mlcc.server.serve import HttpOptions
    from mlcc.server.server_args import ServerArgs
    from mlcc.server.web import Manages


@click.command("serve", cls=GroupedCommand, groups=GROUPS)
@server_options
def serve_command(args: EngineArgs, server: ServerArgs) -> None:
    """Serve models through OpenAI's API, with a chat page at /.

    MODEL is a folder made by `mlcc compile`, or a checkpoint, which is compiled first and kept. If
    its target is webgpu, a chat page is served that runs it in each visitor's browser.

    If there are several models, each is loaded when it is first requested, and the least recently
    used is unloaded if memory is full. Without MODEL, all models of `mlcc pull` are served.

    Each option is also a key of the file of --config (max-batch = 8) and an environment variable
    (MLCC_MAX_BATCH=8). A flag wins over the variable, the variable over the file.
    """
    run_server(args, server)


with_variables(serve_command)


@dataclass(frozen=True)
class _Plan:
    """The checked options."""

    args: EngineArgs
    server: ServerArgs
    settings: Settings
    http: HttpOptions
    has_keys: bool
    """Requests need an API key."""
    aliases: Sequence[Alias]
    replicated: Replicated


def run_server(args: EngineArgs, server: ServerArgs) -> None:
    """Check all options, then serve until Ctrl-C or SIGTERM. Raises MlccError."""
    from mlcc.server.observability.logs import configure

    replicated = Replicated(
        server.ray, server.replicas, server.autoscale, server.prefill, server.address
    )
    configure(server.log_level, server.log_json)
    plan = _Plan(args, server, *_settings(server), aliases_of(server.aliases), replicated)
    models, alone = chosen(server.models, server.models_dir)
    replicated.check(plan.settings, alone, args.devices)
    if not alone:
        _serve_several(models, plan)
        return
    from mlcc.server.web import TARGET, is_for_browsers

    plan = replace(plan, args=replace(args, model=models[0]))
    if args.target == TARGET or is_for_browsers(models[0]):
        _serve_page(plan)
    else:
        _serve_one(plan)


def _settings(server: ServerArgs) -> tuple[Settings, HttpOptions, bool]:
    """(settings of the service, HTTP options, whether requests need a key). Raises MlccError for
    invalid options."""
    from mlcc.server.asgi import Settings
    from mlcc.server.auth.allowed_hosts import allowed_hosts, check_origin
    from mlcc.server.auth.key_file import read_keys
    from mlcc.server.http.connection import ConnectionLimits
    from mlcc.server.serve import HttpOptions

    keys, tls = checked_keys(server.api_keys), tls_of(server.ssl_certfile, server.ssl_keyfile)
    has_keys = bool(keys or (server.key_file and read_keys(server.key_file)))
    settings = Settings(
        api_keys=keys,
        max_queue=server.max_queue,
        max_body_bytes=server.max_body_bytes,
        timeout_s=server.timeout_s,
        cors_origins=tuple(map(check_origin, server.cors_origins)),
        hosts=allowed_hosts(server.host, has_keys, server.allowed_hosts),
        strict_fields=server.strict_fields,
        store=server.store,
        files=server.files,
        max_file_bytes=server.max_file_bytes,
        api_key_file=server.key_file,
        root_path=checked_root(server.root_path),
        drain_s=server.drain,
        adapters=adapters_of(server.adapters),
        lora_dir=server.lora_dir,
        traces=server.otel,
    )
    limits = ConnectionLimits(server.max_connections)
    return (
        settings,
        HttpOptions(server.host, server.port, limits=limits, tls=tls, grpc_port=server.grpc_port),
        has_keys,
    )


def _serve_several(models: Sequence[str], plan: _Plan) -> None:
    """Several models, each loaded when it is first requested."""
    from mlcc.server.auth.allowed_hosts import is_local
    from mlcc.server.serve import serve_models
    from mlcc.server.web import Manages

    server = plan.server
    refuse_web(server.web)
    refuse_adapters(plan.settings)
    sources, budgets = on_devices(
        sources_of(models, plan.args, plan.aliases, server.parse_special, server.parsers),
        plan.args.memory,
    )
    is_closed = plan.has_keys or is_local(server.host)
    puller = puller_of(plan.args, server.parse_special, server.parsers) if is_closed else None
    routes, has_page = _page(server, Manages(loads=True, pulls=is_closed))
    note_access(plan)
    serve_models(
        sources,
        budgets,
        with_body(plan.settings, any(source.info.sees or source.info.hears for source in sources)),
        replace(plan.http, routes=routes),
        lambda url: _print_models(url, sources, plan.has_keys, has_page),
        note,
        puller,
    )


def _serve_page(plan: _Plan) -> None:
    """The chat page and a model that runs in the browser."""
    from mlcc.model_cache.resolve import resolve
    from mlcc.server.serve import serve_page
    from mlcc.server.web import page_folder

    server, http = plan.server, plan.http
    check_no_engine(plan.args, server.web, server.no_page, server.parse_special)
    page_folder(in_tab=True)  # raises if there is no page: before the model is compiled
    note_open(server.host, plan.has_keys, http.tls is not None)
    serve_page(resolve(plan.args, runs_here=False), http, print_page, plan.settings.hosts)


def _serve_one(plan: _Plan) -> None:
    """One model, loaded at the start."""
    from mlcc.loader import opener
    from mlcc.model.text import open_text
    from mlcc.model_cache.resolve import resolve
    from mlcc.server.serve import serve
    from mlcc.service.adapters import check_name

    args, server, settings, http = plan.args, plan.server, plan.settings, plan.http
    routes, has_page = _page(server)
    refuse_adapters_uncompiled(settings, args)
    path = resolve(args)
    check_adapters(settings, path)
    reader = partial(open_text, path, parse_special=server.parse_special, **server.parsers)
    text = reader()
    settings = with_body(settings, text.vision is not None or text.hears)
    note_access(plan)
    try:
        if text.encoder is None:
            text.chat_template.check()
    except ArtifactError as error:
        note(f"/v1/chat/completions will fail: {error.message}")
    if server.web:
        note_open(server.host, plan.has_keys, http.tls is not None)
    names = names_of_one(text.name, args.model, plan.aliases, path)
    for entry in settings.adapters:
        check_name(entry.name, (text.name, *names), "--lora")
    with Progress(patience=LOADING_S) as progress:
        loading = f"loading {printable(text.name)}"
        progress.step(loading)

        def ready(url: str, capacity: Capacity) -> None:
            progress.close()
            _print_ready(text, plan.has_keys, has_page, url, capacity)

        serve(
            opener(path, args),
            reader,
            settings,
            replace(http, routes=routes),
            ready,
            lambda text: progress.line(f"note: {printable(text)}"),
            names,
            plan.replicated.begin(
                text, args.devices, lambda done, total: progress.step(loading, done, total, "bytes")
            ),
        )


def _print_ready(
    text: ModelText, has_keys: bool, has_page: bool, url: str, capacity: Capacity
) -> None:
    from mlcc.model.memory.planner import plan_text

    _announce(url)
    name, planned = printable(text.name), plan_text(capacity)
    click.echo(f"{name} answers at {url}/v1 (Ctrl-C ends it): {planned}. Try:")
    click.echo(_curl(url, has_keys, task=text.encoder.task if text.encoder else ""))
    if has_page and text.encoder is None:
        click.echo(f"Chat page: {url}/")


def note_access(plan: _Plan) -> None:
    """Note who may use the server, where that is perhaps not meant."""
    from mlcc.server.auth.allowed_hosts import is_local
    from mlcc.server.auth.key_file import KeyFile
    from mlcc.server.auth.keyring import Keyring

    host, settings = plan.server.host, plan.settings
    if not is_local(host) and not plan.has_keys:
        note(f"anyone who reaches {host} can use this server; --api-key closes it")
    file = KeyFile(settings.api_key_file) if settings.api_key_file else None
    if not Keyring(settings.api_keys, file).has_admin:
        note(
            "no API key has the scope 'admin', which /metrics and the loading and unloading of "
            'models and adapters need; give one "scopes": ["inference", "admin"] in the file of '
            "--api-keys"
        )


def _announce(url: str) -> None:
    """Register the server until the command ends, so that `mlcc ps` and others find it."""
    click.get_current_context().with_resource(announced(url))


def _print_models(url: str, sources: Sequence[Source], has_keys: bool, has_page: bool) -> None:
    _announce(url)
    click.echo(f"{len(sources)} models answer at {url}/v1 (Ctrl-C ends it), each loaded when it is")
    click.echo(f"first asked for: {names_text(sources)}. Try:")
    click.echo(_curl(url, has_keys, sources[0].name))
    if has_page:
        click.echo(f"Chat page: {url}/")


def _page(server: ServerArgs, manages: Manages | None = None) -> tuple[list[BaseRoute], bool]:
    """The routes besides the API's, and whether the page is among them. Raises UnsupportedError if
    the page is requested and not installed, and ArtifactError."""
    from mlcc.server.web import (
        Manages,
        PageAccess,
        checked_mcp,
        no_page_routes,
        no_web_routes,
        page_folder,
        page_routes,
    )

    web = server.web
    access = PageAccess(manages or Manages(), tuple(map(checked_mcp, server.mcp)))
    for option, given in (("--web", web), ("--mcp", server.mcp)):
        if given and server.no_page:
            raise UnsupportedError(f"{option} is for the chat page; leave out --no-page")
    if server.no_page:
        return no_web_routes(), False
    try:
        folder = page_folder(in_tab=web is not None)
    except UnsupportedError as error:
        if web:
            raise
        return no_page_routes(error.message), False
    return page_routes(folder, web, access), True


def _curl(url: str, has_keys: bool, model: str = "", task: str = "") -> str:
    """An example command; task: the task of an encoder."""
    place, question = _EXAMPLES[task]
    body = json.dumps({"model": model, **question} if model else question)
    key = ' -H "Authorization: Bearer $MLCC_API_KEY"' if has_keys else ""
    return f"curl {url}/{place} -H 'Content-Type: application/json'{key} -d '{body}'"


_EXAMPLES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "": ("v1/chat/completions", {"messages": [{"role": "user", "content": "Hello!"}]}),
    "embed": ("v1/embeddings", {"input": ["Hello!"]}),
    "score": ("v1/rerank", {"query": "What?", "documents": ["This.", "That."]}),
    "classify": ("classify", {"input": ["Hello!"]}),
}
