"""The models of `mlcc serve` and their names, from its arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlcc.commands.options import note
from mlcc.errors import (
    CapacityError,
    DeviceError,
    InvalidRequestError,
    MlccError,
    UnsupportedError,
    printable,
)

if TYPE_CHECKING:
    from mlcc.engine_args import EngineArgs
    from mlcc.server.asgi import Settings
    from mlcc.server.models.puller import Puller
    from mlcc.server.models.sources import Source
    from mlcc.service.adapters import AdapterEntry

Alias = tuple[str, "str | None"]
"""A name and the MODEL that it is for; None = the only one."""


def aliases_of(given: Iterable[str]) -> list[Alias]:
    """Parse --alias NAME and NAME=MODEL. Raises InvalidRequestError for a malformed name."""
    found: list[Alias] = []
    for text in given:
        name, equals, model = text.partition("=")
        if not name or name != name.strip() or not name.isprintable() or (equals and not model):
            raise InvalidRequestError(
                f"--alias {text!r} is no name; type --alias NAME, or --alias NAME=MODEL for one of "
                "several models"
            )
        found.append((name, model if equals else None))
    return found


def adapters_of(given: Iterable[str]) -> tuple[AdapterEntry, ...]:
    """Parse --lora NAME=FOLDER. Raises InvalidRequestError if malformed, or for a duplicate
    name."""
    from mlcc.service.adapters import AdapterEntry, check_name

    found: dict[str, AdapterEntry] = {}
    for text in given:
        name, equals, folder = text.partition("=")
        if not equals or not folder:
            raise InvalidRequestError(f"--lora {text!r} is no adapter; type --lora NAME=FOLDER")
        check_name(name, (), "--lora")
        if name in found:
            raise InvalidRequestError(f"--lora {name} is given twice; give each a name of its own")
        found[name] = AdapterEntry(name, Path(folder).absolute())
    return tuple(found.values())


def refuse_adapters(settings: Settings) -> None:
    """Raises UnsupportedError for adapters with several models, which are loaded and unloaded."""
    if settings.adapters or settings.lora_dir:
        raise UnsupportedError(
            "--lora and --lora-dir are for a server of one model; give `mlcc serve` that alone"
        )


def refuse_adapters_uncompiled(settings: Settings, args: EngineArgs) -> None:
    """Raises UnsupportedError for adapters of a checkpoint: compiled on demand, it has no adapter
    slots. Checked before it is compiled."""
    from mlcc.model_argument import full_name
    from mlcc.model_cache.cache import is_compiled
    from mlcc.model_cache.resolve import check_model
    from mlcc.model_cache.store import kept

    if not (settings.adapters or settings.lora_dir) or is_compiled(args.model):
        return
    check_model(args)  # a model that is not there has another error
    if kept(full_name(args.model), args.target, args.quant) is None:
        raise UnsupportedError(
            f"{args.model} would be compiled without room for adapters; type `mlcc compile "
            f"{args.model} --adapter-rank 16 -o FOLDER`, then serve that folder with --lora"
        )


def chosen(models: tuple[str, ...], folder: Path | None) -> tuple[tuple[str, ...], bool]:
    """The models to serve, and whether it is a single one, loaded at the start.

    Without MODEL: all models of `mlcc pull`. Raises InvalidRequestError or ArtifactError.
    """
    if folder is not None:
        from mlcc.server.models.sources import models_in_folder

        if models:
            raise InvalidRequestError("--models DIR and MODEL: give one of them")
        return tuple(map(str, models_in_folder(folder))), False
    if models:
        return models, len(models) == 1
    from mlcc.model_cache.store import stored

    found = tuple(str(entry.model) for entry in stored())
    if not found:
        raise InvalidRequestError(
            "which model? Type `mlcc serve MODEL` for a folder or hf://org/name, or `mlcc pull "
            "org/name` once and then `mlcc serve`"
        )
    return found, False


def names_of_one(name: str, model: str, aliases: Sequence[Alias], path: Path) -> tuple[str, ...]:
    """The aliases of a single model, whose compiled folder is `path`. Raises InvalidRequestError
    for an alias of another model."""
    for alias, owner in aliases:
        if owner not in (None, name, model) and not _means(owner, model, path):
            raise InvalidRequestError(f"--alias {alias}={owner}: the model here is {name}")
    return tuple(alias for alias, _ in aliases)


def _means(owner: str, model: str, path: Path) -> bool:
    """Whether the MODEL of an alias is written otherwise than that of the server, and is the same:
    a short name, a name of `mlcc list` in any case or its beginning, a folder."""
    from mlcc.model_argument import full_name
    from mlcc.model_cache.store import named

    with suppress(MlccError):
        if (name := full_name(owner)) == full_name(model):
            return True
        if Path(name).resolve() == path.resolve():
            return True
        return any(each.model.resolve() == path.resolve() for each in named(name))
    return False


def _written_as(
    aliases: Sequence[Alias], paths: Mapping[str, Path], sources: Mapping[str, Source]
) -> list[Alias]:
    """The aliases, their models written as those of the server: keys of `paths`."""

    def key(owner: str | None) -> str | None:
        if owner is None or owner in paths or owner in {each.name for each in sources.values()}:
            return owner
        same = (model for model, path in paths.items() if _means(owner, model, path))
        return next(same, owner)

    return [(alias, key(owner)) for alias, owner in aliases]


def sources_of(
    models: Sequence[str],
    args: EngineArgs,
    aliases: Sequence[Alias],
    parse_special: bool,
    parsers: Mapping[str, str | None],
) -> list[Source]:
    """All models that can be loaded here; checkpoints are compiled first. A model that cannot is
    noted, and left out if it is one of a folder's. Raises MlccError if none is left."""
    from mlcc.model_cache.resolve import resolve
    from mlcc.server.models.sources import artifact_source, with_names

    if args.draft is not None:
        raise UnsupportedError("--draft is for one model: serve it alone, or --speculate lookup")
    found: dict[str, Source] = {}
    paths: dict[str, Path] = {}
    for model in models:
        paths[model] = path = resolve(replace(args, model=model))
        try:
            found[model] = artifact_source(path, args, parse_special, parsers)
        except CapacityError:
            raise
        except MlccError as error:
            note(f"{model} is left out: {error.message.removeprefix(f'{model}: ')}")
            del paths[model]
    if not found:
        raise UnsupportedError(_NONE)
    return with_names(found, _written_as(aliases, paths, found))


