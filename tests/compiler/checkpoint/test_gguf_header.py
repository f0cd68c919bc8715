"""GGUF headers: valid ones are parsed, all others are refused in one line.

Any byte may be wrong; no count makes the reader allocate more than the file's size.
"""

from __future__ import annotations

import resource
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcc.errors import CheckpointError, MlccError
from mlcc.model_cache.cache import gguf_files
from mlcc_compiler.checkpoint.gguf.config import generation_config_of
from mlcc_compiler.checkpoint.gguf.files import is_gguf
from mlcc_compiler.checkpoint.gguf.header import read_header
from mlcc_compiler.checkpoint.gguf.names import locations
from mlcc_compiler.checkpoint.open import open_checkpoint
from tests.compiler.checkpoint.helpers.gguf_of import write_gguf
from tests.compiler.checkpoint.helpers.gguf_tokenizers import metadata_of
from tests.runtime.commands.tiny_checkpoint import write_checkpoint

HEAD = struct.Struct("<4sIQQ")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: Any) -> Path:
    folder = write_checkpoint(tmp_path_factory.mktemp("gguf") / "tiny")
    config = folder / "config.json"
    text = config.read_text().replace('"rope_theta": 10000.0', '"rope_parameters": ROPE')
    config.write_text(text.replace("ROPE", '{"rope_type": "default", "rope_theta": 10000.0}'))
    return write_gguf(folder, folder / "tiny.gguf", metadata=metadata_of(folder))


def read_all(path: Path) -> None:
    """Everything that a compile reads before it works, and the tensors."""
    checkpoint = open_checkpoint(path)
    checkpoint.check_tokenizer()
    _ = checkpoint.eos_token_ids, checkpoint.special_tokens, checkpoint.name
    tensors = checkpoint.tensors
    for name in tensors.shapes:
        tensors.read(name)
    for name in tensors.schemes:
        tensors.quantized(name).check(name)


def test_a_sound_file_is_read(whole: Path) -> None:
    header = read_header(whole)
    assert header.metadata["general.architecture"] == "llama"
    assert header.metadata["llama.attention.layer_norm_rms_epsilon"] == 1e-5
    read_all(whole)


def test_any_byte_may_be_wrong(whole: Path, tmp_path: Path) -> None:
    """Positions of bytes to change: spread over the header, most of them in sizes."""
    data = whole.read_bytes()
    end = min(tensor.start for tensor in read_header(whole).tensors)
    random = np.random.default_rng(5)
    locations = [*range(HEAD.size), *random.integers(HEAD.size, end, 120).tolist()]
    path, outcomes = tmp_path / "broken.gguf", set()
    for place in locations:
        for value in (0, 0xFF, data[place] ^ 0x10):
            path.write_bytes(data[:place] + bytes([value]) + data[place + 1 :])
            try:
                read_all(path)
            except MlccError as error:
                assert error.message.isprintable() and len(error.message) < 4200
                outcomes.add("refused")
            else:
                outcomes.add("read")
    assert outcomes == {"refused", "read"}


CUT = r"ends within|no GGUF|more than it has bytes|larger than the file"


def test_any_end_may_be_missing(whole: Path, tmp_path: Path) -> None:
    data, path = whole.read_bytes(), tmp_path / "short.gguf"
    for size in [0, 3, 4, 23, 24, 100, *np.linspace(101, len(data) - 1, 30).astype(int).tolist()]:
        path.write_bytes(data[:size])
        with pytest.raises(CheckpointError, match=CUT):
            read_all(path)


def header(tensors: int, pairs: int, rest: bytes = b"", magic: bytes = b"GGUF") -> bytes:
    return HEAD.pack(magic, 3, tensors, pairs) + rest


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def pair(kind: int, rest: bytes, key: bytes = b"k") -> bytes:
    return text(key) + struct.pack("<I", kind) + rest


def tensor(shape: tuple[int, ...], kind: int, offset: int, name: bytes = b"t") -> bytes:
    sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return text(name) + sizes + struct.pack("<IQ", kind, offset)


