"""`mlcc run MODEL PROMPT`: one answer on standard output, for scripts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mlcc.commands.attached_files import audio_part, image_part, naming_files, with_files
from mlcc.commands.grouped_help import GroupedCommand
from mlcc.commands.options import (
    SPECIAL_OPTION,
    answering_options,
    load_model,
    note,
    reasoning_options,
    sampling_options,
)
from mlcc.commands.terminal import Screen, cut_off, read_stdin, thinks
from mlcc.engine.sampling.grammar import Structure
from mlcc.engine_args import EngineArgs
from mlcc.errors import InvalidRequestError

if TYPE_CHECKING:
    from mlcc.api.openai.requests import SamplingOptions


@click.command("run", cls=GroupedCommand)
@answering_options
@SPECIAL_OPTION
@click.argument("prompt")
@click.option(
    "--image",
    "images",
    multiple=True,
    metavar="FILE",
    help="Show the model this image (PNG, JPEG, WebP, GIF) before PROMPT. May be repeated.",
)
@click.option(
    "--audio",
    "sounds",
    multiple=True,
    metavar="FILE",
    help="Let the model hear this file (WAV or FLAC; with the extra 'audio' also Ogg and MP3, with "
    "'av' M4A) before PROMPT. May be repeated.",
)
@click.option("--system", help="System message.")
@click.option(
    "--json-schema", metavar="FILE|JSON", help="Constrain the answer to this JSON Schema."
)
@click.option("--raw", is_flag=True, help="Continue PROMPT as plain text, without chat template.")
@reasoning_options
@sampling_options
def run_command(
    args: EngineArgs,
    prompt: str,
    images: tuple[str, ...],
    sounds: tuple[str, ...],
    system: str | None,
    json_schema: str | None,
    raw: bool,
    parse_special: bool,
    think: bool | None,
    reasoning_parser: str | None,
    sampling: SamplingOptions,
) -> None:
    """Answer PROMPT once and print the answer.

    A model with a chat template is asked as in a chat; --raw, or a model without one, continues
    PROMPT as plain text. PROMPT may be '-' for the standard input. Reasoning goes
    to the standard error, or dimmed to a terminal.
    """
    from mlcc.model_cache.resolve import check_model

    check_model(args)  # before anything is read for it
    structure = None if json_schema is None else _structure(json_schema)
    prompt = read_stdin() if prompt == "-" else prompt
    if not prompt.strip():
        raise InvalidRequestError("the prompt is empty; give some text, or - for standard input")
    if raw and (images or sounds):
        flag = "--image" if images else "--audio"
        raise InvalidRequestError(f"{flag} is for a chat template; leave out --raw")
    parts = [image_part(name)[0] for name in images]
    parts += [audio_part(name)[0] for name in sounds]
    from mlcc.model.conversation import encode_messages
    from mlcc.model.session import Session

    model = load_model(args, parse_special=parse_special, reasoning_parser=reasoning_parser)
    session = Session(model)
    try:
        text = session.model.text
        if not raw and not parts and text.chat_template.is_plain:
            note("this prompt is no conversation: it is continued as it stands")
            raw = True
        if raw and system is not None:
            raise InvalidRequestError("--system is for a chat template; put it before the prompt")
        chat: list[dict[str, Any]] = [{"role": "user", "content": with_files(parts, prompt)}]
        if system is not None:
            chat.insert(0, {"role": "system", "content": system})
        screen = Screen()
        if raw:
            ids = text.encode_prompt(prompt)
            screen.answer(session.answer(ids, sampling, structure=structure))
        else:
            try:
                asked = encode_messages(text, chat, thinks(think))
            except InvalidRequestError as error:
                message = naming_files(error.message, [*images, *sounds])
                raise InvalidRequestError(message, code=error.code) from error
            screen.answer_parsed(session.answer_chat(asked, sampling, structure=structure))
        if cut := cut_off(session.last, sampling.get("max_tokens")):
            note(cut)
    finally:
        session.close()


def _structure(given: str) -> Structure:
    """A structure from a schema, given as text or as a file. Raises InvalidRequestError if it is
    not JSON."""
    text = given
    if not given.lstrip().startswith("{"):
        try:
            text = Path(given).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise InvalidRequestError(
                f"--json-schema {given[:80]}: cannot be read ({reason}); give a file or a schema "
                "that begins with '{'"
            ) from error
    try:
        json.loads(text)
    except ValueError as error:
        raise InvalidRequestError(f"--json-schema is no JSON ({error}); correct it") from error
    return Structure("json_schema", text, "--json-schema")
