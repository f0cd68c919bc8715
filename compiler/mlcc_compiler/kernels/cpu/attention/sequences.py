"""How the sequences of a step are cut into tasks of attention: tiles of tokens and ranges of keys.

A row's output has the same bits whatever else is in the step, and however the tokens of a sequence
are cut into steps: a prompt's into chunks, and up to `FEW_TOKENS` others decoded one by one or
verified together. So a step says which sequences compute tokens of their prompts, and where a tile,
a range or a block begins depends on positions alone, and neither on where the sequence's tokens
begin or end nor on the number of threads. What that adds to a row are keys that it does not see,
whose weights are zero: no bit of a sum changes by them.

- Tiles of few tokens begin at multiples of their height, so no tile has both sides of a position
  at which ranges become longer.
- Ranges begin at multiples of their length, which the tile's position decides; blocks of keys
  within them at multiples of a block (`Blocking.blocks`).
- Keys of a prompt's tokens are one range, as merging ranges rounds; its tiles begin anywhere, as no
  row of many depends on the tile's others.
- Which of the kernels in `tile.py` computes a tile depends on whether its tokens are a prompt's; of
  others, and where a step says nothing of prompts, on how many tokens the sequence has, and not on
  how many are left for its last tile.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.cpu.attention.blocking import FEW, KEY_STEP, Blocking, Tile
from mlcc_compiler.kernels.cpu.isa.vector_math import Registers, bind
from mlcc_compiler.kernels.frame import Expr
from mlcc_compiler.kernels.step import Step

FEW_TOKENS = 16
"""Tokens of a sequence that are cut as one token is: it and 15 drafts."""

_RANGE = 128
"""Keys worth a task of their own; half, if the tasks are few."""

_FEW_KEYS = 256
"""Keys of a sequence up to which its tasks are few."""

_RANGES = 16
"""Ranges of a row, at most."""

MOST_RANGES = _RANGES + 2
"""Ranges of a sequence, at most: a window may begin within one, and later tokens end in another."""


@dataclass(frozen=True)
class Parts:
    """A sequence's part of a step, cut: int64 expressions."""

    first: Expr
    """Its first token in the step."""
    tokens: Expr
    keys: Expr
    few: Expr
    """Whether its tokens are few, and none of a prompt."""
    height: Expr
    """Tokens of a tile, at most."""
    tiles: Expr
    ranges: Expr
    """Of each tile."""

    @property
    def position(self) -> Expr:
        """The position of the first token."""
        return self.keys - self.tokens


