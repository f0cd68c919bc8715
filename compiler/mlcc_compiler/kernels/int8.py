"""Numbers of 8-bit keys and values, whatever the kernel runs on; the rule is told in
`cpu/kv_cache/int8.py`, its twin is `mlcc.device.reference.attention.round_heads`."""

LARGEST_INT8 = 127.0
"""What the largest magnitude of a token's head becomes; -128 is never used."""
MAGNITUDE = 0x7FFFFFFF
"""The bits of a float32 without its sign: as integers they are in the order of magnitudes."""
INFINITE = 0x7F800000
"""The magnitude of infinity; NaN is above it."""
SMALLEST = (127 - 119) << 23
"""Of 2 ** -119: below it 127 divided by the largest magnitude would overflow, so all become 0."""
ROUNDING = 12582912.0
"""1.5 * 2**23: adding it rounds to the nearest even integer, in the low bits of the sum."""
