"""`mlcc chat` on a terminal: commands, Ctrl-C, a full context, colours."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mlcc.commands.terminal import Screen
from mlcc.model.conversation import Conversation
from mlcc.model.session import Session
from tests.helpers.toy.toy_model import open_toy, toy_text
from tests.runtime.commands.terminal_driver import CTRL_C, Terminal

PROGRAM = str(Path(__file__).with_name("toy_chat.py"))
Start = Callable[..., Terminal]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    opened: list[Terminal] = []

    def begin(*options: str, **environment: str) -> Terminal:
        path = os.pathsep.join(sys.path)
        command = [sys.executable, PROGRAM, *options]
        environment.setdefault("XDG_STATE_HOME", str(tmp_path))
        opened.append(Terminal(command, PYTHONPATH=path, **environment))
        opened[-1].expect(">>> ")
        return opened[-1]

    yield begin
    for terminal in opened:
        terminal.close()


def test_a_conversation_and_its_commands(start: Start) -> None:
    chat = start("--max-tokens", "30")
    assert "toy, context 512 tokens" in chat.seen
    chat.send("/stats\n")
    chat.expect("no answer yet.*\n")
    chat.send("hello\n")
    chat.expect(r"hello\r\n.{30}\r\n.*cut off at --max-tokens 30")
    chat.expect(">>> ")
    chat.send("/stats\n")
    chat.expect(r"prompt 22 tokens, .*answer 30 tokens.*context 52 of 512")
    chat.send("/reset\n/stat\n/help\n")
    chat.expect("forgotten")
    chat.expect("there is no /stat")
    chat.expect("/reset +forget")
    chat.send("hello\n")
    chat.expect("cut off")
    chat.send("/stats\n")
    chat.expect("prompt 22 tokens")
    chat.send("/exit\n")
    assert chat.wait() == 0


def test_a_paste_of_many_lines_is_one_turn(start: Start) -> None:
    chat = start("--max-tokens", "5")
    chat.paste("one\r/exit\rthree")
    chat.expect("three")
    chat.send("\n")
    chat.expect("cut off")
    chat.expect(">>> ")
    chat.send("/stats\n")
    chat.expect(f"prompt {len('<user>one+/exit+three<assistant>')} tokens")
    chat.expect(">>> ")
    chat.paste("/reset\r/exit")  # no command: who pastes means text
    chat.send("\n")
    chat.expect("cut off")
    assert "forgotten" not in chat.seen
    assert chat.leave() == 0


def test_a_text_between_quotes_settings_and_a_second_answer(start: Start, tmp_path: Path) -> None:
    chat = start("--max-tokens", "5")
    chat.send('"""one\n')
    chat.expect(r"\.\.\. ")
    chat.send('/exit"""\n')
    chat.expect("cut off at --max-tokens 5")
    chat.expect(">>> ")
    chat.send("/set max-tokens 7\n")
    chat.expect("max_tokens 7")
    chat.expect(">>> ")
    chat.send("/regen\n")
    chat.expect("cut off at --max-tokens 7")
    chat.expect(">>> ")
    chat.send("/stats\n")
    chat.expect(f"prompt {len('<user>one+/exit<assistant>')} tokens")
    chat.expect(">>> ")
    chat.send("/set top_p 3\n")
    chat.expect("error: 'top_p'")
    chat.expect(">>> ")
    chat.send("/set nothing 3\n")
    chat.expect("error: 'nothing' is no setting")
    chat.expect(">>> ")
    file = tmp_path / "talk.json"
    chat.send(f"/save {file}\n")
    chat.expect("2 messages are in")
    chat.expect(">>> ")
    chat.send("/clear\n")
    chat.expect("forgotten")
    chat.expect(">>> ")
    chat.send("/regen\n")
    chat.expect("there is no question yet")
    chat.expect(">>> ")
    chat.send(f"/load {file}\n")
    chat.expect("2 messages of")
    chat.expect(">>> ")
    chat.send("/load /nowhere\n")
    chat.expect("error: /nowhere cannot be read")
    assert chat.leave() == 0


def test_what_was_typed_is_there_the_next_time(start: Start, tmp_path: Path) -> None:
    chat = start("--max-tokens", "2")
    chat.send("a question\n")
    chat.expect("cut off")
    assert chat.leave() == 0
    again = start("--max-tokens", "2")
    again.settle()
    again.send("\x1b[A")  # arrow up
    again.expect("a question")
    again.send("\n")
    again.expect("cut off")
    assert again.leave() == 0
    assert (tmp_path / "mlcc" / "chat_history").stat().st_mode & 0o077 == 0


