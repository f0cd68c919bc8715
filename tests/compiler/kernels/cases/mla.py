"""Inputs for the tests of latent attention's kernels, and the twins' outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mlcc.device.reference import mla as twin
from mlcc.device.reference.step_view import StepView
from mlcc.engine.batch.batch import Batch
from mlcc.engine.batch.tables import CacheGroup
from mlcc_compiler.ir.mla import MlaLayout, MlaShape
from tests.compiler.kernels.cases import attention as attention_cases


@dataclass(frozen=True)
class Case:
    """One compiled kernel."""

    heads: int = 16
    rank: int = 64
    rope: int = 16
    page: int = 16
    nope: int = 24
    value: int = 20
    dtype: str = "float32"
    before: tuple[CacheGroup, ...] = ()

    @property
    def shape(self) -> MlaShape:
        scale = (self.rank + self.rope) ** -0.5
        return MlaShape(self.heads, self.nope, self.rope, self.rank, self.value, float(scale), 1e-6)

    @property
    def layout(self) -> MlaLayout:
        pairs = self.pairs.layout
        (pages,) = self.shape.cache_spec(self.page, self.dtype).tensors
        return MlaLayout(self.shape, pages, pairs.step, pairs.group)

    @property
    def pairs(self) -> attention_cases.Case:
        """The equivalent case of attention: one KV head of the latents' width."""
        return attention_cases.Case(
            self.heads, 1, self.shape.width, self.page, dtype=self.dtype, before=self.before
        )


@dataclass
class Inputs:
    """The inputs of attention in one step, as in `attention_cases`."""

    case: Case
    q: Any
    pages: Any
    batch: Batch
    sequences: int
    entries: int

    @classmethod
    def of(cls, case: Case, given: attention_cases.Inputs) -> Inputs:
        pages = np.ascontiguousarray(given.pages[:, 0, 0])
        return cls(case, given.q, pages, given.batch, given.sequences, given.entries)

    @property
    def tensors(self) -> list[Any]:
        return [self.q, self.pages, np.frombuffer(self.batch.words, np.int32)]

    @property
    def out(self) -> tuple[int, int, int]:
        """The output's shape."""
        return (len(self.q), self.case.heads, self.case.rank)

    @property
    def expected(self) -> Any:
        """The output of the numpy twin."""
        shape = self.case.shape
        lists = StepView(self.batch).lists(self.case.layout.group)
        return twin.attend_latents(self.q, self.pages, lists, shape.rank, shape.scale)


def inputs(case: Case, sequences: Any, seed: int = 0, padding: int = 0) -> Inputs:
    """A step of these (queries, keys), with room for `padding` tokens behind its own."""
    return Inputs.of(case, attention_cases.inputs(case.pairs, sequences, seed, padding))


def alone(given: Inputs, s: int) -> Inputs:
    """The inputs of one sequence of a step."""
    pairs = np.repeat(given.pages[:, None, None], 2, axis=1)
    whole = attention_cases.Inputs(
        given.case.pairs, given.q, pairs, None, given.batch, given.sequences, given.entries
    )
    return Inputs.of(given.case, attention_cases.alone(whole, s))
