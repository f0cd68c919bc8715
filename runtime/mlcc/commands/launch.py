"""`mlcc launch TOOL`: starts a coding agent that uses a running server."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import click

from mlcc.commands.server_registry import KEY_VARIABLE, Server, servers
from mlcc.errors import InvalidRequestError, printable


@dataclass(frozen=True)
class Start:
    """Environment variables and arguments of a tool."""

    environment: Mapping[str, str]
    arguments: tuple[str, ...] = ()


def _claude(url: str, model: str, key: str) -> Start:
    names = ("ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL")
    return Start(
        {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_AUTH_TOKEN": key,
            **dict.fromkeys(names, model),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }
    )


def _codex(url: str, model: str, key: str) -> Start:
    place = "model_providers.mlcc"
    settings = {
        "model_provider": "mlcc",
        f"{place}.name": "mlcc",
        f"{place}.base_url": f"{url}/v1",
        f"{place}.wire_api": "responses",
        f"{place}.env_key": KEY_VARIABLE,
    }
    words = [word for name, value in settings.items() for word in ("-c", f'{name}="{value}"')]
    return Start({KEY_VARIABLE: key}, (*words, "-m", model))


def _opencode(url: str, model: str, key: str) -> Start:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "mlcc",
        "options": {"baseURL": f"{url}/v1", "apiKey": f"{{env:{KEY_VARIABLE}}}"},
        "models": {model: {"name": model}},
    }
    config = {"provider": {"mlcc": provider}, "model": f"mlcc/{model}"}
    return Start({KEY_VARIABLE: key, "OPENCODE_CONFIG_CONTENT": json.dumps(config)})


TOOLS: dict[str, Callable[[str, str, str], Start]] = {
    "claude": _claude,
    "codex": _codex,
    "opencode": _opencode,
}


@click.command("launch", context_settings={"ignore_unknown_options": True})
@click.argument("tool", type=click.Choice(list(TOOLS)))
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGUMENT...]")
@click.option(
    "--url", metavar="URL", help="URL of the server.", show_default="the one that runs here"
)
@click.option(
    "--model", metavar="NAME", help="Name of the server's model.", show_default="its first"
)
@click.option("--print", "only_print", is_flag=True, help="Print what to type; start nothing.")
def launch_command(
    tool: str, words: tuple[str, ...], url: str | None, model: str | None, only_print: bool
) -> None:
    """Start a coding agent on a running server's model.

    Prints the command instead if the tool is not installed. `mlcc serve` starts the server; its
    key, if it has one, is read from MLCC_API_KEY.
    """
    server, name = _place(url, model)
    start = TOOLS[tool](server.url, name, os.environ.get(KEY_VARIABLE) or "none")
    program = shutil.which(tool)
    command = (*start.arguments, *words)
    if only_print or program is None:
        for variable, value in start.environment.items():
            click.echo(f"export {variable}={shlex.quote(value)}")
        click.echo(shlex.join((tool, *command)))
        if program is None:
            click.echo(f"note: {tool} is not installed here, so this is what to type", err=True)
        return
    os.environ.update(start.environment)
    os.execv(program, (tool, *command))


def _place(url: str | None, model: str | None) -> tuple[Server, str]:
    """Raises InvalidRequestError if no server runs, or it has no such model."""
    found = servers(url)
    if not found:
        raise InvalidRequestError("no server runs here; start `mlcc serve MODEL`, or give --url")
    names: list[str] = []
    for server in found:
        for each in server.models():
            names.append(each["id"])
            if model is None or model in (each["id"], *each.get("aliases", ())):
                return server, model or each["id"]
    raise InvalidRequestError(
        f"no server here has '{model}'; there are {printable(', '.join(names))}"
    )
