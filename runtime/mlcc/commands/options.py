"""Options that chat, run, eval and serve share, and how they open a model with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mlcc.artifact.pages import KV_DTYPES
from mlcc.commands.terminal import LoadingBar
from mlcc.errors import printable
from mlcc.limits import BOUNDS
from mlcc.model_argument import model_argument, model_arguments

if TYPE_CHECKING:
    from mlcc.model.model import Model

Command = Callable[..., None]


@dataclass(frozen=True)
class ModelOptions:
    """Which model, how compiled, how loaded."""

    model: str
    target: str | None = None
    quant: str | None = None
    threads: int | None = None
    context: int | None = None
    max_batch: int | None = None
    max_step_tokens: int | None = None
    max_rows: int | None = None
    device: int | None = None
    devices: tuple[int, ...] = ()
    """Where there are several, of which `device` is the first."""
    memory: float | None = None
    kv_pages: int | None = None
    kv: str | None = None
    prefix_cache: bool = True
    speculate: str | None = None
    draft: Path | None = None

    def __post_init__(self) -> None:
        """Raises InvalidRequestError for what --speculate says wrong, before a model is compiled
        for it."""
        if self.speculate is not None:
            from mlcc.model.speculation import Speculation

            Speculation.read(self.speculate, self.draft)

    def artifact(self, *, runs_here: bool = True) -> Path:
        """The compiled model's folder; a checkpoint is compiled first, for a device of this machine
        if it `runs_here`. A name of `mlcc list` is what is kept."""
        from mlcc.model_cache.cache import CompileOptions, compiled, is_compiled
        from mlcc.model_cache.store import kept

        if (found := kept(self.model, self.target, self.quant)) is not None:
            return found

        ready = is_compiled(self.model) or not runs_here
        asked = () if ready else self._asked_by_device()
        options = CompileOptions(
            self.target,
            self.quant,
            self.context,
            self.max_batch,
            self.max_step_tokens,
            self.max_rows,
            kv=self.kv,
            device=asked,
        )
        path = compiled(self.model, options, note)
        if runs_here and ready:
            _say_foreign(path)
        return path

    def _asked_by_device(self) -> tuple[str, ...]:
        """How to compile for the device that will run it. Raises DeviceError if there is none."""
        from mlcc.device.select import compile_flags
        from mlcc.device.threads import set_threads
        from mlcc.model_cache.cache import TARGET

        set_threads(self.threads)
        return compile_flags(self.target or TARGET, self.device)

    def opener(self, path: Path) -> Callable[..., Model]:
        """Opens the model, in this process or another."""
        from mlcc.loader import open_model
        from mlcc.model.speculation import Speculation

        return partial(
            open_model,
            path,
            threads=self.threads,
            device=self.device,
            max_batch=self.max_batch,
            context=self.context,
            max_step_tokens=self.max_step_tokens,
            max_rows=self.max_rows,
            memory=self.memory,
            kv_pages=self.kv_pages,
            kv=self.kv,
            prefix_cache=self.prefix_cache,
            speculation=Speculation.read(self.speculate, self.draft),
            draft=self.draft,
        )

    def check(self) -> None:
        """Raises CheckpointError if there is no such model, before time is spent on it."""
        from mlcc.model_cache.cache import check_exists
        from mlcc.model_cache.store import kept

        if kept(self.model, self.target, self.quant) is None:
            check_exists(self.model)

    def open(self, *, parse_special: bool = False, reasoning_parser: str | None = None) -> Model:
        """Open the model here, and say what the user should know of it."""
        with LoadingBar() as bar:
            model = self.opener(self.artifact())(progress=bar.update)
        for line in model.text.notes:
            note(line)
        model = model.with_parsers(None, reasoning_parser)
        return model.with_special() if parse_special else model


def bound_option(name: str) -> Callable[[Command], Command]:
    """The option of a row of mlcc.limits."""
    bound = BOUNDS[name]
    kind: click.ParamType[int] | click.ParamType[float]
    most = None if bound.most == math.inf else bound.most
    if bound.whole:
        kind = click.IntRange(int(bound.least), None if most is None else int(most))
    else:
        kind = click.FloatRange(bound.least, most, min_open=bound.above)
    shown = bound.default is not None
    return click.option(
        bound.option, name, type=kind, help=bound.meaning, default=bound.default, show_default=shown
    )


class Devices(click.ParamType[tuple[int, ...]]):
    """One GPU, or several with commas between."""

    name = "N[,N]..."

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        parts = str(value).split(",")
        if not all(part.isdecimal() and len(part) < 5 for part in parts):
            self.fail(f"{str(value)[:40]!r}: type numbers of GPUs, as in 0 or 0,1", param, ctx)
        numbers = tuple(map(int, parts))
        if len(set(numbers)) < len(numbers):
            self.fail(f"{str(value)[:40]!r} names a GPU twice", param, ctx)
        return numbers


_DEVICE = bound_option("device")
_DEVICES: Callable[[Command], Command] = click.option(
    BOUNDS["device"].option, "device", type=Devices(), default=None,
    help="GPU by number, see `mlcc targets`; of several, as 0,1, each gets the whole model.  "
    "[the best]",
)  # fmt: skip
MODEL_OPTIONS: tuple[Callable[[Command], Command], ...] = (
    click.argument("model", callback=model_argument),
    click.option("--target", help="If it must be compiled first.  [cpu]"),
    click.option(
        "--quant", help="If it must be compiled first.  [as it is, if quantized; else q4]"
    ),
    click.option(
        "--kv",
        type=click.Choice(list(KV_DTYPES)),
        help="How keys and values are kept, if it must be compiled first; else what they must be.",
    ),
    *map(bound_option, ("threads", "context", "max_batch", "max_step_tokens", "max_rows")),
    _DEVICE,
    *map(bound_option, ("memory", "kv_pages")),
    click.option(
        "--prefix-cache/--no-prefix-cache",
        default=True,
        help="Use what was computed for one prompt for others that begin alike.  [on]",
    ),
)
SPECULATION_OPTIONS = (
    click.option(
        "--speculate",
        metavar="HOW[:N]",
        help="Guess tokens ahead and check several at once; the answer is the same. lookup = from "
        "text that came before, draft = by the model of --draft, off; N guesses at most.  [off]",
    ),
    click.option(
        "--draft",
        type=click.Path(path_type=Path),
        metavar="ARTIFACT",
        help="A smaller compiled model with the same tokenizer, which guesses.",
    ),
)
_MODELS = click.argument("models", nargs=-1, metavar="[MODEL]...", callback=model_arguments)
SAMPLING_OPTIONS = (
    click.option("--temperature", type=click.FloatRange(0, 2), help="0 = always the likeliest."),
    click.option("--top-p", type=click.FloatRange(0, 1), help="Keep this share of probability."),
    click.option("--top-k", type=click.IntRange(0), help="Keep so many tokens; 0 = all."),
    click.option("--min-p", type=click.FloatRange(0, 1), help="Drop less than this of the best."),
    click.option("--seed", type=int, help="The same seed gives the same answer."),
    click.option("--max-tokens", type=click.IntRange(1), help="Longest answer in tokens."),
)


SPECIAL_OPTION = click.option(
    "--parse-special",
    is_flag=True,
    help="Control tokens count in messages, too (`<|im_end|>` ...); else they are text there.",
)


REASONING_OPTIONS = (
    click.option(
        "--think/--no-think",
        default=None,
        help="Whether the model thinks first, where its template knows that.",
    ),
    click.option(
        "--reasoning-parser",
        metavar="NAME",
        help="How reasoning is marked, where the template does not show it; none = as text.",
    ),
)


def reasoning_options(function: Command) -> Command:
    """How a model's reasoning is asked for and read: `think`, `reasoning_parser`."""
    return _decorated(function, REASONING_OPTIONS)


