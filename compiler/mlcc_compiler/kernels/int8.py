"""Constants of 8-bit keys and values, for all devices. The rule is in `cpu/kv_cache/int8.py`, its
twin is `mlcc.device.reference.attention.round_heads`.
"""

LARGEST_INT8 = 127.0
"""Code of the largest magnitude of a token's head; -128 is never used."""
MAGNITUDE = 0x7FFFFFFF
"""Mask of a float32's bits without the sign: as integers they order by magnitude."""
INFINITE = 0x7F800000
"""Magnitude bits of infinity; NaN is above."""
SMALLEST = (127 - 119) << 23
"""Magnitude bits of 2 ** -119: below it 127 divided by the largest magnitude would overflow, so all
codes are 0.
"""
ROUNDING = 12582912.0
"""1.5 * 2**23: adding it rounds to the nearest even integer, in the low bits of the sum."""
