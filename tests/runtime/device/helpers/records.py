"""A compiled model's records, and the words of steps, as C that greedy.c includes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from mlcc.artifact.folder import Artifact
from mlcc.engine.batch.adjust_tables import AdjustLayout
from mlcc.engine.batch.batch import Batch, Capacity
from mlcc.util import executor_library as c


def braces(values: Iterable[Any]) -> str:
    return "{" + ", ".join(map(str, values)) + "}"


def text(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def shape(sizes: Sequence[int]) -> str:
    return f"(const int64_t[]){braces(sizes)}"


def source(artifact: Artifact, capacity: Capacity, batches: Sequence[Batch]) -> str:
    """`made` (library, weights) -> options, for one file of weights; `fill` (words, number) writes
    a step."""
    manifest, layout = artifact.manifest, capacity.layout
    weights = [
        braces(("0", f"{w.start}u", text(w.dtype), len(w.shape), shape(w.shape), 0))
        for w in artifact.weights().values()
    ]
    groups = [
        braces((c.KINDS[group.kind], group.page_size, pool, most))
        for group, pool, most in zip(
            capacity.groups, capacity.pools, capacity.most_pages, strict=True
        )
    ]
    caches = [
        braces((g, text(spec.dtype), len(spec.shape), shape([pool, *spec.shape[1:]])))  # type: ignore[list-item]
        for g, (cache, pool) in enumerate(zip(manifest.caches, capacity.pools, strict=True))
        for spec in cache.tensors
    ]
    tables = [braces((table.offset, table.entries)) for table in layout.tables]
    adjust = AdjustLayout.of(layout, capacity.vocab_size)
    bounds = (capacity.vocab_size, capacity.context, capacity.max_step_tokens, capacity.max_batch)
    bounds += (capacity.max_rows, adjust.max_rows, adjust.words)
    steps = [batch.words[: batch.used_words].tolist() for batch in batches]
    most = max(map(len, steps))
    padded = [braces([*step, *[0] * (most - len(step))]) for step in steps]
    return f"""
static const char* const functions[] = {braces(map(text, manifest.functions))};
static const mlcc_group groups[] = {braces(groups)};
static const mlcc_cache caches[] = {braces(caches)};
static mlcc_weight weights[] = {braces(weights)};
static const int32_t steps[][{most}] = {braces(padded)};

static mlcc_executor_options made(const char* library, const char* path) {{
  for (int i = 0; i < {len(weights)}; ++i) weights[i].path = path;
  mlcc_executor_options options = {{MLCC_EXECUTOR_ABI, 2, library, {text(manifest.interface)},
    functions,
    {len(manifest.functions)}, {len(weights)}, weights, {len(groups)}, {len(caches)},
    groups, caches,
    {braces([*tables, layout.words])}, {braces(bounds)}}};
  return options;
}}

static void fill(int32_t* words, int number) {{ memcpy(words, steps[number], sizeof steps[0]); }}
"""
