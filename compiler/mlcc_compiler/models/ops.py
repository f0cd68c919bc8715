"""The operators that models are written with, beside TVM's own: each emits one call into the graph.

A call is `relax.call_pure_packed("mlcc.<name>", tensors..., attributes...)`. It says what is
computed, never how: quantization, paging and targets are handled by the passes. The numpy reference
of each operator is in `mlcc.device.reference.executor`.

A result has its first input's dtype: all layers pass on the embedding's. The docstrings call it
`a`; f32 is float32 whatever the activations are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mlcc_compiler.ir._tvm import Tensor, nn, relax
from mlcc_compiler.ir.graph import PREFIX, attribute
from mlcc_compiler.ir.layout import AttentionShape
from mlcc_compiler.ir.mla import MlaShape
from mlcc_compiler.ir.states import ConvShape, DeltaShape, ScanShape
from mlcc_compiler.models.rope import Rope

FLOAT32 = "float32"
"""Dtype of results that are float32 whatever the activations are."""
_LEAST_LOGIT = -1e30
"""Of tokens that cannot be drawn; WGSL has no constant for -inf."""
READS = {
    "linear": "matrix",
    "activated_linear": "matrix",
    "gated_linear": "matrix",
    "rounded_gated_linear": "matrix",
    "embedding": "table",
    "expert_linear": "experts",
}
"""Operators that read weights which may be quantized: which of their two-dimensional arguments are
weights, and the use of such a weight. The scheme is the last attribute.
"""


def embedding(token_ids: Tensor, table: Tensor, scheme: str, dtype: str = FLOAT32) -> Tensor:
    """Rows of `table` [vocab, hidden] for `token_ids` i32[n] -> a[n, hidden], where a is `dtype`,
    the activation dtype."""
    shape = [token_ids.shape[0], table.shape[1]]
    return _call("embedding", [token_ids, table], [scheme], shape, dtype)


def inputs_embeds(
    token_ids: Tensor,
    x: Tensor | None,
    width: int,
    first: int,
    part: int = 0,
    parts: int = 1,
    added: bool = False,
) -> Tensor:
    """Rows that the host writes in place of tokens: the row id - `first` for an id of token_ids
    i32[n] from `first` on, else that of x a[n, width]; without x every id is such a one ->
    a[n, width]. A row that the host writes has `parts` of `width`, of which this is one; with
    `added` it is added to x's."""
    tensors = [token_ids] if x is None else [token_ids, x]
    dtype = FLOAT32 if x is None else x.dtype
    numbers = [width, first, part, parts, int(added)]
    return _call("inputs_embeds", tensors, numbers, [token_ids.shape[0], width], dtype)


def embedding_bag(taps: Tensor, table: Tensor) -> Tensor:
    """Weighted sums of rows of `table` f32[rows, hidden], which is not quantized -> f32[n, hidden].
    taps f32[n, 2 k]: the numbers of k rows, then their weights."""
    shape = [taps.shape[0], table.shape[1]]
    return _call("embedding_bag", [taps, table], [], shape, FLOAT32)


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, scheme: str, dtype: str | None = None
) -> Tensor:
    """x a[n, in] @ weight[out, in].T (+ bias f32[out]) -> a[n, out], or `dtype`."""
    tensors = [x, weight] if bias is None else [x, weight, bias]
    return _call("linear", tensors, [scheme], [x.shape[0], weight.shape[0]], dtype)


def rms_norm(x: Tensor, weight: Tensor, eps: float, offset: float) -> Tensor:
    """Root-mean-square norm over the last axis, times `offset + weight`."""
    return _call("rms_norm", [x, weight], [float(eps), float(offset)], x.shape)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, offset: float) -> Tensor:
    """x less its mean, by its standard deviation, times `offset + weight`, plus bias; over the
    last axis (Ba et al., 2016)."""
    tensors = [x, weight] if bias is None else [x, weight, bias]
    return _call("layer_norm", tensors, [float(eps), float(offset)], x.shape)


def rope_table(positions: Tensor, rope: Rope) -> Tensor:
    """positions i32[n] -> f32[n, rotary_dim]: cosines, then sines, both times `rope.scale`."""
    inv_freq = nn.Tensor(_expr=relax.const(rope.table(), "float32"))
    return _call(
        "rope_table",
        [positions, inv_freq],
        [float(rope.scale)],
        [positions.shape[0], rope.rotary_dim],
        FLOAT32,
    )


