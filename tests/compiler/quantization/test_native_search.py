"""The compiled searches against their twins in numpy: equal bits, for rows of every kind."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from mlcc_compiler.kernels import host
from mlcc_compiler.quantization import k_quant, native_search, one_level, quantize, scheme
from mlcc_compiler.quantization.quantized import PARTS, Quantized

pytestmark = pytest.mark.skipif(
    not native_search.takes(native_search.LEAST_GROUPS, 32),
    reason="this CPU fuses multiply and add: the compiled search is not used",
)


def rows(n: int, k: int) -> np.ndarray:
    """Rows of many sizes; zeros, one sign only, flat ends, numbers too small for float16."""
    rng = np.random.default_rng(n + k)
    x = rng.standard_normal((n, k)) * 10.0 ** rng.integers(-8, 6, (n, 1))
    x[0], x[1], x[2], x[3] = 0, np.abs(x[1]), -np.abs(x[2]), 1e-40
    x[4, : k // 2] = 3.25
    x[5] = np.where(rng.random(k) < 0.02, x[5] * 1e4, x[5])
    return x.astype(np.float32)


def assert_same(found: Quantized, expected: Quantized) -> None:
    for part in PARTS:
        one, other = getattr(found, part), getattr(expected, part)
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_array_equal(one, other, err_msg=part)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "name", ["k4_g32", "k5_g64", "k6_g32", "t3_g32", "t4_g32", "t5_g32", "q2_k", "q6_k"]
)
@pytest.mark.parametrize("k", [768, 640])
@pytest.mark.parametrize("sized", [False, True])
def test_the_same_bits(name: str, k: int, sized: bool) -> None:
    """Equal also with weights by the inputs' sizes, for groups of whole vectors and not."""
    x, how = rows(32, k), scheme(name)
    power = None if not sized else np.exp(3 * np.random.default_rng(k).standard_normal(k))
    power = power if power is None else power.astype(np.float32)
    found = k_quant.encode(x, how, power, fast=True)
    assert_same(found, k_quant.encode(x, how, power))
    assert not sized or (found.codes != k_quant.encode(x, how, fast=True).codes).any()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ["int8_g32", "int4_g32", "int3_g64", "int4a_g16", "int5a_g32"])
@pytest.mark.parametrize("k", [768, 640])
def test_the_same_bits_of_one_level(name: str, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, how = rows(32, k), scheme(name)
    expected = one_level.encode(x, how)
    monkeypatch.setattr(one_level, "_range", None)  # numpy's search: not asked any more
    assert_same(one_level.encode(x, how, fast=True), expected)


def test_a_large_matrix_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Split into chunks, of which the last is no whole number of vectors."""
    x, how, asked = rows(2050, 160), scheme("k4_g32"), []
    monkeypatch.setattr(native_search, "_seen", 0)
    expected = quantize(x, how)
    monkeypatch.setattr(native_search, "PAYS", 2 * x.size)
    real = native_search.fit_ranges

    def counted(values: np.ndarray, *arguments: object) -> tuple[np.ndarray, np.ndarray]:
        asked.append(values.shape)
        return real(values, *arguments)

    monkeypatch.setattr(native_search, "fit_ranges", counted)
    with np.errstate(all="ignore"):
        assert_same(quantize(x, how), expected)
    assert asked


NARROW = """
import sys
import mlcc.util.machine
have = mlcc.util.machine.cpu_features() - {"avx512f"}
mlcc.util.machine.cpu_features = lambda: have
import pytest
from mlcc_compiler.kernels import host
from mlcc_compiler.quantization import native_search
assert host.LANES == 8 and native_search.takes(native_search.LEAST_GROUPS, 32)
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-k", "bits", sys.argv[1]]))
"""


@pytest.mark.skipif(
    host.LANES == 8, reason="this CPU has no AVX-512: the tests above use narrow vectors"
)
def test_the_same_bits_of_narrower_vectors() -> None:
    """The search in a process with the vector width of CPUs without AVX-512."""
    command = [sys.executable, "-c", NARROW, __file__]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
