"""Checkpoints with a multi-token-prediction layer, and their logits in torch.

transformers leaves such layers out, so the layer is one more of the family's own decoder layers,
between the norms and the projection that vLLM's classes (`deepseek_mtp`, `qwen3_next_mtp`) have.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.compiler.models.helpers.checkpoints import config_of, save_random

DEEPSEEK = {"deepseek_v3", "glm4_moe", "glm4_moe_lite"}
"""Families that number the layer as one of the model's."""
_QWEN = {
    "fc": "mtp.fc",
    "embedding": "mtp.pre_fc_norm_embedding",
    "hidden": "mtp.pre_fc_norm_hidden",
    "norm": "mtp.norm",
}
_OTHER = {"fc": "eh_proj", "embedding": "enorm", "hidden": "hnorm", "norm": "shared_head.norm"}

Floats = np.ndarray[Any, Any]


@dataclass
class MtpOracle:
    """A model of transformers, its last layer and the modules around it in float64."""

    model: Any
    layer: Any
    parts: dict[str, Any]
    normed: bool

    def main(self, tokens: list[int]) -> tuple[Floats, torch.Tensor]:
        """Logits [n, vocab], and the states after the last norm [n, hidden]."""
        with _float64():
            found = self.model.model(torch.tensor([tokens]), use_cache=False).last_hidden_state[0]
            return self.model.lm_head(found).numpy(), found

    def mtp(self, tokens: list[int], hidden: torch.Tensor) -> tuple[Floats, torch.Tensor]:
        """Logits [n, vocab] and states [n, hidden] of the layer, whose input at each position is a
        state of `hidden` and the token after it."""
        with _float64():
            count = len(tokens)
            embedded = self.model.model.embed_tokens(torch.tensor(tokens))
            both = [self.parts["embedding"](embedded), self.parts["hidden"](hidden)]
            x = (torch.cat(both, -1) @ self.parts["fc"].T)[None]
            positions = torch.arange(count)[None]
            mask = torch.full((count, count), -torch.inf).triu(1)[None, None]
            found = self.layer(
                x,
                attention_mask=mask,
                position_ids=positions,
                position_embeddings=self.model.model.rotary_emb(x, positions),
            )
            found = (found[0] if isinstance(found, tuple) else found)[0]
            normed = self.parts["norm"](found)
            return self.model.lm_head(normed).numpy(), normed if self.normed else found


@dataclass
class EagleOracle(MtpOracle):
    """A model and an EAGLE-3 head, whose states are those of three layers, projected."""

    inputs: tuple[int, ...] = ()
    head: Any = None
    tokens: Any = None
    """Of each row of the head."""

    def main(self, tokens: list[int]) -> tuple[Floats, torch.Tensor]:
        with _float64():
            found = self.model.model(
                torch.tensor([tokens]), use_cache=False, output_hidden_states=True
            )
            three = [found.hidden_states[layer][0] for layer in self.inputs]
            logits = self.model.lm_head(found.last_hidden_state[0])
            return logits.numpy(), torch.cat(three, -1) @ self.parts["fc"].T

    def mtp(self, tokens: list[int], hidden: torch.Tensor) -> tuple[Floats, torch.Tensor]:
        with _float64():
            count = len(tokens)
            embedded = self.model.model.embed_tokens(torch.tensor(tokens))
            both = [self.layer.input_layernorm(embedded), self.parts["hidden_norm"](hidden)]
            positions = torch.arange(count)[None]
            mask = torch.full((count, count), -torch.inf).triu(1)[None, None]
            angles = self.model.model.rotary_emb(embedded, positions)
            seen, _ = self.layer.self_attn(
                torch.cat(both, -1)[None], attention_mask=mask, position_embeddings=angles
            )
            x = hidden + seen[0]
            x = x + self.layer.mlp(self.layer.post_attention_layernorm(x))
            logits = np.full((count, self.model.config.vocab_size), -1e30)
            logits[:, self.tokens] = (self.parts["norm"](x) @ self.head.T).numpy()
            return logits, x


