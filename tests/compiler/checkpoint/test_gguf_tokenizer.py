"""Tokenizers rebuilt from a GGUF file's keys produce the tokens of the original tokenizers."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from mlcc.errors import CheckpointError, UnsupportedError
from mlcc_compiler.checkpoint.gguf.tokenizer.build import tokenizer_of
from mlcc_compiler.checkpoint.gguf.tokenizer.pre_tokenizers import PRE_TOKENIZERS
from mlcc_compiler.checkpoint.gguf.tokenizer.vocabulary import Vocabulary
from tests.compiler.checkpoint.helpers.gguf_tokenizers import SCRIPTS, bpe_keys

DEMO = Path(__file__).parents[3] / "examples" / "demo" / "model"
KEY = "tokenizer.ggml."


def rebuilt(keys: dict[str, Any]) -> Tokenizer:
    arrays = {k: np.asarray(v) for k, v in keys.items() if isinstance(v, list) and v}
    numbers = {k: v for k, v in arrays.items() if v.dtype.kind in "if"}
    return Tokenizer.from_str(tokenizer_of(Vocabulary.of(keys | numbers)).decode())


def check_equal(expected: Tokenizer, found: Tokenizer) -> None:
    for text in SCRIPTS:
        ids = expected.encode(text).ids
        assert found.encode(text).ids == ids, text
        assert found.decode(ids) == expected.decode(ids), text


def test_byte_level_bpe() -> None:
    tree = json.loads((DEMO / "tokenizer.json").read_text())
    of_qwen = "qwen2", "qwen35"
    for pre in (*of_qwen, "gpt-2", "llama-bpe", "tekken", "gpt-4o", "smollm", "deepseek-v3"):
        keys = bpe_keys(tree, pre)
        rules = PRE_TOKENIZERS[pre].rules
        cuts = [
            {"type": "Split", "pattern": {"Regex": r}, "behavior": "Isolated", "invert": False}
            for r in rules
        ]
        bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
        bytes_["trim_offsets"] = True
        tree["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [*cuts, bytes_]}
        tree["normalizer"] = {"type": "NFC"} if pre in of_qwen else None
        tree["post_processor"] = None
        tree["model"]["ignore_merges"] = PRE_TOKENIZERS[pre].ignore_merges
        keys["tokenizer.ggml.add_bos_token"] = False
        check_equal(Tokenizer.from_str(json.dumps(tree)), rebuilt(keys))


def spm_trained(prefix: bool) -> Tokenizer:
    """A BPE like SentencePiece's: no words, bytes for unknown characters."""
    pieces = [pre_tokenizers.Metaspace(prepend_scheme="never", split=True)]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    spaces = normalizers.Replace(" ", "\u2581")
    tokenizer.normalizer = (
        normalizers.Sequence([normalizers.Prepend("\u2581"), spaces]) if prefix else spaces
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(pieces)
    special = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator([t for t in SCRIPTS[:8] for _ in range(3)], trainer)
    return tokenizer


@pytest.mark.parametrize("prefix", [True, False])
def test_spm_merges_by_scores(prefix: bool) -> None:
    trained = json.loads(spm_trained(prefix).to_str())
    model = trained["model"]
    tokens = [t for t, _ in sorted(model["vocab"].items(), key=lambda row: row[1])]
    made = {"".join(pair): -i for i, pair in reversed(list(enumerate(model["merges"], 1)))}
    kinds = [2, 3, 3, *[6] * 256] + [1] * (len(tokens) - 259)
    keys = {
        KEY + "model": "llama",
        KEY + "tokens": tokens,
        KEY + "scores": [float(made.get(t, -10000)) for t in tokens],
        KEY + "token_type": kinds,
        KEY + "unknown_token_id": 0,
        KEY + "bos_token_id": 1,
        KEY + "add_space_prefix": prefix,
        KEY + "add_bos_token": False,
    }
    trained["pre_tokenizer"] = None
    trained["added_tokens"] = trained["added_tokens"][:3]
    expected = Tokenizer.from_str(json.dumps(trained))
    back = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    expected.decoder = decoders.Sequence([*back, *([decoders.Strip(" ", 1, 0)] if prefix else [])])
    found = rebuilt(keys)
    check_equal(expected, found)
    assert all(found.decode(found.encode(t).ids) == t for t in SCRIPTS)
    keys[KEY + "add_bos_token"] = True
    assert rebuilt(keys).encode("a").ids[0] == 1


def test_the_merges_of_gemma_4_are_listed() -> None:
    """In an order that scores do not have: the last merge comes first."""
    trained = json.loads(spm_trained(False).to_str())
    model = trained["model"]
    tokens = [t for t, _ in sorted(model["vocab"].items(), key=lambda row: row[1])]
    model["merges"].reverse()
    keys = {
        KEY + "model": "gemma4",
        KEY + "tokens": tokens,
        KEY + "scores": [-1000.0] * len(tokens),
        KEY + "token_type": [2, 3, 3, *[6] * 256] + [1] * (len(tokens) - 259),
        KEY + "merges": [" ".join(pair) for pair in model["merges"]],
        KEY + "unknown_token_id": 0,
        KEY + "bos_token_id": 1,
        KEY + "add_space_prefix": False,
        KEY + "add_bos_token": False,
    }
    trained["pre_tokenizer"] = None
    trained["added_tokens"] = trained["added_tokens"][:3]
    expected = Tokenizer.from_str(json.dumps(trained))
    back = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    expected.decoder = decoders.Sequence(back)
    found = rebuilt(keys)
    check_equal(expected, found)
    assert all(found.decode(found.encode(t).ids) == t for t in SCRIPTS)
    keys[KEY + "add_bos_token"] = True
    assert rebuilt(keys).encode("a").ids[0] == 1
    with pytest.raises(CheckpointError, match=r"has no tokenizer\.ggml\.merges"):
        rebuilt({key: value for key, value in keys.items() if key != KEY + "merges"})


def test_user_defined_tokens_are_found_first() -> None:
    tokens = ["<unk>", "<s>", "\u2581", "a", "\n", "\n\n", "   "]
    keys = {
        KEY + "model": "llama", KEY + "tokens": tokens, KEY + "scores": [0.0] * 7,
        KEY + "token_type": [2, 3, 1, 1, 1, 4, 4], KEY + "unknown_token_id": 0,
        KEY + "add_space_prefix": False, KEY + "bos_token_id": 1,
    }  # fmt: skip
    assert rebuilt(keys).encode("a\n\n\n    a").ids == [1, 3, 5, 4, 6, 2, 3]


def test_unigram() -> None:
    vocab = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("\u2581", -2.0), ("a", -1.5),
             ("\u2581ab", -2.5), ("b", -1.6), ("\u2581a", -2.2)]  # fmt: skip
    keys = {
        KEY + "model": "t5", KEY + "tokens": [t for t, _ in vocab],
        KEY + "scores": [s for _, s in vocab], KEY + "token_type": [3, 3, 2, 1, 1, 1, 1, 1],
        KEY + "unknown_token_id": 2, KEY + "eos_token_id": 1, KEY + "add_eos_token": True,
        KEY + "remove_extra_whitespaces": True,
    }  # fmt: skip
    found = rebuilt(keys)
    assert found.encode("ab  a ").ids == [5, 7, 1]
    assert found.decode([5, 7]) == "ab a"


