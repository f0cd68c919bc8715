"""`mlcc chat MODEL`: a conversation in the terminal. The answers come from `chat_backend.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from mlcc.commands.attached_files import audio_part, image_part, naming_files, with_files
from mlcc.commands.chat_backend import ChatBackend, LocalBackend, RemoteBackend
from mlcc.commands.conversation_file import load, save, with_setting
from mlcc.commands.grouped_help import GroupedCommand
from mlcc.commands.options import (
    SPECIAL_OPTION,
    answering_options,
    load_model,
    note,
    reasoning_options,
    sampling_options,
)
from mlcc.commands.server_registry import state_folder
from mlcc.commands.terminal import (
    Interrupts,
    Screen,
    cut_off,
    enable_line_editing,
    read_stdin,
    thinks,
)
from mlcc.engine_args import EngineArgs
from mlcc.errors import DeviceError, InvalidRequestError, MlccError, printable
from mlcc.model_argument import HUB

if TYPE_CHECKING:
    from mlcc.api.openai.requests import SamplingOptions
    from mlcc.model.conversation import Conversation

HELP = """\
/help             this list
/clear, /reset    forget the conversation
/regen            answer the last question again
/set NAME VALUE   temperature, top_p, max_tokens, system ...; /set alone lists what is set
/save FILE        write the conversation to a file; /load FILE takes one up
/image FILE       show an image with the next question; may be repeated
/audio FILE       let the model hear a file with the next question; may be repeated
/stats            how the last answer went
/exit             leave; Ctrl-D or Ctrl-C at the prompt do the same
Three quotes begin a text of several lines, and end it. Ctrl-C during an answer stops the answer."""
QUOTES = '"' * 3


@click.command("chat", cls=GroupedCommand)
@answering_options
@SPECIAL_OPTION
@click.argument("prompt", required=False)
@click.option(
    "--url", metavar="URL", help="Chat with a running server; MODEL is the name of its model."
)
@click.option("--system", help="System message.")
@reasoning_options
@sampling_options
def chat_command(
    args: EngineArgs,
    prompt: str | None,
    url: str | None,
    system: str | None,
    parse_special: bool,
    think: bool | None,
    reasoning_parser: str | None,
    sampling: SamplingOptions,
) -> None:
    """Chat with a model in the terminal.

    MODEL is a folder made by `mlcc compile`, or a checkpoint (a Hugging Face folder or org/name of
    the hub), which is compiled first and cached. With PROMPT, or with piped input, it answers once
    and exits: the whole standard input is one prompt.

    With --url the model is on a server with OpenAI's API; "-" is the server's first model.
    """
    screen = Screen()
    if url is None:
        from mlcc.model_cache.resolve import check_model

        check_model(args)  # before anything is read for it
    else:
        _refuse_local_options()
    if prompt is None and not screen.interactive:
        prompt = read_stdin().strip()
    if prompt is not None and not prompt.strip():
        raise InvalidRequestError("there is no prompt: the standard input is empty")
    from mlcc.model.conversation import Conversation

    backend = _backend(args, url, parse_special, reasoning_parser)
    try:
        chat = Chat(backend, Conversation(system, variables=thinks(think)), sampling, screen)
        if prompt is not None:
            chat.answer_once(prompt)
        else:
            chat.loop()
    finally:
        backend.close()


def _refuse_local_options() -> None:
    """Raises InvalidRequestError for an option that configures loading, which a server has done
    already."""
    context = click.get_current_context()
    local = {row.name for row in fields(EngineArgs)} - {"model"}
    for parameter in context.command.params:
        name = parameter.name or ""
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if given and name in local | {"parse_special", "reasoning_parser"}:
            raise InvalidRequestError(
                f"{parameter.opts[0]} is for a model that is loaded here, and --url asks a server "
                "that has loaded its own; give it to `mlcc serve`, or leave one of both out"
            )


def _backend(
    args: EngineArgs, url: str | None, parse_special: bool, reasoning_parser: str | None
) -> ChatBackend:
    if url is not None:
        name = args.model.removeprefix(HUB)
        return RemoteBackend(url, None if name == "-" else name)
    from mlcc.model.session import Session

    model = load_model(args, parse_special=parse_special, reasoning_parser=reasoning_parser)
    return LocalBackend(Session(model))


@dataclass
class Chat:
    """One conversation with one model."""

    backend: ChatBackend
    conversation: Conversation
    sampling: SamplingOptions
    screen: Screen
    attached: list[dict[str, Any]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    """Names of the attached ones, until the question is answered."""
    """Images and sounds of the next question."""

    def answer_once(self, prompt: str) -> None:
        """Answer and return; Ctrl-C ends the program."""
        self.conversation.add("user", prompt)
        self.screen.answer_parsed(
            self.backend.answer(self.conversation, self.sampling, lambda: False, self.screen.note)
        )
        if cut := cut_off(self.backend.last, self.sampling.get("max_tokens")):
            note(cut)

    def loop(self) -> None:
        """Read lines and answer until the user leaves."""
        enable_line_editing(state_folder() / "chat_history")
        self.screen.note(f"{self.backend.about}. /help helps")
        while (line := self._read()) is not None:
            if line.startswith("/") and "\n" not in line:
                if not self._command(line):
                    break
            elif line:
                self._turn(line)

    def _read(self) -> str | None:
        try:
            line = self._read_text()
        except KeyboardInterrupt:
            line = None
        except InvalidRequestError as error:
            self.screen.note(f"error: {error.message}")
            return ""
        if line is None:
            self.screen.note("\nbye")
        return None if line is None else line.strip()

    def _read_text(self) -> str | None:
        """A line, or the text between two lines of three quotes."""
        line = self.screen.read()
        if line is None or not line.startswith(QUOTES):
            return line
        text = line.removeprefix(QUOTES)
        while not text.endswith(QUOTES):
            more = self.screen.read("... ")
            if more is None:
                return None
            text += ("\n" if text else "") + more
        return text.removesuffix(QUOTES) + "\n"  # a text of several lines is no command

    def _turn(self, line: str) -> None:
        """One question and its answer; Ctrl-C stops the answer, and the partial text is kept."""
        kept = list(self.conversation.turns)
        self.conversation.add("user", with_files(self.attached, line))
        self.attached = []
        self._answer(kept)
        self.files = []

    def _answer(self, kept: list[dict[str, Any]]) -> None:
        """Answer the last message; `kept` is the conversation to restore if there is no answer."""
        try:
            with Interrupts() as interrupts:
                pieces = self.backend.answer(
                    self.conversation, self.sampling, interrupts, self.screen.note
                )
                text = self.screen.answer_parsed(pieces)
        except DeviceError:
            raise  # the model is gone
        except MlccError as error:  # too long a prompt, a broken chat template
            self.conversation.turns = kept
            self.screen.note(f"error: {naming_files(error.message, self.files)}")
            return
        self.conversation.add("assistant", text)
        self._note_finish(interrupts.pressed)

    def _note_finish(self, stopped: bool) -> None:
        if stopped:
            self.screen.note("(stopped)")
        elif cut := cut_off(self.backend.last, self.sampling.get("max_tokens")):
            self.screen.note(f"({cut})")

    def _command(self, line: str) -> bool:
        """Run a command (a line that starts with a slash); False = leave."""
        word, _, rest = line.partition(" ")
        if word in ("/exit", "/quit", "/bye"):
            return False
        known: dict[str, Callable[[], None]] = {
            "/help": lambda: self.screen.note(HELP),
            "/clear": self._clear,
            "/reset": self._clear,
            "/regen": self._regenerate,
            "/set": lambda: self._set(rest.strip()),
            "/save": lambda: self._save(rest.strip()),
            "/load": lambda: self._load(rest.strip()),
            "/image": lambda: self._show(rest.strip()),
            "/audio": lambda: self._sound(rest.strip()),
            "/stats": lambda: self.screen.note(self._stats()),
        }
        if (obey := known.get(word)) is None:
            near = get_close_matches(word, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            self.screen.note(f"there is no {word}{hint}; /help lists what there is")
            return True
        try:
            obey()
        except MlccError as error:
            self.screen.note(f"error: {error.message}")
        return True

    def _show(self, name: str) -> None:
        """Attach an image to the next question."""
        if not name:
            raise InvalidRequestError("which file? Type /image FILE")
        part, header = image_part(name)
        self._attach(part, name, f"{header.width} x {header.height}")

    def _sound(self, name: str) -> None:
        """Attach a sound to the next question."""
        if not name:
            raise InvalidRequestError("which file? Type /audio FILE")
        part, kind = audio_part(name)
        self._attach(part, name, kind)

    def _attach(self, part: dict[str, Any], name: str, about: str) -> None:
        self.attached.append(part)
        self.files.append(name)
        self.screen.note(f"({printable(name)}, {about}, goes with the next question)")

    def _clear(self) -> None:
        self.conversation.turns.clear()
        self.attached.clear()
        self.files.clear()
        self.screen.note("(forgotten)")

    def _regenerate(self) -> None:
        """Generate the last answer again."""
        turns = self.conversation.turns
        kept = list(turns)
        if turns and turns[-1]["role"] == "assistant":
            del turns[-1]
        if not turns:
            raise InvalidRequestError("there is no question yet")
        self._answer(kept)

    def _set(self, text: str) -> None:
        """Set a sampling parameter or the system message; without arguments, list the settings."""
        name, _, value = text.partition(" ")
        if name == "system":
            self.conversation.system = value.strip() or None
        elif name:
            self.sampling = with_setting(self.sampling, name.replace("-", "_"), value.strip())
        shown = {"system": self.conversation.system, **self.sampling}
        words = ", ".join(
            f"{key} {setting}" for key, setting in shown.items() if setting is not None
        )
        self.screen.note(printable(words) or "nothing is set: the model's own defaults hold")

    def _save(self, name: str) -> None:
        save(name, self.conversation)
        self.screen.note(f"({len(self.conversation.turns)} messages are in {printable(name)})")

    def _load(self, name: str) -> None:
        self.conversation = load(name, self.conversation.variables)
        self.screen.note(f"({len(self.conversation.turns)} messages of {printable(name)})")

    def _stats(self) -> str:
        timing = self.backend.last
        if timing is None:
            return "no answer yet"
        used = timing.prompt_tokens + timing.completion_tokens
        return (
            f"prompt {timing.prompt_tokens} tokens, {timing.cached_tokens} of them cached, first "
            "token after "
            f"{timing.first_token_s * 1000:.0f} ms; answer {timing.completion_tokens} tokens in "
            f"{timing.total_s:.2f} s, {timing.tokens_per_s:.1f} tokens/s; "
            f"context {used} of {self.backend.context or 'unknown'}"
        )
