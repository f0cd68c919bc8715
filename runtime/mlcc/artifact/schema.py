"""What `mlcc.json` holds, as records: everything a runtime must know about a compiled model.

Standard library only, so that the compiler, the desktop, Pyodide and a phone read the same file.
Data alone: `manifest.py` reads and writes it, `consistency.py` says what must hold. The policy
for changes is in docs/internals/artifact.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from mlcc.engine.batch.tables import CacheGroup, StepLayout
from mlcc.util.fast_dataclass import fast_dataclass

MANIFEST_NAME = "mlcc.json"
SCHEMA_VERSION, OLDEST_SCHEMA = 4, 3
"""Of this file, and the oldest that is read: 3 has cache groups and tables, 4 the dtype of
activations. Others are refused."""
CHUNK_BYTES = 8 << 20
"""Files are hashed in chunks of this size, so that a browser can check a ranged fetch."""
DTYPE_BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4,
    "int64": 8, "uint64": 8, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8,
    "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip
ACTIVATION_DTYPES = ("float32",)
"""Dtypes of activations that kernels are written for. Another one is a row's to ask for and a
kernel set's to compute: its kernels widen what they load and round what they store."""
MOST_ADAPTER_RANK, MOST_ADAPTER_SLOTS = 512, 1024
"""For which a model may be compiled."""
MOST_RANKS = 64
"""Processes of tensor parallelism."""
AGAIN = "compile the model again or copy the folder again"


@fast_dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """What the model is, whatever it runs on."""

    name: str
    architecture: str
    config: dict[str, Any]
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    special_tokens: dict[str, str]
    """`bos_token`, `eos_token`, ... as the chat template spells them."""
    licence: str | None = None
    """Path of the model's licence file in the folder."""

    @property
    def bos_token(self) -> str | None:
        return self.special_tokens.get("bos_token")


@fast_dataclass(frozen=True, kw_only=True)
class QuantizationInfo:
    """The scheme by name, and its row (bits, group, symmetric, packing) as data."""

    name: str
    options: dict[str, Any]


@fast_dataclass(frozen=True, kw_only=True)
class TargetInfo:
    """The row the library was compiled for."""

    name: str
    device: str
    """Where it runs: cpu, cuda, metal, vulkan, webgpu."""
    arch: str
    """Instruction set of the host code: x86_64, aarch64, wasm32."""
    triple: str
    """LLVM's triple of the host code."""
    cpu: str
    features: tuple[str, ...]
    """CPU features the code needs, in LLVM's spelling without '+': avx2, avx512vnni, dotprod."""
    options: dict[str, Any]
    """The rest of the row: limits, f16, subgroup size, kernel choices."""


@fast_dataclass(frozen=True, kw_only=True)
class LibraryInfo:
    """The compiled code. `kind` is so, dylib, dll, wasm or a."""

    path: str
    kind: str


@fast_dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """A tensor that is made at load; a symbolic size is a string, "num_pages" always first."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


PAGE_FORMS = ("rows", "key-columns", "key-columns-byte-quads")
"""rows: key after key, value after value. key-columns: of each head the keys dimension after
dimension, [head_dim, page_size], so that neighbouring keys are the lanes of a vector; values as
they are. key-columns-byte-quads: likewise, but 8-bit numbers, where page size and head_dim are
multiples of four, lie in fours: keys as [head_dim / 4, page_size, 4], values as
[page_size / 4, head_dim, 4]."""


@fast_dataclass(frozen=True, kw_only=True)
class CacheInfo:
    """A cache group: what layers keep of the tokens they have seen, in one pool of pages or slots.

    `forward` takes the tensors of all groups, in this order.
    """

    kind: str
    """paged, window or state: `mlcc.engine.batch.tables.CacheGroup`."""
    page_size: int
    """Tokens per page; 1 for states."""
    window: int | None
    """Tokens that a query sees, in a window group."""
    pool: int
    """Planned pages or slots; the executor may allocate fewer."""
    layers: tuple[int, ...]
    """Numbers of the model's layers in this group; each has as many tensors, one after another."""
    tensors: tuple[TensorSpec, ...]
    form: str = "rows"
    """How numbers lie in a page of `kv.N`, an id: `PAGE_FORMS`. Pages go to a library of the same
    form only."""

    @property
    def group(self) -> CacheGroup:
        """As the engine knows it. Raises ValueError if the fields do not fit each other."""
        return CacheGroup(self.kind, self.page_size, self.window)

    @property
    def bytes_per_page(self) -> int:
        """Of one page or slot, over all layers of the group."""
        return sum(prod(page_shape(t)) * DTYPE_BYTES[t.dtype] for t in self.tensors)