def on_devices(
    sources: Sequence[Source], share: float | None
) -> tuple[list[Source], dict[str, int | None]]:
    """The models whose device is here, and the budget of each device; the others are noted and left
    out. Raises MlccError if none is left."""
    from mlcc.server.models.memory_budget import budgets

    found: dict[str, int | None] = {}
    absent: dict[str, str] = {}
    for source in sources:
        if source.device not in found and source.device not in absent:
            try:
                found |= budgets([source], share)
            except DeviceError as error:
                absent[source.device] = error.message
        if reason := absent.get(source.device):
            note(f"{source.name} is left out: {reason}")
    if not found:
        raise UnsupportedError(_NONE)
    return [source for source in sources if source.device in found], found


_NONE = "none of these models can be loaded here, for the reasons above"


def puller_of(args: EngineArgs, parse_special: bool, parsers: Mapping[str, str | None]) -> Puller:
    """What fetches further models for a running server, with the server's options."""
    from mlcc.model_cache.resolve import resolve
    from mlcc.server.models.memory_budget import budgets
    from mlcc.server.models.puller import Pulled, Puller
    from mlcc.server.models.sources import artifact_source

    def open_source(name: str) -> Pulled:
        path = resolve(replace(args, model=name))
        source = artifact_source(path, args, parse_special, parsers)
        return Pulled(source, budgets([source], args.memory))

    given = {"--target": args.target, "--quant": args.quant, "--device": args.device}
    options = [str(part) for pair in given.items() if pair[1] is not None for part in pair]
    return Puller(open_source, options)


def names_text(sources: Iterable[Source]) -> str:
    """The models' names, with aliases."""
    texts = []
    for source in sources:
        more = f" ({', '.join(source.aliases)})" if source.aliases else ""
        texts.append(printable(source.name + more))
    return ", ".join(texts)


def print_page(url: str) -> None:
    """Print the page's URL."""
    click.echo(f"The chat page is at {url}/web/ (Ctrl-C ends it): the browser's GPU runs its model")


def note_open(host: str, api_keys: bool, tls: bool) -> None:
    """Note limits of a page on this host."""
    from mlcc.server.auth.allowed_hosts import is_local

    if api_keys:
        note("no key is asked for where the chat page's model runs on the visitor's own GPU")
    if not is_local(host) and not tls:
        note("browsers give a page the GPU on localhost and https only: put https in front")


def check_adapters(settings: Settings, artifact: Path) -> None:
    """Raises UnsupportedError for adapters of a compiled model without slots, ArtifactError for one
    that does not fit: before loading the model, which may take minutes."""
    from mlcc.artifact.folder import Artifact
    from mlcc.engine.lora import no_adapters
    from mlcc.lora.fit import check
    from mlcc.lora.peft import read_folder

    if not (settings.adapters or settings.lora_dir):
        return
    if (room := Artifact.open(artifact, verify=False, host=False).manifest.adapters) is None:
        raise no_adapters()
    for entry in settings.adapters:
        check(read_folder(entry.folder), room)
