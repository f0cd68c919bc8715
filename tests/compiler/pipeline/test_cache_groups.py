"""The cache groups of layers, and the memory that they save."""

from __future__ import annotations

import pytest

from mlcc.artifact.kv_format import kv_dtype, scaled_dtype
from mlcc.engine.batch.tables import CacheGroup
from mlcc.errors import UnsupportedError
from mlcc_compiler.compile import exact_matrices
from mlcc_compiler.ir.caches import Caches
from mlcc_compiler.ir.layout import FP8_WORDS, INT8, INT8_WORDS
from mlcc_compiler.models.registry import build_model
from mlcc_compiler.passes.cache_groups import caches_of
from mlcc_compiler.pipeline import trace
from mlcc_compiler.plan import schemes_of
from mlcc_compiler.quantization import recipe
from mlcc_compiler.quantization.apply import apply_schemes, assign

CONTEXT, CHUNK, PAGE = 32768, 512, 16
GEMMA_3_270M = {
    "model_type": "gemma3_text",
    "vocab_size": 64,  # the real one has 262144, which no cache depends on
    "hidden_size": 640,
    "intermediate_size": 2048,
    "num_hidden_layers": 18,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
    "max_position_embeddings": 32768,
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}


def caches(**changes: object) -> Caches:
    architecture = build_model({**GEMMA_3_270M, **changes}, CONTEXT)
    return caches_of(trace(architecture.model).module, PAGE, "float16")


def bytes_of_a_sequence(caches: Caches) -> int:
    """Cache bytes of a sequence of maximal length, over all groups."""
    pools = [group.most_pages(CONTEXT, CHUNK) for group in caches.groups]
    return sum(info.pool * info.bytes_per_page for info in caches.infos(pools))


def test_sliding_layers_of_gemma_3_keep_a_window() -> None:
    found = caches()
    assert found.groups == (CacheGroup("paged", PAGE), CacheGroup("window", PAGE, 512))
    assert found.plans[0].layers == (5, 11, 17)
    assert found.plans[1].layers == tuple(i for i in range(18) if i % 6 != 5)
    assert found.locate(0) == (1, 3) and found.locate(17) == (0, 2)


def test_what_a_window_saves_at_32k() -> None:
    """1 KiB a token and layer. Full: 18 layers of 32,768 tokens. Now: 3 of them, and 15 of 65
    pages, which hold 511 tokens, a chunk of 512, and begin anywhere in a page."""
    everything = 18 * CONTEXT * 1024
    assert everything == 603_979_776
    windows = 15 * (-(-(511 + CHUNK) // PAGE) + 1) * PAGE * 1024
    assert bytes_of_a_sequence(caches()) == 3 * CONTEXT * 1024 + windows == 116_637_696
    assert bytes_of_a_sequence(caches(sliding_window=CONTEXT)) == everything


def test_layers_that_all_slide_are_one_group() -> None:
    mistral = {**GEMMA_3_270M, "model_type": "mistral", "sliding_window": 100}
    found = caches_of(trace(build_model(mistral, 4096).model).module, PAGE, "float32")
    assert found.groups == (CacheGroup("window", PAGE, 100),)
    assert len(found.tensors) == 18


DEEPSEEK_V2_LITE = {
    "model_type": "deepseek_v2",
    "vocab_size": 64,  # the real one has 102400, and experts, on neither of which a cache depends
    "hidden_size": 2048,
    "intermediate_size": 10944,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "first_k_dense_replace": 27,
    "q_lora_rank": None,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "max_position_embeddings": 163840,
}


def test_deepseek_keeps_one_latent_a_token_and_layer() -> None:
    """512 + 64 numbers for all 16 heads, where keys and values were 16 * (192 + 128)."""
    model = build_model(DEEPSEEK_V2_LITE, CONTEXT).model
    found = caches_of(trace(model).module, PAGE, "float16")
    assert found.groups == (CacheGroup("paged", PAGE),)
    (info,) = found.infos([7])
    assert [t.shape for t in info.tensors] == [("num_pages", PAGE, 576)] * 27
    assert info.bytes_per_page == PAGE * 27 * 576 * 2
    assert bytes_of_a_sequence(found) == CONTEXT * 31_104 == 1_019_215_872


def test_latents_have_no_8_bit_pages() -> None:
    traced = trace(build_model(DEEPSEEK_V2_LITE, CONTEXT).model)
    for dtype, name in ((INT8, "int8"), (FP8_WORDS, "fp8")):
        with pytest.raises(UnsupportedError, match=f"--kv {name}: pages of latents"):
            caches_of(traced.module, PAGE, dtype)


@pytest.mark.parametrize(
    "dtype, kept, name",
    [(INT8, "int8", "int8"), (INT8_WORDS, "uint32", "int8"), (FP8_WORDS, "uint32", "fp8")],
)
def test_8_bit_pages_of_windows_too(dtype: str, kept: str, name: str) -> None:
    """Codes (in words for GPUs) and a scale for each token and head; both groups have the same
    layout."""
    found = caches_of(trace(build_model(GEMMA_3_270M, 4096).model).module, PAGE, dtype)
    assert {group.kind for group in found.groups} == {"paged", "window"}
    for info in found.infos([3, 3]):
        numbers, scales = info.tensors[:2]
        assert (numbers.dtype, scales.dtype) == (kept, "float32")
        assert scales.shape == ("num_pages", *numbers.shape[1:-1])
        assert info.bytes_per_page == len(info.layers) * 2 * PAGE * (256 + 4)
        assert scaled_dtype(info) == name and kv_dtype(info) == f"{name} with scales"


def test_unquantized_tensors_are_reported_in_bytes() -> None:
    """DeepSeek's kv_b_proj, which attention's kernels read as it is: 16 * 256 * 512 a layer."""
    architecture = build_model(DEEPSEEK_V2_LITE, CONTEXT)
    apply_schemes(architecture.model, assign(architecture.model, recipe("q4")).schemes)
    whole = trace(architecture.model)
    assert exact_matrices(whole, schemes_of(architecture.model, whole.names)) == {
        "kv_b_proj": 27 * 16 * 256 * 512 * 4
    }


def test_states_are_a_group_of_their_own() -> None:
    """A layer's two operators keep two tensors, side by side; pages come before states."""
    sizes = {"linear_num_key_heads": 1, "linear_num_value_heads": 2, "num_experts": 0}
    qwen = {**GEMMA_3_270M, **sizes, "model_type": "qwen3_next", "num_hidden_layers": 4}
    found = caches_of(trace(build_model(qwen, 4096).model).module, PAGE, "float16")
    assert found.groups == (CacheGroup("paged", PAGE), CacheGroup("state"))
    assert [plan.layers for plan in found.plans] == [(3,), (0, 1, 2)]
    assert found.locate(1) == found.locate(1, "conv") == (1, 3)
    assert found.locate(1, "delta") == (1, 4)
    (pages, states) = found.infos([7, 2])
    assert [t.name for t in states.tensors[:3]] == ["conv.0", "delta.0", "conv.1"]
    assert states.tensors[0].shape == ("num_pages", 3, 2 * 128 + 2 * 128)
    assert states.tensors[1].shape == ("num_pages", 2, 128, 128)
    assert {t.dtype for t in states.tensors} == {"float32"}
    assert {t.dtype for t in pages.tensors} == {"float16"}