def test_ctrl_c_stops_the_answer_and_at_the_prompt_the_program(start: Start) -> None:
    chat = start("--delay", "0.02")
    chat.send("hello\n")
    chat.expect(r"hello\r\n.{5}")
    chat.send(CTRL_C)
    chat.expect(r"\(stopped\)")
    chat.expect(">>> ")
    chat.send("again\n")
    chat.expect(r"again\r\n.{5}")
    chat.send(CTRL_C)
    chat.expect(r"\(stopped\)")
    chat.expect(">>> ")
    chat.settle()  # Python misses one between its prompt and its waiting for a key
    chat.send(CTRL_C)
    chat.expect("bye")
    assert chat.wait() == 0
    assert "Traceback" not in chat.seen


def test_ctrl_c_twice_leaves_at_once(start: Start) -> None:
    chat = start("--delay", "60")  # the answer's first step does not end before
    chat.send("hello\n")
    chat.expect("hello\r\n")
    chat.settle()
    chat.send(CTRL_C)
    chat.expect(r"\^C")  # the terminal's own echo: the program has the signal by now
    chat.settle()  # two at once would be one
    chat.send(CTRL_C)
    assert chat.wait() == 130
    assert "Traceback" not in chat.seen


def test_a_full_context_forgets_the_oldest_and_says_so(start: Start) -> None:
    chat = start("--max-tokens", "100")
    for number in range(1, 4):
        chat.send(f"{number} " + "x" * 90 + "\n")
        chat.expect("cut off")
    assert "the context of 512 tokens is full: the 2 oldest messages are forgotten" in chat.seen
    chat.send("y" * 600 + "\n")
    chat.expect("prompt is too long: [0-9]+ tokens > 511 maximum")
    assert chat.leave() == 0


def test_a_broken_template_does_not_end_the_chat(start: Start) -> None:
    broken = "{% if messages[0].content == 'x' %}{{ 1 // 0 }}{% endif %}go"
    chat = start("--template", broken, "--max-tokens", "5")
    chat.send("x\n")
    chat.expect("error: ")
    chat.expect(">>> ")
    chat.send("hello\n")
    chat.expect("cut off at --max-tokens 5")
    assert chat.leave() == 0


@pytest.mark.parametrize(("options", "where"), [(["--max-tokens", "5"], "--max-tokens 5"),
                                                ([], "the end of the context")])  # fmt: skip
def test_an_answer_that_was_cut_says_so_beside_it(options: list[str], where: str) -> None:
    done = subprocess.run(
        [sys.executable, PROGRAM, "--once", "hello", *options],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0 and done.stdout.strip()
    assert done.stderr == f"note: cut off at {where}\n"


def test_colours_only_where_they_are_wanted(start: Start) -> None:
    assert "\x1b[2m" in start().seen
    assert "\x1b[2m" not in start(NO_COLOR="1").seen
    assert "\x1b[2m" not in start(TERM="dumb").seen


def test_a_models_words_do_not_drive_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    pieces = ["a\x1b[31mb", "\r\x07\x9b", "c\n"]
    screen.to_terminal = True
    assert screen.answer(pieces) == "".join(pieces)
    assert capsys.readouterr().out == "a\ufffd[31mb\ufffd\ufffd\ufffdc\n"
    screen.to_terminal = False
    screen.answer(pieces)
    assert capsys.readouterr().out == "".join(pieces)


def test_forgetting_keeps_the_system_message_and_whole_turns() -> None:
    talk = Conversation("rules")
    for number in range(6):
        talk.add("user", f"question {number} " + "x" * 30)
        talk.add("assistant", "answer " + "y" * 30)
    talk.add("user", "last")
    prompt, forgotten = talk.fit(toy_text(), 300, 60)
    assert forgotten and forgotten % 2 == 0 and len(prompt.ids) <= 240
    assert talk.messages[0] == {"role": "system", "content": "rules"}
    assert talk.turns[0]["role"] == "user" and talk.turns[-1]["content"] == "last"


def test_a_session_survives_an_abandoned_answer() -> None:
    session = Session(open_toy())
    prompt = session.model.text.encode_prompt("hello")
    greedy = {"temperature": 0, "max_tokens": 20, "ignore_eos": True}
    whole = "".join(session.answer(prompt, greedy))
    pieces = session.answer(prompt, greedy)
    assert next(pieces) == whole[0]
    pieces.close()  # type: ignore[attr-defined]
    assert "".join(session.answer(prompt, greedy)) == whole
    assert session.last and session.last.completion_tokens == 20
    calls = iter([False, False, True])
    stopped = "".join(session.answer(prompt, greedy, lambda: next(calls, True)))
    assert whole.startswith(stopped) and len(stopped) < 5
    assert session.last.reason == "cancelled"
