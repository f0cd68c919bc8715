"""libmlcc_executor's tokenizer gives the ids and texts of Hugging Face's `tokenizers`."""

from __future__ import annotations

import contextlib
import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from mlcc.errors import ArtifactError, InvalidRequestError, UnsupportedError
from mlcc.model.tokenizer import indexed
from mlcc.model.tokenizer.indexed import open_tokenizer
from mlcc.model.tokenizer.native import NativeTokenizer
from mlcc.model.tokenizer.tokenizer import FileTokenizer
from mlcc.util import executor_library

ROOT = Path(__file__).parents[3]
DEMO = ROOT / "examples" / "demo" / "model" / "tokenizer.json"
FIXTURE = json.loads((ROOT / "web/tests/model/tokenizer_fixture.json").read_text("utf-8"))
"""Pipelines of well-known families over two small vocabularies, and difficult texts."""
TEXTS: list[str] = FIXTURE["texts"]
SCRIPTS = "aZ é ſK漢字かな한국กิ हिन्दी العربية ελ Жж\u0301\u0327\u200d😀👍🏽🇩🇪ﬁ①½²٣"
SCRIPTS += "\u00a0\u2028\ufeff\r\n\t'.,!▁Ġ"

pytestmark = pytest.mark.skipif(
    bool(executor_library.why_absent()), reason=executor_library.why_absent()
)


def fixture_of(kind: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = kind["tokenizer"]
    model = {**FIXTURE["models"][tree["model"]["base"]], "ignore_merges": False}
    return {**tree, "model": {**model, "ignore_merges": tree["model"]["ignore_merges"]}}


def trees() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, kind in FIXTURE["kinds"].items():
        yield name, fixture_of(kind)
    yield "demo", json.loads(DEMO.read_text("utf-8"))
    yield "unigram", unigram()
    yield "bert", bert()


def unigram() -> dict[str, Any]:
    """As of XLM-R, with a small map of characters."""
    file = ROOT / "tests/compiler/checkpoint/unigram.json"
    recorded = json.loads(file.read_text("utf-8"))
    space = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    fewer = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    table = {"type": "Precompiled", "precompiled_charsmap": recorded["charsmap"]}
    vocab = [list(row) for row in zip(recorded["tokens"], recorded["scores"], strict=True)]
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {"type": "Sequence", "normalizers": [table, fewer]},
        "pre_tokenizer": space,
        "post_processor": None,
        "decoder": space,
        "model": {"type": "Unigram", "unk_id": 2, "byte_fallback": False, "vocab": vocab},
    }


def bert() -> dict[str, Any]:
    signs = "abcdefghijklmnopqrstuvwxyz0123456789.,!?漢é"
    words = ["[UNK]", "[CLS]", "[SEP]", *signs, *(f"##{sign}" for sign in signs), "##ello", "hel"]
    made = Tokenizer(models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    made.decoder = decoders.WordPiece()
    made.add_special_tokens(["[CLS]", "[SEP]"])
    tree: dict[str, Any] = json.loads(made.to_str())
    return tree


KINDS = dict(trees())


def pair(tree: dict[str, Any]) -> tuple[Tokenizer, NativeTokenizer]:
    data = json.dumps(tree)
    theirs = Tokenizer.from_str(data)
    theirs.no_truncation()
    return theirs, NativeTokenizer(Path("tokenizer.json"), data.encode())


def assert_equal(theirs: Tokenizer, ours: NativeTokenizer, text: str) -> None:
    for special in (False, True):
        wanted = theirs.encode(text, add_special_tokens=special).ids
        assert list(ours.encode(text, add_special_tokens=special)) == wanted, text
    assert ours.decode(wanted) == theirs.decode(wanted, skip_special_tokens=True)


@pytest.mark.parametrize("kind", KINDS)
def test_ids_and_texts_are_those_of_tokenizers(kind: str) -> None:
    theirs, ours = pair(KINDS[kind])
    dice = random.Random(1)
    for text in [*TEXTS, *("".join(dice.choices(SCRIPTS, k=24)) for _ in range(100))]:
        assert_equal(theirs, ours, text)
    size = theirs.get_vocab_size()
    for _ in range(60):
        ids = [dice.randrange(size + 3) for _ in range(dice.randrange(12))]
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True), ids
    assert [*map(ours.piece, range(size + 3))] == [*map(theirs.id_to_token, range(size + 3))]
    data = json.dumps(KINDS[kind]).encode()
    whole = FileTokenizer(Path("tokenizer.json"), data)
    assert ours.special_tokens() == whole.special_tokens() and ours.longest == whole.longest


