"""`mlcc ps` and `mlcc stop`: running servers and their models."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import click

from mlcc.commands.server_registry import Server, ask, servers
from mlcc.commands.store import JSON_OPTION
from mlcc.errors import InvalidRequestError, MlccError, printable
from mlcc.util.sizes import size

URL_OPTION = click.option(
    "--url", metavar="URL", help="URL of a server.", show_default="all of yours here"
)


@click.command("ps")
@URL_OPTION
@JSON_OPTION
def ps_command(url: str | None, as_json: bool) -> None:
    """List running servers, and the state of their models."""
    rows: list[dict[str, Any]] = []
    for server in servers(url):
        try:
            found = server.models()
        except MlccError as error:
            if url is not None:
                raise
            found = [{"id": "", "state": f"does not answer: {error.message}"}]
        rows += [{"url": server.url, "pid": server.pid or None, **each} for each in found]
    if as_json:
        click.echo(json.dumps(rows, indent=1))
        return
    if not rows:
        click.echo("note: no server runs here; `mlcc serve` starts one", err=True)
        return
    for row in rows:
        memory = size(row["memory_bytes"]) if row.get("memory_bytes") else ""
        more = f"context {row['context_length']}" if row.get("context_length") else ""
        asked = f"{row['requests']} requests" if row.get("requests") else ""
        words = (row["url"], row["id"], row.get("state", ""), memory, more, asked)
        click.echo(printable("  ".join(filter(None, words))))


@click.command("stop")
@click.argument("model", required=False)
@URL_OPTION
@click.option("--all", "all_", is_flag=True, help="End all servers of yours here.")
def stop_command(model: str | None, url: str | None, all_: bool) -> None:
    """Unload MODEL from the servers that have it.

    Without MODEL: end the server at --url, or with --all every server of yours here.
    """
    if all_ == bool(model or url):
        raise click.UsageError(
            "--all ends every server, so it goes with neither MODEL nor --url"
            if all_
            else "no MODEL is given: type one (`mlcc ps` lists them), --url URL to end one "
            "server, or --all to end every server of yours here"
        )
    found = servers(url)
    if not found:
        raise InvalidRequestError("no server runs here")
    if model is None:
        for server in found:
            _end(server)
        return
    having = [server for server in found if _has(server, model)]
    if not having:
        raise InvalidRequestError(f"no server here has '{model}'; `mlcc ps` lists what runs")
    for server in having:
        try:
            ask(server.url, "/models/unload", {"model": model})
            click.echo(f"{printable(model)} is unloaded at {server.url}")
        except MlccError as error:
            if error.code != "model_stays":
                raise
            _end(server)


def _has(server: Server, model: str) -> bool:
    return any(model in (each["id"], *each.get("aliases", ())) for each in server.models())


def _end(server: Server) -> None:
    """End a server like Ctrl-C. Raises InvalidRequestError if it runs elsewhere."""
    if not server.pid:
        raise InvalidRequestError(
            f"the server at {server.url} can be ended where it was started only; name a model to "
            "unload that"
        )
    if sys.platform == "win32":
        from mlcc.util import windows

        if not windows.stop(server.pid):
            raise MlccError(
                f"the server at {server.url} cannot be asked to end; end process {server.pid} in "
                "the Task Manager"
            )
    else:
        os.kill(server.pid, signal.SIGTERM)
    click.echo(f"the server at {server.url} ends")