def mrope_table(positions: Tensor, rope: Rope) -> Tensor:
    """As `rope_table`, of a rope with `sections`: a frequency is multiplied with the time, row or
    column that the step has for a token (`Rope.axes`)."""
    inv_freq = nn.Tensor(_expr=relax.const(rope.table(), "float32"))
    return _call(
        "mrope_table",
        [positions, inv_freq],
        [float(rope.scale), json.dumps(rope.sections), int(rope.interleaved)],
        [positions.shape[0], rope.rotary_dim],
        FLOAT32,
    )


def rope(x: Tensor, table: Tensor, pairs: bool = False) -> Tensor:
    """Rotate the first rotary_dim of each head of x a[n, heads, head_dim]: element j with j +
    rotary_dim / 2 ("rotate half"), or by `pairs` neighbours, 2 j with 2 j + 1."""
    return _call("rope", [x, table], [int(pairs)], x.shape)


def growth(positions: Tensor, beta: float, length: int) -> Tensor:
    """positions i32[n] -> f32[n, 1]: 1 + beta * log(1 + position // length), a factor of queries
    that keeps attention sharp over more keys (Llama 4; Meta, 2025)."""
    shape = [positions.shape[0], 1]
    return _call("growth", [positions], [float(beta), length], shape, FLOAT32)


def attention(
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    layer: int,
    shape: AttentionShape,
    sinks: Tensor | None = None,
) -> Tensor:
    """Causal attention of each token over its own sequence, everything before included.

    q a[n, heads, head_dim], k and v a[n, kv_heads, head_dim] -> a[n, heads, head_dim]; `sinks`
    f32[heads], if the shape has them. Without k and v, it attends to those of `layer`, an earlier
    attention layer, including this step's.
    """
    queries = [q] if sinks is None else [q, sinks]
    given = [tensor for tensor in (k, v) if tensor is not None]
    text = (shape if given else replace(shape, shared=True)).to_json()
    return _call("attention", [*queries, *given], [layer, text], q.shape)


def latent_attention(
    q: Tensor,
    latent: Tensor,
    norm: Tensor,
    weight: Tensor,
    table: Tensor,
    layer: int,
    shape: MlaShape,
) -> Tensor:
    """Causal attention of each token over its own sequence, whose keys and values are made of
    latents (`mlcc_compiler.ir.mla`).

    q a[n, heads, nope + rope], latent a[n, rank + rope] -> a[n, heads, value]. The latent's
    first part is normalised with `norm` f32[rank]; the rest of it and of each query is rotated, by
    neighbouring pairs. `weight` f32[heads * (nope + value), rank] makes a head's key and value.
    """
    queries, appended = [q, weight, table], [latent, norm, table]
    out = [q.shape[0], shape.heads, shape.value]
    return _call("latent_attention", [*queries, *appended], [layer, shape.to_json()], out)


def cross_attention(q: Tensor, layer: int, layers: int, rows: int, scale: float) -> Tensor:
    """Attention of each token over the `rows` rows of an encoder that belong to its sequence.

    q a[n, heads, head_dim] -> the same. The host wrote the rows, each with the keys and values of
    all `layers`: f32[layers * 2 * heads * head_dim], of `layer` first its key. The step says where
    a sequence's rows begin.
    """
    return _call("cross_attention", [q], [layer, layers, rows, float(scale)], q.shape)


def cross_weights(
    q: Tensor, tokens: Tensor, heads: Sequence[int], place: tuple[int, int, int], scale: float
) -> Tensor:
    """What some heads of `cross_attention` multiply an encoder's rows by.

    q a[r, heads, head_dim] of the step's `tokens` i32[r] -> f32[r, len(heads) * rows]. place: the
    layer, the number of layers, and rows.
    """
    out = [q.shape[0], len(heads) * place[2]]
    text = ",".join(map(str, heads))
    return _call("cross_weights", [q, tokens], [text, *place, float(scale)], out, FLOAT32)


def causal_conv(
    x: Tensor, weight: Tensor, bias: Tensor | None, layer: int, shape: ConvShape
) -> Tensor:
    """The shape's activation of a convolution of each channel with its own `weight` f32[channels,
    1, taps] (+ bias f32[channels]), over its own sequence, everything before included.
    x a[n, channels] -> the same.

    The last tap is the token's own; before the sequence's beginning are zeros.
    """
    tensors = [x, weight] if bias is None else [x, weight, bias]
    return _call("causal_conv", tensors, [layer, shape.to_json()], x.shape)


