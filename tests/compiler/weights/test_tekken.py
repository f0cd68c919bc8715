"""Mistral's tekken.json converted to tokenizer.json: encodes as its ranks do, behind the control
tokens. (Beside `mistral-common` on its own file of 2024-09: `docs/audio.md`.)"""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from mlcc.api.chat_template.template import ChatTemplate
from mlcc.errors import CheckpointError, UnsupportedError
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.checkpoint.tokenizer import mistral_template
from mlcc_compiler.checkpoint.tokenizer.tekken import NAME, tokenizer_of
from mlcc_compiler.checkpoint.tokenizer.tiktoken import CUTS
from mlcc_compiler.checkpoint.tokenizer.tokenizer_files import check_tokenizer, tokenizer_json
from tests.compiler.weights.test_tiktoken import TEXT, naive, trained

SPECIAL = 8
NAMED = ["<unk>", "<s>", "</s>", "[AUDIO]"]


def file_of(ranks: dict[bytes, int], **more: Any) -> dict[str, Any]:
    """With words behind the vocabulary's end, as published files have them."""
    rows = [*ranks.items(), (b"too much", len(ranks)), (b"of it", len(ranks) + 1)]
    vocab = [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for token, rank in rows
    ]
    config = {
        "pattern": CUTS,
        "num_vocab_tokens": len(rows),
        "default_vocab_size": len(ranks) + SPECIAL,
        "default_num_special_tokens": SPECIAL,
        "version": "v7",
    }
    special = [{"rank": i, "token_str": t, "is_control": True} for i, t in enumerate(NAMED)]
    return {"config": config, "vocab": vocab, "special_tokens": special, **more}


def write(folder: Path, given: Any) -> None:
    (folder / NAME).write_text(json.dumps(given))


def test_it_encodes_as_ranks_do(tmp_path: Path) -> None:
    ranks = trained(200)
    write(tmp_path, file_of(ranks))
    data = tokenizer_json(tmp_path)
    check_tokenizer(tmp_path, data)
    tokenizer = Tokenizer.from_str(data.decode())
    rng = random.Random(0)
    for _ in range(100):
        start = rng.randrange(len(TEXT))
        text = TEXT[start : start + rng.randrange(40)]
        ids = tokenizer.encode(text).ids
        assert ids == [1, *(SPECIAL + rank for rank in naive(text, ranks))], text
        assert tokenizer.decode(ids) == text
    ids = tokenizer.encode("a[AUDIO]<SPECIAL_7>b").ids
    assert ids == [1, SPECIAL + ranks[b"a"], 3, 7, SPECIAL + ranks[b"b"]]
    assert tokenizer.get_vocab_size() == len(ranks) + SPECIAL


def test_a_tokenizer_json_comes_first(tmp_path: Path) -> None:
    assert tokenizer_of(tmp_path) is None
    write(tmp_path, {})
    (tmp_path / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0}}}')
    assert tokenizer_json(tmp_path) == b'{"model": {"vocab": {"a": 0}}}'


def test_bad_files_are_refused(tmp_path: Path) -> None:
    whole = file_of(trained(0))
    write(tmp_path, {**whole, "special_tokens": None})
    with pytest.raises(UnsupportedError, match=r"names no control tokens.*tokenizer\.json"):
        tokenizer_json(tmp_path)
    many = [{"rank": i, "token_str": str(i)} for i in range(SPECIAL + 1)]
    for wrong in (
        {"special_tokens": many},
        {"special_tokens": [{"rank": SPECIAL, "token_str": "far"}]},
        {"special_tokens": [3]},
        {"config": {}},
        {"vocab": [{"rank": 0, "token_bytes": "?"}]},
    ):
        write(tmp_path, {**whole, **wrong})
        with pytest.raises(CheckpointError, match=r"is no vocabulary of Mistral's.*fetch it again"):
            tokenizer_json(tmp_path)
    write(tmp_path, {**whole, "vocab": whole["vocab"][1:]})
    with pytest.raises(CheckpointError, match="misses a byte or a rank"):
        tokenizer_json(tmp_path)


def user(*parts: str) -> dict[str, Any]:
    """A message of texts, and of sounds where there is none."""
    content = [{"type": "text", "text": part} if part else {"type": "audio"} for part in parts]
    return {"role": "user", "content": content}


@pytest.mark.parametrize(
    ("messages", "wanted"),
    [
        ([user("Hi  there")], "<s>[INST]Hi  there[/INST]"),
        ([user("", "What?")], "<s>[INST][BEGIN_AUDIO][AUDIO]What?[/INST]"),
        (
            [user("First", "", "", " What?", "more"), {"role": "assistant", "content": " ok"},
             {"role": "user", "content": "again"}],
            "<s>[INST]First[BEGIN_AUDIO][AUDIO][BEGIN_AUDIO][AUDIO] What?\n\nmore[/INST] ok</s>"
            "[INST]again[/INST]",
        ),
        (
            [{"role": "system", "content": "Be nice"}, user("Hi"),
             {"role": "assistant", "content": "x"}, user("y")],
            "<s>[SYSTEM_PROMPT]Be nice[/SYSTEM_PROMPT][INST]Hi[/INST]x</s>[INST]y[/INST]",
        ),
    ],
)  # fmt: skip
def test_a_voxtral_is_asked_as_mistral_common_asks_it(
    tmp_path: Path, messages: list[dict[str, Any]], wanted: str
) -> None:
    """The texts are those of mistral-common 1.x of version v11, with one [AUDIO] a sound."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "voxtral", "vocab_size": 9}))
    (tmp_path / "model.safetensors").touch()
    found = Checkpoint.open(tmp_path)
    assert found.notes == (mistral_template.NOTE,)
    template = ChatTemplate(found.chat_template, {}, ("<s>", "[INST]"), (), ("[AUDIO]",))
    assert template.render(messages).text == wanted
    (tmp_path / "chat_template.jinja").write_text("mine")
    assert Checkpoint.open(tmp_path).chat_template == "mine"
