"""Small random encoders as folders, made by `transformers`, with the files of
sentence-transformers, and the embeddings of `transformers`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import WordPiece

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,!?"
VOCAB = 131
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
}
DECODER = {**SIZES, "num_key_value_heads": 2, "head_dim": 16, "num_hidden_layers": 3}
MODERN = {**SIZES, "num_hidden_layers": 4, "local_attention": 16, "pad_token_id": 0,
          "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}  # fmt: skip
GEMMA = {**DECODER, "query_pre_attn_scalar": 16, "sliding_window": 9,
         "use_bidirectional_attention": True, "num_hidden_layers": 4,
         "layer_types": ["sliding_attention"] * 3 + ["full_attention"]}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One checkpoint. `model`: the class of `transformers` that saves it."""

    config: str
    fields: dict[str, Any]
    model: str
    pooling: str = "mean"
    dense: tuple[tuple[int, int, bool, str], ...] = ()
    """(inputs, outputs, bias, activation) of each Dense module."""
    normalize: bool = True
    prompts: dict[str, str] = field(default_factory=dict)


CASES = {
    "bert": Case("BertConfig", SIZES, "BertModel"),
    "bert-cls": Case("BertConfig", SIZES, "BertForMaskedLM", "cls", normalize=False),
    "roberta": Case("RobertaConfig", {**SIZES, "pad_token_id": 1}, "RobertaModel"),
    "xlm-roberta": Case("XLMRobertaConfig", {**SIZES, "pad_token_id": 1, "type_vocab_size": 1},
                        "XLMRobertaModel", "cls"),
    "modernbert": Case("ModernBertConfig", MODERN, "ModernBertModel"),
    "modernbert-biases": Case(
        "ModernBertConfig",
        {**MODERN, "attention_bias": True, "mlp_bias": True, "norm_bias": True},
        "ModernBertForMaskedLM", "cls"),
    "qwen3-embedding": Case("Qwen3Config", {**DECODER, "tie_word_embeddings": True}, "Qwen3Model",
                            "last", prompts={"query": "Instruct: find it\nQuery:", "document": ""}),
    "embeddinggemma": Case("Gemma3TextConfig", GEMMA, "Gemma3TextModel",
                           dense=((64, 96, False, "Identity"), (96, 32, True, "Tanh")),
                           prompts={"query": "task: search | query: "}),
}  # fmt: skip
RERANKERS = {
    "bert-reranker": Case("BertConfig", SIZES, "BertForSequenceClassification", "cls"),
    "roberta-reranker": Case("XLMRobertaConfig", {**SIZES, "pad_token_id": 1, "type_vocab_size": 1},
                             "XLMRobertaForSequenceClassification", "cls"),
    "modernbert-reranker": Case("ModernBertConfig", {**MODERN, "classifier_pooling": "mean"},
                                "ModernBertForSequenceClassification", "mean"),
}  # fmt: skip

NAMES = {"id2label": {0: "calm", 1: "glad", 2: "sad"}, "label2id": {"calm": 0, "glad": 1, "sad": 2}}
CLASSIFIERS = {
    "bert-classifier": Case(
        "BertConfig", {**SIZES, **NAMES}, "BertForSequenceClassification", "cls"),
    "roberta-classifier": Case(
        "XLMRobertaConfig",
        {**SIZES, "pad_token_id": 1, "type_vocab_size": 1, "num_labels": 7,
         "problem_type": "multi_label_classification"},
        "XLMRobertaForSequenceClassification", "cls"),
    "modernbert-classifier": Case(
        "ModernBertConfig", {**MODERN, **NAMES, "classifier_pooling": "mean"},
        "ModernBertForSequenceClassification", "mean"),
}  # fmt: skip