def delta_rule(
    qkv: Tensor, b: Tensor, a: Tensor, vectors: Sequence[Tensor], layer: int, shape: DeltaShape
) -> Tensor:
    """The gated delta rule (Yang et al., 2024): each head's matrix S forgets, then learns k -> v.

    qkv a[n, shape.channels]: queries and keys of all key heads, values of all value heads; b
    a[n, v_heads], a a[n, shape.speeds], and as `vectors` a_log f32[v_heads] and dt_bias
    f32[shape.speeds] -> a[n, v_heads, v_dim].

        S = S * exp(-exp(a_log) * softplus(a + dt_bias)), a number or, by channel, one of each key
        S = S + sigmoid(b) * (v - S k) k^T,  out = S q / sqrt(k_dim)

    with q and k of length 1; S is zeros before the sequence's beginning.
    """
    out = [qkv.shape[0], shape.v_heads, shape.v_dim]
    return _call("delta_rule", [qkv, b, a, *vectors], [layer, shape.to_json()], out)


def selective_scan(
    xbc: Tensor,
    dt: Tensor,
    a_log: Tensor,
    skip: Tensor,
    dt_bias: Tensor,
    layer: int,
    shape: ScanShape,
) -> Tensor:
    """The selective scan of Mamba 2 (Dao and Gu, 2024): a head's matrix S forgets, then takes in.

    xbc a[n, shape.channels]: x of all heads, then B, then C of all groups; dt a[n, heads], and of
    each head a_log, skip and dt_bias f32[heads] -> a[n, heads, head_dim].

        t = softplus(dt + dt_bias), held between the shape's shortest and longest
        S = exp(-exp(a_log) * t) * S + t * x B^T,  out = S C + skip * x

    S is zeros before the sequence's beginning.
    """
    out = [xbc.shape[0], shape.heads, shape.head_dim]
    tensors = [xbc, dt, a_log, skip, dt_bias]
    return _call("selective_scan", tensors, [layer, shape.to_json()], out)


def scale_columns(x: Tensor, factors: Tensor) -> Tensor:
    """x a[n, width], each column times its own factor of `factors` f32[width], or all times
    f32[1]."""
    return _call("scale_columns", [x, factors], [], x.shape)


def subtract_columns(x: Tensor, columns: Tensor) -> Tensor:
    """x a[n, width], each column less its own number of `columns` f32[width]."""
    return _call("subtract_columns", [x, columns], [], x.shape)


def clip(x: Tensor, least: Tensor, most: Tensor) -> Tensor:
    """x a[n, width], each number at least `least` f32[1] and at most `most` f32[1]."""
    return _call("clip", [x, least, most], [], x.shape)


def take_parts(x: Tensor, groups: int, parts: Sequence[tuple[int, int]]) -> Tensor:
    """x a[n, groups * width]: of every group columns begin .. begin + size - 1, for each of
    `parts` (begin, size); first the first part of all groups, then the second of all."""
    width = groups * sum(size for _, size in parts)
    return _call("take_parts", [x], [groups, json.dumps(parts)], [x.shape[0], width])


def side_by_side(parts: Sequence[Tensor]) -> Tensor:
    """Concatenate columns: parts a[n, size] -> a[n, sum of sizes]."""
    width = sum(part.shape[1] for part in parts)
    return _call("side_by_side", parts, [], [parts[0].shape[0], width])


def activated(x: Tensor, kind: str) -> Tensor:
    """activation(x), of the kinds of `gated`."""
    return _call("activated", [x], [kind], x.shape)


def gated(gate: Tensor, up: Tensor, kind: str) -> Tensor:
    """activation(gate) * up, kind 'silu', 'gelu_tanh', 'gelu', 'sigmoid', 'relu2', the square of
    what is above 0, or 'identity'."""
    return _call("gated", [gate, up], [kind], gate.shape)