UNIGRAM = json.loads(Path(__file__).with_name("unigram.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", UNIGRAM["cases"], ids=lambda case: str([*case.values()][:4]))
def test_unigram_as_sentencepiece_has_it(case: dict[str, Any]) -> None:
    """Recorded from the library: spaces in front, behind and doubled, tabs, lines, and texts that
    read like tokens of bytes."""
    count = 256 if case["bytes"] else 0
    keys = {
        KEY + "model": "t5",
        KEY + "tokens": UNIGRAM["tokens"] + [f"<0x{i:02X}>" for i in range(count)],
        KEY + "scores": UNIGRAM["scores"] + [0.0] * count,
        KEY + "token_type": UNIGRAM["types"] + [6] * count,
        KEY + "unknown_token_id": 2, KEY + "eos_token_id": 1, KEY + "add_eos_token": False,
        KEY + "add_space_prefix": case["prefix"],
        KEY + "remove_extra_whitespaces": case["fewer"],
    }  # fmt: skip
    if case["charsmap"]:
        data = b64decode(UNIGRAM["charsmap"])
        keys[KEY + "precompiled_charsmap"] = np.frombuffer(data, np.uint8)
    found = rebuilt(keys)
    for text, ids, decoded in zip(UNIGRAM["texts"], case["ids"], case["decoded"], strict=True):
        assert found.encode(text).ids == ids, text
        if 2 not in ids:  # the library writes a mark for unknown characters
            assert found.decode(ids) == decoded, text


def test_word_pieces() -> None:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "\u2581play", "ing", "\u2581,"]
    keys = {
        KEY + "model": "bert", KEY + "tokens": tokens, KEY + "token_type": [3, 3, 3, 3, 1, 1, 1],
        KEY + "unknown_token_id": 1, KEY + "bos_token_id": 2, KEY + "seperator_token_id": 3,
    }  # fmt: skip
    assert rebuilt(keys).encode("Playing, xx").ids == [2, 4, 5, 6, 1, 3]


