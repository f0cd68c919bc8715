"""Prefix digest: a bounded set of hashes of the cached prefixes, for routers that send a prompt to
the engine with the longest cached prefix.

A hash covers all tokens from the beginning of a prompt to the end of a block (`radix_tree.py`),
after their scope. Only depths that grow by an eighth to a quarter are included (1 .. 8, 10, 12, 14,
16, 20 ...): a prompt of thousands of tokens has a few dozen hashes, and the length of a hit is
known to four fifths. BLAKE2b, 64 bits, without a key: a collision costs time and nothing else.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence
from hashlib import blake2b

from mlcc.engine.kv_cache.radix_tree import NO_PAGE, Block, RadixTree

MOST = 4096
"""Hashes of an engine: 32 KiB."""
_LOOKED_AT = 4
"""Most blocks visited per hash."""
_BYTES = 8
_WORD = 4


def is_sampled_depth(depth: int) -> bool:
    """Whether the digest includes hashes of this many blocks."""
    return depth % (1 << max(0, depth.bit_length() - 3)) == 0


def prefix_hashes(scope: Hashable, tokens: Sequence[int], block: int) -> list[tuple[int, int]]:
    """(tokens, hash) of each prefix of a prompt that a digest may include; the longest last.

    Never of all tokens: one is left to compute.
    """
    data = memoryview(array("i", tokens)).cast("B")
    digest, done, found = _digest(scope), 0, []
    for depth in filter(is_sampled_depth, range(1, (len(tokens) - 1) // block + 1)):
        end = depth * block * _WORD
        digest.update(data[done:end])
        done = end
        found.append((depth * block, _number(digest)))
    return found


def prefix_digest(tree: RadixTree, most: int = MOST) -> bytes:
    """Hashes of the tree's prefixes, 8 bytes each, little-endian: short prefixes first, and the
    newest first among equals."""
    whole = tree.block * _WORD
    level = [(block, _digest(scope)) for scope, block in tree.scopes()]
    hashes, left, depth = bytearray(), _LOOKED_AT * most, 0
    while level and left > 0:
        depth += 1
        below: list[tuple[Block, blake2b]] = []
        for parent, digest in level:
            for block in reversed(parent.children.values()):
                key = block.key
                if not isinstance(key, bytes) or len(key) < whole or _is_gone(tree, block):
                    continue
                left -= 1
                longer = digest.copy()
                longer.update(key)
                below.append((block, longer))
        if is_sampled_depth(depth):
            for _, digest in below[: most - len(hashes) // _BYTES]:
                hashes += digest.digest()
        level = below
    return bytes(hashes)


def hashes_of(hashes: bytes) -> set[int]:
    """A digest as the hashes that `prefix_hashes` makes."""
    return {
        int.from_bytes(hashes[at : at + _BYTES], "little") for at in range(0, len(hashes), _BYTES)
    }


def _is_gone(tree: RadixTree, block: Block) -> bool:
    """Whether nothing after the block can be read: pages of a group that keeps all tokens were
    evicted."""
    return any(
        group.has_pages and group.window is None and NO_PAGE in pages
        for group, pages in zip(tree.groups, block.pages, strict=True)
    )


def _digest(scope: Hashable) -> blake2b:
    return blake2b(repr(scope).encode(), digest_size=_BYTES)


def _number(digest: blake2b) -> int:
    return int.from_bytes(digest.digest(), "little")
