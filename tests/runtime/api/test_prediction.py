"""`prediction`, the expected text of much of an answer: parsed, passed on, reported in `usage`."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcc.api.openai.requests import parse_chat
from mlcc.api.openai.responses import usage
from mlcc.engine.events import Finished
from mlcc.errors import MlccError
from mlcc.model.speculation import Speculation

MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("prediction", "text"),
    [
        ({"type": "content", "content": "x = 1"}, "x = 1"),
        ({"type": "content", "content": [{"type": "text", "text": t} for t in "ab"]}, "ab"),
        (None, ""),
    ],
)
def test_it_is_a_text(prediction: object, text: str) -> None:
    assert parse_chat({"messages": MESSAGES, "prediction": prediction}).prediction == text


@pytest.mark.parametrize(
    ("prediction", "where"),
    [("x", "prediction"), ({"type": "content"}, "prediction.content"),
     ({"type": "file", "content": "x"}, "prediction.type")],
)  # fmt: skip
def test_what_is_none_is_named(prediction: object, where: str) -> None:
    with pytest.raises(MlccError) as raised:
        parse_chat({"messages": MESSAGES, "prediction": prediction})
    assert raised.value.param == where


def test_usage_counts_accepted_and_rejected_prediction_tokens() -> None:
    plain, guessed = Finished("a", "stop", 3, 9), Finished("b", "stop", 3, 9, None, 0, 6, 4)
    assert "completion_tokens_details" not in usage([plain], 1)
    assert usage([plain, guessed], 1)["completion_tokens_details"] == {
        "accepted_prediction_tokens": 4,
        "rejected_prediction_tokens": 2,
    }


def test_how_it_is_asked_for() -> None:
    assert Speculation.read(None) is None and Speculation.read("off") is None
    assert Speculation.read("lookup") == Speculation("lookup", 8)
    assert Speculation.read("lookup:12") == Speculation("lookup", 12)
    assert Speculation.read(None, "folder") == Speculation.read("draft", "folder")


def test_a_head_in_place_of_a_draft_model(tmp_path: Path) -> None:
    """EAGLE-3 heads, by what published configs have: their class, or their vocabulary."""
    for config in ('{"architectures": ["LlamaForCausalLMEagle3"]}', '{"draft_vocab_size": 32000}'):
        (tmp_path / "config.json").write_text(config)
        for text in (None, "mtp", "draft", "draft:3"):
            assert Speculation.read(text, tmp_path) == Speculation("mtp", 3)
        with pytest.raises(MlccError, match="--draft is for --speculate mtp"):
            Speculation.read("lookup:2", tmp_path)
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    assert Speculation.read(None, tmp_path) == Speculation("draft", 8)


@pytest.mark.parametrize(
    ("text", "draft", "why"),
    [
        ("eagle", None, "must be lookup, mtp, draft or off"),
        ("lookup:0", None, "it must be an integer from 1 to 64"),
        ("lookup:x", None, "it must be an integer from 1 to 64"),
        ("off:3", None, "must be lookup, mtp, draft or off"),
        ("draft", None, "add --draft ARTIFACT"),
        ("lookup", "folder", "--draft is for --speculate draft"),
    ],
)
def test_what_is_asked_wrongly_is_one_line(text: str, draft: str | None, why: str) -> None:
    with pytest.raises(MlccError, match=why) as raised:
        Speculation.read(text, draft)
    assert "\n" not in raised.value.message
