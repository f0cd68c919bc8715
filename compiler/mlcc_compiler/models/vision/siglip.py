"""SigLIP's vision model (Zhai et al., 2023), the tower of Idefics 3, SmolVLM and Gemma 3.

A tower is an encoder whose tokens are patches and whose texts are images. The host writes patches
as rows of pixels, in the order of merge blocks: the patches that become one row of the prompt
follow one another, so a connector joins neighbouring rows. The table of positions is stored in that
order (`towers/tower_tensors.py`), and `logit_rows` names the first patch of each block.
"""

from __future__ import annotations

from mlcc_compiler.ir._tvm import Tensor, nn
from mlcc_compiler.models import ops
from mlcc_compiler.models.config import DecoderConfig
from mlcc_compiler.models.encoder import Table
from mlcc_compiler.models.layers import LayerNorm, Linear


class Attention(nn.Module):
    """Every patch attends to its whole image."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        hidden = config.hidden_size
        self.q_proj, self.k_proj = Linear(hidden, hidden, True), Linear(hidden, hidden, True)
        self.v_proj, self.out_proj = Linear(hidden, hidden, True), Linear(hidden, hidden, True)
        self.config, self.layer = config, layer

    def forward(self, x: Tensor) -> Tensor:
        config, rows = self.config, x.shape[0]
        shape = (rows, config.num_heads, config.head_dim)
        q, k, v = (
            nn.op.reshape(project(x), shape) for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        out = ops.attention(q, k, v, self.layer, config.attention(self.layer))
        return self.out_proj(nn.op.reshape(out, (rows, config.hidden_size)))


class MLP(nn.Module):
    """Two matrices with an activation between them."""

    def __init__(self, config: DecoderConfig) -> None:
        self.fc1 = Linear(config.hidden_size, config.intermediate_size, True)
        self.fc2 = Linear(config.intermediate_size, config.hidden_size, True)
        self.activation = config.activation

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(ops.activated(self.fc1(x), self.activation))


class Layer(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        self.layer_norm1 = LayerNorm(config.hidden_size, config.norm_eps)
        self.layer_norm2 = LayerNorm(config.hidden_size, config.norm_eps)
        self.self_attn, self.mlp = Attention(config, layer), MLP(config)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.layer_norm1(x))
        return x + self.mlp(self.layer_norm2(x))


class PatchEmbedding(nn.Module):
    """The checkpoint's convolution as a matrix over a patch's pixels, 0 to 255, with the mean and
    deviation of the image processor in it. Never quantized: it is small, and reads exact numbers.
    """

    def __init__(self, pixels: int, hidden: int) -> None:
        self.weight = nn.Parameter((hidden, pixels), "float32")
        self.bias = nn.Parameter((hidden,), "float32")

    def forward(self, x: Tensor) -> Tensor:
        return ops.linear(x, self.weight, self.bias, "f32")


class Embeddings(nn.Module):
    """A patch's embedding plus that of its position."""

    def __init__(self, config: DecoderConfig, patch_size: int) -> None:
        self.pixels, self.first = 3 * patch_size * patch_size, config.vocab_size
        self.patch_embedding = PatchEmbedding(self.pixels, config.hidden_size)
        self.position_embedding = Table(config.max_position, config.hidden_size)

    def forward(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        pixels = ops.inputs_embeds(token_ids, None, self.pixels, self.first)
        return self.patch_embedding(pixels) + self.position_embedding(positions)


class Stack(nn.Module):
    """HF calls it `encoder`."""

    def __init__(self, config: DecoderConfig) -> None:
        self.layers = nn.ModuleList([Layer(config, i) for i in range(config.num_layers)])


class VisionModel(nn.Module):
    """HF's vision model without its pooling head."""

    def __init__(self, config: DecoderConfig, patch_size: int) -> None:
        self.embeddings = Embeddings(config, patch_size)
        self.encoder = Stack(config)
        self.post_layernorm = LayerNorm(config.hidden_size, config.norm_eps)

    def forward(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        x = self.embeddings(token_ids, positions)
        for layer in self.encoder.layers:
            x = layer(x)
        return self.post_layernorm(x)
