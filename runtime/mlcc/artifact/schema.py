"""The records of `mlcc.json`: everything a runtime must know about a compiled model.

Standard library only, so that the compiler, the desktop, Pyodide and a phone read the same file.
Data only: `manifest.py` reads and writes it, `checks/consistency.py` checks it. The policy for
changes is in docs/internals/artifact.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from mlcc.engine.batch.tables import CacheGroup, StepLayout
from mlcc.util.fast_dataclass import fast_dataclass

MANIFEST_NAME = "mlcc.json"
SCHEMA_VERSION, OLDEST_SCHEMA = 4, 3
"""The schema's version, and the oldest that is read; others are refused. 3 has cache groups and
tables, 4 the dtype of activations."""
CHUNK_BYTES = 8 << 20
"""Files are hashed in chunks of this size, so that a browser can check a ranged fetch."""
DTYPE_BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4,
    "int64": 8, "uint64": 8, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8,
    "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip
ACTIVATION_DTYPES = ("float32",)
"""Dtypes of activations that kernels support. Kernels widen what they load and round what they
store for any other dtype."""
MOST_ADAPTER_RANK, MOST_ADAPTER_SLOTS = 512, 1024
"""Bounds for which a model may be compiled."""
MOST_RANKS = 64
"""Most processes of tensor parallelism."""
AGAIN = "compile the model again or copy the folder again"


@fast_dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """Identity of the model, independent of the target."""

    name: str
    architecture: str
    config: dict[str, Any]
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    special_tokens: dict[str, str]
    """`bos_token`, `eos_token`, ... as the chat template spells them."""
    licence: str | None = None
    """Path of the model's licence file in the folder."""
    parameters: int = 0
    """Number of weights, tied ones once; 0 = unknown, compiled by an earlier mlcc."""

    @property
    def bos_token(self) -> str | None:
        return self.special_tokens.get("bos_token")


@fast_dataclass(frozen=True, kw_only=True)
class QuantizationInfo:
    """The scheme: its name, and its row (bits, group, symmetric, packing) as data."""

    name: str
    options: dict[str, Any]


@fast_dataclass(frozen=True, kw_only=True)
class TargetInfo:
    """The target that the library was compiled for."""

    name: str
    device: str
    """Kind of device: cpu, cuda, metal, vulkan, webgpu."""
    arch: str
    """Instruction set of the host code: x86_64, aarch64, wasm32."""
    triple: str
    """LLVM triple of the host code."""
    cpu: str
    features: tuple[str, ...]
    """CPU features the code needs, in LLVM's spelling without '+': avx2, avx512vnni, dotprod."""
    options: dict[str, Any]
    """Other fields of the target: limits, f16, subgroup size, kernel choices."""


@fast_dataclass(frozen=True, kw_only=True)
class LibraryInfo:
    """The compiled code. `kind` is so, dylib, dll, wasm or a."""

    path: str
    kind: str


