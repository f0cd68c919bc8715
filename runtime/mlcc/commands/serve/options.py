"""The options of `mlcc serve`, their groups in `--help`, and the two records they fill."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Any

import click

from mlcc.commands.options import SPECIAL_OPTION, TextList, bound_option, serving_options
from mlcc.commands.serve.config import Secret, config_callback
from mlcc.engine_args import EngineArgs
from mlcc.server.server_args import ServerArgs

Command = Callable[..., None]
DEFAULTS = ServerArgs()
GROUPS: Mapping[str, tuple[str, ...]] = {
    "Model": (
        "--models", "--alias", "--target", "--quant", "--kv", "--lora", "--lora-dir",
        "--speculate", "--draft", "--parse-special", "--tool-parser", "--reasoning-parser",
    ),
    "Memory": (
        "--threads", "--device", "--context", "--max-batch", "--max-step-tokens", "--max-rows",
        "--memory", "--kv-pages", "--prefix-cache",
    ),
    "Serving": (
        "--config", "--host", "--port", "--grpc-port", "--root-path", "--max-queue",
        "--max-connections", "--max-body", "--timeout", "--drain", "--strict-fields", "--store",
        "--files", "--max-file", "--web", "--no-page", "--mcp",
    ),
    "Security": (
        "--api-key", "--api-keys", "--allowed-host", "--cors-origin", "--ssl-certfile",
        "--ssl-keyfile",
    ),
    "Scaling": ("--ray", "--replicas", "--autoscale", "--prefill", "--address"),
    "Logging": ("--log-level", "--log-json", "--otel"),
}  # fmt: skip
_PATH = click.Path(path_type=Path)
_FILE = click.Path(dir_okay=False, path_type=Path)
_COUNT = click.IntRange(1, 4096)
_OPTIONS: tuple[Callable[[Command], Command], ...] = (
    click.option("--config", type=_FILE, metavar="FILE", is_eager=True, callback=config_callback,
                 expose_value=False, help="Options in TOML, by the names of these flags."),
    SPECIAL_OPTION,
    click.option("--ray", is_flag=True,
                 help="Answer with replicas on Ray Serve (docs/scale.md). Needs the extra ray."),
    click.option("--replicas", type=_COUNT, metavar="N", help="Number of replicas.",
                 show_default="1"),
    click.option("--autoscale", metavar="MIN:MAX",
                 help="Number of replicas by load; 0:MAX = none while there are no requests."),
    click.option("--prefill", type=_COUNT, metavar="N",
                 help="N more replicas prefill, the others decode."),
    click.option("--address", metavar="ADDRESS", show_default="one that is started here",
                 help="A Ray cluster that runs: auto, or HOST:PORT."),
    click.option("--models", "models_dir", type=_PATH, metavar="DIR",
                 help="Serve each compiled model of a folder."),
    click.option("--alias", "aliases", type=TextList(), multiple=True, metavar="NAME[=MODEL]",
                 help="Another name for a model, as tools ask for it. May be repeated."),
    click.option("--lora", "adapters", type=TextList(), multiple=True, metavar="NAME=FOLDER",
                 help="Answer requests for the model NAME with this LoRA adapter (a folder of "
                 "PEFT). May be repeated."),
    click.option("--lora-dir", type=click.Path(exists=True, file_okay=False, path_type=Path),
                 metavar="DIR", help="Requests may load the adapters in this folder."),
    click.option("--host", default=DEFAULTS.host, show_default=True, metavar="ADDRESS",
                 help="Address to listen on."),
    click.option("--port", type=click.IntRange(0, 65535), metavar="N", default=DEFAULTS.port,
                 show_default=True,
                 help="Port to listen on; 0 = any that is free."),
    click.option("--grpc-port", type=click.IntRange(0, 65535), metavar="N",
                 show_default="no gRPC",
                 help="Also answer KServe's and Triton's clients by gRPC, on this port; 0 = any "
                 "that is free. Needs the extra grpc."),
    click.option("--api-key", "api_keys", type=Secret(), multiple=True, metavar="KEY",
                 help="Requests must send this key. May be repeated; each key gets an equal share "
                 "of the device. Other users of this machine can read a command line (ps): give "
                 "keys in --config, --api-keys or the variable MLCC_API_KEY (one key)."),
    click.option("--allowed-host", "allowed_hosts", type=TextList(), multiple=True, metavar="NAME",
                 help="Accept requests for this host name, and from pages of it, beside the names "
                 "of this machine, which are the default without a key on a local --host. May be "
                 "repeated."),
    *map(bound_option, ("max_queue", "max_body_bytes", "max_file_bytes", "timeout_s")),
    bound_option("max_connections"),
    click.option("--tool-parser", metavar="NAME", show_default="from the chat template",
                 help="How the model writes tool calls."),
    click.option("--reasoning-parser", metavar="NAME", show_default="from the chat template",
                 help="How the model marks reasoning; none = leave it in the text."),
    click.option("--store", type=_FILE, metavar="FILE", show_default="in memory",
                 help="Store responses of /v1/responses in this file, for 30 days."),
    click.option("--files", type=_PATH, metavar="DIR",
                 show_default="a temporary folder, deleted at the end",
                 help="Keep uploaded files and batches in this folder; batches go on after a "
                 "restart."),
    click.option("--api-keys", "key_file", type=_PATH, metavar="FILE",
                 help="API keys with names and limits, as JSON; read again when it changes "
                 "(docs/operations.md)."),
    click.option("--drain", type=click.FloatRange(0), default=DEFAULTS.drain, show_default=True,
                 metavar="SECONDS", help="How long running answers may take to finish at SIGTERM."),
    click.option("--cors-origin", "cors_origins", type=TextList(), multiple=True,
                 metavar="ORIGIN", help="Pages of this origin (https://a.example), or * = all, may "
                 "send requests. May be repeated."),
    click.option("--root-path", default=DEFAULTS.root_path, metavar="PATH",
                 help="Path that a proxy puts before the server's own, such as /llm."),
    click.option("--ssl-certfile", type=_PATH, metavar="FILE",
                 help="Serve HTTPS with this certificate (PEM, with its chain)."),
    click.option("--ssl-keyfile", type=_PATH, metavar="FILE", show_default="in --ssl-certfile",
                 help="Private key of the certificate."),
    click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]),
                 default=DEFAULTS.log_level, show_default=True,
                 help="Least severe level that is logged; info has a line for each request."),
    click.option("--log-json", is_flag=True, help="Log lines as JSON objects."),
    click.option("--otel", is_flag=True,
                 help="Send a span for each request to the collector that "
                 "OTEL_EXPORTER_OTLP_ENDPOINT names. Needs the extra otel."),
    click.option("--strict-fields", is_flag=True,
                 help="Refuse unknown fields of requests, instead of ignoring them."),
    click.option("--web", type=_PATH, metavar="FOLDER",
                 help="The chat page also runs this model, compiled for webgpu, on the visitor's "
                 "GPU."),
    click.option("--mcp", type=TextList(), multiple=True, metavar="URL",
                 help="The chat page may call the tools of this MCP server, once its visitor "
                 "switches it on; https, or http on this machine. May be repeated."),
    click.option("--no-page", is_flag=True, help="Serve no chat page at /."),
)  # fmt: skip


def server_options(function: Command) -> Command:
    """All options of serve, given to the function as `args: EngineArgs` and `server: ServerArgs`.
    The models are `server.models`; `args.model` is empty."""

    @wraps(function)
    def gathered(args: EngineArgs, **given: Any) -> None:
        names = {field.name for field in fields(ServerArgs)}
        server = ServerArgs(**{name: given.pop(name) for name in names})
        function(args=args, server=server, **given)

    wrapped: Command = gathered
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return serving_options(wrapped)