@pytest.mark.parametrize(
    "key",
    [
        *("general.type", "split.count", "split.tensors.count"),
        *("llama.rope.scaling.type", "llama.rope.scaling.original_context_length"),
        *("tokenizer.ggml.add_bos_token", "tokenizer.ggml.eos_token_id"),
    ],
)
@pytest.mark.parametrize("value", [np.array([1, 2]), np.array([], np.uint8), ["a"], -5.5])
def test_values_of_another_type_are_refused(
    key: str, value: Any, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrays most of all: nothing is compared with one as if it were a number."""
    sound = read_header(whole)
    other = replace(sound, metadata={**sound.metadata, key: value})
    monkeypatch.setattr("mlcc_compiler.checkpoint.gguf.files.read_header", lambda path: other)
    with pytest.raises(MlccError):
        read_all(whole)


def test_sampling_of_no_number_is_left_out() -> None:
    keys = {"general.sampling.temp": float("nan"), "general.sampling.top_p": 0.5}
    assert generation_config_of(keys) == {"top_p": 0.5}


def test_two_tensors_for_one_of_the_model() -> None:
    shapes = {"token_embd.weight": (4, 4), "model.embed_tokens.weight": (4, 4)}
    with pytest.raises(CheckpointError, match=r"token_embd.*and 'model.embed_tokens"):
        locations("llama", shapes, {})
    with pytest.raises(CheckpointError, match="250000000 experts"):
        locations("qwen3moe", {"blk.0.ffn_up_exps.weight": (250_000_000, 4, 4)}, {})


MANY = 2**63 - 1
HOSTILE = {
    "another magic": (header(0, 0, magic=b"GGJT"), "no GGUF file"),
    "version": (struct.pack("<4sIQQ", b"GGUF", 1, 0, 0), "version 1"),
    "big-endian": (struct.pack(">4sIQQ", b"GGUF", 3, 0, 0), "big-endian"),
    "tensors": (header(MANY, 0), "more than it has bytes"),
    "keys": (header(0, MANY), "more than it has bytes"),
    "many keys": (header(0, 1 << 17, bytes(13 << 17)), "131072 metadata keys"),
    "string": (header(0, 1, struct.pack("<Q", MANY) + bytes(64)), "more than it has bytes"),
    "array": (header(0, 1, pair(9, struct.pack("<IQ", 5, MANY))), "more than it has bytes"),
    "strings": (header(0, 1, pair(9, struct.pack("<IQ", 8, 1 << 60))), "more than it has bytes"),
    "array of arrays": (header(0, 1, pair(9, struct.pack("<IQ", 9, 1))), "unknown type, 9"),
    "type": (header(0, 1, pair(77, bytes(8))), "unknown type, 77"),
    "twice": (header(0, 2, pair(4, bytes(4)) * 2), "'k' twice"),
    "alignment": (
        header(0, 1, pair(4, struct.pack("<I", 3), b"general.alignment")), "no power of two",
    ),
    "dimensions": (header(1, 0, text(b"t") + struct.pack("<I", 99) + bytes(64)), "99 dimensions"),
    "empty": (header(1, 0, tensor((32, 0), 0, 0)), "'t' of 0x32"),
    "format": (header(1, 0, tensor((32,), 4, 0)), "number 4"),
    "block": (header(1, 0, tensor((33,), 2, 0)), "'t' of 33, which Q4_0"),
    "size": (header(1, 0, tensor((1 << 31, 1 << 31, 1 << 31), 0, 0)), "larger than the file"),
    "offset": (header(1, 0, tensor((8,), 0, MANY)), "unaligned|ends within"),
    "overlap": (
        header(2, 0, tensor((8,), 0, 0) + tensor((8,), 0, 0, b"u") + bytes(256)),
        "where another one is",
    ),
    "names": (header(2, 0, tensor((8,), 0, 0) + tensor((8,), 0, 32) + bytes(256)), "twice"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_headers(case: str, tmp_path: Path) -> None:
    data, words = HOSTILE[case]
    path = tmp_path / "hostile.gguf"
    path.write_bytes(data)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CheckpointError, match=words):
        read_header(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KiB


def test_a_file_is_known_by_its_first_bytes(tmp_path: Path) -> None:
    """Blobs of Ollama (`blobs/sha256-...`) have no suffix; llama.cpp goes by the magic too."""
    blob, other = tmp_path / "sha256-6a07", tmp_path / "sha256-6a08"
    blob.write_bytes(b"GGUF\x03\0\0\0")
    other.write_bytes(b"GGU")
    assert is_gguf(blob) and gguf_files(blob) == [blob]
    assert not is_gguf(other) and not is_gguf(tmp_path / "none") and not gguf_files(other)