def test_ends_of_answers() -> None:
    keys = {
        KEY + "tokens": ["a", "<s>", "</s>", "<|im_end|>", "<end_of_turn>"],
        KEY + "token_type": np.array([1, 3, 3, 3, 1]),
        KEY + "eos_token_id": 2,
    }
    found = Vocabulary.of(keys)
    assert found.end_ids == (2, 3, 4)
    assert found.notes == ["tokenizer: '<end_of_turn>' of another type: read as control"]


@pytest.mark.parametrize(("kind", "ids"), [(3, (1, 2)), (1, (1,)), (4, (1,))])
def test_the_old_end_beside_a_new_one(kind: int, ids: tuple[int, ...]) -> None:
    """Fine-tunes of Mistral keep `</s>` beside `<|im_end|>`; Gemma has it as a tag of HTML."""
    keys = {
        KEY + "tokens": ["a", "<|im_end|>", "</s>"], KEY + "token_type": np.array([1, 3, kind]),
        KEY + "eos_token_id": 1,
    }  # fmt: skip
    assert Vocabulary.of(keys).end_ids == ids


ENDINGS = [
    "<|im_end|>",
    "<end_of_turn>",
    "<|eot_id|>",
    "[EOT]",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
]
"""Texts that llama.cpp's vocabulary reads as control tokens that end an answer, of any type."""


@pytest.mark.parametrize("kind", [1, 4])
@pytest.mark.parametrize("end", ENDINGS)
def test_an_end_of_another_type_is_one_token_that_ends(end: str, kind: int) -> None:
    letters = sorted(set("ab<" + "".join(ENDINGS)))
    count = len(letters)
    keys = {
        KEY + "model": "llama", KEY + "tokens": [*letters, end, "<s>"],
        KEY + "scores": np.zeros(count + 2), KEY + "add_bos_token": False,
        KEY + "token_type": np.array([1] * count + [kind, 3]), KEY + "add_space_prefix": False,
    }  # fmt: skip
    a, b = letters.index("a"), letters.index("b")
    assert rebuilt(keys).encode(f"a{end}b").ids == [a, count, b]
    assert json.loads(rebuilt(keys).to_str())["added_tokens"][0]["special"]
    assert Vocabulary.of(keys).end_ids == (count,)