@fast_dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """A tensor allocated at load; a symbolic size is a string, always "num_pages", first."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


PAGE_FORMS = ("rows", "key-columns", "key-columns-byte-quads")
"""rows: key after key, value after value. key-columns: the keys of each head dimension by
dimension, [head_dim, page_size], so that neighbouring keys are lanes of a vector; values as in
rows. key-columns-byte-quads: as key-columns, but 8-bit numbers in groups of four where page size
and head_dim are multiples of four: keys as [head_dim / 4, page_size, 4], values as [page_size / 4,
head_dim, 4]."""


@fast_dataclass(frozen=True, kw_only=True)
class CacheInfo:
    """A cache group: the cached data of some layers, in one pool of pages or slots.

    `forward` takes the tensors of all groups, in this order.
    """

    kind: str
    """paged, window or state: `mlcc.engine.batch.tables.CacheGroup`."""
    page_size: int
    """Tokens per page; 1 for states."""
    window: int | None
    """Tokens that a query attends to, in a window group."""
    pool: int
    """Planned pages or slots; the executor may allocate fewer."""
    layers: tuple[int, ...]
    """Layers of this group; each has the same number of tensors, consecutively."""
    tensors: tuple[TensorSpec, ...]
    form: str = "rows"
    """Layout of a page of `kv.N`, an id: `PAGE_FORMS`. Pages are transferred between libraries of
    the same form only."""

    @property
    def group(self) -> CacheGroup:
        """The group for the engine. Raises ValueError for inconsistent fields."""
        return CacheGroup(self.kind, self.page_size, self.window)

    @property
    def bytes_per_page(self) -> int:
        """Bytes of one page or slot, over all layers of the group."""
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

    def layout(
        self,
        groups: Sequence[CacheGroup],
        adapter_slots: int = 0,
        token_columns: tuple[str, ...] = (),
    ) -> StepLayout:
        """The tables of a step for these groups, adapter slots and further columns of tokens."""
        return StepLayout(
            tuple(groups),
            self.max_step_tokens,
            self.max_batch,
            self.max_rows,
            self.max_step_pages,
            self.max_copies,
            adapter_slots,
            token_columns,
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
    """Processes that compute the model together with one library (tensor parallelism). Weights,
    caches and memory in the manifest are those of one process."""

    shards: tuple[tuple[str, ...], ...]
    """For each rank its own shards, in the same order; `weights` names those of rank 0. All ranks
    read the other shards."""

    @property
    def count(self) -> int:
        return len(self.shards)

    def shard(self, rank: int, shard: str) -> str:
        """The shard that a rank reads in place of rank 0's `shard`."""
        first = self.shards[0]
        return self.shards[rank][first.index(shard)] if shard in first else shard


@fast_dataclass(frozen=True, kw_only=True)
class AdapterSite:
    """One product of the library that adapters modify: a linear layer, or several merged layers
    with one input (q, k, v), side by side."""

    modules: tuple[str, ...]
    """Names in the checkpoint, such as model.layers.0.self_attn.q_proj."""
    outputs: tuple[int, ...]
    """Number of outputs of each module."""
    inputs: int


@fast_dataclass(frozen=True, kw_only=True)
class AdaptersInfo:
    """Slots for LoRA adapters, which `forward_adapters` reads.

    Each site has two float32 tensors, in this order: a [slots, modules * rank, inputs], with the
    rows of its modules one after another; b [slots, rank, sum of outputs], with the columns of the
    merged product, scaled. Rows beyond an adapter's own rank are not read.
    """

    slots: int
    """Number of adapters on the device at once."""
    rank: int
    """The largest rank of an adapter."""
    sites: tuple[AdapterSite, ...]

    @property
    def shapes(self) -> list[tuple[int, int, int]]:
        """Shapes of the tensors, two for each site."""
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
        """Bytes on the device, of all slots."""
        return sum(4 * prod(shape) for shape in self.shapes)


@fast_dataclass(frozen=True, kw_only=True)
class EncoderInfo:
    """The rows of an encoder: `forward` returns one for each text instead of logits, and there is
    no other function. A text is computed in one step; its pages are not needed afterwards."""

    task: str
    """embed; score: one number for a pair of texts; classify: a number for each class of a text;
    vision: rows of an image; audio: rows of a window of sound."""
    pooling: str
    """The token that a row is read from: cls = the first, last = the last, mean = any."""
    width: int
    """Numbers of a row."""
    normalize: bool
    """Whether rows are normalized to length 1 on the host."""
    activation: str = "none"
    """Activation of a score or of classes: none, sigmoid or softmax."""
    labels: tuple[str, ...] = ()
    """Names of the classes, one for each number of a row."""
    prompts: dict[str, str]
    """Prefixes of a text by use."""
    default_prompt: str = ""
    """Name of the default prompt, "" = none."""
    pair: tuple[tuple[int, ...], ...] = ()
    """Tokens before, between and after the two texts of a pair, as the tokenizer adds them."""
    template: str = ""
    """Text of a pair, with {query} and {document}, in place of `pair`."""
    segments: int = 1
    """2 = tokens of a pair's second text have ids of token + vocabulary, and model.vocab_size is
    twice the tokenizer's."""


@fast_dataclass(frozen=True, kw_only=True)
class EmbeddingsInfo:
    """Rows that the host writes in place of tokens: a step's token id `model.vocab_size` + i names
    row i. A vision tower reads patches of pixels in this way, a language model the tower's rows.

    `forward` takes them behind the tensors of all cache groups, as f32[slots + hidden, width].
    """

    slots: int
    """Rows of the host on the device at once."""
    width: int
    hidden: int = 0
    """Rows behind these in which `forward` keeps the hidden states of a step's tokens, for
    `forward_mtp`."""

    @property
    def rows(self) -> int:
        return self.slots + self.hidden

    @property
    def nbytes(self) -> int:
        return 4 * self.rows * self.width


