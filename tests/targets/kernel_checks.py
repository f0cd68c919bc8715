"""Checks of the GPU kernels against their twins, for devices that are emulated.

They are those of tests/compiler/kernels, with the device of a row: subgroups, tensor cores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc_compiler.kernels.gpu.device import Gpu
from tests.compiler.kernels import test_adjust as adjusting
from tests.compiler.kernels import test_gpu_elementwise as elementwise
from tests.compiler.kernels import test_moe as experts
from tests.compiler.kernels import test_sample as sampling
from tests.compiler.kernels import test_sample_partials as slicing
from tests.compiler.kernels import test_ssm as states
from tests.compiler.kernels.attention import test_gpu_attention as attention
from tests.compiler.kernels.attention import test_kv_int8 as kv_int8
from tests.compiler.kernels.attention import test_mla as latent
from tests.compiler.kernels.cases import attention as attention_cases
from tests.compiler.kernels.cases import mla as latent_cases
from tests.compiler.kernels.cases import ssm as state_cases
from tests.compiler.kernels.cases.step import LAYOUTS
from tests.compiler.kernels.linear import test_gpu_linear as linear

TILES = (
    (attention_cases.Case(heads=4, kv_heads=2, dim=256, dtype="float16"), attention_cases.MIXED),
    (attention_cases.Case(causal=False, window=20, dtype="float16"), ((16, 16), (130, 130))),
    (attention_cases.Case(window=60, images=True, dtype="float16"), ((1, 40), (150, 400))),
    (attention_cases.Case(images=True, windows=True, dtype="float16"), ((1, 40), (150, 400))),
)
"""What a tile of query rows may see."""

Check = tuple[Callable[..., None], tuple[Any, ...]]
ONE_OF_EACH = {record.operator: record for record in state_cases.STATES}


def checks(gpu: Gpu) -> list[Check]:
    """A check and its arguments."""
    return [
        (elementwise.test_gated, ("silu",)),
        (elementwise.test_gated, ("gelu_tanh",)),
        (elementwise.test_add_scale_softcap, ()),
        (elementwise.test_rows_are_taken, ()),
        (elementwise.test_read_step, (LAYOUTS[2],)),
        (elementwise.test_rms_norm, (gpu, 300)),
        (elementwise.test_rms_norm_per_head, (9, 64)),
        (elementwise.test_rms_norm_per_head, (3, 80)),
        (elementwise.test_rope, (80, 32)),
        (elementwise.test_pages, ("float16",)),
        (elementwise.test_copy_pages, ("float16", 2, (3, 20))),
        (elementwise.test_rotate_and_append, ("float16", gpu, (1e-6, 1.0), 64, 16)),
        (kv_int8.test_gpu_append, (gpu, 3, 64, 4)),
        (kv_int8.test_gpu_rotate_and_append, (gpu, (1e-6, 1.0), 64, 16)),
        (attention.check, (attention_cases.Case(dtype="int8x4"), attention_cases.MIXED, gpu)),
        (attention.check, (attention_cases.Case(dtype="float16"), attention_cases.MIXED, gpu)),
        (
            attention.check,
            (
                attention_cases.Case(heads=14, kv_heads=2, dim=80, window=20, dtype="float16"),
                attention_cases.MIXED,
                gpu,
            ),
        ),
        (
            attention.check,
            (
                attention_cases.Case(heads=8, kv_heads=2, dim=128, softcap=5.0, dtype="float16"),
                attention_cases.MIXED,
                gpu,
            ),
        ),
        (
            attention.check,
            (
                attention_cases.Case(heads=4, kv_heads=2),
                [(1, n) for n in (1, 16, 17, 128, 129, 1024)],
                gpu,
            ),
        ),
        *((attention.check, (case, sequences, gpu)) for case, sequences in TILES),
        (attention.test_sinks, (gpu,)),
        (attention.test_lists_behind_those_of_other_groups, (100,)),
        (attention.test_a_decode_step_may_be_smaller_than_its_sizes, ()),
        (sampling.test_gpu_parameters_lie_where_the_layout_says, ()),
        (sampling.test_gpu_filters_keep_equals_together, ()),
        (slicing.test_what_lies_at_the_edges_of_slices, ()),
        (adjusting.test_gpu_agrees_with_the_twin, (1001, gpu)),
        (adjusting.test_gpu_top_logprobs_agree_with_the_twin, (1001, gpu)),
        (linear.check, (gpu, (72, 256), linear.scheme("int4_g32"), True, (0, 1, 3, 17, 33))),
        (linear.check, (gpu, (72, 256), linear.scheme("int8a_g16"), False, (1, 33))),
        (linear.check, (gpu, (40, 192), linear.scheme("bf16"), False, (1, 33))),
        (linear.check, (gpu, (40, 192), linear.scheme("f16"), False, (1, 33))),
        (linear.check, (gpu, (70, 36), linear.scheme("int4a_row"), True, (0, 2, 5, 8, 9, 16, 70))),
        (linear.check_wide_tiles, (gpu,)),
        (linear.test_f16_tiles_hold_values_beyond_their_range, ()),
        (experts.test_gpu_route, (gpu, (7, 3, "softmax", 1, 1.0))),
        (experts.test_gpu_route, (gpu, (300, 10, "softmax", 1, 1.0))),
        (experts.test_gpu_route, (gpu, (9, 2, "sigmoid", 1, 2.5))),
        (experts.test_gpu_biases, ()),
        (experts.test_gpu_clamped_swiglu, ()),
        (experts.test_gpu_route_corrected, (gpu, (256, 8, "sigmoid", 1, 2.5, 8, 4))),
        (experts.test_gpu_route_corrected, (gpu, (64, 6, "softmax", 1, 1.0, 1, 1))),
        (experts.gpu_check, (gpu, (10, 24, 128), "int4a_g16", 5, 3, True, (3, 12, 25))),
        (latent.gpu_check, (latent_cases.Case(dtype="float16"), attention_cases.MIXED, gpu)),
        *((states.test_gpu_sequences_of_a_step, (gpu, record)) for record in ONE_OF_EACH.values()),
    ]


def names(found: list[Check]) -> list[str]:
    """Names of the checks, for pytest."""
    return [f"{check.__module__.rpartition('.')[2]}-{i}" for i, (check, _) in enumerate(found)]
