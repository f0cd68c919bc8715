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
from transformers.models.llama.modeling_llama import (
    LlamaDecoderLayer,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
)

from tests.compiler.models.helpers.checkpoints import config_of, save_random

DEEPSEEK = {"deepseek_v3", "glm4_moe", "glm4_moe_lite"}
"""Families that number the layer as one of the model's."""
UNNORMED = {*DEEPSEEK, "ernie4_5_moe"}
"""Families whose layer drafts further from its state before the last norm."""


def names_of(family: str, number: int) -> dict[str, str]:
    """Names of the modules around the layer, and of the layer or layers, in a checkpoint whose
    model has `number` layers."""
    own = f"model.layers.{number}"
    if family in DEEPSEEK:
        names = {"fc": "eh_proj", "embedding": "enorm", "hidden": "hnorm"}
        names |= {"norm": "shared_head.norm"}
        return {"layer": own} | {part: f"{own}.{name}" for part, name in names.items()}
    if family == "ernie4_5_moe":
        names = {"layer": "block", "fc": "linear_proj", "embedding": "emb_norm"}
        names |= {"hidden": "hidden_norm"}
        return {part: f"model.mtp_{name}.0" for part, name in names.items()}
    if family == "mimo":
        names = {"fc": "input_proj", "embedding": "token_layernorm", "hidden": "hidden_layernorm"}
        names |= {"norm": "final_layernorm"}
        own = "model.mtp_layers.0"
        return {"layer": own} | {part: f"{own}.{name}" for part, name in names.items()}
    if family == "nemotron_h":
        names = {"fc": "0.eh_proj", "embedding": "0.enorm", "hidden": "0.hnorm"}
        names |= {"norm": "1.final_layernorm", "layer": "0", "layer2": "1"}
        return {part: f"mtp.layers.{name}" for part, name in names.items()}
    names = {"fc": "fc", "embedding": "pre_fc_norm_embedding", "hidden": "pre_fc_norm_hidden"}
    names |= {"norm": "norm", "layer": "layers.0"}
    return {part: f"mtp.{name}" for part, name in names.items()}


Floats = np.ndarray[Any, Any]


@dataclass
class MtpOracle:
    """A model of transformers, its last layers and the modules around them in float64."""

    model: Any
    layers: list[Any]
    parts: dict[str, Any]
    family: str

    @property
    def norm(self) -> Any:
        """The model's last norm."""
        return getattr(self.model.model, "norm_f", None) or self.model.model.norm

    def main(self, tokens: list[int]) -> tuple[Floats, torch.Tensor]:
        """Logits [n, vocab], and the states after the last norm [n, hidden], or those before it
        if the layer has none of its own."""
        before: list[torch.Tensor] = []
        hook = self.norm.register_forward_pre_hook(lambda _, given: before.append(given[0][0]))
        with _float64():
            found = self.model.model(torch.tensor([tokens]), use_cache=False).last_hidden_state[0]
            hook.remove()
            return self.model.lm_head(found).numpy(), found if "norm" in self.parts else before[0]

    def mtp(self, tokens: list[int], hidden: torch.Tensor) -> tuple[Floats, torch.Tensor]:
        """Logits [n, vocab] and states [n, hidden] of the layers, whose input at each position is a
        state of `hidden` and the token after it."""
        with _float64():
            count = len(tokens)
            embedded = self.model.get_input_embeddings()(torch.tensor(tokens))
            both = [self.parts["embedding"](embedded), self.parts["hidden"](hidden)]
            both = both[::-1] if self.family == "mimo" else both
            found = (torch.cat(both, -1) @ self.parts["fc"].T)[None]
            positions = torch.arange(count)[None]
            given: dict[str, Any] = {"position_ids": positions}
            given["attention_mask"] = torch.full((count, count), -torch.inf).triu(1)[None, None]
            if self.family != "nemotron_h":
                given["position_embeddings"] = self.model.model.rotary_emb(found, positions)
            for layer in self.layers:
                found = layer(found, **given)
                found = found[0] if isinstance(found, tuple) else found
            normed = self.parts.get("norm", self.norm)(found[0])
            unnormed = self.family in UNNORMED
            return self.model.lm_head(normed).numpy(), found[0] if unnormed else normed


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
            (layer,) = self.layers
            both = [layer.input_layernorm(embedded), self.parts["hidden_norm"](hidden)]
            positions = torch.arange(count)[None]
            mask = torch.full((count, count), -torch.inf).triu(1)[None, None]
            angles = self.parts["rotary"](embedded, positions)
            seen, _ = layer.self_attn(
                torch.cat(both, -1)[None], attention_mask=mask, position_embeddings=angles
            )
            x = hidden + seen[0]
            x = x + layer.mlp(layer.post_attention_layernorm(x))
            logits = np.full((count, self.model.config.vocab_size), -1e30)
            logits[:, self.tokens] = (self.parts["norm"](x) @ self.head.T).numpy()
            return logits, x


