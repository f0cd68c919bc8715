"""What a prefix cache has, told to others as a bounded number of hashes, so that who sends requests
to several engines can send a prompt where most of it is. Nothing is decided here.

A hash is of all tokens from a prompt's beginning to the end of a block (`prefix.py`), with their
scope before them. Not every block's is told, but of depths that grow by an eighth to a quarter
(1 .. 8, 10, 12, 14, 16, 20 ...): a prompt of thousands of tokens is a few dozen hashes, and a hit
is known to four fifths of its length. BLAKE2b, of 64 bits, without a key: two prompts that collide
cost time and nothing else.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence
from hashlib import blake2b

from mlcc.engine.kv_cache.radix_tree import NO_PAGE, Block, RadixTree

MOST = 4096
"""Hashes of an engine: 32 KiB."""
_LOOKED_AT = 4
"""Blocks that are looked at for each hash that is told, at most."""
_BYTES = 8
_WORD = 4


def is_sampled_depth(depth: int) -> bool:
    """Whether the hash of so many blocks is told."""
    return depth % (1 << max(0, depth.bit_length() - 3)) == 0


def prefix_hashes(scope: Hashable, tokens: Sequence[int], block: int) -> list[tuple[int, int]]:
    """Of a prompt, (tokens, hash) of each beginning that an engine may tell of; the longest last.

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
    """Hashes of what the tree has, 8 bytes each, little-endian: short beginnings before long ones,
    and of equals the newest first."""
    whole = tree.block * _WORD
    level = [(block, _digest(scope)) for scope, block in tree.scopes()]
    told, left, depth = bytearray(), _LOOKED_AT * most, 0
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
            for _, digest in below[: most - len(told) // _BYTES]:
                told += digest.digest()
        level = below
    return bytes(told)


def hashes_of(told: bytes) -> set[int]:
    """A sketch as what `prefix_hashes` has."""
    return {int.from_bytes(told[at : at + _BYTES], "little") for at in range(0, len(told), _BYTES)}


def _is_gone(tree: RadixTree, block: Block) -> bool:
    """Whether nothing behind the block can be read: where a group keeps all, its pages are gone."""
    return any(
        group.has_pages and group.window is None and NO_PAGE in pages
        for group, pages in zip(tree.groups, block.pages, strict=True)
    )


def _digest(scope: Hashable) -> blake2b:
    return blake2b(repr(scope).encode(), digest_size=_BYTES)


def _number(digest: blake2b) -> int:
    return int.from_bytes(digest.digest(), "little")