def make_encoder(case: Case, folder: Path, seed: int = 0) -> Any:
    """Write the folder; the model in float64, ready to be asked."""
    fields = dict(case.fields)
    if case.model.endswith("SequenceClassification"):
        fields.update({} if "id2label" in fields else {"num_labels": fields.get("num_labels", 1)})
    config = getattr(transformers, case.config)(**fields)
    torch.manual_seed(seed)
    model = getattr(transformers, case.model)(config).eval()
    for name, parameter in model.named_parameters():
        spread = 0.3 if "norm" in name.lower() or name.endswith("bias") else 0.15
        offset = float("norm" in name.lower() and name.endswith("weight") and "gemma" not in
                       config.model_type)  # fmt: skip
        torch.nn.init.normal_(parameter, offset, spread)
    model.save_pretrained(folder)
    write_tokenizer(folder, double="roberta" in config.model_type)
    if not case.model.endswith("SequenceClassification"):
        _write_modules(case, folder)
    return model.to(torch.float64)


def write_tokenizer(folder: Path, double: bool = False) -> None:
    """WordPiece over letters. double: pairs have two tokens between them, as RoBERTa's do."""
    tokens = [*SPECIAL, *LETTERS, *(f"##{letter}" for letter in LETTERS), "no", "yes"]
    made = Tokenizer(WordPiece({t: i for i, t in enumerate(tokens)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    between = "[SEP] [SEP]" if double else "[SEP]"
    kind = 0 if double else 1
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair=f"[CLS] $A {between} $B:{kind} [SEP]:{kind}",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    made.add_special_tokens(SPECIAL)
    made.enable_truncation(8)  # as checkpoints have it: not for us
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"sep_token": "[SEP]", "cls_token": "[CLS]"}')


def _write_modules(case: Case, folder: Path) -> None:
    names = ["Transformer", "Pooling", *["Dense"] * len(case.dense)]
    names += ["Normalize"] * case.normalize
    paths = ["", *(f"{i}_{name}" for i, name in enumerate(names))][: len(names)]
    paths = [f"{i}_{name}" if i else "" for i, name in enumerate(names)]
    kinds = [{"idx": i, "name": str(i), "path": p, "type": f"sentence_transformers.models.{n}"}
             for i, (n, p) in enumerate(zip(names, paths, strict=True))]  # fmt: skip
    _write(folder / "modules.json", kinds)
    modes = {"cls": "cls_token", "mean": "mean_tokens", "last": "lasttoken"}
    pooling = {f"pooling_mode_{mode}": mode == modes[case.pooling] for mode in modes.values()}
    _write(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 64, **pooling})
    for i, (inputs, outputs, bias, activation) in enumerate(case.dense, 2):
        _write(
            folder / f"{i}_Dense" / "config.json",
            {"in_features": inputs, "out_features": outputs, "bias": bias,
             "activation_function": f"torch.nn.modules.linear.{activation}"},
        )  # fmt: skip
        weights = {"linear.weight": torch.randn(outputs, inputs) * 0.2}
        weights |= {"linear.bias": torch.randn(outputs) * 0.2} if bias else {}
        save_file(weights, folder / f"{i}_Dense" / "model.safetensors")
    if case.prompts:
        _write(folder / "config_sentence_transformers.json", {"prompts": case.prompts})


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def expected(case: Case, model: Any, folder: Path, ids: list[int]) -> np.ndarray[Any, Any]:
    """The row of one text, before it is made of length 1: mean, first or last, then Dense."""
    from safetensors.torch import load_file

    with torch.no_grad():
        states = getattr(model, model.base_model_prefix, model)(torch.tensor([ids]))
        x = states.last_hidden_state[0]
        row = {"mean": x.mean(0), "cls": x[0], "last": x[-1]}[case.pooling]
        for i, (_, _, bias, activation) in enumerate(case.dense, 2):
            found = load_file(folder / f"{i}_Dense" / "model.safetensors")
            row = found["linear.weight"].double() @ row
            row = row + found["linear.bias"].double() if bias else row
            row = torch.tanh(row) if activation == "Tanh" else row
    return row.numpy()
