"""`mlcc doctor`: checks this machine and says what to install. Changes nothing."""

from __future__ import annotations

import json
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

import click

from mlcc.errors import MlccError, printable
from mlcc.util.sizes import size
from mlcc.version import __version__

LEAST_FREE = 5 << 30
"""Bytes of free disk space below which a model of a few billion parameters may not fit."""


@dataclass(frozen=True)
class Finding:
    """One line. `ok` is None for something optional that is missing."""

    about: str
    ok: bool | None
    text: str


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor_command(as_json: bool) -> None:
    """Check what works on this machine and what to install for the rest.

    Exits with 1 if something is broken that running a model on the CPU needs.
    """
    found = list(findings())
    if as_json:
        click.echo(json.dumps([asdict(each) for each in found], indent=1))
    else:
        for each in found:
            sign = {True: "ok", False: "BROKEN", None: "-"}[each.ok]
            click.echo(printable(f"{each.about:<16} {sign:<7} {each.text}"))
    if any(each.ok is False for each in found):
        click.get_current_context().exit(1)


def findings() -> Iterator[Finding]:
    """All findings in order; a check that fails becomes a finding."""
    for look in (_python, _executor, _memory, _disk, _extras, _gpus):
        try:
            yield from look()
        except (MlccError, OSError) as error:
            yield Finding(look.__name__.strip("_"), None, f"cannot be checked: {error}")


def _python() -> Iterator[Finding]:
    version = platform.python_version()
    ok = sys.version_info >= (3, 10)
    text = f"mlcc {__version__}, Python {version}, {platform.system()} {platform.machine()}"
    yield Finding("mlcc", ok, text)


def _executor() -> Iterator[Finding]:
    from mlcc.util import executor_library as library
    from mlcc.util.extras import is_here

    absent = library.why_absent()
    if not absent:
        yield Finding("CPU", True, "libmlcc_executor is here")
    elif is_here("tvm"):
        yield Finding("CPU", True, f"runs through TVM's package: {absent}")
    else:
        yield Finding("CPU", False, absent)


def _memory() -> Iterator[Finding]:
    from mlcc.util.memory import available_bytes

    free = available_bytes()
    yield Finding("memory", True, "unknown" if free is None else f"{size(free)} are free")


def _disk() -> Iterator[Finding]:
    from mlcc.model_cache.cache import cache_folder

    folder = cache_folder()
    place = next(each for each in (folder, *folder.parents) if each.exists())
    free = shutil.disk_usage(place).free
    few = "; few models fit: `mlcc rm`, or set XDG_CACHE_HOME" if free < LEAST_FREE else ""
    yield Finding("disk", None if few else True, f"{size(free)} free for {folder}{few}")


def _extras() -> Iterator[Finding]:
    from mlcc.util.extras import lacking

    for command, what in (("compile", "compiling, pull, hf://"), ("serve", "the server")):
        extra = lacking(command)
        text = f'{what}: type `pip install "mlcc[{extra}]"`' if extra else what
        yield Finding(command, None if extra else True, text)
    here = Path(__file__).resolve()
    pages = (here.parents[3] / "web" / "dist" / "page", here.parents[1] / "server" / "page")
    found = find_spec("mlcc_web") is not None or any(page.is_dir() for page in pages)
    yield Finding("chat page", found or None, "is here" if found else "install the wheel mlcc-web")


def _gpus() -> Iterator[Finding]:
    from mlcc.device.select import list_devices

    for kind, target in (("webgpu", "vulkan"), ("cuda", "cuda"), ("metal", "metal")):
        found, reason = list_devices(kind)
        yield Finding(target, bool(found) or None, "; ".join(found) or reason)
