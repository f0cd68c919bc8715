"""The emulated device itself: its results, and the faults of a kernel that it detects."""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets.cuda import emulation

pytestmark = pytest.mark.usefixtures("emulated")
KERNEL = 'extern "C" __global__ void __launch_bounds__(64) %s(float* x, float* y) {\n%s\n}\n'


def run(body: str, blocks: int = 1, backwards: bool = False) -> tuple[np.ndarray, str]:
    """(y of 64 * blocks, the fault) of a kernel with this body, where x is 0, 1, 2 ..."""
    x = np.arange(64 * blocks, dtype=np.float32)
    y = np.zeros_like(x)
    emulation.device().emulated_order(backwards)
    try:
        return y, emulation.launch(KERNEL % ("kernel", body), "kernel", blocks, 64, x, y)
    finally:
        emulation.device().emulated_order(0)


SWAP = """__shared__ float cells[64];
cells[threadIdx.x] = x[threadIdx.x];
%s
y[threadIdx.x] = cells[threadIdx.x ^ 63];"""


@pytest.mark.parametrize("backwards", [False, True])
def test_a_barrier_is_kept_and_a_missing_one_seen(backwards: bool) -> None:
    y, fault = run(SWAP % "__syncthreads();", backwards=backwards)
    assert fault == "" and (y == np.arange(64)[::-1]).all()
    y, fault = run(SWAP % "", backwards=backwards)
    assert fault == "" and np.isnan(y).sum() == 32  # read before the other half wrote


def test_a_barrier_that_some_threads_miss_is_a_fault() -> None:
    _, fault = run("if (threadIdx.x < 32) __syncthreads();")
    assert "thread 0 waits" in fault and "do not come" in fault
    y, fault = run("y[threadIdx.x] = 1;")
    assert fault == "" and (y == 1).all()  # the device goes on


def test_workgroup_memory_is_not_kept_between_blocks() -> None:
    body = "__shared__ float c[1]; if (threadIdx.x == 9) { y[blockIdx.x] = c[0]; c[0] = 7; }"
    y, _ = run(body, blocks=3)
    assert np.isnan(y[:3]).all()


def test_shuffles() -> None:
    lane = np.arange(64) % 32
    y, fault = run("y[threadIdx.x] = __shfl_down_sync(0xffffffffu, x[threadIdx.x], 8, 32);")
    assert fault == "" and (y == np.arange(64) + np.where(lane < 24, 8, 0)).all()
    y, _ = run("y[threadIdx.x] = __shfl_sync(0xffffffffu, x[threadIdx.x], 5, 16);")
    assert (y == np.arange(64) // 16 * 16 + 5).all()
    y, _ = run("y[threadIdx.x] = __shfl_xor_sync(0xffffffffu, x[threadIdx.x], 3, 32);")
    assert (y == np.arange(64) ^ 3).all()
    _, fault = run("if (threadIdx.x != 3) __shfl_sync(0xffffffffu, x[threadIdx.x], 0, 32);")
    assert "do not come" in fault


def test_tensor_core_tiles() -> None:
    body = """using namespace nvcuda::wmma;
__shared__ half a[256], b[256];
for (int i = threadIdx.x; i < 256; i += 64) { a[i] = i % 7 - 3; b[i] = i % 5 - 2; }
__syncthreads();
fragment<matrix_a, 16, 16, 16, half, row_major> fa;
fragment<matrix_b, 16, 16, 16, half, col_major> fb;
fragment<accumulator, 16, 16, 16, float> c;
fill_fragment(c, 0.5f);
load_matrix_sync(fa, a, 16);
load_matrix_sync(fb, b, 16);
mma_sync(c, fa, fb, c);
if (threadIdx.x < 32) store_matrix_sync(y, c, 16, mem_row_major);"""
    y, fault = run(body, blocks=4)
    i = np.arange(256)
    a, b = (i % 7 - 3).reshape(16, 16), (i % 5 - 2).reshape(16, 16)
    assert fault == "" and (y.reshape(16, 16) == a @ b.T + 0.5).all()


MMA = """unsigned a[4], b[2];
int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
for (int i = 0; i < 8; ++i) {
  int row = g + i / 2 % 2 * 8, column = 2 * t + i % 2 + i / 4 * 8;
  half value = (row * 16 + column) % 7 - 3;
  memcpy((char*)a + 2 * i, &value, 2);
}
for (int i = 0; i < 4; ++i) {
  half value = (g * 16 + 2 * t + i % 2 + i / 2 * 8) % 5 - 2;
  memcpy((char*)b + 2 * i, &value, 2);
}
float c[4];
for (int turn = 0; turn < 3; ++turn)
  mlcc_mma(c[0], c[1], c[2], c[3], 0.5f, 0.5f, 0.5f, 0.5f, a[0], a[1], a[2], a[3], b[0], b[1]);
for (int i = 0; i < 4; ++i)
  y[threadIdx.x / 32 * 128 + (g + i / 2 * 8) * 8 + 2 * t + i % 2] = c[i];"""


@pytest.mark.parametrize("backwards", [False, True])
def test_products_of_a_warp(backwards: bool) -> None:
    """The lanes' parts of mma.m16n8k16, as PTX's tables of fragments have them."""
    y, fault = run(MMA, blocks=4, backwards=backwards)
    i = np.arange(256)
    a, b = (i % 7 - 3).reshape(16, 16), (i[:128] % 5 - 2).reshape(8, 16)
    assert fault == "" and (y.reshape(2, 16, 8) == a @ b.T + 0.5).all()
    _, fault = run(
        "float c = 0; if (threadIdx.x != 3) mlcc_mma(c, c, c, c, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);"
    )
    assert "do not come" in fault


def test_pairs_are_clamped_and_bits_masked() -> None:
    y, _ = run("y[threadIdx.x] = emulated_half(mlcc_halves(1e6f, -70000.f), threadIdx.x & 1);")
    assert set(y) == {65504.0, -65504.0}
    y, _ = run("y[threadIdx.x] = mlcc_masked(0x1234, 0x00f0, 0x5400);")
    assert (y == 0x5430).all()


ASYNC = """extern __shared__ __align__(64) uint cells[];
unsigned at = mlcc_address(cells) + 4 * threadIdx.x;
for (int i = 0; i < 2; ++i) {
  mlcc_copy4(at + 256 * i, x + threadIdx.x + 64 * i, 4);
  mlcc_commit();
}
%s
unsigned found[2];
for (int i = 0; i < 2; ++i) mlcc_load1(found[i], at + 256 * i);
memcpy(y + threadIdx.x, found, 4);
memcpy(y + 64 + threadIdx.x, found + 1, 4);"""


@pytest.mark.parametrize("newest", [0, 1, None])
def test_copies_are_seen_when_they_are_waited_for(newest: int | None) -> None:
    wait = "" if newest is None else f"mlcc_wait{newest}();"
    y, fault = run("if (blockIdx.x == 0) {\n" + ASYNC % wait + "}", blocks=2)
    there = 64 * {0: 2, 1: 1, None: 0}[newest]
    assert fault == "" and (y[:there] == np.arange(there)).all() and np.isnan(y[there:]).all()


def test_the_last_workgroup_is_known() -> None:
    body = """int last = mlcc_last_of((int*)y, 3);
if (threadIdx.x == 0) y[1 + blockIdx.x] = last;"""
    y, fault = run(body, blocks=3)
    assert fault == "" and y[:4].tolist() == [0, 0, 0, 1]
