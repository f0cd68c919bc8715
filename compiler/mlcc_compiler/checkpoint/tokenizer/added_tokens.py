"""Added and special tokens of a Hugging Face folder, from all files in which HF has stored them.

tokenizer.json should have them all, but fine-tunes leave some to the other files. They are read as
transformers reads them: tokenizer_config.json's `added_tokens_decoder`; without one,
added_tokens.json and special_tokens_map.json; and the tokens that tokenizer_config.json names
(`eos_token`, ..., `extra_special_tokens`). New tokens get the ids that the tokenizers library
would give them. What surrounds a text is in tokenizer.json alone: transformers ignores
`add_bos_token` beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlcc.errors import CheckpointError
from mlcc_compiler.checkpoint.files import read_object

CONFIG = "tokenizer_config.json"
DECODER = "added_tokens_decoder"
_LISTS = ("extra_special_tokens", "additional_special_tokens")
"""The second name is the older one, read where the first is absent."""
_OF_MODELS = "model_specific_special_tokens"
"""Tokens of roles that one model has, in files of transformers 5."""
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
Flags = dict[str, bool]


@dataclass
class AddedTokens:
    """`flags` of each token by its text; `ids`, where a file gives one; `named` by their roles;
    `own`: flags beside a special token, which count where nothing else has it."""

    named: dict[str, str]
    flags: dict[str, Flags] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    special: list[str] = field(default_factory=list)
    own: dict[str, Flags] = field(default_factory=dict)


def read_added_tokens(folder: Path, config: Mapping[str, Any]) -> AddedTokens:
    """The tokens of all files but tokenizer.json. `config` is tokenizer_config.json's object.
    Raises CheckpointError."""
    given = dict(config)
    legacy = DECODER not in given
    old = read_object(folder, "special_tokens_map.json") or {}
    given = given | old if legacy else old | given
    found = AddedTokens(dict(_named(given)))
    chosen = given if legacy else config  # transformers reads no special_tokens_map.json otherwise
    specials = [*(value for _, value in _roles(chosen)), *_rows(chosen)]
    found.special = list(dict.fromkeys(text for value in specials if (text := _text(value))))
    found.own = {str(v["content"]): _flags(v) for v in specials if isinstance(v, dict) and _text(v)}
    try:
        if legacy:
            old_rows = read_object(folder, "added_tokens.json") or {}
            rows = [(number, _plain(text, found)) for text, number in old_rows.items()]
        else:
            rows = list(config[DECODER].items())
        for number, token in sorted(rows, key=lambda row: int(row[0])):
            found.ids[str(token["content"])] = int(number)
            found.flags[str(token["content"])] = _flags(token)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        name = "added_tokens.json" if legacy else f"{CONFIG}: {DECODER!r}"
        raise CheckpointError(
            f"{folder / name} is no list of tokens and ids; fetch it again"
        ) from error
    return found


def add_tokens(data: bytes, found: AddedTokens, vocab_size: int) -> tuple[bytes, list[str]]:
    """tokenizer.json's bytes with all tokens, and notes on what differs from the file. Tokens
    beyond the `vocab_size` rows of the embedding are left out."""
    tree = json.loads(data)
    rows = {token["content"]: token for token in tree.get("added_tokens") or []}
    new, beyond, changed = {}, {}, False
    for text, flags in _wanted(found, rows).items():
        known = text in rows
        number = rows[text]["id"] if known else _next_id(text, tree["model"], rows)
        changed |= known and _flags(rows[text]) != flags
        if number >= vocab_size and not known:
            beyond[text] = number
            continue
        rows[text] = {"id": number, "content": text, **flags}
        if not known:
            new[text] = number
    if changed or new:
        tree["added_tokens"] = sorted(rows.values(), key=lambda token: int(token["id"]))
        data = json.dumps(tree, ensure_ascii=False).encode()
    return data, list(_notes(new, beyond, found, vocab_size))


def _wanted(found: AddedTokens, before: Mapping[str, Mapping[str, Any]]) -> dict[str, Flags]:
    """Flags of each token that transformers adds, in its order."""
    wanted = dict(found.flags)
    for text in found.special:
        known = wanted.get(text) or _flags(before.get(text, found.own.get(text, {})))
        wanted[text] = known | {"special": True}
    return wanted


def _next_id(text: str, model: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]]) -> int:
    """The id that the tokenizers library gives a new token: its own, if the vocabulary has it, or
    the next one."""
    vocab = model.get("vocab") or {}
    if isinstance(vocab, list):
        vocab = {row[0]: i for i, row in enumerate(vocab)}
    if text in vocab:
        return int(vocab[text])
    return max(len(vocab), 1 + max((int(row["id"]) for row in rows.values()), default=-1))


def _notes(
    new: Mapping[str, int], beyond: Mapping[str, int], found: AddedTokens, vocab_size: int
) -> Iterator[str]:
    if new:
        yield f"tokenizer: {_some(new)} added from the files beside tokenizer.json"
    moved = {t: i for t, i in new.items() if found.ids.get(t, i) != i}
    if moved:
        yield f"tokenizer: {_some(moved)} have other ids than their files give, as in transformers"
    if beyond:
        yield (
            f"tokenizer: {_some(beyond)} left out: beyond the embedding's {vocab_size} rows, so "
            "the model cannot use them"
        )


def _some(tokens: Mapping[str, int]) -> str:
    listed = ", ".join(f"{text} ({number})" for text, number in list(tokens.items())[:4])
    return listed + (f" and {len(tokens) - 4} more" if len(tokens) > 4 else "")


def _named(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Tokens by role: `eos_token`, ..., and those of models' own roles."""
    for key, value in _roles(config):
        if (text := _text(value)) is not None:
            yield key, text


def _roles(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from ((key, value) for key, value in config.items() if key.endswith("_token"))
    for name in (_LISTS[0], _OF_MODELS):
        if isinstance(more := config.get(name), dict):
            yield from more.items()


def _rows(config: Mapping[str, Any]) -> list[Any]:
    """Special tokens without a role."""
    rows = next((config[key] for key in _LISTS if config.get(key)), ())
    return rows if isinstance(rows, list) else []


def _plain(text: str, found: AddedTokens) -> dict[str, Any]:
    special = text in found.special
    return {"content": text, "special": special, "normalized": not special}


def _text(value: Any) -> str | None:
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) and text else None


def _flags(token: Mapping[str, Any]) -> Flags:
    return {flag: bool(token.get(flag, False)) for flag in _FLAGS}
