"""`mlcc inspect DIR`: identity, requirements and contents of a compiled model. Read-only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from mlcc.artifact.checks.host_check import select_manifest
from mlcc.artifact.folder import Artifact
from mlcc.artifact.kv_format import kv_dtype
from mlcc.artifact.manifest import Manifest
from mlcc.artifact.schema import MANIFEST_NAME, EncoderInfo, VisionInfo
from mlcc.errors import ArtifactError, printable
from mlcc.model_argument import HUB
from mlcc.util.sizes import size


def _local(_context: click.Context, _parameter: click.Parameter, text: str) -> Path:
    """A path. Raises ArtifactError for a name of the hub, which is not a compiled model's
    folder."""
    if text.startswith(HUB):
        raise ArtifactError(
            f"{text}: is a checkpoint of the hub; `mlcc pull {text.removeprefix(HUB)}` compiles "
            "it, then `mlcc show` tells what it is"
        )
    return Path(text)


@click.command("inspect")
@click.argument("folder", metavar="DIR", callback=_local)
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as it is.")
@click.option("--verify", is_flag=True, help="Also hash every file.")
def inspect_command(folder: Path, as_json: bool, verify: bool) -> None:
    """Show the files, functions, memory and CPU features of a compiled model."""
    artifact = Artifact.open(folder, verify=False, host=False)
    if verify:
        artifact.verify()
    if as_json:
        click.echo((folder / MANIFEST_NAME).read_text(encoding="utf-8"), nl=False)
        return
    manifests = (artifact.manifest, *artifact.alternatives)
    rows = [*describe(artifact.manifest), *_alternatives(artifact.alternatives)]
    rows.append(("runs here", _runs_here(manifests)))
    rows.append(("checked", "every byte" if verify else "sizes only; --verify hashes every file"))
    for title, text in rows:
        click.echo(printable(f"{title:<13} {text}"))


def describe(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Title and text of each line, from the manifest only."""
    model, target, limits = manifest.model, manifest.target, manifest.limits
    ends = ", ".join(map(str, model.eos_token_ids)) or "none"
    yield (
        "model",
        f"{model.name} ({model.architecture}), {model.vocab_size} tokens, ends with {ends}",
    )
    yield "parameters", f"{model.parameters:,}" if model.parameters else "unknown"
    yield "licence", model.licence or "no file"
    yield "quantization", f"{manifest.quantization.name}{_options(manifest.quantization.options)}"
    place = ", ".join(filter(None, (target.device, target.triple or target.arch, target.cpu)))
    yield "target", f"{target.name} ({place})"
    yield "activations", manifest.activation_dtype
    yield "CPU features", ", ".join(target.features) or "none beyond the base"
    yield "library", f"{manifest.library.path}: {', '.join(manifest.functions)}"
    yield "context", f"{limits.context} tokens"
    batch = f"{limits.max_batch} sequences, {limits.max_step_tokens} tokens"
    yield "a step", f"{batch}, {limits.max_rows} rows of logits at most"
    if manifest.encoder is not None:
        yield "encoder", _encoder(manifest.encoder)
    if manifest.vision is not None:
        yield "vision", _vision(manifest.vision)
    for text in _caches(manifest):
        yield "cache", text
    yield "memory", _memory(manifest)
    shards = len(manifest.weights.shards)
    yield "weights", f"{len(manifest.weights.tensors)} tensors in {_count(shards, 'shard')}"
    if manifest.ranks is not None:
        own = _count(len(manifest.ranks.shards[0]), "shard")
        yield "ranks", f"{manifest.ranks.count} processes, each with {own} of its own"
    yield from _files(manifest)
    tools = manifest.tools
    yield "made by", f"mlcc {tools.mlcc}, tvm {tools.tvm}, tvm-ffi {tools.tvm_ffi}"
    yield "format", f"schema {manifest.schema_version}, ABI {manifest.abi}"


def _caches(manifest: Manifest) -> Iterator[str]:
    for cache in manifest.caches:
        pool = f"{cache.pool} pages of {cache.page_size} tokens"
        if cache.kind == "state":
            pool = f"{cache.pool} states"
        window = f", a window of {cache.window}" if cache.window else ""
        yield f"{pool}{window} in {_count(len(cache.layers), 'layer')} of {kv_dtype(cache)}"


def _memory(manifest: Manifest) -> str:
    plan = manifest.memory
    parts = {
        "weights": plan.weights_bytes,
        "caches": plan.cache_bytes,
        "workspace": plan.workspace_bytes,
    }
    each = f"each of {manifest.ranks.count} ranks " if manifest.ranks else ""
    total = each + size(sum(parts.values()))
    return f"{total} = " + " + ".join(f"{name} {size(count)}" for name, count in parts.items())


def _vision(info: VisionInfo) -> str:
    size = f"{info.image_size} x {info.image_size}" if info.image_size else "any size of"
    side = info.patch_size * info.merge_size
    return f"images by {info.processor}: {size} pixels, a token for each {side} x {side}"


def _encoder(info: EncoderInfo) -> str:
    tasks = {"score": "scores of pairs", "classify": f"{info.width} classes: {_classes(info)}"}
    made = tasks.get(info.task, f"rows of {info.width} numbers")
    prompts = f"; prompts: {', '.join(sorted(info.prompts))}" if info.prompts else ""
    return f"{made}, pooling {info.pooling}{', of length 1' if info.normalize else ''}{prompts}"


_SHOWN_CLASSES = 8


def _classes(info: EncoderInfo) -> str:
    named = ", ".join(map(printable, info.labels[:_SHOWN_CLASSES]))
    return f"{named}, ..." if len(info.labels) > _SHOWN_CLASSES else named


def _files(manifest: Manifest) -> Iterator[tuple[str, str]]:
    width = max((len(entry.path) for entry in manifest.files), default=0)
    for i, entry in enumerate(manifest.files):
        row = f"{entry.path:<{width}}  {size(entry.bytes):>9}  sha256 {entry.sha256[:16]}"
        yield ("" if i else "files"), row


def _alternatives(manifests: Sequence[Manifest]) -> Iterator[tuple[str, str]]:
    """The alternative libraries for other devices, best first."""
    for i, each in enumerate(manifests):
        needs = " ".join(each.target.features) or "nothing beyond the base"
        precision = "" if each.target.options.get("f16") else " in float32"
        text = f"{each.library.path}: {each.target.triple}{precision}, needs {needs}"
        yield ("" if i else "alternatives"), text


def _runs_here(manifests: Sequence[Manifest]) -> str:
    try:
        chosen, notes = select_manifest(manifests)
    except ArtifactError as error:
        return f"no: {error.message}"
    of_several = f", by {chosen.library.path}" if len(manifests) > 1 else ""
    return f"yes{of_several}" + "".join(f"; {note}" for note in notes)


def _options(options: dict[str, object]) -> str:
    """A recipe's options beside its name; rules as `pattern scheme`."""
    words = []
    for name, value in options.items():
        if name == "rules" and isinstance(value, list):
            words += [" ".join(map(str, rule)) for rule in value]
        elif name != "name" and value is not False:
            words.append(f"{name} {value}")
    return f" ({', '.join(words)})" if words else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