@fast_dataclass(frozen=True, kw_only=True)
class VisionInfo:
    """How images become rows of a prompt, for a model with a vision tower."""

    processor: str
    """Sizes, tiles and the text around an image: idefics3 (SmolVLM too), gemma3, gemma4, llama4,
    llava, llava_onevision, internvl, pixtral (Mistral 3 too), qwen2_vl (Qwen2-VL, Qwen2.5-VL,
    Qwen3-VL and Qwen3.5)."""
    image_token: str
    """Text of the placeholder token, such as <image>."""
    image_token_id: int
    patch_size: int
    """Side of a patch in pixels."""
    merge_size: int
    """merge_size x merge_size patches become one row of the prompt."""
    image_size: int
    """Side of the tower's square input in pixels; 0 = any multiple of a row's pixels."""
    mean: tuple[float, ...]
    """Of each channel, as std: applied in the tower, after pixels are divided by 255."""
    std: tuple[float, ...]
    resample: str
    """nearest, bilinear, bicubic or lanczos; torch-bilinear: as torch resizes bytes, with
    antialias."""
    longest_edge: int = 0
    """idefics3: the longer side in pixels before an image is split into tiles; pixtral: the
    longest side of an image."""
    split: bool = False
    """idefics3's do_image_splitting, gemma3's do_pan_and_scan, internvl's crop_to_patches."""
    max_tiles: int = 0
    """gemma3: most crops of pan and scan; internvl, llama4: most tiles beside the whole image;
    llava_onevision: a larger grid is scaled down to the rows of as many."""
    min_pixels: int = 0
    """qwen2_vl: bounds of an image's area, as max_pixels."""
    max_pixels: int = 0
    """gemma4: the area that an image is scaled to."""
    window_size: int = 0
    """Side in pixels of the windows in which most layers of the tower attend; 0 = whole images."""
    position_grid: int = 0
    """Side of the tower's table of positions, which is interpolated to an image's patches; 0 = it
    has none."""
    position_axes: int = 0
    """Positions of each of the tower's two tables, of columns and of rows, which are added; 0 = it
    has none."""
    grids: tuple[tuple[int, int], ...] = ()
    """llava_onevision: widths and heights in pixels of the grids of tiles."""
    newline: str = ""
    """llava_onevision: the learned row after each line of a grid, f32[width] in base64."""
    class_row: bool = False
    """Whether a row without pixels follows the patches, for the tower's class token."""
    bf16_pixels: bool = False
    """llama4: the host applies mean and std, and rounds to bfloat16 as transformers does."""
    folder: str = "vision"
    """The tower's own artifact, below the model's folder."""


@fast_dataclass(frozen=True, kw_only=True)
class AudioInfo:
    """How sound becomes rows that the decoder attends to, for a model with an audio tower, and the
    tokens that begin its output."""

    processor: str
    """whisper: log-mel spectrograms of windows."""
    bins: int
    """Mel bins of a frame, which is 10 ms."""
    rows: int
    """Rows of a window; each is of two frames."""
    start_id: int
    """The token that begins a transcript."""
    no_timestamps_id: int
    """The token that asks for text only. Timestamps follow it, one for each row."""
    languages: dict[str, int]
    """Code -> token; {} = the model knows English only, and no tasks."""
    transcribe_id: int = -1
    """Tokens of the tasks; -1 = none."""
    translate_id: int = -1
    previous_id: int = -1
    """The token before the text of the window before; -1 = none."""
    no_speech_id: int = -1
    """The token whose probability is that of silence; -1 = none."""
    alignment_heads: int = 0
    """Heads of the cross-attention of which times of words are made; 0 = compiled without."""
    latest_start: int = -1
    """The latest timestamp that may begin a window's transcript; -1 = any."""
    folder: str = "audio"
    """The tower's own artifact, below the model's folder."""

    @property
    def first_timestamp(self) -> int:
        """The token of a window's beginning; the next is of its next row."""
        return self.no_timestamps_id + 1

    @property
    def seconds(self) -> float:
        """Length of a window."""
        return self.rows / 50


