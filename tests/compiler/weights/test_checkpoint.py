"""The fields of a Hugging Face folder, in each of the files that may have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlcc.errors import CheckpointError, MlccError, UnsupportedError
from mlcc_compiler.checkpoint.folder import Checkpoint, flatten_config
from tests.compiler.weights.hf_folder import CONFIG, TOKENIZER, hf_folder
from tests.helpers.demo_model import DEMO


def refused(folder: Path, message: str, kind: type[MlccError] = CheckpointError) -> None:
    with pytest.raises(kind, match=message) as caught:
        Checkpoint.open(folder).tokenizer  # noqa: B018
    assert "\n" not in caught.value.message


def test_a_plain_folder(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(hf_folder(tmp_path / "tiny", LICENSE="free"))
    assert checkpoint.config == CONFIG and checkpoint.name == "tiny"
    assert checkpoint.eos_token_ids == (2,) and checkpoint.bos_token is None
    assert checkpoint.chat_template is None and checkpoint.generation_config == {}
    assert checkpoint.licence == ("LICENSE", b"free")


def test_the_name_in_the_hubs_cache(tmp_path: Path) -> None:
    folder = hf_folder(tmp_path / "models--org--tiny" / "snapshots" / "abc")
    assert Checkpoint.open(folder).name == "org/tiny"


def test_text_config_is_flattened_over_the_outer_fields() -> None:
    outer = {"model_type": "gemma3", "eos_token_id": 1, "text_config": {"model_type": "text"}}
    assert flatten_config(outer) == {"model_type": "text", "eos_token_id": 1}
    with pytest.raises(CheckpointError, match="text_config must be an object"):
        flatten_config({"text_config": 3})


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, (2,)),
        ({"generation_config__json": {"eos_token_id": [7, 8, 7]}}, (7, 8)),
        ({"generation_config__json": {"eos_token_id": 9}}, (9,)),
        ({"generation_config__json": {"temperature": 1}}, (2,)),
        ({"tokenizer_config__json": {"eos_token": "<|im_end|>"}}, (2, 5)),
        ({"tokenizer_config__json": {"eos_token": {"content": "</s>"}}}, (2,)),
        ({"tokenizer_config__json": {"eos_token": "<unknown>"}}, (2, 6)),  # a new token
        ({"special_tokens_map__json": {"eos_token": "<|im_end|>"}}, (2, 5)),
        ({"config__json": {"vocab_size": 16, "eos_token_id": None}}, ()),
        ({"config__json": {"vocab_size": 16, "text_config": {"eos_token_id": [3, 4]}}}, (3, 4)),
    ],
)
def test_end_of_sequence_ids(tmp_path: Path, files: Any, expected: tuple[int, ...]) -> None:
    assert Checkpoint.open(hf_folder(tmp_path, **files)).eos_token_ids == expected


@pytest.mark.parametrize(
    ("named", "more"),
    [
        (128001, [128001, 128008, 128009]),  # Llama 3: end of text, of message and of turn
        ([1, 106], [1, 106]),  # Gemma 3: <eos>, <end_of_turn>
        ([1, 106], [1, 106, 50]),  # Gemma 4: <eos>, <turn|>, <|tool_response>
        (200002, [200002, 199999, 200012]),  # gpt-oss: <|return|>, <|endoftext|>, <|call|>
        (151643, [151645, 151643]),  # Qwen 3: <|im_end|>, <|endoftext|>
        (32000, [32000, 32001, 32007]),  # Phi-3: <|endoftext|>, <|assistant|>, <|end|>
        (12, [2, 11, 12]),  # Nemotron Nano 2: <SPECIAL_12> ends a turn
        (163586, 163586),  # Kimi K2 and Linear: <|im_end|>
        (1, 1),  # DeepSeek V3 and V3.1: <｜end▁of▁sentence｜>
        (255001, 255001),  # Command R7B: <|END_OF_TURN_TOKEN|>
        (100265, [100257, 100265]),  # Phi-4: <|endoftext|>, <|im_end|>
        (100257, [100265, 100257]),  # OLMo 3: <|im_end|>, <|endoftext|>
        (11, [11, 228]),  # Falcon-H1: <|end_of_text|>, <|im_end|>
        (127960, [127960, 127967]),  # HunYuan 7B: <|eos|>, and what its file names beside it
        (200001, [200001, 200007, 200008]),  # Llama 4: end of text, of message and of turn
        ([151329, 151336, 151338], None),  # GLM-4, where only its config has them
    ],
)
def test_all_that_end_an_answer_of_a_family(
    tmp_path: Path, named: int | list[int], more: int | list[int] | None
) -> None:
    """End tokens as in published files: config.json has one, generation_config.json all."""
    config = {"config__json": {"vocab_size": 256_000, "eos_token_id": named}}
    generation = {"generation_config__json": {"eos_token_id": more}} if more else {}
    checkpoint = Checkpoint.open(hf_folder(tmp_path, **config, **generation))
    all_of_it = more or named
    wanted = tuple(all_of_it) if isinstance(all_of_it, list) else (all_of_it,)
    assert checkpoint.eos_token_ids == wanted


@pytest.mark.parametrize(("decoder", "bos"), [({}, "<old>"), ({"added_tokens_decoder": {}}, "<s>")])
def test_which_file_names_special_tokens(tmp_path: Path, decoder: Any, bos: str) -> None:
    """As in transformers: special_tokens_map.json, unless there is an added_tokens_decoder."""
    config = {"bos_token": "<s>", "eos_token": None, "add_bos_token": True, **decoder}
    hf_folder(
        tmp_path,
        special_tokens_map__json={"bos_token": "<old>", "pad_token": {"content": "<pad>"}},
        tokenizer_config__json=config,
    )
    checkpoint = Checkpoint.open(tmp_path)
    assert checkpoint.special_tokens == {"bos_token": bos, "pad_token": "<pad>"}
    assert checkpoint.bos_token == bos


def test_unigram_vocabularies_are_lists(tmp_path: Path) -> None:
    tokenizer = {"model": {"type": "Unigram", "vocab": [["a", -1.0], ["</s>", -2.0]]}}
    hf_folder(tmp_path, tokenizer__json=tokenizer, tokenizer_config__json={"eos_token": "</s>"})
    assert Checkpoint.open(tmp_path).eos_token_ids == (2, 1)


NAMED = [{"name": "default", "template": "list"}, {"name": "tool_use", "template": "tools"}]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"tokenizer_config__json": {"chat_template": "string"}}, {"default": "string"}),
        (
            {"tokenizer_config__json": {"chat_template": NAMED}},
            {"default": "list", "tool_use": "tools"},
        ),
        ({"chat_template__json": {"chat_template": "json"}}, {"default": "json"}),
        (
            {
                "chat_template__jinja": "file",
                "tokenizer_config__json": {"chat_template": NAMED},
                "chat_template__json": {"chat_template": "json"},
            },
            {"default": "file"},
        ),
        (
            {"tokenizer_config__json": {"chat_template": NAMED[1:]}},
            {"default": "tools", "tool_use": "tools"},
        ),
    ],
)
def test_chat_templates(tmp_path: Path, files: Any, expected: dict[str, str]) -> None:
    assert Checkpoint.open(hf_folder(tmp_path, **files)).chat_templates == expected


def test_additional_chat_templates(tmp_path: Path) -> None:
    hf_folder(tmp_path, tokenizer_config__json={"chat_template": NAMED})
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("é", encoding="utf-8")
    assert Checkpoint.open(tmp_path).chat_templates == {"default": "list", "tool_use": "é"}


@pytest.mark.parametrize("file", [None, "file"])
@pytest.mark.parametrize("extra", [None, "extra"])
@pytest.mark.parametrize("tools", [None, [{"type": "function", "function": {"name": "f"}}]])
def test_the_template_that_transformers_takes(
    file: str | None, extra: str | None, tools: Any, tmp_path: Path
) -> None:
    """Oracle: transformers' apply_chat_template on the same folder."""
    transformers = pytest.importorskip("transformers")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": NAMED}
    tokenizer = (DEMO / "model" / "tokenizer.json").read_text(encoding="utf-8")
    hf_folder(tmp_path, tokenizer_config__json=config, tokenizer__json=tokenizer)
    if file:
        (tmp_path / "chat_template.jinja").write_text(file)
    if extra:
        (tmp_path / "additional_chat_templates").mkdir()
        (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text(extra)
    found = Checkpoint.open(tmp_path).chat_templates
    name = "tool_use" if tools and "tool_use" in found else "default"
    talk = [{"role": "user", "content": "x"}]
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    if isinstance(theirs.chat_template, dict) and not {name} <= theirs.chat_template.keys():
        return  # which asks for a name
    assert found[name] == theirs.apply_chat_template(talk, tools=tools, tokenize=False)


@pytest.mark.parametrize("value", [3, [1], [{"name": "x"}], {"default": 1}])
def test_a_malformed_chat_template(tmp_path: Path, value: Any) -> None:
    hf_folder(tmp_path, tokenizer_config__json={"chat_template": value})
    refused(tmp_path, "chat_template must be a string or a list")


def test_chat_template_files_are_bounded_and_utf8(tmp_path: Path) -> None:
    refused(hf_folder(tmp_path, chat_template__jinja=b"x" * (2 << 20)), "larger than 1 MiB")
    refused(hf_folder(tmp_path, chat_template__jinja=b"\xff"), "cannot be read")


@pytest.mark.parametrize("text", ["{", "[]", "", b"\xff", "[" * 100_000])
@pytest.mark.parametrize("name", ["config__json", "generation_config__json"])
def test_broken_json(tmp_path: Path, name: str, text: str | bytes) -> None:
    refused(hf_folder(tmp_path, **{name: text}), name.replace("__", ".") + ": .*fetch it again")


def test_numbers_that_are_no_json_stay_out(tmp_path: Path) -> None:
    hf_folder(tmp_path, config__json='{"limit": [0.0, Infinity]}')
    assert Checkpoint.open(tmp_path).config == {"limit": [0.0, "Infinity"]}


def test_no_folder_no_config_or_a_file(tmp_path: Path) -> None:
    refused(tmp_path / "none", "no such folder.*hf://org/name")
    refused(tmp_path, "has no config.json; MODEL is a Hugging Face folder")
    (tmp_path / "mlcc.json").touch()
    refused(tmp_path, "is a compiled model")
    refused(tmp_path / "mlcc.json", "is a file")


def test_quantized_checkpoints_are_refused_by_method(tmp_path: Path) -> None:
    config = CONFIG | {"quantization_config": {"quant_method": "aqlm"}}
    refused(hf_folder(tmp_path, config__json=config), "aqlm", UnsupportedError)


BROKEN = ["{", "{}", "[]", '{"model": 3}', '{"model": {"vocab": [3]}}']


@pytest.mark.parametrize("text", [*BROKEN, '{"model": {}, "added_tokens": [{}]}', b"\xff"])
def test_a_broken_tokenizer(tmp_path: Path, text: str) -> None:
    refused(hf_folder(tmp_path, tokenizer__json=text), "is no tokenizer.json")


def test_other_tokenizer_formats(tmp_path: Path) -> None:
    hf_folder(tmp_path, tokenizer__json=None)
    refused(tmp_path, "has no tokenizer.json; fetch")
    (tmp_path / "tokenizer.model").touch()
    refused(tmp_path, "only tokenizer.model.*pip install transformers", UnsupportedError)


def test_the_tokenizer_is_copied_as_it_is(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(hf_folder(tmp_path, tokenizer__json=TOKENIZER))
    assert checkpoint.tokenizer == (tmp_path / "tokenizer.json").read_bytes()


@pytest.mark.parametrize(
    ("place", "given_name", "name"),
    [
        ("tuned", "org/base", "tuned"),
        ("tuned/model", "org/base", "org/base"),
        ("tuned/checkpoint-500", "./local", "tuned"),
        ("tuned/final", None, "tuned"),
    ],
)
def test_a_folder_that_anybody_has_names_no_model(
    tmp_path: Path, place: str, given_name: str | None, name: str
) -> None:
    folder = tmp_path / place
    folder.parent.mkdir(exist_ok=True)
    hf_folder(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "_name_or_path": given_name}))
    assert Checkpoint.open(folder).name == name
