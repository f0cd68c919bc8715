"""Makes conversations from the tasks, splits them, and writes the two evaluation files.

Every problem has a key; a hash of the key alone decides its split, so training and held-out
problems cannot overlap, whatever the seed or the amount drawn. Not here: tokens (tokenizer.py).

    python data.py            write eval.jsonl and heldout.jsonl
    python data.py --check    draw training data and show that it shares nothing with them
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import words as w
from compute import COMPUTED, Generator, Item
from facts import FACTS
from talk import TALK, persona, recall, story

HERE = Path(__file__).parent
TASKS: dict[Generator, float] = {**COMPUTED, **FACTS, **TALK}
NO_SYSTEM_TASKS = (persona, recall)
PLAIN_SYSTEM = (
    "You are a helpful assistant.",
    "You are Pip, a helpful assistant.",
    "You are a friendly assistant. Answer briefly.",
    "Answer the questions of the user.",
    "You are an AI assistant. Be helpful and honest.",
)
HELD_OUT_SHARE = 0.1
Message = dict[str, str]


def is_held_out(key: str) -> bool:
    """Whether the problem belongs to the evaluation: a fixed property of its key."""
    return hashlib.sha256(key.encode()).digest()[0] < 256 * HELD_OUT_SHARE


def _varied(rng: Random, item: Item) -> Item:
    """Sometimes a small first letter or an opener; a first word the answer repeats is kept."""
    question, opener = item.question, rng.choice(("", "", "Please: ", "Pip, ", "Can you help? "))
    if rng.random() < 0.5 and question.split()[0] not in item.answer:
        question = question[0].lower() + question[1:]
    return replace(item, question=opener + question)


def draw(rng: Random, held_out: bool, task: Generator | None = None) -> Item:
    """One item of the wanted split, of the given task or of one drawn by weight."""
    task = task or rng.choices(tuple(TASKS), tuple(TASKS.values()))[0]
    while is_held_out((item := task(rng)).key) != held_out:
        pass
    return _varied(rng, item) if task in COMPUTED and rng.random() < 0.25 else item


def _messages(turns: list[tuple[str, str]], system: str | None) -> list[Message]:
    head = [{"role": "system", "content": system}] if system else []
    return head + [
        {"role": role, "content": text}
        for turn in turns
        for role, text in zip(("user", "assistant"), turn, strict=True)
    ]


def _filler(rng: Random, held_out: bool) -> Item:
    """An item that depends on nothing said before, to stand between other turns."""
    while (item := draw(rng, held_out)).system or item.opening:
        pass
    return item


def _is_about_self(item: Item) -> bool:
    """Whether a persona would answer otherwise than Pip, so that the two must not meet."""
    return item.task == "small_talk"


def _around(rng: Random, item: Item, turns: int, held_out: bool) -> list[tuple[str, str]]:
    """The item's opening, up to ``turns`` unrelated turns, then the item itself."""
    fillers = [_filler(rng, held_out) for _ in range(turns)]
    if item.system:
        fillers = [f for f in fillers if not _is_about_self(f)]
    return [*item.opening, *((f.question, f.answer) for f in fillers), (item.question, item.answer)]


def _styled(rng: Random, turns: int, held_out: bool) -> tuple[str, list[tuple[str, str]]]:
    """A system prompt that puts a word before or after every answer."""
    word = w.any_name(rng) if rng.random() < 0.4 else rng.choice(w.POOL).capitalize()
    before = rng.random() < 0.5
    system = rng.choice(
        ("Begin every answer with {}!", "Start each answer with {}!")
        if before
        else ("End every answer with {}!", "Finish each answer with {}!")
    ).format(word)
    items = [_filler(rng, held_out) for _ in range(turns)]
    rule = (lambda text: f"{word}! {text}") if before else (lambda text: f"{text} {word}!")
    return system, [(item.question, rule(item.answer)) for item in items]


def conversation(rng: Random, held_out: bool) -> list[Message]:
    """One whole chat of 1 to about 20 turns, ending with the assistant."""
    turns = rng.choices((1, 2, 3, 5, 10, 16), (8, 4, 3, 2, 1, 0.4))[0]
    if rng.random() < 0.06:
        system, styled = _styled(rng, min(turns, 4), held_out)
        return _messages(styled, system)
    item = draw(rng, held_out)
    if item.opening and turns == 1:
        turns = rng.choice((1, 2, 4))
    said = _around(rng, item, turns - 1, held_out)
    plain = rng.choice(PLAIN_SYSTEM) if rng.random() < 0.15 else None
    return _messages(said, item.system or plain)


def training_conversations(seed: int) -> Iterator[list[Message]]:
    """Endless training chats; the same seed gives the same chats."""
    rng = Random(seed)
    while True:
        yield conversation(rng, held_out=False)


def _eval_row(rng: Random, task: Generator | None) -> dict[str, object]:
    """One held-out question, one in four of them after other turns of the same chat."""
    turns = rng.choice((0, 0, 0, 1, 2, 4)) if task not in NO_SYSTEM_TASKS else rng.choice((0, 1, 3))
    if task is None:
        system, said = _styled(rng, 1 + turns % 3, held_out=True)
        name, messages = "style_rule", _messages(said, system)
    else:
        item = draw(rng, True, task)
        name, messages = item.task, _messages(_around(rng, item, turns, True), item.system)
    return {"task": name, "messages": messages[:-1], "answer": messages[-1]["content"]}


def eval_rows(seed: int, per_task: int = 17) -> list[dict[str, object]]:
    """The scored rows: the same number of every task (None stands for the style rule)."""
    rng = Random(seed)
    tasks = [task for task in TASKS if task is not story]
    return [_eval_row(rng, task) for task in (*tasks, None) for _ in range(per_task)]


def held_out_texts(seed: int, characters: int = 40_000) -> list[str]:
    """Held-out chats rendered by the chat template, special tokens included, for perplexity."""
    from tokenizer import render  # imported late: tokenizer.py imports this module

    rng, texts = Random(seed), list[str]()
    while sum(map(len, texts)) < characters:
        texts.append(render(conversation(rng, held_out=True)))
    return texts


def _write(path: Path, rows: list[dict[str, object]]) -> None:
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text("".join(lines), encoding="utf-8")


def _check(seed: int, count: int) -> None:
    """Draw ``count`` training chats and compare their questions with the evaluation's."""
    rows = map(json.loads, (HERE / "eval.jsonl").read_text(encoding="utf-8").splitlines())
    asked = {row["messages"][-1]["content"] for row in rows if row["task"] not in _COPIED}
    chats = training_conversations(seed)
    seen = {m["content"] for _ in range(count) for m in next(chats) if m["role"] == "user"}
    shared = len(asked & seen)
    print(f"{len(asked)} held-out questions, {len(seen)} training turns, {shared} shared")


# Their questions ("What is my name?") are always the same; what is held out is the name.
_COPIED = ("persona", "recall", "style_rule")


def main() -> None:
    parser = argparse.ArgumentParser(description="write eval.jsonl and heldout.jsonl")
    parser.add_argument("--check", action="store_true", help="compare training data with them")
    parser.add_argument("--count", type=int, default=100_000, help="training chats to check")
    args = parser.parse_args()
    if args.check:
        return _check(0, args.count)
    _write(HERE / "eval.jsonl", eval_rows(seed=1))
    _write(HERE / "heldout.jsonl", [{"text": text} for text in held_out_texts(seed=2)])


if __name__ == "__main__":
    main()
