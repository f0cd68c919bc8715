"""The head of an encoder checkpoint: sentence-transformers' files beside the weights (modules.json
and its folders), or the classifier that config.json names; and how a tokenizer joins pairs of
texts.

Decides no sizes and reads no tensor; the record is `models/pooling.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from mlcc.errors import CheckpointError, UnsupportedError
from mlcc.util.panics import muted
from mlcc_compiler.checkpoint.files import MAX_JSON_BYTES, read, read_object
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.models.architectures import modernbert
from mlcc_compiler.models.fields import refuse, require
from mlcc_compiler.models.pooling import DenseShape, EncoderHead
from mlcc_compiler.models.registry import ENCODERS, with_defaults

Pair = tuple[tuple[int, ...], ...]


def pair_of(tokenizer: bytes) -> tuple[Pair, bool]:
    """The tokens before, between and after two texts, and whether the second text's tokens belong
    to another segment. Raises CheckpointError for a tokenizer that joins no pairs."""
    from tokenizers import Tokenizer

    with muted():
        made = Tokenizer.from_str(tokenizer.decode())
    made.no_truncation()
    made.no_padding()
    pair = made.encode("a", "b")
    own = [i for i, sequence in enumerate(pair.sequence_ids) if sequence is not None]
    second = [i for i in own if pair.sequence_ids[i] == 1]
    first = [i for i in own if pair.sequence_ids[i] == 0]
    if not first or not second or first[0] > second[0]:
        raise CheckpointError("tokenizer.json: puts no two texts together; fetch it again")
    ids = tuple(pair.ids)
    parts = (ids[: first[0]], ids[first[-1] + 1 : second[0]], ids[second[-1] + 1 :])
    return parts, pair.type_ids[second[0]] != pair.type_ids[first[0]]


_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
}
_NAMES = {"cls": "cls", "mean": "mean", "lasttoken": "last"}
QWEN3_RERANKER = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    'the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant passages that "
    "answer the query\n<Query>: {query}\n<Document>: {document}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
"""The template of its model card."""
_MOST_PROMPT = 1 << 16
_MOST_LABELS, _MOST_LABEL = 1 << 16, 1000
"""Classes, and characters of a name."""
_OF_PROBLEM = {
    "single_label_classification": "softmax",
    "multi_label_classification": "sigmoid",
    "regression": "none",
}
"""Activation by transformers' `problem_type`."""
_ACTIVATIONS = {"Sigmoid": "sigmoid", "Identity": "none", "Softmax": "softmax"}
_FETCH = "fetch the checkpoint again"


def encoder_head_of(checkpoint: Checkpoint, reranker: bool = False) -> EncoderHead | None:
    """The encoder's head; None = a generative model. reranker: read a generative model as
    Qwen3-Reranker. Raises CheckpointError, and UnsupportedError for unsupported heads."""
    kind = str(checkpoint.config.get("model_type"))
    if reranker:
        if kind != "qwen3":
            raise UnsupportedError(
                f"--reranker reads a Qwen3 by its next token, and this is a {kind!r:.40}; leave it "
                "out: other rerankers are known by their config.json"
            )
        return EncoderHead(
            "last",
            labels=1,
            normalize=False,
            activation="sigmoid",
            answers=("no", "yes"),
            template=QWEN3_RERANKER,
        )
    if _labels(checkpoint):
        return _classifier(checkpoint, kind)
    modules = _modules(checkpoint)
    if modules is not None:
        return _sentence(checkpoint, modules)
    if kind in ENCODERS:
        note = (
            "no modules.json says how tokens become one row: their mean is taken, and its length "
            "made 1"
        )
        return EncoderHead(notes=(note,))
    if checkpoint.config.get("use_bidirectional_attention") not in (None, False, "vision"):
        raise UnsupportedError(
            "config.json: with 'use_bidirectional_attention' this model sees both ways, and no "
            "modules.json says how its tokens become one row; fetch the sentence-transformers "
            "files (modules.json, 1_Pooling) beside it"
        )
    return None


def dense_folders(checkpoint: Checkpoint) -> list[str]:
    """The folders of its Dense modules, in order; each has its own weights."""
    modules = _modules(checkpoint) or []
    return [path for kind, path in modules if kind == "Dense"]


def _labels(checkpoint: Checkpoint) -> bool:
    named = checkpoint.outer_config.get("architectures") or []
    named = [named] if isinstance(named, str) else named
    if not isinstance(named, list):
        raise refuse("architectures", "a list of names", named)
    return any(str(name).endswith("ForSequenceClassification") for name in named)


def _classifier(checkpoint: Checkpoint, kind: str) -> EncoderHead:
    config = checkpoint.config
    names = _label_names(config)
    if kind not in ENCODERS:
        raise UnsupportedError(
            f"a {kind!r:.40} with a classification head is not built; rerankers and classifiers of "
            f"{', '.join(sorted(ENCODERS))} are"
        )
    pooling = "cls"
    if kind == "modernbert":
        pooling = modernbert.classifier_pooling(with_defaults(config))
    return EncoderHead(
        pooling,
        labels=len(names),
        normalize=False,
        activation=_activation(config, len(names)),
        label_names=names,
    )


