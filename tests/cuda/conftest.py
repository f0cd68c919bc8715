"""Puts the emulated device beneath TVM's CUDA runtime before any test compiles for CUDA.

When the tests are collected, because the runtime can be loaded over one driver only.
"""

from __future__ import annotations

from .emulation import device, why_not

if not why_not():
    device()
