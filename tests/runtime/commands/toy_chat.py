"""`mlcc chat` over the toy model, as a program: everything except opening an artifact."""

from __future__ import annotations

import sys
from dataclasses import replace

import click

import mlcc.cli
from mlcc.api.chat_template.template import ChatTemplate
from mlcc.commands.chat import Chat
from mlcc.commands.chat_backend import LocalBackend
from mlcc.commands.terminal import Screen
from mlcc.model.conversation import Conversation
from mlcc.model.session import Session
from tests.helpers.toy.toy_model import open_toy


@click.command()
@click.option("--delay", type=float, default=0.0)
@click.option("--max-tokens", type=int)
@click.option("--template", help="Instead of the toy's own.")
@click.option("--once", help="Answer this and end.")
def toy_chat(delay: float, max_tokens: int | None, template: str | None, once: str | None) -> None:
    sampling = {"temperature": 0, "max_tokens": max_tokens, "ignore_eos": True}
    model = open_toy(delay)
    if template:
        model = replace(model, text=replace(model.text, chat_template=ChatTemplate(template)))
    chat = Chat(LocalBackend(Session(model)), Conversation(), sampling, Screen())
    if once:
        chat.answer_once(once)
    else:
        chat.loop()


if __name__ == "__main__":
    mlcc.cli.cli = toy_chat  # its errors and interrupts are those of `mlcc`
    mlcc.cli.main(sys.argv[1:])
