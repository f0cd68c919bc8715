"""`mlcc show MODEL`: what a stored model is, in the order in which people ask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mlcc.artifact.generation_config import SAMPLING
from mlcc.artifact.schema import MANIFEST_NAME
from mlcc.commands.store import JSON_OPTION, one_model
from mlcc.errors import printable
from mlcc.util.sizes import size

if TYPE_CHECKING:
    from mlcc.artifact.folder import Artifact

Row = tuple[str, str]
_LICENCE_LINES = 8


@click.command("show")
@click.argument("model")
@JSON_OPTION
def show_command(model: str, as_json: bool) -> None:
    """Show what a model is, what it needs and what it contains.

    MODEL is a name of `mlcc list`, its beginning, a short name, or a folder made by `mlcc compile`.
    `mlcc inspect FOLDER` shows more: files, hashes, CPU features.
    """
    from mlcc.artifact.folder import Artifact

    folder = Path(model) if (Path(model) / MANIFEST_NAME).is_file() else one_model(model).model
    artifact = Artifact.open(folder, verify=False, host=False)
    if as_json:
        click.echo((folder / MANIFEST_NAME).read_text(encoding="utf-8"), nl=False)
        return
    for title, text in _rows(artifact, folder):
        click.echo(printable(f"{title:<14} {text}".rstrip()))


def _rows(artifact: Artifact, folder: Path) -> Iterator[Row]:
    manifest = artifact.manifest
    model, plan = manifest.model, manifest.memory
    count = f", {model.parameters:,} parameters" if model.parameters else ""
    yield "model", f"{model.name} ({model.architecture}){count}"
    yield "licence", _licence(folder, model.licence)
    yield "context", f"{manifest.limits.context} tokens, {manifest.limits.max_batch} sequences"
    if manifest.encoder is not None:
        yield "embeddings", f"{manifest.encoder.width} numbers, pooling {manifest.encoder.pooling}"
    yield from _schemes(manifest.quantization.name, manifest.quantization.options)
    yield "size on disk", size(sum(entry.bytes for entry in manifest.files))
    parts = (plan.weights_bytes, plan.cache_bytes, plan.workspace_bytes)
    names = ("weights", "KV cache", "a step")
    each = ", ".join(f"{name} {size(part)}" for name, part in zip(names, parts, strict=True))
    yield "memory", f"{size(sum(parts))}: {each}"
    yield "target", " ".join(filter(None, (manifest.target.name, manifest.target.cpu)))
    if manifest.encoder is None:
        plain = "none: prompts are continued as text"
        yield "chat template", "yes" if artifact.chat_template else plain
        yield "sampling", _sampling(artifact.generation_config)
    yield "folder", str(folder)


def _licence(folder: Path, path: str | None) -> str:
    """The title of the licence: the first line with text of the model's own file."""
    if path is None:
        return "no file"
    with (folder / path).open(encoding="utf-8", errors="replace") as file:
        lines = [file.readline(200).strip(" #*-=\n") for _ in range(_LICENCE_LINES)]
    return next((line for line in lines if line), path) + f" ({path})"


def _schemes(name: str, options: Mapping[str, Any]) -> Iterator[Row]:
    """The recipe, then a row for each group of tensors. A recipe of another version may lack some
    options."""
    calibrated = options.get("calibrated")
    how = f", calibrated on {calibrated} tokens" if calibrated else ""
    activations = f", activations of {a} bits" if (a := options.get("activation_bits")) else ""
    yield "quantization", f"{name}{activations}{how}"
    linear = options.get("linear")
    if linear:
        bits = f", {b:.2f} bits a weight" if (b := options.get("linear_bits")) else ""
        yield "  linears", f"{linear}{bits}"
        others: dict[str, list[str]] = {}
        for pattern, scheme in options.get("rules") or []:
            others.setdefault(scheme, []).append(_group(pattern))
        for scheme, groups in others.items():
            if scheme != linear:
                yield "", f"{scheme}: {', '.join(groups)}"
    for table in ("embedding", "head"):
        if scheme := options.get(table):
            yield f"  {table}", str(scheme)


def _group(pattern: str) -> str:
    """A rule's tensors for people: `v_proj` of `*.v_proj.weight`."""
    return pattern.removesuffix(".weight").strip("*.") or "all"


def _sampling(config: Mapping[str, Any]) -> str:
    """The defaults of a request's sampling parameters."""
    if config.get("do_sample") is False:
        return "greedy unless a request sets a temperature"
    found = [f"{name} {config[name]}" for name in sorted(SAMPLING) if config.get(name) is not None]
    return ", ".join(found) or "temperature 1"