def _label_names(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The classes in the order of the classifier's rows; transformers' names where config.json has
    none."""
    names = config.get("id2label") or {}
    if not isinstance(names, dict):
        raise refuse("id2label", "an object", names)
    count = config.get("num_labels") or len(names) or 2
    if type(count) is not int or not 1 <= count <= _MOST_LABELS:
        raise refuse("num_labels", f"a number from 1 to {_MOST_LABELS}", count)
    if not names:
        return tuple(f"LABEL_{i}" for i in range(count))
    by_id = {str(key): name for key, name in names.items()}
    found = [by_id.get(str(i)) for i in range(count)]
    if len(by_id) != count or not all(
        isinstance(name, str) and len(name) <= _MOST_LABEL for name in found
    ):
        raise refuse("id2label", f"a name for each of {count} labels, from 0 on", sorted(by_id)[:8])
    return tuple(map(str, found))


def _activation(config: Mapping[str, Any], labels: int) -> str:
    """Of scores: sigmoid unless config.json says otherwise, as in sentence-transformers'
    CrossEncoder. Of several classes: by `problem_type`, as in transformers' pipeline."""
    if labels > 1 and (problem := config.get("problem_type")) is not None:
        if problem not in _OF_PROBLEM:
            raise refuse("problem_type", f"one of {', '.join(_OF_PROBLEM)}", problem)
        return _OF_PROBLEM[problem]
    own = config.get("sentence_transformers")
    named = own.get("activation_fn") if isinstance(own, dict) else None
    named = named or config.get("sbert_ce_default_activation_function")
    name = str(named or ("Sigmoid" if labels == 1 else "Softmax")).rpartition(".")[2]
    if name not in _ACTIVATIONS or (name == "Softmax" and labels == 1):
        raise UnsupportedError(
            f"config.json: the activation {name!r:.60} of scores is not built; Sigmoid and "
            "Identity are, and Softmax of several classes"
        )
    return _ACTIVATIONS[name]


def _modules(checkpoint: Checkpoint) -> list[tuple[str, str]] | None:
    """(kind, folder) of each module in order; None without a modules.json."""
    data = read(checkpoint.folder, "modules.json", MAX_JSON_BYTES)
    if data is None:
        return None
    try:
        found = [(str(m["type"]), str(m["path"])) for m in json.loads(data)]
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise CheckpointError(f"{checkpoint.folder}: modules.json is none; {_FETCH}") from error
    for _, path in found:
        if not re.fullmatch(r"[\w-]*", path):
            raise CheckpointError(
                f"{checkpoint.folder}: modules.json names the folder {path!r:.80}; {_FETCH}"
            )
    return [(kind.rpartition(".")[2], path) for kind, path in found]


def _sentence(checkpoint: Checkpoint, modules: list[tuple[str, str]]) -> EncoderHead:
    kinds = [kind for kind, _ in modules]
    plain = kinds[:2] == ["Transformer", "Pooling"] and modules[0][1] == ""
    tail = kinds[2:]
    while tail and tail[0] == "Dense":
        del tail[0]
    if not plain or tail not in ([], ["Normalize"]):
        raise UnsupportedError(
            f"modules.json: {', '.join(kinds) or 'nothing'!s:.200} is not built; a Transformer "
            "whose weights are in the folder itself, Pooling, then Dense modules and Normalize, is"
        )
    folder = checkpoint.folder
    pooling, width = _pooling(read_object(folder, f"{modules[1][1]}/config.json"))
    dense = [
        _dense(read_object(folder, f"{path}/config.json"))
        for kind, path in modules
        if kind == "Dense"
    ]
    for shape in dense:
        if width not in (None, shape.inputs):
            raise CheckpointError(f"{folder}: a Dense module takes {shape.inputs}, not {width}")
        width = shape.outputs
    own = read_object(folder, "sentence_bert_config.json") or {}
    max_length = own.get("max_seq_length")
    prompts, default = _prompts(read_object(folder, "config_sentence_transformers.json") or {})
    return EncoderHead(
        pooling,
        tuple(dense),
        tail == ["Normalize"],
        prompts=prompts,
        default_prompt=default,
        max_length=require(own, "max_seq_length") if max_length is not None else None,
    )


def _pooling(config: Mapping[str, Any] | None) -> tuple[str, int | None]:
    """Pooling mode, and the width of the rows if given."""
    given = config or {}
    if given.get("include_prompt") is False:
        raise UnsupportedError("1_Pooling/config.json: include_prompt false is not built")
    named = given.get("pooling_mode")
    if named is not None:
        found = [str(_NAMES.get(str(named), named))]
    else:
        on = [key for key, value in given.items() if key.startswith("pooling_mode") and value]
        found = [_MODES.get(key, key) for key in on]
    if len(found) != 1 or found[0] not in _NAMES.values():
        raise UnsupportedError(
            f"1_Pooling/config.json: pooling by {' and '.join(found) or 'nothing'!s:.80} is not "
            "built; cls, mean and last token are, one at a time"
        )
    width = given.get("word_embedding_dimension", given.get("embedding_dimension"))
    return found[0], width if isinstance(width, int) else None


def _dense(config: Mapping[str, Any] | None) -> DenseShape:
    given = config or {}
    name = str(given.get("activation_function", "torch.nn.modules.activation.Tanh"))
    kind = name.rpartition(".")[2]
    if kind not in ("Identity", "Tanh"):
        raise UnsupportedError(
            f"a Dense module's activation {kind!r:.60} is not built; Identity and Tanh are"
        )
    inputs, outputs = require(given, "in_features"), require(given, "out_features")
    return DenseShape(inputs, outputs, bool(given.get("bias", True)), kind == "Tanh")


def _prompts(config: Mapping[str, Any]) -> tuple[dict[str, str], str]:
    prompts, default = config.get("prompts") or {}, config.get("default_prompt_name") or ""
    sound = isinstance(prompts, dict) and all(
        isinstance(text, str) and len(text) <= _MOST_PROMPT for text in prompts.values()
    )
    if not sound or (default and (not isinstance(default, str) or default not in prompts)):
        raise CheckpointError(f"config_sentence_transformers.json: its prompts are none; {_FETCH}")
    return {str(name): text for name, text in prompts.items()}, str(default)
