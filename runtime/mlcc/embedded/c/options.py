"""Engine options of a C host, as JSON; mlcc.h documents them."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

from mlcc.engine_args import EngineArgs
from mlcc.errors import InvalidRequestError
from mlcc.limits import BOUNDS, default
from mlcc.loader import Progress, open_model
from mlcc.model.model import Model
from mlcc.model.speculation import Speculation
from mlcc.model.tokenizer.tokenizer import TextTokenizer
from mlcc.util.fast_dataclass import fast_dataclass


@fast_dataclass(frozen=True)
class Options:
    """All options; None = the default. Numbers must be within mlcc.limits."""

    model: str | None = None
    open: str | None = None
    """`module:function` that opens a Model without arguments, in place of `model`; for tests."""
    context: int | None = None
    max_batch: int | None = None
    max_step_tokens: int | None = None
    max_rows: int | None = None
    threads: int | None = None
    device: int | None = None
    memory_bytes: int | None = None
    prefix_cache: bool = True
    speculate: str | None = None
    draft: str | None = None
    max_queue: int = default("max_queue")
    max_unread_bytes: int = default("max_unread_bytes")
    parse_special: bool = False
    unload_in_background: bool = False
    lora_dir: str | None = None
    """Folder from which /v1/load_lora_adapter loads adapters; None = it loads none."""

    @classmethod
    def read(cls, text: bytes) -> Options:
        """Parse the options. Raises InvalidRequestError."""
        try:
            given = json.loads(text)
        except ValueError as error:
            raise _wrong(f"the options are not JSON ({error})") from None
        if not isinstance(given, dict):
            raise _wrong("the options are no JSON object")
        kinds = {field.name: str(field.type) for field in fields(cls)}
        for name, value in given.items():
            if name not in kinds:
                raise _wrong(f"there is no option '{name}'; mlcc.h lists {', '.join(kinds)}")
            _check(name, value, kinds[name])
        options = cls(**given)
        if (options.model is None) == (options.open is None):
            raise _wrong("the option 'model' is missing: the folder that `mlcc compile` wrote")
        return options

    def open_model(self, tokenizer: TextTokenizer | None, progress: Progress) -> Model:
        """The model; `tokenizer` takes the place of its own. Raises MlccError."""
        if self.open is not None:
            return _opener(self.open)
        # Checked under its name here: `EngineArgs` would call it --speculate.
        Speculation.read(self.speculate, self.draft, "the option 'speculate'")
        model = open_model(
            Path(str(self.model)),
            EngineArgs(
                threads=self.threads,
                max_batch=self.max_batch,
                context=self.context,
                max_step_tokens=self.max_step_tokens,
                max_rows=self.max_rows,
                device=self.device,
                memory_bytes=self.memory_bytes,
                prefix_cache=self.prefix_cache,
                speculate=self.speculate,
                draft=None if self.draft is None else Path(self.draft),
            ),
            tokenizer=tokenizer,
            progress=progress,
        )
        return model.with_special() if self.parse_special else model


def _opener(name: str) -> Model:
    from importlib import import_module

    module, _, function = name.partition(":")
    model = getattr(import_module(module), function)()
    assert isinstance(model, Model), f"{name} opened {model!r}"
    return model


def _check(name: str, value: object, kind: str) -> None:
    """A field's annotation says what may be there."""
    fits = {"int": type(value) is int, "str": type(value) is str, "bool": type(value) is bool}
    if not (fits[kind.partition(" ")[0]] or (value is None and kind.endswith("None"))):
        raise _wrong(f"the option '{name}' is {value!r}, not of type {kind}")
    if name in BOUNDS and value is not None:
        BOUNDS[name].check(value, f"the option '{name}'")


def _wrong(message: str) -> InvalidRequestError:
    return InvalidRequestError(message, code="bad_options")
