"""Server arguments: everything `mlcc serve` takes beside the engine arguments.

It holds what was asked for, by flag, environment variable or config file, before it is checked;
`mlcc.commands.serve` makes the server's `Settings` of it. Imports nothing of the server.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from mlcc.limits import default


@dataclass(frozen=True)
class ServerArgs:
    """What is served, to whom, and how. Empty or None = not given."""

    models: tuple[str, ...] = ()
    """Folders, checkpoints or names of `mlcc list`."""
    models_dir: Path | None = None
    aliases: tuple[str, ...] = ()
    """NAME, or NAME=MODEL where several models are served."""
    adapters: tuple[str, ...] = ()
    """LoRA adapters, each NAME=FOLDER."""
    lora_dir: Path | None = None
    parse_special: bool = False
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    strict_fields: bool = False
    store: Path | None = None
    """The file of stored responses; None = in memory."""
    files: Path | None = None
    """The folder of uploaded files and batches; None = a temporary one."""

    host: str = "127.0.0.1"
    port: int = 8000
    grpc_port: int | None = None
    """None = no gRPC."""
    root_path: str = ""
    max_queue: int = default("max_queue")
    max_body_bytes: int = default("max_body_bytes")
    max_file_bytes: int = default("max_file_bytes")
    max_connections: int = default("max_connections")
    timeout_s: float = default("timeout_s")
    drain: float = 30
    """Seconds that running answers have to finish after SIGTERM."""
    web: Path | None = None
    """A model compiled for webgpu, which the chat page runs in the browser."""
    no_page: bool = False
    mcp: tuple[str, ...] = ()
    """MCP servers that the chat page may reach."""

    api_keys: tuple[str, ...] = field(default=(), repr=False)
    key_file: Path | None = None
    allowed_hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    ssl_certfile: Path | None = None
    ssl_keyfile: Path | None = None

    ray: bool = False
    replicas: int | None = None
    autoscale: str | None = None
    """MIN:MAX replicas."""
    prefill: int | None = None
    """Replicas for prefill alone."""
    address: str | None = None
    """Address of a running Ray cluster."""

    log_level: str = "warning"
    log_json: bool = False
    otel: bool = False

    @property
    def parsers(self) -> dict[str, str | None]:
        """Keyword arguments of `open_text`."""
        return {"tool_parser": self.tool_parser, "reasoning_parser": self.reasoning_parser}