@fast_dataclass(frozen=True, kw_only=True)
class TableInfo:
    """A table of the step's buffer, in 32-bit words: `mlcc.engine.batch.tables.Table`."""

    name: str
    columns: tuple[str, ...]
    entries: int
    offset: int


@fast_dataclass(frozen=True, kw_only=True)
class Limits:
    """Upper bounds compiled into the library."""

    context: int
    max_batch: int
    """Sequences in one step."""
    max_step_tokens: int
    max_rows: int
    """Rows of logits in one step."""
    max_step_pages: int
    """Entries of all page lists in one step."""
    max_copies: int
    """Pages and slots copied in one step."""

    def layout(self, groups: Sequence[CacheGroup], adapter_slots: int = 0) -> StepLayout:
        """The tables of a step of a model with these groups, and room for so many adapters."""
        return StepLayout(
            tuple(groups),
            self.max_step_tokens,
            self.max_batch,
            self.max_rows,
            self.max_step_pages,
            self.max_copies,
            adapter_slots,
        )


@fast_dataclass(frozen=True, kw_only=True)
class WeightSpec:
    """One weight as the kernels read it, and the safetensors shard that holds it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    shard: str

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * DTYPE_BYTES[self.dtype]


@fast_dataclass(frozen=True, kw_only=True)
class WeightsInfo:
    """The weights in the order in which the library's `forward` takes them."""

    tensors: tuple[WeightSpec, ...]

    @property
    def shards(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(tensor.shard for tensor in self.tensors))


@fast_dataclass(frozen=True, kw_only=True)
class RanksInfo:
    """Processes that compute the model together, by one library (tensor parallelism). Weights,
    caches and memory of the manifest are what one of them has."""

    shards: tuple[tuple[str, ...], ...]
    """Of each rank, shards of its own, in one order: `weights` names those of rank 0. Other shards
    all ranks read."""

    @property
    def count(self) -> int:
        return len(self.shards)

    def shard(self, rank: int, shard: str) -> str:
        """What a rank reads where rank 0 reads `shard`."""
        first = self.shards[0]
        return self.shards[rank][first.index(shard)] if shard in first else shard


@fast_dataclass(frozen=True, kw_only=True)
class AdapterSite:
    """One product of the library to which adapters add: a linear layer, or several of one input
    that were merged (q, k, v), side by side."""

    modules: tuple[str, ...]
    """As the checkpoint names them, such as model.layers.0.self_attn.q_proj."""
    outputs: tuple[int, ...]
    """Of each module."""
    inputs: int


@fast_dataclass(frozen=True, kw_only=True)
class AdaptersInfo:
    """Room for low-rank adapters (LoRA), which `forward_adapters` reads.

    Of each site it takes two tensors of float32, in this order: a [slots, modules * rank, inputs],
    a module's rows after those of the module before; b [slots, rank, sum of outputs], in columns as
    the product has them, scaled. Rows beyond an adapter's own rank are not read.
    """

    slots: int
    """Adapters on the device at once."""
    rank: int
    """The largest that fits."""
    sites: tuple[AdapterSite, ...]

    @property
    def shapes(self) -> list[tuple[int, int, int]]:
        """Of the tensors, two for each site."""
        return [
            shape
            for site in self.sites
            for shape in (
                (self.slots, len(site.modules) * self.rank, site.inputs),
                (self.slots, self.rank, sum(site.outputs)),
            )
        ]

    @property
    def nbytes(self) -> int:
        """On the device, of all slots."""
        return sum(4 * prod(shape) for shape in self.shapes)