@dataclass(frozen=True)
class PagedSequences:
    """Maps tokens and pages to sequences."""

    cut: Blocking
    step: Step
    most: Expr
    """Upper bound of the number of sequences."""

    @property
    def count(self) -> Expr:
        return bind(_to_int64(self.step.count("sequences")))

    @property
    def most_split(self) -> int:
        """Tokens of a sequence whose keys are cut into ranges, at most."""
        return max(FEW_TOKENS, self.cut.tokens)

    @property
    def decoding(self) -> Expr:
        """Sequences that compute no tokens of their prompts; they are the first."""
        return bind(self.count - _to_int64(self.step.prompts))

    def cut_up(self, s: Expr) -> Parts:
        """Emit how a sequence is cut."""
        first = bind(_to_int64(self.step.sequence(s, "first_token")))
        tokens = bind(_to_int64(self.step.sequence(s + 1, "first_token")) - first)
        keys = bind(_to_int64(self.step.sequence(s, "length")))
        height, most = self.cut.few_tokens, self._height(tokens)
        position, decodes = keys - tokens, bind(_to_int64(s < self.decoding))
        few = bind(decodes * _to_int64(T.And(tokens > 0, tokens <= FEW_TOKENS)))
        aligned = T.floordiv(keys + height - 1, height) - T.floordiv(position, height)
        tiles = T.Select(few > 0, aligned, T.floordiv(tokens + most - 1, most))
        length = self._range_length(self._begin(few, position), keys)
        seen = bind(T.floordiv(self._first_key(position), length))
        wanted = T.max(T.floordiv(keys + length - 1, length) - seen, 1)
        split = T.Or(few > 0, T.And(decodes > 0, tokens <= self.cut.tokens))
        ranges = bind(T.Select(split, wanted, T.int64(1)))
        height = bind(T.Select(few > 0, T.int64(height), most))
        return Parts(first, tokens, keys, few, height, bind(tiles), ranges)

    def _height(self, tokens: Expr) -> Expr:
        """Tokens per tile of a sequence that has many."""
        (height, _), *taller = self.cut.heights
        found = T.int64(height)
        for height, least in taller:
            found = T.Select(tokens >= least, T.int64(height), found)
        return bind(found) if taller else found

    def tile(self, s: Expr, own: Parts, number: Expr, part: Expr, head: Expr) -> Tile:
        """Emit a tile of a sequence, for one of its ranges and a KV head."""
        cut, shape = self.cut, self.cut.shape
        height = own.height
        begin = bind(self._begin(own.few, own.position) + number * height)
        position = bind(T.max(begin, own.position))
        count = bind(T.min(begin + height, own.keys) - position)
        token = bind(own.first + position - own.position)
        key, end = self._first_key(position), self._end(bind(position + count), own.keys)
        if shape.visible_until:
            end = self._visible_end(token, count, own.keys)
        if shape.visible_from:
            key = self._visible_begin(token, count)
        length = self._range_length(begin, own.keys)
        page = bind(T.floordiv(key, cut.layout.page_size) * cut.layout.page_size)
        start = bind((T.floordiv(page, length) + part) * length)
        whole, begin_key = own.ranges == 1, page
        if cut.aligns_keys:
            exact = T.And(own.few > 0, shape.group <= FEW)
            begin_key = bind(T.Select(exact, page, self._aligned(page)))
        return Tile(
            token=token,
            rows=bind(count * shape.group),
            few=own.few > 0,
            head=head,
            position=position,
            first_page=self._page_word(s),
            first_key=page,
            begin=bind(T.Select(whole, begin_key, T.max(begin_key, start))),
            end=bind(T.Select(whole, end, T.min(start + length, end))),
        )

    def _begin(self, few: Expr, position: Expr) -> Expr:
        """Where the tile with this position begins; of many tokens, which begin anywhere."""
        height = self.cut.few_tokens
        return bind(T.Select(few > 0, T.floordiv(position, height) * height, position))

    def _aligned(self, key: Expr) -> Expr:
        """The latest key up to this one that begins a step of its block."""
        block = T.floordiv(key, self.cut.block) * self.cut.block
        return bind(block + T.floordiv(key - block, KEY_STEP) * KEY_STEP)

    def _range_length(self, begin: Expr, keys: Expr) -> Expr:
        """Keys of a range, whole pages, for the tile that begins at this position: all its rows
        have the same."""
        shape, size = self.cut.shape, self.cut.layout.page_size
        span = begin + self.cut.few_tokens if shape.causal else keys
        if shape.slides and not shape.visible_from:
            span = T.min(span, shape.window)
        span = bind(span)
        long = T.floordiv(span + _RANGE * _RANGES - 1, _RANGE * _RANGES) * _RANGE
        wanted = T.Select(span <= _FEW_KEYS, T.int64(_RANGE // 2), long)
        return bind(T.floordiv(wanted + size - 1, size) * size)

    def _first_key(self, position: Expr) -> Expr:
        """The first key visible to a query, or an earlier one."""
        shape = self.cut.shape
        if shape.window is None or shape.visible_from:
            return T.int64(0)
        return T.max(position + 1 - shape.window, 0)

    def _end(self, position: Expr, keys: Expr) -> Expr:
        """One past the last key visible to queries before `position`, of a sequence of `keys`."""
        shape = self.cut.shape
        if shape.causal:
            return position
        return keys if shape.window is None else bind(T.min(position + shape.window - 1, keys))

    def _visible_end(self, token: Expr, count: Expr, keys: Expr) -> Expr:
        """One past the last key visible to any of `count` tokens of the step."""
        last = Registers(1, 1, "int64")
        last[0] = T.int64(0)
        with T.serial(count) as t:
            last[0] = T.max(last[0], _to_int64(self.step.token(token + t, "visible_until")))
        return bind(T.min(last[0] + 1, keys))

    def _visible_begin(self, token: Expr, count: Expr) -> Expr:
        """The first key visible to any of `count` tokens of the step."""
        first = Registers(1, 1, "int64")
        first[0] = _to_int64(self.step.token(token, "visible_from"))
        with T.serial(count) as t:
            first[0] = T.min(first[0], _to_int64(self.step.token(token + t, "visible_from")))
        return bind(first[0])

    def _page_word(self, s: Expr) -> Expr:
        """The word of the step that would name the page of a sequence's first key if no page had
        been freed."""
        group, step = self.cut.layout.group, self.step
        word = step.pages_begin(group) + step.sequence(s, f"first_page.{group}")
        if self.cut.shape.slides:
            word = word - step.sequence(s, f"page_number.{group}")
        return bind(_to_int64(word))


def _to_int64(x: Expr) -> Expr:
    return T.Cast("int64", x)