@fast_dataclass(frozen=True, kw_only=True)
class AudioInputInfo:
    """How sound becomes rows of a prompt, for a language model with an audio tower."""

    processor: str
    """qwen2_audio, voxtral, qwen2_5_omni, gemma3n or gemma4: how sound is cut into clips."""
    audio_token: str
    """Text of the placeholder token, such as <|AUDIO|>."""
    audio_token_id: int
    bins: int
    """Mel bins of a frame, which is 10 ms."""
    clip_rows: int
    """Rows of the encoder for the longest clip; each is of two frames, gemma3n's and gemma4's of
    four."""
    pool: int
    """Rows of the encoder that become one row of the prompt. Every clip of gemma3n has the prompt's
    rows of the longest."""
    most_seconds: int
    """The longest sound."""
    chunk_rows: int = 0
    """Rows of the parts of a clip that the encoder reads apart; 0 = it reads clips whole."""
    begin: str = ""
    """Text before the placeholder where the chat template has no sound, and after it."""
    end: str = ""
    folder: str = "audio"
    """The tower's own artifact, below the model's folder."""


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
    """Bytes on the device after loading, with all pools as planned."""

    weights_bytes: int
    cache_bytes: int
    workspace_bytes: int


@fast_dataclass(frozen=True, kw_only=True)
class ToolVersions:
    """Versions of the tools. No timestamps and no host names: equal input gives equal bytes."""

    mlcc: str
    tvm: str
    tvm_ffi: str
    llvm: str | None = None
    python: str | None = None


@fast_dataclass(frozen=True, kw_only=True)
class ManifestRecord:
    """The whole of mlcc.json; `manifest.Manifest` adds reading and writing."""

    abi: str
    model: ModelInfo
    quantization: QuantizationInfo
    target: TargetInfo
    library: LibraryInfo
    functions: tuple[str, ...]
    caches: tuple[CacheInfo, ...]
    limits: Limits
    tables: tuple[TableInfo, ...]
    """The tables of a step: `layout` for other languages."""
    weights: WeightsInfo
    memory: MemoryPlan
    tools: ToolVersions
    files: tuple[FileEntry, ...] = ()
    alternatives: tuple[str, ...] = ()
    """Other manifests, best first, for devices that lack features of this library: same model and
    weights, another library. Each is complete and has no alternatives."""
    adapters: AdaptersInfo | None = None
    """None = compiled without adapter slots."""
    encoder: EncoderInfo | None = None
    """None = the model generates text."""
    ranks: RanksInfo | None = None
    """None = one process computes the model."""
    embeddings: EmbeddingsInfo | None = None
    """None = a step has tokens only."""
    token_columns: tuple[str, ...] = ()
    """Further columns of tokens: `mlcc.engine.batch.tables.TOKEN_COLUMNS`."""
    vision: VisionInfo | None = None
    """None = the model reads text only."""
    audio: AudioInfo | None = None
    """None = the model transcribes nothing."""
    audio_input: AudioInputInfo | None = None
    """None = prompts have no sound."""
    activation_dtype: str = "float32"
    """Dtype of activations between operators. Logits are always float32."""
    schema_version: int = SCHEMA_VERSION

    @property
    def layout(self) -> StepLayout:
        """The tables of a step. Raises ValueError for inconsistent groups or bounds."""
        slots = self.adapters.slots if self.adapters else 0
        groups = [cache.group for cache in self.caches]
        return self.limits.layout(groups, slots, self.token_columns)

    def file(self, path: str) -> FileEntry | None:
        """The entry of a file by its path, or None."""
        return next((entry for entry in self.files if entry.path == path), None)


def page_shape(spec: TensorSpec) -> tuple[int, ...]:
    """The shape of a cache tensor without the leading "num_pages", its only symbolic size."""
    return tuple(int(size) for size in spec.shape[1:])


def tables_of(layout: StepLayout) -> tuple[TableInfo, ...]:
    """The tables in the manifest's form."""
    return tuple(
        TableInfo(name=t.name, columns=t.columns, entries=t.entries, offset=t.offset)
        for t in layout.tables
    )