def model_options(function: Command) -> Command:
    """MODEL and its options, given to the function as `options: ModelOptions`."""
    return _decorated(_with_options(function), MODEL_OPTIONS)


def answering_options(function: Command) -> Command:
    """The same of a command that answers, which may guess ahead."""
    return _decorated(_with_options(function), (*MODEL_OPTIONS, *SPECULATION_OPTIONS))


def several_models_options(function: Command) -> Command:
    """`model_options` with any number of MODELs, given to the function as `models` beside
    `options`, whose own `model` is empty."""
    return _decorated(_with_options(function), (_MODELS, *MODEL_OPTIONS[1:]))


def several_answering_options(function: Command) -> Command:
    """The same of a command that answers, which may guess ahead."""
    options: tuple[Callable[[Command], Command], ...]
    options = (_MODELS, *MODEL_OPTIONS[1:], *SPECULATION_OPTIONS)
    return _decorated(_with_options(function), options)


def serving_options(function: Command) -> Command:
    """The same of a command whose model may be on several devices."""
    options: tuple[Callable[[Command], Command], ...]
    options = (_MODELS, *MODEL_OPTIONS[1:], *SPECULATION_OPTIONS)
    rows = [_DEVICES if option is _DEVICE else option for option in options]
    return _decorated(_with_options(function), tuple(rows))


def _with_options(function: Command) -> Command:
    """Gathers what was given of `ModelOptions`."""

    @wraps(function)
    def wrapped(**given: Any) -> None:
        names = [row.name for row in fields(ModelOptions) if row.name in given]
        options = {"model": "", **{name: given.pop(name) for name in names}}
        if isinstance(devices := options.get("device"), tuple):
            options |= {"device": devices[0], "devices": devices if devices[1:] else ()}
        function(options=ModelOptions(**options), **given)

    return wrapped


def sampling_options(function: Command) -> Command:
    """Temperature and friends, given to the function as `sampling: Wishes`, what was given."""

    @wraps(function)
    def wrapped(**given: Any) -> None:
        from mlcc.api.openai.sampling_params import wishes
        from mlcc.api.schema.chat_fields import CHAT

        names = ("temperature", "top_p", "top_k", "min_p", "seed", "max_tokens")
        fields = {name: given.pop(name) for name in names}
        function(sampling=wishes(CHAT, {n: v for n, v in fields.items() if v is not None}), **given)

    return _decorated(wrapped, SAMPLING_OPTIONS)


def note(text: str) -> None:
    """A line for the user, not part of any answer."""
    click.echo(f"note: {printable(text)}", err=True)


def _say_foreign(path: Path) -> None:
    """Before the machine code of somebody else is loaded for the first time. Raises ArtifactError
    for what cannot run here anyway."""
    from mlcc.artifact.known import is_known, remember

    if not is_known(path):
        from mlcc.artifact.folder import Artifact

        Artifact.open(path, verify=False)
        note(f"{path} was not compiled here by you; its machine code runs with your rights")
        remember(path)


def _decorated(function: Command, decorators: tuple[Callable[[Command], Command], ...]) -> Command:
    for decorator in reversed(decorators):
        function = decorator(function)
    return function
