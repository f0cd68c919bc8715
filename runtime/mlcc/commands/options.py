"""Options shared by chat, run, eval and serve, and `load_model`, which opens a model with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mlcc.artifact.kv_format import KV_DTYPES
from mlcc.commands.terminal import loading
from mlcc.engine_args import EngineArgs
from mlcc.errors import printable
from mlcc.limits import BOUNDS
from mlcc.model_argument import model_argument, model_arguments

if TYPE_CHECKING:
    from mlcc.model.model import Model

Command = Callable[..., None]


def load_model(
    args: EngineArgs, *, parse_special: bool = False, reasoning_parser: str | None = None
) -> Model:
    """Open the model in this process, compiling it first if it is a checkpoint, and print its
    notes. parse_special: control tokens in messages count as such."""
    from mlcc.loader import opener
    from mlcc.model_cache.resolve import resolve

    path = resolve(args)
    with loading(args.model) as report:
        model = opener(path, args)(progress=report)
    for line in model.text.notes:
        note(line)
    model = model.with_parsers(None, reasoning_parser)
    return model.with_special() if parse_special else model


def bound_option(name: str) -> Callable[[Command], Command]:
    """The option for a row of mlcc.limits."""
    bound = BOUNDS[name]
    kind: click.ParamType[int] | click.ParamType[float]
    most = None if bound.most == math.inf else bound.most
    if bound.whole:
        kind = click.IntRange(int(bound.least), None if most is None else int(most))
    else:
        kind = click.FloatRange(bound.least, most, min_open=bound.above)
    meaning, _, suits = bound.meaning.partition("  [")
    shown: str | bool = suits.rstrip("]") or _UNSET.get(name) or bound.default is not None
    return click.option(
        bound.option,
        name,
        type=kind,
        metavar="N" if bound.whole else "X",
        help=meaning,
        default=bound.default,
        show_default=shown,
    )


_UNSET = {
    **dict.fromkeys(("context", "max_batch", "max_step_tokens", "max_rows"), "as compiled"),
    "kv_pages": "what --memory has room for",
}
"""The meaning of a bound that is not given."""


class TextList(click.types.StringParamType):
    """A string; an environment variable may have several, separated by commas."""

    envvar_list_splitter = ","


class Devices(click.ParamType[tuple[int, ...]]):
    """One GPU, or several separated by commas."""

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
    show_default="the best",
    help="GPU by number, see `mlcc targets`; of several, as 0,1, each gets the whole model.",
)  # fmt: skip
_CHECKPOINT_OPTIONS: tuple[Callable[[Command], Command], ...] = (
    click.option(
        "--target",
        metavar="NAME",
        help="Target to compile for if MODEL is a checkpoint, see `mlcc targets`.",
        show_default="cpu",
    ),
    click.option(
        "--quant",
        metavar="SCHEME",
        help="Quantization to compile with if MODEL is a checkpoint.",
        show_default="its own if it is quantized, q8 for Whisper, else q4",
    ),
)
_KV = click.option(
    "--kv",
    type=click.Choice(list(KV_DTYPES)),
    help="Data type of keys and values: compiled with if MODEL is a checkpoint, else required.",
    show_default="as compiled",
)
_PREFIX_CACHE = click.option(
    "--prefix-cache/--no-prefix-cache",
    default=True,
    help="Reuse the KV pages of a prompt for others with the same beginning.",
    show_default=True,
)
_SIZES = ("threads", "context", "max_batch", "max_step_tokens")
MODEL_OPTIONS: tuple[Callable[[Command], Command], ...] = (
    click.argument("model", callback=model_argument),
    *_CHECKPOINT_OPTIONS,
    _KV,
    *map(bound_option, (*_SIZES, "max_rows")),
    _DEVICE,
    *map(bound_option, ("memory", "kv_pages")),
    _PREFIX_CACHE,
)
ENCODER_OPTIONS: tuple[Callable[[Command], Command], ...] = (
    MODEL_OPTIONS[0],
    *_CHECKPOINT_OPTIONS,
    *map(bound_option, _SIZES),
    _DEVICE,
    bound_option("memory"),
)
"""Options of a model without a KV cache, logits and answers."""
SPECULATION_OPTIONS = (
    click.option(
        "--speculate",
        metavar="HOW[:N]",
        help="Draft tokens and verify several at once; the answer is the same. lookup = draft from "
        "earlier text (n-grams), mtp = with the model's own multi-token-prediction layer (compile "
        "with --mtp), draft = with the model of --draft, off; at most N draft tokens.",
        show_default="off",
    ),
    click.option(
        "--draft",
        type=click.Path(path_type=Path),
        metavar="FOLDER",
        help="Draft model: a smaller compiled model with the same tokenizer; or an EAGLE-3 head, "
        "with which a checkpoint is compiled.",
    ),
)
_MODELS = click.argument(
    "models", nargs=-1, type=TextList(), metavar="[MODEL]...", callback=model_arguments
)
SAMPLING_OPTIONS = (
    click.option(
        "--temperature",
        type=click.FloatRange(0, 2),
        metavar="X",
        help="Temperature; 0 = greedy.",
        show_default="the model's",
    ),
    click.option(
        "--top-p",
        type=click.FloatRange(0, 1),
        metavar="X",
        help="Sample from the likeliest tokens of this total probability.",
        show_default="the model's",
    ),
    click.option(
        "--top-k",
        type=click.IntRange(0),
        metavar="K",
        help="Sample from the K likeliest tokens; 0 = all.",
        show_default="the model's",
    ),
    click.option(
        "--min-p",
        type=click.FloatRange(0, 1),
        metavar="X",
        help="Drop tokens less likely than this share of the likeliest.",
        show_default="the model's",
    ),
    click.option(
        "--seed",
        type=int,
        metavar="N",
        help="Seed; the same seed gives the same answer.",
        show_default="random",
    ),
    click.option(
        "--max-tokens",
        type=click.IntRange(1),
        metavar="N",
        help="Maximum number of tokens of an answer.",
        show_default="to the end of the context",
    ),
)


SPECIAL_OPTION = click.option(
    "--parse-special",
    is_flag=True,
    help="Parse control tokens in messages (`<|im_end|>` ...), which are text otherwise.",
)


REASONING_OPTIONS = (
    click.option(
        "--think/--no-think",
        default=None,
        help="Turn reasoning on or off, where the chat template can.",
        show_default="as the chat template has it",
    ),
    click.option(
        "--reasoning-parser",
        metavar="NAME",
        help="How the model marks reasoning; none = leave it in the text.",
        show_default="from the chat template",
    ),
)


def reasoning_options(function: Command) -> Command:
    """--think and --reasoning-parser, given to the function as `think` and `reasoning_parser`."""
    return _decorated(function, REASONING_OPTIONS)


def model_options(function: Command) -> Command:
    """MODEL and its options, given to the function as `args: EngineArgs`."""
    return _decorated(_with_options(function), MODEL_OPTIONS)


def encoder_options(function: Command) -> Command:
    """MODEL and the options that an encoder has, given to the function as `args: EngineArgs`."""
    return _decorated(_with_options(function), ENCODER_OPTIONS)


def answering_options(function: Command) -> Command:
    """`model_options` of a command that generates: with --speculate and --draft."""
    return _decorated(_with_options(function), (*MODEL_OPTIONS, *SPECULATION_OPTIONS))


def several_models_options(function: Command) -> Command:
    """`model_options` with any number of MODELs, given to the function as `models` beside
    `args`, whose own `model` is empty."""
    return _decorated(_with_options(function), (_MODELS, *MODEL_OPTIONS[1:]))


def several_answering_options(function: Command) -> Command:
    """`several_models_options` with --speculate and --draft, without the prefix cache's."""
    own = [option for option in MODEL_OPTIONS[1:] if option is not _PREFIX_CACHE]
    return _decorated(_with_options(function), (_MODELS, *own, *SPECULATION_OPTIONS))