@fast_dataclass(frozen=True, kw_only=True)
class EncoderInfo:
    """What an encoder's rows are: `forward` gives one of each text instead of logits, and there
    is no other function. A text is one step's; its pages are of no use behind it."""

    task: str
    """embed, or score: of a pair of texts, one number."""
    pooling: str
    """Which token a row names: cls = the first, last = the last, mean = any."""
    width: int
    """Numbers of a row."""
    normalize: bool
    """Whether rows are made of length 1 behind the device."""
    activation: str = "none"
    """Of a score: none or sigmoid."""
    prompts: dict[str, str]
    """What goes before a text, by what the text is for."""
    default_prompt: str = ""
    """The name of one of them, "" = none."""
    pair: tuple[tuple[int, ...], ...] = ()
    """Tokens before, between and behind the two texts of a pair, as its tokenizer puts them."""
    template: str = ""
    """Instead of those, the text that a pair becomes, with {query} and {document}."""
    segments: int = 1
    """2 = a pair's second text has ids of token + vocabulary, and model.vocab_size is twice the
    tokenizer's."""


@fast_dataclass(frozen=True, kw_only=True)
class FileEntry:
    """A file of the folder, other than the manifest. Hashes are sha256 in lower-case hex."""

    path: str
    bytes: int
    sha256: str
    chunks: tuple[str, ...]
    """One per CHUNK_BYTES, the last one shorter."""


@fast_dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """Bytes on the device once loaded with all pools as planned."""

    weights_bytes: int
    cache_bytes: int
    workspace_bytes: int


@fast_dataclass(frozen=True, kw_only=True)
class ToolVersions:
    """What made it. No timestamps and no machine names: the same input gives the same bytes."""

    mlcc: str
    tvm: str
    tvm_ffi: str
    llvm: str | None = None
    python: str | None = None


@fast_dataclass(frozen=True, kw_only=True)
class ManifestRecord:
    """The whole of mlcc.json; `manifest.Manifest` adds how it is read and written."""

    abi: str
    model: ModelInfo
    quantization: QuantizationInfo
    target: TargetInfo
    library: LibraryInfo
    functions: tuple[str, ...]
    caches: tuple[CacheInfo, ...]
    limits: Limits
    tables: tuple[TableInfo, ...]
    """Where everything of a step lies: `layout` for other languages."""
    weights: WeightsInfo
    memory: MemoryPlan
    tools: ToolVersions
    files: tuple[FileEntry, ...] = ()
    alternatives: tuple[str, ...] = ()
    """Manifests beside this one, the best first, for devices that lack what this library needs:
    the same model and weights, another library. Each is complete by itself and has none itself."""
    adapters: AdaptersInfo | None = None
    """None = compiled without room for any."""
    encoder: EncoderInfo | None = None
    """None = the model writes."""
    ranks: RanksInfo | None = None
    """None = one process computes it."""
    activation_dtype: str = "float32"
    """What the model's operators hand to one another. Logits are float32 whatever it is."""
    schema_version: int = SCHEMA_VERSION

    @property
    def layout(self) -> StepLayout:
        """The tables of a step. Raises ValueError if groups or bounds are none."""
        slots = self.adapters.slots if self.adapters else 0
        return self.limits.layout([cache.group for cache in self.caches], slots)

    def file(self, path: str) -> FileEntry | None:
        """The entry of a file by its path, or None."""
        return next((entry for entry in self.files if entry.path == path), None)


def page_shape(spec: TensorSpec) -> tuple[int, ...]:
    """A cache tensor without the leading "num_pages", its only symbolic size."""
    return tuple(int(size) for size in spec.shape[1:])


def tables_of(layout: StepLayout) -> tuple[TableInfo, ...]:
    """As the manifest writes them."""
    return tuple(
        TableInfo(name=t.name, columns=t.columns, entries=t.entries, offset=t.offset)
        for t in layout.tables
    )
