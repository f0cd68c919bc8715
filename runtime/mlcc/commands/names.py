"""`mlcc names`: the short names of well-known models, and where they are fetched from."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import click

from mlcc import short_names
from mlcc.commands.store import JSON_OPTION
from mlcc.errors import InvalidRequestError
from mlcc.util.files import FileError, read_regular

_SECONDS = 20.0
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@click.group("names", invoke_without_command=True)
@JSON_OPTION
@click.pass_context
def names_command(context: click.Context, as_json: bool) -> None:
    """List the short names of well-known models, such as qwen3:0.6b.

    A short name stands for a repository of the Hugging Face Hub: `mlcc run qwen3:0.6b "Hello"`
    downloads it, compiles it and answers. A family's first tag is the one of the name alone.
    """
    if context.invoked_subcommand is not None:
        return
    table = short_names.families()
    if as_json:
        rows = {name: vars(family) for name, family in table.items()}
        click.echo(json.dumps({"format": 1, "families": rows}, indent=1))
        return
    width = max((len(name) for name in table), default=0)
    for name, family in table.items():
        others = [tag for tag in family.tags if tag != family.default]
        click.echo(f"{name:<{width}}  {' '.join([family.default, *others])}")
    if short_names.user_table().exists():
        click.echo(
            f"note: from {short_names.user_table()}; `mlcc names reset` deletes it", err=True
        )


@names_command.command("update")
@click.argument("source", metavar="FILE|URL")
@click.option("--sha256", metavar="HEX", help="Refuse any other content than of this SHA-256.")
def update_command(source: str, sha256: str | None) -> None:
    """Replace the table by a file, or by what an https URL has.

    The table is data of at most 1 MiB: names and repositories, never code. Its SHA-256 is printed,
    so that others can ask for the same with --sha256.
    """
    data = _fetch(source) if "://" in source else _read(Path(source))
    digest = hashlib.sha256(data).hexdigest()
    if sha256 is not None and sha256.lower() != digest:
        raise InvalidRequestError(
            f"{source}: has SHA-256 {digest}, not {sha256[:64]}; nothing changed"
        )
    before = _repositories()
    short_names.store(data, source)
    after = _repositories()
    added, removed = len(after.keys() - before.keys()), len(before.keys() - after.keys())
    changed = sum(before[name] != after[name] for name in before.keys() & after.keys())
    click.echo(f"sha256 {digest}")
    click.echo(f"{len(after)} short names: {added} added, {removed} removed, {changed} changed")


@names_command.command("reset")
def reset_command() -> None:
    """Delete your own table: the built-in one is in force again."""
    short_names.user_table().unlink(missing_ok=True)
    click.echo("the built-in table is in force")


def _repositories() -> dict[str, str]:
    """Repository by full short name, of the table in force; {} if it is damaged."""
    try:
        table = short_names.families()
    except InvalidRequestError:
        return {}
    return {f"{name}:{tag}": r for name, row in table.items() for tag, r in row.tags.items()}


def _read(path: Path) -> bytes:
    try:
        return read_regular(path, short_names.MOST_BYTES)
    except (OSError, FileError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidRequestError(
            f"{path}: cannot be read ({reason}); give a file or URL"
        ) from error


class _StayHttps(HTTPRedirectHandler):
    """Refuses redirects that leave https."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):  # type: ignore[no-untyped-def]
        _check_url(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _check_url(url: str) -> None:
    """Raises InvalidRequestError unless a URL is https, or http of this machine."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        raise InvalidRequestError(f"{url}: is no https URL; fetch it yourself and give the file")


def _fetch(url: str) -> bytes:
    """The content of a URL. Raises InvalidRequestError."""
    _check_url(url)
    try:
        with build_opener(_StayHttps).open(Request(url), timeout=_SECONDS) as response:
            data: bytes = response.read(short_names.MOST_BYTES + 1)
    except (URLError, OSError, ValueError) as error:
        reason = error if isinstance(error, HTTPError) else getattr(error, "reason", error)
        raise InvalidRequestError(f"{url}: cannot be fetched ({reason}); check it") from error
    if len(data) > short_names.MOST_BYTES:
        raise InvalidRequestError(f"{url}: is larger than 1 MiB, so it is no table of short names")
    return data
