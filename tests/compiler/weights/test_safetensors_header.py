"""The safetensors reader accepts what the format's own library accepts, and refuses the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save, save_file

from mlcc.artifact.arrays import mapped
from mlcc.artifact.safetensors import SafetensorsError, read_header
from tests.compiler.weights.hf_folder import raw_safetensors


def row(start: int, stop: int, shape: list[int], dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


@pytest.mark.parametrize("dtype", ["f4", "f2", "i1", "u1", "i4", "u4", "i8", "bool"])
def test_reads_what_the_formats_library_writes(tmp_path: Path, dtype: str) -> None:
    tensors = {f"t{n}": np.arange(n).reshape(n, 1).astype(dtype) for n in (0, 1, 5)}
    save_file(tensors, tmp_path / "x.safetensors", metadata={"format": "pt"})
    found = mapped(read_header(tmp_path / "x.safetensors"))
    assert set(found) == set(tensors)
    for name, tensor in tensors.items():
        assert np.array_equal(found[name], tensor)


def test_bfloat16_is_viewed_as_bits(tmp_path: Path) -> None:
    values = np.array([1.5, -2.0, 3e38], ml_dtypes.bfloat16)
    save_file({"t": values}, tmp_path / "x.safetensors")
    entries = read_header(tmp_path / "x.safetensors")
    assert entries["t"].dtype == "bfloat16"
    assert np.array_equal(mapped(entries)["t"], values.view(np.uint16))


def test_a_view_never_writes_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"t": np.zeros(3, np.float32)}, path)
    mapped(read_header(path))["t"][:] = 7
    assert not mapped(read_header(path))["t"].any()


BROKEN = {
    "overlaps 'a'": {"a": row(0, 8, [2]), "b": row(4, 12, [2])},
    "leaves a gap after 'a'": {"a": row(0, 4, [1]), "b": row(8, 12, [1])},
    "leaves a gap after the header": {"a": row(4, 12, [2])},
    "truncated: tensor 'a' ends": {"a": row(0, 400, [100])},
    "4 bytes after the last tensor": {"a": row(0, 8, [2])},
    "has 12 bytes, not those of": {"a": row(0, 12, [2])},
    "bad header entry for 'a'": {"a": row(-4, 8, [3])},
    "negative or not an integer": {"a": row(0, 12, [-3])},
    "unknown dtype 'F99'": {"a": row(0, 12, [3], "F99")},
    "more than 32 dimensions": {"a": row(0, 12, [3, *[1] * 32])},
    "or 2.63 elements": {"a": row(0, 1 << 63, [1 << 61])},
    "entry for 'a'": {"a": [1, 2]},
    "not a JSON object": [1],
}


@pytest.mark.parametrize("message", BROKEN)
def test_unsound_headers_are_refused(tmp_path: Path, message: str) -> None:
    path = raw_safetensors(tmp_path / "x.safetensors", BROKEN[message], bytes(12))
    with pytest.raises(SafetensorsError, match=message) as caught:
        read_header(path)
    assert "\n" not in str(caught.value) and "x.safetensors" in str(caught.value)


def test_a_name_twice_is_refused(tmp_path: Path) -> None:
    one = b'"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
    path = raw_safetensors(tmp_path / "x", b"{" + one + b"," + one + b"}", bytes(4))
    with pytest.raises(SafetensorsError, match="names 'a' twice"):
        read_header(path)


@pytest.mark.parametrize("header", [b"{", b"\xff\xfe", b"[" * 100_000, b"{}}"])
def test_a_header_that_is_no_json_is_refused(tmp_path: Path, header: bytes) -> None:
    with pytest.raises(SafetensorsError, match="not JSON"):
        read_header(raw_safetensors(tmp_path / "x", header))


@pytest.mark.parametrize("length", [3, 1 << 27, 1 << 63])
def test_the_headers_length_is_bounded_before_it_is_read(tmp_path: Path, length: int) -> None:
    with pytest.raises(SafetensorsError, match="truncated or no safetensors"):
        read_header(raw_safetensors(tmp_path / "x", b"{}", length=length))


def test_a_file_shorter_than_its_length_field(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    with pytest.raises(SafetensorsError, match="truncated or no safetensors"):
        read_header(tmp_path / "x")


SOUND = save({"a": np.ones((2, 3), np.float32), "b": np.arange(4, dtype=np.int8)})


@given(st.integers(0, len(SOUND) - 1), st.integers(1, 255), st.booleans())
def test_damage_is_refused_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, at: int, flip: int, cut: bool
) -> None:
    data = bytearray(SOUND)
    data[at] ^= flip
    path = tmp_path_factory.mktemp("fuzz") / "x"
    path.write_bytes(bytes(data[:at] if cut else data))
    try:
        entries = read_header(path)
    except SafetensorsError:
        return
    for array in mapped(entries).values():
        array.tobytes()
