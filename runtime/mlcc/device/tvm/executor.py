"""The executor over TVM's Python package: runs a compiled library in TVM's virtual machine.

Used for CUDA and Metal, and for CPU libraries where libmlcc_executor was not built. On a GPU
`submit` queues a step and the copy of its tokens; `collect` waits for that copy, but not for later
steps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc.artifact.arrays import mapped
from mlcc.artifact.schema import MANIFEST_NAME, CacheInfo, EmbeddingsInfo, page_shape
from mlcc.device.check_batch import check_embeddings, require
from mlcc.device.compiled_model import CompiledModel
from mlcc.device.device import CPU, DeviceHandle
from mlcc.device.reference.likelihood import log_likelihood
from mlcc.device.tvm.cuda_graphs import Bucket, DecodeGraphs
from mlcc.device.tvm.lora import AdapterTensors
from mlcc.device.tvm.runtime import open_device, runtime
from mlcc.device.tvm.tensors import DeviceTensors, HostTensors, Read, Tensors
from mlcc.engine.batch.adjust_tables import AdjustLayout
from mlcc.engine.batch.adjustments import Adjustments
from mlcc.engine.batch.batch import Batch, Capacity, Result, pairs_of
from mlcc.engine.lora import AdapterMatrix, no_adapters
from mlcc.errors import ArtifactError, CapacityError, DeviceError, UnsupportedError
from mlcc.util.sizes import size

Array = npt.NDArray[Any]


class TvmExecutor:
    """Runs steps of a library on one device. A CPU computes within `submit`.

    A CPU reads weights in place, from mapped files. collectives: the NCCL module of a rank. Raises
    ArtifactError for another interface, DeviceError if the library does not load, CapacityError if
    something does not fit.
    """

    def __init__(
        self,
        model: CompiledModel,
        capacity: Capacity,
        handle: DeviceHandle = CPU,
        progress: Callable[[int, int], None] = lambda done, total: None,
        collectives: Any = None,
    ) -> None:
        weights = list(mapped(dict(enumerate(model.weights))).values())
        self.capacity = capacity
        self.depth = 1 if handle.kind == "cpu" else 2
        self.handle = handle
        self._translate = handle.translate
        self._tvm = runtime()
        self.tvm_device = open_device(handle.kind, handle.index)
        self._tensors = self._tensors_of(handle.kind)
        self._load(model.library, model.functions, collectives)
        if model.interface is not None:
            self._check_interface(model.library, model.interface)
        self._tensors.open_step(capacity.layout.words)
        self._adjust_layout = AdjustLayout.of(capacity.layout, capacity.vocab_size)
        self._embeddings = self._embeddings_of(model.embeddings)
        self._caches = self._tvm.runtime.convert([*self._pools(model.caches), *self._embeddings])
        self.group_of_shape = {
            (pool, *page_shape(spec)): g
            for g, (cache, pool) in enumerate(zip(model.caches, capacity.pools, strict=True))
            for spec in cache.tensors
        }
        """The cache group of tensors of a shape."""
        self._weights = self._tvm.runtime.convert(self._upload(weights, progress))
        adapters = model.adapters
        self._adapters = None if adapters is None else AdapterTensors(adapters, self._tensors)
        self._graphs = self._decode_graphs()
        rows = 1 if self._graphs is None else capacity.max_rows
        self._last_sampled = self._tensors.weight(np.zeros(rows, np.int32))
        self.page_bytes = tuple(cache.bytes_per_page for cache in model.caches)
        self._results: dict[int, Read] = {}
        self._next_ticket = 0

    def _tensors_of(self, kind: str) -> Tensors:
        if kind == "cpu":
            return HostTensors()
        if kind == "cuda":
            from mlcc.device.tvm.cuda_tensors import CudaTensors

            return CudaTensors(self.tvm_device, slots=self.depth + 1)
        return DeviceTensors(self.tvm_device)

    def _load(self, library: Path, functions: Collection[str], collectives: Any) -> None:
        try:
            module = self._tvm.runtime.load_module(str(library))
            if collectives is not None:
                module.import_module(collectives)
            self._machine = self._tvm.runtime.vm.VirtualMachine(module, self.tvm_device)
            self._functions = {name: self._machine[name] for name in functions}
            self._forward = self._functions["forward"]
        except (OSError, RuntimeError, AttributeError, ValueError, KeyError) as error:
            raise DeviceError(
                f"cannot load {library.name}: {str(error).splitlines()[-1]}; compile the model "
                "again with this version of mlcc"
            ) from error

    def _check_interface(self, library: Path, wanted: str) -> None:
        """Compare interface hashes: code compiled for other sizes would access wrong addresses."""
        try:
            found = str(self._machine["interface"]())
        except AttributeError:
            found = "nothing"
        if found != wanted:
            raise ArtifactError(
                f"{library}: was compiled for another {MANIFEST_NAME} (it says {found}, the "
                f"manifest {wanted}); compile the model again or copy the folder again"
            )

    def _decode_graphs(self) -> DecodeGraphs | None:
        """For libraries that have a `decode` function."""
        if "decode" not in self._functions:
            return None
        logprobs = self._tensors.weight(np.zeros(self.capacity.max_rows, np.float32))
        functions = self._functions["decode"], self._functions.get("decode_sample")
        return DecodeGraphs(*functions, logprobs, self.capacity)

    def _upload(self, weights: Sequence[Array], progress: Callable[[int, int], None]) -> list[Any]:
        done, total = 0, sum(array.nbytes for array in weights)
        advice = "close other programs, or compile with a smaller --quant"
        tensors = []
        for array in weights:
            what = f"the weights ({size(total)})"
            tensors.append(self._allocate(what, advice, self._tensors.weight, array))
            done += array.nbytes
            progress(done, total)
        return tensors

    def _embeddings_of(self, embeddings: EmbeddingsInfo | None) -> list[Any]:
        """The tensor of rows that the host writes, if the library reads some."""
        if embeddings is None:
            return []
        shape = embeddings.rows, embeddings.width
        advice = "use a smaller --max-step-tokens"
        made = self._allocate("embeddings", advice, self._tensors.empty, shape, "float32")
        return [made]

    def _pools(self, caches: Sequence[CacheInfo]) -> list[Any]:
        advice = "use a smaller --context or --max-batch"
        return [
            self._allocate(
                f"{pool} {'states' if cache.kind == 'state' else 'KV pages'}",
                advice,
                self._tensors.empty,
                (pool, *page_shape(spec)),
                spec.dtype,
            )
            for cache, pool in zip(caches, self.capacity.pools, strict=True)
            for spec in cache.tensors
        ]

    def _allocate(self, what: str, advice: str, make: Callable[..., Any], *arguments: Any) -> Any:
        """Call `make`. Raises CapacityError, or the error of a GPU, which may be lost."""
        try:
            return make(*arguments)
        except (RuntimeError, MemoryError) as error:
            if isinstance(error, RuntimeError) and self.handle.kind != "cpu":
                raise self._translate(error, f"making room for {what}") from error
            raise CapacityError(f"no memory for {what}; {advice}") from error

    def step_buffer(self) -> memoryview:
        """Memory for the words of the next batch; a batch written there is not copied."""
        words: memoryview = self._call(self._tensors.step_buffer)
        return words

    def adjustments_buffer(self) -> memoryview:
        """Memory for the adjustments of the next batch."""
        words: memoryview = self._call(self._adjustments.step_buffer)
        return words

    def write_adapter(self, slot: int, matrices: Sequence[AdapterMatrix]) -> None:
        """Fill a slot for adapters. Raises UnsupportedError if there is none."""
        if self._adapters is None:
            raise no_adapters()
        self._call(self._adapters.write, slot, matrices)

    def submit(self, batch: Batch, adjustments: Adjustments | None = None) -> int:
        """Start a batch. Raises DeviceError with the kernel's message if it fails."""
        step = self._stage(batch)
        outputs = self._run_sampled(batch, step) if adjustments is None else None
        if outputs is None:
            outputs = self._sample(batch, step, adjustments)
            self._remember(outputs[0])
        reading = self._call(self._tensors.read, *outputs)
        ticket = self._next_ticket
        self._next_ticket += 1
        self._results[ticket] = reading
        return ticket

    def _sample(self, batch: Batch, step: Any, adjustments: Adjustments | None) -> list[Any]:
        """Tokens, logprobs, and what rows request beyond."""
        logits = self._run_decode(batch, step)
        if logits is None:
            logits = self._run_forward(batch, step)
        if adjustments is not None:
            self._adjust(logits, adjustments)
        outputs = [*self._call(self._function("sample"), logits, step)]
        if batch.top_logprobs:
            found = self._call(self._function("top_logprobs"), logits, step, *outputs)
            outputs += [t._create_view((t.shape[0] * t.shape[1],)) for t in found]
        return outputs

    def collect(self, ticket: int) -> Result:
        """The result of a ticket. Raises KeyError if it was collected before, DeviceError."""
        tokens, logprobs, *top = self._call(self._results.pop(ticket))
        return Result(tokens, logprobs, pairs_of(*top) if top else None)

    def logits(self, batch: Batch) -> npt.NDArray[np.float32]:
        """Run a batch and return its logits f32[r, vocab] instead of sampling: for evaluation."""
        logits = self._run_forward(batch, self._stage(batch))
        result: npt.NDArray[np.float32] = self._call(logits.numpy)
        return result

    def vectors(self, batch: Batch, width: int) -> npt.NDArray[np.float32]:
        """Run a batch of an encoder and return its rows, f32[r, width]."""
        return np.ascontiguousarray(self.logits(batch)[: batch.num_rows, :width])

    def alignment(self, batch: Batch, width: int) -> npt.NDArray[np.float32]:
        """Run a batch for the weights of the alignment heads, f32[r, width]."""
        step, sizes = self._stage(batch), self._sizes(batch.sizes)
        fixed = self._last_sampled, self._caches, self._weights
        found = self._call(self._function("forward_align"), step, sizes, *fixed)
        return np.ascontiguousarray(self._call(found.numpy)[: batch.num_rows, :width])

    def log_likelihood(self, batch: Batch, targets: Sequence[int]) -> float:
        """Run a batch and sum, over its rows, the natural log of each target's probability."""
        return log_likelihood(self.logits(batch), targets)

    def instrument(self, hook: Callable[..., int]) -> None:
        """Have TVM call `hook(function, name, before, result, *arguments)` round every call."""
        self._machine.set_instrument(hook)

    def read_pages(self, group: int, ids: Sequence[int]) -> bytes:
        """Raises UnsupportedError: not implemented."""
        raise self._no_moves()

    def write_pages(self, group: int, ids: Sequence[int], data: bytes) -> None:
        """Raises UnsupportedError: not implemented."""
        raise self._no_moves()

    def write_embeddings(self, slots: Sequence[int], rows: bytes) -> None:
        """Write rows that tokens name by ids from the vocabulary's end on. Raises UnsupportedError
        if the library reads none."""
        width = int(self._embeddings[0].shape[1]) if self._embeddings else 0
        check_embeddings(self.capacity, slots, width, len(rows))
        data = np.frombuffer(rows, np.float32).reshape(-1, width)
        runs = np.split(np.arange(len(slots)), np.flatnonzero(np.diff(slots) != 1) + 1)
        for run in filter(len, runs):
            shape, first = (len(run), width), slots[run[0]]
            place = self._embeddings[0]._create_view(shape, "float32", 4 * width * first)
            self._call(self._tensors.weight(data[run]).copyto, place)

    def _no_moves(self) -> UnsupportedError:
        return UnsupportedError(
            f"pages on {self.handle.kind} cannot be exported or imported yet; use a library for "
            "target cpu or vulkan"
        )

    def synchronize(self) -> None:
        """Wait for everything that was queued."""
        self._call(self.tvm_device.sync)

    def _remember(self, tokens: Any) -> None:
        """Keep the sampled tokens for the next step; at a fixed address if CUDA graphs use it."""
        if self._graphs is None:
            self._last_sampled = tokens
        else:
            self._call(tokens.copyto, self._last_sampled._create_view(tokens.shape))

    def _adjust(self, logits: Any, adjustments: Adjustments) -> None:
        """Apply adjustments to the logits in place. TVM does not check sizes against bounds."""
        require(adjustments.layout == self._adjust_layout, "adjustments of another layout")
        words = self._call(self._adjustments.upload, adjustments.words, adjustments.used_words)
        self._call(self._function("adjust"), logits, words, self._last_sampled)

    @cached_property
    def _adjustments(self) -> Tensors:
        """Buffers for adjustments, created on first use: most requests have none."""
        tensors = self._tensors_of(self.handle.kind)
        self._call(tensors.open_step, self._adjust_layout.words)
        return tensors

    def _function(self, name: str) -> Any:
        if name not in self._functions:
            raise UnsupportedError(f"the library has no '{name}'; compile the model again")
        return self._functions[name]

    def _stage(self, batch: Batch) -> Any:
        """The step as one tensor, and its copies done."""
        step = self._call(self._tensors.upload, batch.words, batch.used_words)
        if batch.num_copies:
            copies = self._sizes((batch.num_copies,))
            self._call(self._functions["copy_pages"], step, copies, self._caches)
        return step

    def _run_decode(self, batch: Batch, step: Any) -> Any | None:
        """Logits of a step of one token a sequence, where the library has graphs for it; else
        None."""
        if self._graphs is None or (bucket := self._bucket_of(batch)) is None:
            return None
        fixed = self._last_sampled, self._caches, self._weights
        return self._call(self._graphs.run, batch, step, self._sizes(bucket), *fixed)

    def _run_sampled(self, batch: Batch, step: Any) -> list[Any] | None:
        """Tokens and logprobs of such a step, sampled in the same graph; None where the library has
        none, or where more than these is read of the logits."""
        if self._graphs is None or not self._graphs.samples or batch.top_logprobs:
            return None
        if (bucket := self._bucket_of(batch)) is None:
            return None
        fixed = self._last_sampled, self._caches, self._weights
        found: list[Any] = self._call(self._graphs.sample, batch, step, self._sizes(bucket), *fixed)
        return found

    def _bucket_of(self, batch: Batch) -> Bucket | None:
        """The sizes of a step that graphs can replay."""
        if self._graphs is None or batch.adapted or batch.mtp:
            return None
        return self._graphs.bucket_of(batch)

    def _run_forward(self, batch: Batch, step: Any) -> Any:
        sizes = self._sizes(batch.sizes)
        if batch.mtp:
            forward = self._function("forward_mtp")
            fixed = self._last_sampled, self._caches, self._weights
            return self._call(forward, step, sizes, *fixed)
        if batch.adapted and self._adapters is not None:
            held = self._caches, self._adapters.tensors, self._weights
            forward = self._function("forward_adapters")
            return self._call(forward, step, sizes, self._last_sampled, *held)
        return self._call(
            self._forward, step, sizes, self._last_sampled, self._caches, self._weights
        )

    def _sizes(self, sizes: Sequence[int]) -> Any:
        return self._tvm.runtime.ShapeTuple(sizes)

    def _call(self, function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except RuntimeError as error:
            raise self._translate(error, "computing a step") from error

    def close(self) -> None:
        """Free pages, weights and library."""
        self._weights = self._caches = self._forward = self._machine = None
        self._last_sampled = self._graphs = self._adapters = None
        self.__dict__.pop("_adjustments", None)
        self._functions.clear()
        self._results.clear()