def batch_options(function: Command) -> Command:
    """`answering_options` without MODEL, which the command finds itself."""
    return _decorated(_with_options(function), (*MODEL_OPTIONS[1:], *SPECULATION_OPTIONS))


def serving_options(function: Command) -> Command:
    """`several_answering_options` with a --device that takes several GPUs."""
    options: tuple[Callable[[Command], Command], ...]
    options = (_MODELS, *MODEL_OPTIONS[1:], *SPECULATION_OPTIONS)
    rows = [_DEVICES if option is _DEVICE else option for option in options]
    return _decorated(_with_options(function), tuple(rows))


def _with_options(function: Command) -> Command:
    """Gathers the options that are fields of `EngineArgs`."""

    @wraps(function)
    def wrapped(**given: Any) -> None:
        names = [row.name for row in fields(EngineArgs) if row.name in given]
        options = {"model": "", **{name: given.pop(name) for name in names}}
        if isinstance(devices := options.get("device"), tuple):
            options |= {"device": devices[0], "devices": devices if devices[1:] else ()}
        function(args=EngineArgs(**options), **given)

    return wrapped


def sampling_options(function: Command) -> Command:
    """Options of sampling, given to the function as `sampling`: those that were set."""

    @wraps(function)
    def wrapped(**given: Any) -> None:
        from mlcc.api.openai.requests import parse_sampling
        from mlcc.api.schema.chat_fields import CHAT

        names = ("temperature", "top_p", "top_k", "min_p", "seed", "max_tokens")
        fields = {name: given.pop(name) for name in names}
        function(
            sampling=parse_sampling(CHAT, {n: v for n, v in fields.items() if v is not None}),
            **given,
        )

    return _decorated(wrapped, SAMPLING_OPTIONS)


def note(text: str) -> None:
    """Print a line for the user on the standard error, apart from any answer."""
    click.echo(f"note: {printable(text)}", err=True)


def _decorated(function: Command, decorators: tuple[Callable[[Command], Command], ...]) -> Command:
    for decorator in reversed(decorators):
        function = decorator(function)
    return function