def gated_fused(gate_up: Tensor, kind: str) -> Tensor:
    """`gated` for gate and up side by side in one a[n, 2 * inner]."""
    rows, width = gate_up.shape
    return _call("gated_fused", [gate_up], [kind], [rows, width // 2])


def route(
    logits: Tensor, k: int, score: str, normalise: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """logits f32[n, experts] -> the k largest of each row, i32[n, k], and their weights f32[n, k].

    Weights are the scores ('softmax' over all experts, or 'sigmoid') times `scale`, divided by
    their sum if `normalise`. Larger logits come first; of equal ones the first expert's.
    """
    attributes = [k, score, int(normalise), float(scale)]
    return _call("route", [logits], attributes, [logits.shape[0], k], "int32", FLOAT32)


def route_corrected(
    logits: Tensor,
    bias: Tensor,
    k: int,
    score: str,
    normalise: bool,
    scale: float,
    least: float,
    groups: int = 1,
    kept: int = 1,
    best: int = 2,
    added: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Like `route`, but experts are chosen by score + bias, f32[experts], while weights use the
    score; the divisor of the weights is at least `least`, plus `added`.

    With several groups of neighbouring experts, each of two or more, experts are chosen from the
    `kept` groups whose two largest are the largest together, or whose largest is, by `best`.
    """
    numbers = [
        k,
        score,
        int(normalise),
        float(scale),
        float(least),
        groups,
        kept,
        best,
        float(added),
    ]
    shape = [logits.shape[0], k]
    return _call("route_corrected", [logits, bias], numbers, shape, "int32", FLOAT32)


def expert_linear(
    x: Tensor, choice: Tensor, weights: Sequence[Tensor], experts: int, scheme: str
) -> Tensor:
    """x times the matrices of each token's experts, `choice` i32[n, k], transposed.

    `weights`, each [out, in], are one matrix of every expert, or several of that kind, one after
    the other: expert e's are e, e + experts, ... A token's output is for its first matrices those
    of its k experts side by side, then for its second: a[n, len(weights) / experts * k * out].
    x is a[n, in], which all experts read, or a[n, k * in], a part for each.
    """
    width = len(weights) // experts * choice.shape[1] * weights[0].shape[0]
    tensors = [x, choice, *weights]
    return _call("expert_linear", tensors, [experts, scheme], [x.shape[0], width])


def add_expert_bias(x: Tensor, choice: Tensor, bias: Tensor, experts: int, kinds: int) -> Tensor:
    """What `expert_linear` made, with the biases of each token's experts: `bias`
    f32[kinds * experts * out], all experts of the first of the `kinds` of matrices, and so on."""
    return _call("add_expert_bias", [x, choice, bias], [experts, kinds], x.shape)


def scale_chosen(weights: Tensor, choice: Tensor, factors: Tensor) -> Tensor:
    """weights f32[n, k], each times its expert's of `factors` f32[experts], by `choice` i32[n, k]:
    f32[n, k]."""
    return _call("scale_chosen", [weights, choice, factors], [], weights.shape)


def clamped_swiglu(gate_up: Tensor, alpha: float, limit: float) -> Tensor:
    """gate * sigmoid(alpha * gate) * (up + 1) of a[n, 2 * inner], where a gate is at most `limit`
    and an up between -limit and limit (gpt-oss; OpenAI, 2025)."""
    rows, width = gate_up.shape
    numbers = [float(alpha), float(limit)]
    return _call("clamped_swiglu", [gate_up], numbers, [rows, width // 2])


def combine(x: Tensor, weights: Tensor) -> Tensor:
    """x a[n, k * hidden], weights f32[n, k] -> a[n, hidden], the weighted sum of the k."""
    return _call("combine", [x, weights], [], [x.shape[0], x.shape[1] // weights.shape[1]])


def mix(
    x: Tensor, modes: Tensor, coefs: Tensor, parts: int, factor: float, added: float = 0.0
) -> Tensor:
    """Sums of a token's own states: x a[n, parts * hidden], modes f32[n, a], coefs f32[out * parts,
    a] -> a[n, out * hidden], whose part q is the sum over p of (factor * coefs[q * parts + p] .
    modes + added) times part p of x (AltUp; Baykal et al., 2023)."""
    width = coefs.shape[0] // parts * (x.shape[1] // parts)
    return _call(
        "mix", [x, modes, coefs], [parts, float(factor), float(added)], [x.shape[0], width]
    )


def match_magnitude(x: Tensor, like: Tensor, least: float) -> Tensor:
    """x a[n, size] scaled to the root mean square of `like`; x's own mean square is at least
    `least`; row by row."""
    return _call("match_magnitude", [x, like], [float(least)], x.shape)


def above(x: Tensor, deviations: float) -> Tensor:
    """x a[n, size] -> max(x - (mean + deviations * standard deviation), 0) per row (population, not
    sample, deviation): a known share of normal numbers remains (Gemma 3n; 2025)."""
    return _call("above", [x], [float(deviations)], x.shape)


def relative_attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor, positions: Tensor, heads: int, cap: float
) -> Tensor:
    """Attention of each row to the last rows of its own text, itself included, as many as `bias`
    has: q, k, v a[n, heads * head_dim], bias f32[window, heads * head_dim], positions i32[n] in the
    text -> a[n, heads * head_dim].

    The score of the row d before is cap * tanh(q . (k + bias[d]) / cap): positions are relative
    (Dai et al., 2019). For encoders, whose texts are whole and cached nowhere.
    """
    return _call("relative_attention", [q, k, v, bias, positions], [heads, float(cap)], q.shape)


def depthwise_conv(x: Tensor, weight: Tensor, positions: Tensor) -> Tensor:
    """Convolution of each channel of x a[n, channels] over the last rows of its own text, as many
    as `weight` f32[taps, channels] has, whose last is the row's own; positions i32[n] in the text
    -> a[n, channels]. As `causal_conv`, for encoders, whose texts are whole."""
    return _call("depthwise_conv", [x, weight, positions], [], x.shape)


def group_moments(x: Tensor, present: Tensor, groups: int) -> Tensor:
    """x a[n, groups * places * channels], of which present a[n, groups * places] is 1 where a place
    is there, and 0 where it is left out -> f32[n, groups * 3]: of each group the count of numbers,
    their mean, and the sum of their squared differences from it. For `cumulative_norm`."""
    return _call("group_moments", [x, present], [groups], [x.shape[0], 3 * groups], FLOAT32)


def cumulative_norm(
    x: Tensor, present: Tensor, moments: Tensor, weight: Tensor, positions: Tensor, eps: float
) -> Tensor:
    """Each group of x normalised by all of its own text so far: x, present and moments as in
    `group_moments`, weight f32[channels], positions i32[n] in the text -> as x, 0 where a place is
    left out.

    Groups follow each other in a row, rows in a text. The mean is of all numbers up to the group;
    the variance sums, over the same groups, the squared differences from the mean as it was at
    each. For encoders, whose texts are whole."""
    given = [x, present, moments, weight, positions]
    return _call("cumulative_norm", given, [float(eps)], x.shape)


def next_rows(x: Tensor, positions: Tensor) -> Tensor:
    """x a[n, width], positions i32[n] in the text -> a[n, width]: of each row the one behind it in
    its own text, or zeros. For encoders, whose texts are whole."""
    return _call("next_rows", [x, positions], [], x.shape)


def softcap(x: Tensor, cap: float) -> Tensor:
    """cap * tanh(x / cap)."""
    return _call("softcap", [x], [float(cap)], x.shape)


def take_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Rows `rows` i32[r] of x a[n, hidden]."""
    return _call("take_rows", [x, rows], [], [rows.shape[0], x.shape[1]])


def keep_hidden(x: Tensor, rows: Tensor, kept: Tensor) -> Tensor:
    """As `take_rows` of x a[n, hidden]; all rows of kept a[n, hidden] stay on the device, for
    `hidden_states` of the next step."""
    return _call("keep_hidden", [x, rows, kept], [], [rows.shape[0], x.shape[1]])


def hidden_states(token_ids: Tensor, width: int, dtype: str) -> Tensor:
    """Of each token of token_ids i32[n] the row of the step before that the step's `hidden_row`
    names, as `keep_hidden` kept it, or zeros -> a[n, width], where a is `dtype`."""
    return _call("hidden_states", [token_ids], [width], [token_ids.shape[0], width], dtype)


def spread_logits(logits: Tensor, rows: Tensor) -> Tensor:
    """logits f32[r, d] of some tokens, rows f32[vocab], whole numbers: the column of each token, or
    -1 -> f32[r, vocab], where tokens without a column are the least likely."""
    shape = [logits.shape[0], rows.shape[0]]
    return _call("spread_logits", [logits, rows], [_LEAST_LOGIT], shape)


def remap(ids: Tensor, add: int, divide: int, modulo: int) -> Tensor:
    """ids i32[n] >= 0 -> (ids + add) // divide, then % modulo unless it is 0: extracts a part of
    combined ids or positions."""
    return _call("remap", [ids], [add, divide, modulo], ids.shape)


def replace_from(ids: Tensor, first: int, other: int) -> Tensor:
    """ids i32[n], where those from `first` on become `other`."""
    return _call("replace_from", [ids], [first, other], ids.shape)


def mean_rows(x: Tensor, rows: Tensor) -> Tensor:
    """x a[n, hidden], rows i32[r] -> a[r, hidden]: the mean over all tokens of the step in the same
    sequence as token rows[i]."""
    return _call("mean_rows", [x, rows], [], [rows.shape[0], x.shape[1]])


def _call(
    name: str,
    tensors: Sequence[Tensor],
    attributes: Sequence[Any],
    shape: Sequence[Any],
    *dtypes: str | None,
) -> Any:
    """One tensor of the first one's dtype or of the given one; with several dtypes a tuple of
    tensors, all of one shape."""
    arguments = [t._expr for t in tensors] + [attribute(a) for a in attributes]
    own = tensors[0].dtype
    types = [relax.TensorType(list(shape), dtype or own) for dtype in dtypes or (None,)]
    out = relax.TupleType(types) if len(types) > 1 else types[0]
    return nn.op.wrap_nested(relax.call_pure_packed(PREFIX + name, *arguments, ty_args=out), name)