def test_odd_vocabularies_are_read_with_a_note() -> None:
    """As in llama.cpp ("bad special token: ... using default id"), except doubled tokens, which it
    refuses too: the first has the text."""
    keys = {
        KEY + "model": "gpt2", KEY + "tokens": ["a", "b", "a"], KEY + "merges": [],
        KEY + "padding_token_id": 3, KEY + "eos_token_id": 1, KEY + "bos_token_id": 99,
        KEY + "token_type": np.array([1, 1, 1, 1]),
    }  # fmt: skip
    found = Vocabulary.of(keys)
    assert found.special_tokens == {"eos_token": "b"} and found.end_ids == (1,)
    assert found.notes == [
        "tokenizer: 'a' twice in the vocabulary: the first is used",
        "tokenizer: 'tokenizer.ggml.bos_token_id', 'tokenizer.ggml.padding_token_id' beyond the "
        "vocabulary: not used",
        "tokenizer: the file has no tokenizer.ggml.pre: texts are cut by llama.cpp's default "
        "rules, which may not be the model's; a file of a newer conversion answers better",
    ]
    assert Tokenizer.from_str(tokenizer_of(found).decode()).encode("aba").ids == [0, 1, 0]


@pytest.mark.parametrize(
    ("pre", "words"),
    [
        ("default", "It|'|s| |$|123|45|,| a|~|b| | c"),
        ("deepseek-llm", "Hi|,| |2|0| \u0445|!|\n|\u4f60\u597d"),
        ("kimi-k2", "can't| |\u4f60\u597d|x| |123|4"),
        ("superbpe", "a |1|234|567"),
        ("seed-coder", "a| |1|2|!|\n"),
        ("tiny_aya", "a| |1|234| b"),
    ],
)
def test_how_llama_cpps_rules_cut(pre: str, words: str) -> None:
    """By the patterns of llama.cpp's `llm_tokenizer_bpe` and the models' tokenizer.json."""
    cuts = [pre_tokenizers.Split(Regex(rule), "isolated") for rule in PRE_TOKENIZERS[pre].rules]
    found = pre_tokenizers.Sequence(cuts).pre_tokenize_str(words.replace("|", ""))
    assert [word for word, _ in found] == words.split("|")


@pytest.mark.parametrize(("pre", "ids"), [("glm4", [3]), ("glm5", [3]), ("chatglm-bpe", [2, 0])])
def test_words_of_the_vocabulary_need_no_merges(pre: str, ids: list[int]) -> None:
    """llama.cpp's `ignore_merges`, which GLM's files have as they were made of a tiktoken model."""
    keys = {
        KEY + "model": "gpt2", KEY + "pre": pre, KEY + "tokens": ["a", "b", "ab", "aba"],
        KEY + "merges": ["a b"], KEY + "token_type": np.array([1] * 4),
    }  # fmt: skip
    assert rebuilt(keys).encode("aba", add_special_tokens=False).ids == ids


def test_every_rule_is_read_by_the_library() -> None:
    for name, rules in PRE_TOKENIZERS.items():
        cuts = [pre_tokenizers.Split(Regex(rule), "isolated") for rule in rules.rules]
        for text in SCRIPTS:
            words = pre_tokenizers.Sequence(cuts).pre_tokenize_str(text)
            assert "".join(word for word, _ in words) == text, name


def test_gpt_oss_ends_messages_and_goes_on() -> None:
    keys = {
        KEY + "tokens": ["a", "<|return|>", "<|call|>", "<|end|>"],
        KEY + "token_type": np.array([1, 3, 3, 3]),
        KEY + "eos_token_id": 1,
    }
    assert Vocabulary.of(keys).end_ids == (1, 2)
    keys[KEY + "tokens"] = ["a", "<|return|>", "b", "<|end|>"]
    assert Vocabulary.of(keys).end_ids == (1, 3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "rwkv"}, "'rwkv'"),
        ({"pre": "afmoe"}, "'afmoe'"),
        ({"merges": ["a c"]}, "'a c'"),
        ({"bos_token_id": "a"}, "no token"),
        ({"token_type": np.array([1])}, "token_type"),
        ({"scores": np.array([1.0, np.nan])}, "no numbers"),
    ],
)
def test_refusals(change: dict[str, Any], words: str) -> None:
    keys = {"model": "gpt2", "pre": "gpt-2", "tokens": ["a", "b"], "merges": []} | change
    with pytest.raises((UnsupportedError, CheckpointError), match=words):
        tokenizer_of(Vocabulary.of({KEY + key: value for key, value in keys.items()}))