def make_eagle_checkpoint(model_folder: Path, folder: Path, known: int = 100) -> EagleOracle:
    """Save a random Llama of seven layers, and an EAGLE-3 head for it that knows `known` tokens."""
    model: Any = save_random(config_of("llama", num_hidden_layers=7), model_folder)
    torch.manual_seed(3)
    config = config_of("llama", num_hidden_layers=1, num_key_value_heads=4)
    hidden = config.hidden_size
    config._attn_implementation = "eager"
    layer = type(model.model.layers[0])(config, 0).double()
    width = config.num_attention_heads * config.head_dim
    for name in ("q_proj", "k_proj", "v_proj"):
        setattr(layer.self_attn, name, torch.nn.Linear(2 * hidden, width, bias=False).double())
    parts: dict[str, Any] = {"fc": torch.randn(hidden, 3 * hidden).double() * hidden**-0.5}
    for name in ("hidden_norm", "norm"):
        parts[name] = deepcopy(model.model.norm)
    with torch.no_grad():
        for module in (layer, parts["hidden_norm"], parts["norm"]):
            for parameter in module.parameters():
                parameter.normal_(1.0 if parameter.ndim == 1 else 0.0, 0.2)
    head = torch.randn(known, hidden).double() * 2 * hidden**-0.5
    tokens = torch.randperm(config.vocab_size)[:known].sort().values
    saved = {f"midlayer.{name}": p.detach() for name, p in layer.named_parameters()}
    saved |= {"midlayer.hidden_norm.weight": parts["hidden_norm"].weight.detach()}
    saved |= {"norm.weight": parts["norm"].weight.detach(), "fc.weight": parts["fc"]}
    saved |= {"lm_head.weight": head}
    saved = {name: value.float().contiguous() for name, value in saved.items()}
    known_tokens = torch.zeros(config.vocab_size, dtype=torch.bool)
    known_tokens[tokens] = True
    saved |= {"d2t": tokens - torch.arange(known), "t2d": known_tokens}
    folder.mkdir()
    save_file(saved, folder / "model.safetensors", {"format": "pt"})
    published = {**config.to_dict(), "draft_vocab_size": known}
    published["architectures"] = ["LlamaForCausalLMEagle3"]
    (folder / "config.json").write_text(json.dumps(published))
    return EagleOracle(model, layer, parts, False, (2, 3, 4), head, tokens)


@contextmanager
def _float64() -> Iterator[None]:
    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "float32", torch.float64)
        patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        yield


def make_mtp_checkpoint(case: str, folder: Path, seed: int = 0) -> MtpOracle:
    """Save a random model with such a layer as a checkpoint folder."""
    more: dict[str, Any] = {"num_hidden_layers": config_of(case).num_hidden_layers + 1}
    if types := getattr(config_of(case), "layer_types", None):
        more["layer_types"] = [*types, "full_attention"]
    model: Any = save_random(config_of(case, **more), folder, seed)
    layers = more["num_hidden_layers"] - 1
    family = case.partition("-")[0]
    torch.manual_seed(seed + 1)
    hidden = model.config.hidden_size
    parts: dict[str, Any] = {"fc": torch.randn(hidden, 2 * hidden).double() * hidden**-0.5}
    for name in ("embedding", "hidden", "norm"):
        parts[name] = deepcopy(model.model.norm)
        with torch.no_grad():
            parts[name].weight.add_(torch.randn(hidden).double() * 0.2)
    _rewrite(folder, family, layers, parts)
    layer = model.model.layers[layers]
    model.model.layers = model.model.layers[:layers]
    model.config.num_hidden_layers = layers
    return MtpOracle(model, layer, parts, family not in DEEPSEEK)


def _rewrite(folder: Path, family: str, layers: int, parts: dict[str, Any]) -> None:
    """The saved model's last layer under the names of a multi-token-prediction layer."""
    path, own = folder / "model.safetensors", f"model.layers.{layers}."
    tensors = load_file(path)
    nextn = family in DEEPSEEK
    for name in [name for name in tensors if name.startswith(own) and not nextn]:
        tensors["mtp.layers.0." + name.removeprefix(own)] = tensors.pop(name)
    for name, part in parts.items():
        full = own + _OTHER[name] if nextn else _QWEN[name]
        value = part if name == "fc" else part.weight.detach()
        tensors[full + ".weight"] = value.float().contiguous()
    if nextn:  # as published, once more
        tensors[own + "embed_tokens.weight"] = tensors["model.embed_tokens.weight"].clone()
        tensors[own + "shared_head.head.weight"] = tensors["lm_head.weight"].clone()
    save_file(tensors, path, {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["num_hidden_layers"] = layers
    for key in ("layer_types", "mlp_layer_types"):
        if config.get(key):
            config[key] = config[key][:layers]
    if nextn:
        config["num_nextn_predict_layers"] = 1
    (folder / "config.json").write_text(json.dumps(config))
