"""`mlcc chat MODEL`: a conversation in the terminal. The loop; the model's part is `Session`."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from mlcc.commands.options import (
    SPECIAL_OPTION,
    ModelOptions,
    model_options,
    note,
    reasoning_options,
    sampling_options,
)
from mlcc.commands.terminal import (
    Interrupts,
    Screen,
    cut_off,
    enable_line_editing,
    read_stdin,
    thinks,
)
from mlcc.errors import DeviceError, InvalidRequestError, MlccError, printable

if TYPE_CHECKING:
    from mlcc.api.sampling import Wishes
    from mlcc.model.conversation import Conversation
    from mlcc.model.session import Session

HELP = """\
/help   this list
/reset  forget the conversation
/stats  how the last answer went
/exit   leave; Ctrl-D or Ctrl-C at the prompt do the same
Ctrl-C during an answer stops the answer."""


@click.command("chat")
@model_options
@SPECIAL_OPTION
@click.argument("prompt", required=False)
@click.option("--system", help="Instructions that stay in force.")
@reasoning_options
@sampling_options
def chat_command(
    options: ModelOptions,
    prompt: str | None,
    system: str | None,
    parse_special: bool,
    think: bool | None,
    reasoning_parser: str | None,
    sampling: Wishes,
) -> None:
    """Talk with a model in the terminal.

    MODEL is a folder made by `mlcc compile`, or a checkpoint (a Hugging Face folder or
    hf://org/name), which is compiled first and kept for the next time. With PROMPT, or with
    something piped in, it answers once and ends: all of the standard input is one prompt.
    """
    options.check()  # before anything is read for it
    screen = Screen()
    if prompt is None and not screen.interactive:
        prompt = read_stdin().strip()
    if prompt is not None and not prompt.strip():
        raise InvalidRequestError("there is no prompt: the standard input is empty")
    from mlcc.model.conversation import Conversation
    from mlcc.model.session import Session

    model = options.open(parse_special=parse_special, reasoning_parser=reasoning_parser)
    session = Session(model)
    try:
        chat = Chat(session, Conversation(system, variables=thinks(think)), sampling, screen)
        if prompt is not None:
            chat.answer_once(prompt)
        else:
            chat.loop()
    finally:
        session.close()


@dataclass
class Chat:
    """One conversation with one model."""

    session: Session
    conversation: Conversation
    sampling: Wishes
    screen: Screen

    def answer_once(self, prompt: str) -> None:
        """Answer and return; Ctrl-C ends the program."""
        self.conversation.add("user", prompt)
        self.screen.told(self.session.told(self._prompt(), self.sampling))
        if cut := cut_off(self.session.last, self.sampling.get("max_tokens")):
            note(cut)

    def loop(self) -> None:
        """Read and answer until the user leaves."""
        model = self.session.model
        enable_line_editing()
        self.screen.note(
            f"{printable(model.text.name)}, context {model.capacity.context} tokens. /help helps"
        )
        while (line := self._read()) is not None:
            if line.startswith("/") and "\n" not in line:
                if not self._command(line):
                    break
            elif line:
                self._turn(line)

    def _read(self) -> str | None:
        try:
            line = self.screen.read()
        except KeyboardInterrupt:
            line = None
        except InvalidRequestError as error:
            self.screen.note(f"error: {error.message}")
            return ""
        if line is None:
            self.screen.note("\nbye")
        return None if line is None else line.strip()

    def _turn(self, line: str) -> None:
        """One question and its answer; Ctrl-C stops the answer, which is kept as far as it got."""
        kept = list(self.conversation.turns)
        self.conversation.add("user", line)
        try:
            with Interrupts() as interrupts:
                pieces = self.session.told(self._prompt(), self.sampling, interrupts)
                text = self.screen.told(pieces)
        except DeviceError:
            raise  # the model is gone
        except MlccError as error:  # too long a prompt, a broken chat template
            self.conversation.turns = kept
            self.screen.note(f"error: {error.message}")
            return
        self.conversation.add("assistant", text)
        self._say_why_it_ended(interrupts.pressed)

    def _prompt(self) -> array[int]:
        text, context = self.session.model.text, self.session.model.capacity.context
        prompt, forgotten = self.conversation.fit(text, context, self.sampling.get("max_tokens"))
        if forgotten:
            self.screen.note(
                f"(the context of {context} tokens is full: the {forgotten} oldest messages are "
                "forgotten)"
            )
        return prompt

    def _say_why_it_ended(self, stopped: bool) -> None:
        if stopped:
            self.screen.note("(stopped)")
        elif cut := cut_off(self.session.last, self.sampling.get("max_tokens")):
            self.screen.note(f"({cut})")

    def _command(self, line: str) -> bool:
        """Obey a line that starts with a slash; False = leave."""
        word = line.split()[0]
        if word in ("/exit", "/quit", "/bye"):
            return False
        if word == "/help":
            self.screen.note(HELP)
        elif word == "/reset":
            self.conversation.turns.clear()
            self.screen.note("(forgotten)")
        elif word == "/stats":
            self.screen.note(self._stats())
        else:
            self.screen.note(f"there is no {word}; /help lists what there is")
        return True

    def _stats(self) -> str:
        timing = self.session.last
        if timing is None:
            return "no answer yet"
        used = timing.prompt_tokens + timing.completion_tokens
        return (
            f"prompt {timing.prompt_tokens} tokens, {timing.cached_tokens} of them cached, first "
            "token after "
            f"{timing.first_token_s * 1000:.0f} ms; answer {timing.completion_tokens} tokens in "
            f"{timing.total_s:.2f} s, {timing.tokens_per_s:.1f} tokens/s; "
            f"context {used} of {self.session.model.capacity.context}"
        )
