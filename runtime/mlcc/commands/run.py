"""`mlcc run MODEL PROMPT`: one answer on standard output, for scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mlcc.commands.options import (
    SPECIAL_OPTION,
    ModelOptions,
    model_options,
    note,
    sampling_options,
)
from mlcc.commands.terminal import Screen, cut_off, read_stdin
from mlcc.errors import InvalidRequestError

if TYPE_CHECKING:
    from mlcc.api.requests import SamplingFields


@click.command("run")
@model_options
@SPECIAL_OPTION
@click.argument("prompt")
@click.option("--raw", is_flag=True, help="Continue PROMPT as plain text, without chat template.")
@sampling_options
def run_command(
    options: ModelOptions, prompt: str, raw: bool, parse_special: bool, sampling: SamplingFields
) -> None:
    """Answer PROMPT once and print the answer.

    A model with a chat template is asked as in a chat; --raw, or a model without one, continues
    PROMPT as plain text. PROMPT may be '-' for the standard input.
    """
    options.check()  # before anything is read for it
    prompt = read_stdin() if prompt == "-" else prompt
    if not prompt.strip():
        raise InvalidRequestError("the prompt is empty; give some text, or - for standard input")
    from mlcc.model.session import Session

    session = Session(options.open(parse_special=parse_special))
    try:
        text = session.model.text
        if not raw and text.chat_template.is_plain:
            note("without chat template the prompt is continued as plain text")
            raw = True
        chat = [{"role": "user", "content": prompt}]
        ids = text.encode_prompt(prompt) if raw else text.encode_chat(chat)
        Screen().answer(session.answer(ids, sampling))
        if cut := cut_off(session.last, sampling.max_tokens):
            note(cut)
    finally:
        session.close()
