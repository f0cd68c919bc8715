"""What a library's pages hold, and whose pages it can go on from.

`--kv` names the numbers that keys and values are kept as, when a model is compiled; a library knows
one kind. The identity says which pages of another process mean the same here: they carry it
(`engine/transfer.py`). The standard library alone.
"""

from __future__ import annotations

import hashlib
import json

from mlcc.artifact.manifest import Manifest
from mlcc.artifact.records import to_plain
from mlcc.artifact.schema import CacheInfo
from mlcc.engine.migration import Identity
from mlcc.errors import UnsupportedError

KV_DTYPES = {"f16": "float16", "f32": "float32", "int8": "int8"}
"""What `--kv` takes, and as the manifest spells it; int8 has a float32 scale for each token and
head beside its numbers."""
_TOKENIZER = "tokenizer.json"


def kv_dtype(cache: CacheInfo) -> str:
    """What a group's numbers are, of pages with scales int8: GPUs hold four of them in a word."""
    kinds = dict.fromkeys(tensor.dtype for tensor in cache.tensors)
    return "int8 with scales" if has_scales(cache) else ", ".join(kinds) or "none"


def has_scales(cache: CacheInfo) -> bool:
    """Whether its numbers are 8-bit ones."""
    return any(tensor.name.startswith("kv_scale.") for tensor in cache.tensors)


def check_kv(manifest: Manifest, wanted: str | None) -> None:
    """Raises UnsupportedError unless pages are what `--kv` asks for; None asks for nothing."""
    if wanted is None:
        return
    if wanted not in KV_DTYPES:
        raise UnsupportedError(f"--kv {wanted!r:.40}: use one of {', '.join(KV_DTYPES)}")
    of = [cache for cache in manifest.caches if cache.kind != "state"]
    found = ["int8" if has_scales(cache) else cache.tensors[0].dtype for cache in of]
    names = {dtype: name for name, dtype in KV_DTYPES.items()}
    if any(dtype != KV_DTYPES[wanted] for dtype in found) or not found:
        kinds = " and ".join(names.get(dtype, dtype) for dtype in dict.fromkeys(found))
        raise UnsupportedError(
            f"--kv {wanted} is asked of a library whose pages are {kinds or 'none'}, which is "
            f"compiled in; compile the model again with `mlcc compile --kv {wanted}` or leave "
            "--kv out"
        )


def kv_identity(manifest: Manifest) -> Identity:
    """Of a library's pages: how they are laid out, the model that fills them, and its tokenizer."""
    groups = [
        (
            *(c.kind, c.page_size, c.window, c.layers, c.form),
            [(t.name, t.dtype, t.shape) for t in c.tensors],
        )
        for c in manifest.caches
    ]
    model, files = manifest.model, {entry.path: entry.sha256 for entry in manifest.files}
    shards = [files.get(shard, "") for shard in manifest.weights.shards]
    of = [model.architecture, model.config, model.vocab_size, manifest.quantization, shards]
    return Identity(
        layout=_hash([manifest.abi, groups]),
        model=_hash(of),
        tokenizer=files.get(_TOKENIZER, "")[:32],
    )


def _hash(value: object) -> str:
    """32 hex digits."""
    text = json.dumps(to_plain(value), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