def make_eagle_checkpoint(
    model_folder: Path, folder: Path, known: int = 100, case: str = "llama", **changes: Any
) -> EagleOracle:
    """Save a random model of seven layers, and an EAGLE-3 head for it that knows `known` tokens."""
    more = {"num_hidden_layers": 7, **changes}
    model: Any = save_random(config_of(case, **more), model_folder)
    torch.manual_seed(3)
    sizes = {name: getattr(model.config, name) for name in ("hidden_size", "vocab_size")}
    config = config_of("llama", num_hidden_layers=1, num_key_value_heads=4, **sizes)
    hidden = config.hidden_size
    config._attn_implementation = "eager"
    layer: Any = LlamaDecoderLayer(config, 0).double()
    width = config.num_attention_heads * config.head_dim
    for name in ("q_proj", "k_proj", "v_proj"):
        setattr(layer.self_attn, name, torch.nn.Linear(2 * hidden, width, bias=False).double())
    parts: dict[str, Any] = {"fc": torch.randn(hidden, 3 * hidden).double() * hidden**-0.5}
    parts["rotary"] = LlamaRotaryEmbedding(config).double()
    for name in ("hidden_norm", "norm"):
        parts[name] = LlamaRMSNorm(hidden, config.rms_norm_eps).double()
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
    return EagleOracle(model, [layer], parts, "llama", (2, 3, 4), head, tokens)


@contextmanager
def _float64() -> Iterator[None]:
    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "float32", torch.float64)
        patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        yield


def make_mtp_checkpoint(case: str, folder: Path, seed: int = 0) -> MtpOracle:
    """Save a random model with such a layer as a checkpoint folder."""
    family = case.partition("-")[0]
    model: Any = save_random(_longer_config(case), folder, seed)
    names = names_of(family, 0)
    count = 1 + ("layer2" in names)
    number = len(model.model.layers) - count
    torch.manual_seed(seed + 1)
    hidden = model.config.hidden_size
    parts: dict[str, Any] = {"fc": torch.randn(hidden, 2 * hidden).double() * hidden**-0.5}
    oracle = MtpOracle(model, list(model.model.layers[number:]), parts, family)
    for name in [name for name in ("embedding", "hidden", "norm") if name in names]:
        parts[name] = deepcopy(oracle.norm)
        with torch.no_grad():
            parts[name].weight.add_(torch.randn(hidden).double() * 0.2)
    _rename_layers(folder / "model.safetensors", names_of(family, number), number, parts)
    _shorten_config(folder / "config.json", family, number)
    model.model.layers = model.model.layers[:number]
    model.config.num_hidden_layers = number
    return oracle


def _longer_config(case: str) -> Any:
    """The case's config with the layers of multi-token prediction at its end."""
    if case.startswith("nemotron_h"):
        kinds = [*config_of(case).layers_block_type, "full_attention", "moe"]
        return config_of(case, layers_block_type=kinds)
    case = "qwen2" if case == "mimo" else case  # which transformers does not know
    more: dict[str, Any] = {"num_hidden_layers": config_of(case).num_hidden_layers + 1}
    if types := getattr(config_of(case), "layer_types", None):
        more["layer_types"] = [*types, "full_attention"]
    return config_of(case, **more)


def _rename_layers(path: Path, names: dict[str, str], number: int, parts: dict[str, Any]) -> None:
    """The saved model's last layers under the names of multi-token prediction."""
    tensors = load_file(path)
    for i, new in enumerate(names[part] for part in ("layer", "layer2") if part in names):
        for name in list(tensors):
            stem, own, rest = name.partition(f"layers.{number + i}.")
            if own and stem in ("model.", "backbone."):
                tensors[f"{new}.{rest}"] = tensors.pop(name)
    for name, part in parts.items():
        value = part if name == "fc" else part.weight.detach()
        tensors[names[name] + ".weight"] = value.float().contiguous()
    if "shared_head" in names.get("norm", ""):  # as published, once more
        own = names["layer"]
        tensors[own + ".embed_tokens.weight"] = tensors["model.embed_tokens.weight"].clone()
        tensors[own + ".shared_head.head.weight"] = tensors["lm_head.weight"].clone()
    save_file(tensors, path, {"format": "pt"})


def _shorten_config(path: Path, family: str, number: int) -> None:
    config = json.loads(path.read_text())
    if family != "nemotron_h":
        config["num_hidden_layers"] = number
    for key in ("layer_types", "mlp_layer_types", "layers_block_type"):
        if config.get(key):
            config[key] = config[key][:number]
    if not names_of(family, number)["layer"].startswith("mtp.layers.0") or family == "nemotron_h":
        config["num_nextn_predict_layers"] = 1
    if family == "mimo":
        config |= {"model_type": "mimo", "architectures": ["MiMoForCausalLM"]}
    path.write_text(json.dumps(config))