OPEN = {kind: pair(KINDS[kind]) for kind in ("llama3", "gemma")}


@given(st.text(max_size=80), st.sampled_from(sorted(OPEN)))
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_text(text: str, kind: str) -> None:
    assert_equal(*OPEN[kind], text)


def test_without_tokenizers_the_model_is_read_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexed, "find_spec", lambda name: None)
    opened = open_tokenizer(DEMO, "")
    assert isinstance(opened, NativeTokenizer)
    assert opened.encode("17 + 25", add_special_tokens=True) == FileTokenizer(DEMO).encode(
        "17 + 25", add_special_tokens=True
    )


@pytest.mark.parametrize(
    "part", ["normalizer", "pre_tokenizer", "post_processor", "decoder", "model"]
)
def test_an_unknown_part_is_named(part: str) -> None:
    data = json.dumps({**KINDS["llama3"], part: {"type": "Astral"}}).encode()
    with pytest.raises(UnsupportedError, match=r"Astral.*pip install tokenizers"):
        NativeTokenizer(Path("tokenizer.json"), data)


def test_one_letter_takes_linear_time() -> None:
    """A search for each place would take hours."""
    for kind in ("llama3", "gemma", "deepseek"):
        _, ours = pair(KINDS[kind])
        for letter in "a1 \n漢":
            text = letter * 200_000
            assert len(ours.encode(text, add_special_tokens=False)) > 1000, kind


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("a" + "*" * 1000, "repetitions"),
        ("a" * 100_000, "64 KiB"),
        ("(" * 1000 + ")" * 1000, "nested"),
        ("(a{900}){900}", "8192 steps"),
        ("a*b|a", "linear time"),
        (r"(a)\1", "in the pattern"),
        ("(?<=ab)c", "in the pattern"),
        (r"\p{Greek}+", "property"),
    ],
)
def test_patterns_beyond_the_bounds_are_refused(pattern: str, words: str) -> None:
    part = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    data = json.dumps({**KINDS["gpt2"], "pre_tokenizer": part}).encode()
    with pytest.raises(UnsupportedError, match=words):
        NativeTokenizer(Path("t"), data).encode("a" * 100_000, add_special_tokens=False)


def test_broken_text_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="not valid UTF-8"):
        OPEN["llama3"][1].encode("a\ud800", add_special_tokens=False)


def test_damaged_files_give_typed_errors() -> None:
    dice = random.Random(3)
    whole = [json.dumps(KINDS[kind]).encode() for kind in ("llama3", "gemma", "unigram")]
    for _ in range(200):
        data = bytearray(dice.choice(whole))
        for _ in range(dice.randrange(1, 6)):
            at = dice.randrange(len(data))
            with_ = bytes(dice.choices(b'{}[]",:0aZ\\\xff-', k=dice.randrange(8)))
            data[at : at + dice.randrange(8)] = with_
        tried(bytes(data))


VALUES = [
    None,
    True,
    -1,
    7,
    1e300,
    "",
    "a",
    "(",
    "[^\\s]++x",
    "\\p{L}*|$",
    [],
    [[]],
    {},
    {"type": "Fuse"},
]


@pytest.mark.parametrize("kind", ["llama3", "deepseek", "gemma", "metaspace", "unigram", "bert"])
def test_wrong_values_give_typed_errors(kind: str) -> None:
    dice = random.Random(kind)
    for _ in range(150):
        tree = json.loads(json.dumps(KINDS[kind]))
        for _ in range(dice.randrange(1, 4)):
            mutate(tree, dice)
        tried(json.dumps(tree).encode())


def mutate(tree: Any, dice: random.Random) -> None:
    """Puts a value anywhere, seldom into the vocabulary."""
    while True:
        keys = [*tree] if isinstance(tree, dict) else [*range(len(tree))]
        if not keys:
            return
        key = dice.choice(keys)
        if not isinstance(tree[key], (dict, list)) or dice.random() < 0.2:
            tree[key] = copy.deepcopy(dice.choice(VALUES))
            return
        tree = tree[key]


def tried(data: bytes) -> None:
    with contextlib.suppress(ArtifactError, UnsupportedError):
        opened = NativeTokenizer(Path("t"), data)
        ids = opened.encode("a b1 漢 e\u0301 <s> Hello, world's", add_special_tokens=True)
        opened.decode([*ids, -1, 7, 1 << 30])
