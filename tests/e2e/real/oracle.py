"""Gemma's file through `transformers` and the `gguf` package's reader: the results recorded in
`gemma.py`.

    python tests/e2e/real/oracle.py FILE.gguf

Shares no code with mlcc. Takes 3 GB and a minute or two.
"""

from __future__ import annotations

import sys
from typing import Any

import gguf
import torch
import transformers

from tests.e2e.real.gemma import CONTINUED, PROMPT_IDS

_ROPE = {
    "full_attention": {"rope_type": "default", "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}


def model_of(path: str) -> Any:
    """The model in float32."""
    config = transformers.Gemma3TextConfig(
        vocab_size=262144, hidden_size=640, intermediate_size=2048, num_hidden_layers=18,
        num_attention_heads=4, num_key_value_heads=1, head_dim=256, sliding_window=512,
        max_position_embeddings=32768, query_pre_attn_scalar=256, rope_parameters=_ROPE,
    )  # fmt: skip
    config._attn_implementation = "eager"
    model = transformers.Gemma3ForCausalLM(config).float().eval()
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GEMMA3, config.num_hidden_layers)
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            stem, _, kind = name.rpartition(".")
            tensor = tensors[f"{names.get_name(stem)}.{kind}"]
            values = torch.from_numpy(
                gguf.quants.dequantize(tensor.data, tensor.tensor_type).copy()
            )
            parameter.copy_(values - 1 if "norm" in name else values)
    return model


def continued(model: Any, ids: list[int], count: int) -> list[int]:
    """The likeliest tokens, one after another."""
    text = torch.tensor([ids])
    with torch.no_grad():
        for _ in range(count):
            text = torch.cat([text, model(text).logits[:, -1:].argmax(-1)], 1)
    found: list[int] = text[0, len(ids) :].tolist()
    return found


if __name__ == "__main__":
    found = continued(model_of(sys.argv[1]), PROMPT_IDS, len(CONTINUED))
    print(found, "as recorded" if found == CONTINUED else "NOT as recorded")
