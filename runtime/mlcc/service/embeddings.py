"""Embeddings and scores: texts are encoded, truncated on request, and run on an encoder in waves.

Protocols are in `protocols/encoders.py`, `ollama_models.py` and `llamacpp.py`.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from mlcc.api.openai.embeddings import TASKS, no_encoder, other_task
from mlcc.artifact.schema import EncoderInfo
from mlcc.engine.encoder_engine import longest_text, text_too_long
from mlcc.engine.request import Request
from mlcc.errors import DeviceError, InvalidRequestError, MlccError
from mlcc.service.engine_client import with_param
from mlcc.service.generate import MOST_COUNTED
from mlcc.service.http.types import ApiRequest
from mlcc.service.served_model import ServedModel
from mlcc.util.fast_dataclass import fast_dataclass


def cut_text(ids: array[int], plain: Sequence[int], most: int) -> array[int]:
    """Truncate `ids`, the tokens of a text (`plain`) between those that the model puts around it,
    to `most` tokens: the end of the text is cut. If `plain` is not found in it, the end of `ids` is
    cut."""
    extra = len(ids) - len(plain)
    for before in range(max(extra, 0) + 1):
        if ids[before : before + len(plain)] == array("i", plain):
            behind = ids[before + len(plain) :]
            room = most - before - len(behind)
            if room < 0:
                break
            return ids[: before + room] + behind
    return ids[:most]


def cut_document(ids: array[int], room: int) -> array[int]:
    """Truncate a pair by cutting its second text; a query without its end has another meaning."""
    return ids[:room]


Row = Sequence[float]
Text = str | list[int]


@fast_dataclass(frozen=True)
class Rows:
    """The rows of a request, and the number of tokens that were read."""

    values: list[Row]
    tokens: int


def encoder_of(served: ServedModel, what: str) -> EncoderInfo:
    """The model's encoder record; `what` is requested of it: embeddings, scores, ranking, classes.
    Raises UnsupportedError."""
    if (encoder := served.text.encoder) is None:
        raise no_encoder(served.text.name, what)
    if encoder.task not in TASKS[what] or (what == "classes" and encoder.template):
        raise other_task(served.text.name, encoder.task, what)
    return encoder


class Encoding:
    """The texts of one request. `field`: name of their field, for errors."""

    def __init__(
        self,
        served: ServedModel,
        request: ApiRequest,
        fields: dict[str, Any],
        what: str,
        field: str = "input",
    ) -> None:
        self.encoder = encoder_of(served, what)
        self._core, self._tenant, self._field = served, request.tenant, field
        self._cut: int | None = fields.get("truncate_prompt_tokens")
        self._priority: int = fields.get("priority", 0)
        self._background = request.background
        self._left: Callable[[], float | None] = served.clock(
            request, time.monotonic(), fields.get("timeout")
        )
        self._name = f"embd-{os.urandom(16).hex()}"

    @property
    def most(self) -> int:
        """Most tokens of a text: the request's limit or the model's."""
        longest = longest_text(self._core.engine.capacity)
        if self._cut is None or self._cut == -1:
            return longest
        if not 1 <= self._cut <= longest:
            raise InvalidRequestError(
                f"'truncate_prompt_tokens' is {self._cut}, and this model takes 1 .. {longest} "
                "tokens; -1 cuts at the most",
                param="truncate_prompt_tokens",
                code="invalid_value",
            )
        return self._cut

    async def embed(
        self, texts: Sequence[Text], prompt: str | None, dimensions: int | None, unit: bool
    ) -> Rows:
        """An embedding of each text. prompt: name of one of the model's prompts; None = its
        default. unit: normalize to length 1. Raises InvalidRequestError."""
        keep = self._dimensions(dimensions)
        before = self._prompt(prompt)
        if prompt is not None and any(not isinstance(text, str) for text in texts):
            raise InvalidRequestError(
                "'prompt_name' goes before texts, and token ids are taken as they are; send texts, "
                "or the tokens of the prompt before yours",
                param="prompt_name",
                code="invalid_value",
            )
        rows = await self._rows([await self._ids(text, before) for text in texts])
        cut = lambda: [_unit(row[:keep]) if unit else row[:keep] for row in rows.values]  # noqa: E731
        return Rows(await asyncio.to_thread(cut), rows.tokens)

    async def score(self, pairs: Sequence[tuple[str, str]]) -> tuple[list[float], int]:
        """The score of each pair, and the number of tokens. For an embedding model it is the cosine
        of the two embeddings."""
        if self.encoder.task == "embed":
            return await self._cosines(pairs)
        rows = await self._rows([await self._pair(*pair) for pair in pairs])
        values = [float(row[0]) for row in rows.values]
        if self.encoder.activation == "sigmoid":
            values = [_sigmoid(value) for value in values]
        return values, rows.tokens

    async def classify(self, texts: Sequence[Text], activate: bool) -> Rows:
        """The probabilities of each text's classes, or the model's logits."""
        rows = await self._rows([await self._ids(text, "") for text in texts])
        if not activate or self.encoder.activation == "none":
            return rows
        of_row = _softmax if self.encoder.activation == "softmax" else _sigmoids
        made: list[Row] = await asyncio.to_thread(lambda: [of_row(row) for row in rows.values])
        return Rows(made, rows.tokens)

    async def _cosines(self, pairs: Sequence[tuple[str, str]]) -> tuple[list[float], int]:
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        rows = await self.embed(texts, None, None, True)
        place = dict(zip(texts, rows.values, strict=True))
        cosines = lambda: [_dot(place[one], place[other]) for one, other in pairs]  # noqa: E731
        return await asyncio.to_thread(cosines), rows.tokens

    async def _rows(self, sequences: Sequence[array[int]]) -> Rows:
        """Submit the sequences in waves of one step each, and of at most half the free queue: other
        requests find a short queue, and this one finds space for its next wave."""
        served, most = self._core, self._core.engine.capacity.max_batch
        values: list[Row] = []
        while len(values) < len(sequences):
            first = len(values)
            wave = min(most, max((served.engine.queue_space + 1) // 2, 1))
            requests = [
                self._request(first + i, ids) for i, ids in enumerate(sequences[first:][:wave])
            ]
            job = served.engine.submit(requests, self._left())
            job.prompt_field = self._field
            try:
                async for _ in job.events():
                    pass
                values += [_floats(job.finished[i].vector) for i in range(len(requests))]
            finally:
                job.close()
        return Rows(values, sum(map(len, sequences)))

    def _request(self, number: int, ids: array[int]) -> Request:
        try:
            return Request(
                f"{self._name}-{number}",
                ids,
                tenant=self._tenant,
                priority=self._priority,
                background=self._background,
            )
        except InvalidRequestError as error:  # some texts have no tokens
            raise with_param(self._field, error) from None

    async def _ids(self, text: Text, before: str) -> array[int]:
        if isinstance(text, list):
            ids = array("i", text)
            return self._whole(ids) if self._cut is None else ids[: self.most]
        ids = await self._encoded(before + text)
        if len(ids) <= self.most:
            return ids
        if self._cut is None:
            return self._whole(ids)
        plain = await self._encoded(before + text, special=False)
        return cut_text(ids, plain, self.most)

    def _whole(self, ids: array[int]) -> array[int]:
        if len(ids) > self.most:
            raise with_param(self._field, text_too_long(len(ids), self.most))
        return ids

    async def _pair(self, query: str, document: str) -> array[int]:
        if self.encoder.template:
            return await self._filled(query, document)
        before, between, behind = self.encoder.pair
        one, other = [await self._encoded(text, special=False) for text in (query, document)]
        room = self.most - len(before) - len(between) - len(behind) - len(one)
        if len(other) > room:
            if self._cut is not None and room < 1:
                raise self._no_room(len(one))
            if self._cut is None:
                raise with_param(
                    self._field, text_too_long(self.most - room + len(other), self.most)
                )
            other = cut_document(other, room)
        served = self._core.engine.capacity
        shift = served.vocab_size // 2 if self.encoder.segments == 2 else 0
        second = (token + shift for token in (*other, *behind))
        return array("i", [*before, *one, *between, *second])

    async def _filled(self, query: str, document: str) -> array[int]:
        """A pair in the template of a language model."""
        head, _, rest = self.encoder.template.partition("{query}")
        middle, _, tail = rest.partition("{document}")
        ids = await self._encoded(head + query + middle + document + tail, special=False)
        if len(ids) <= self.most:
            return ids
        if self._cut is None:
            return self._whole(ids)
        decode, own = self._core.text.tokenizer.decode, await self._encoded(document, False)
        keep = len(own) - (len(ids) - self.most)
        while keep > 0:  # a cut text may encode to one token more
            shorter = decode(cut_document(own, keep))
            ids = await self._encoded(head + query + middle + shorter + tail, special=False)
            if len(ids) <= self.most:
                return ids
            keep -= len(ids) - self.most
        raise self._no_room(len(await self._encoded(query, special=False)))

    def _no_room(self, tokens: int) -> InvalidRequestError:
        """The error if a pair's first text leaves no space for the second, the only one that is
        cut."""
        first = "query" if self._field == "documents" else "text_1"
        return InvalidRequestError(
            f"'{first}' has {tokens} tokens and leaves no room for '{self._field}' within the "
            f"{self.most} of a pair, of which the latter alone is cut; shorten it, or raise "
            "'truncate_prompt_tokens' if that is not -1",
            param=first,
            code="context_length_exceeded",
        )

    async def _encoded(self, text: str, special: bool = True) -> array[int]:
        most = self.most if self._cut is None else MOST_COUNTED
        try:
            return await self._core.prompts.text(text, most, self._left(), special)
        except MlccError as error:
            raise with_param(self._field, error) from None

    def _prompt(self, name: str | None) -> str:
        prompts = self.encoder.prompts
        if name is None:
            return prompts.get(self.encoder.default_prompt, "")
        if name not in prompts:
            known = ", ".join(f"'{each}'" for each in sorted(prompts)) or "none"
            raise InvalidRequestError(
                f"'prompt_name' is '{name[:80]}', and the model's prompts are {known}; write your "
                "own before the text",
                param="prompt_name",
                code="invalid_value",
            )
        return prompts[name]

    def _dimensions(self, wanted: int | None) -> int:
        width = self.encoder.width
        if wanted is not None and wanted > width:
            raise InvalidRequestError(
                f"'dimensions' is {wanted}, and rows of this model have {width} numbers; ask for "
                "as many or fewer",
                param="dimensions",
                code="invalid_value",
            )
        return wanted or width


def _floats(data: bytes) -> array[float]:
    row = array("f")
    row.frombytes(data)
    if not all(map(math.isfinite, row)):
        raise DeviceError(
            "the model made infinities of a text, which are no row and no score; compile it again "
            "with --quant f32 (float16 overflows where a model was trained in bfloat16)",
            code="not_finite",
        )
    return row


def _dot(one: Row, other: Row) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def _unit(row: Row) -> list[float]:
    """The row with length 1, as in sentence-transformers and vLLM; zeros stay."""
    length = math.sqrt(math.fsum(x * x for x in row))
    return [x / length for x in row] if length > 0 else list(row)


def _softmax(row: Row) -> list[float]:
    most = max(row)
    powers = [math.exp(x - most) for x in row]
    total = math.fsum(powers)
    return [power / total for power in powers]


def _sigmoids(row: Row) -> list[float]:
    return [_sigmoid(x) for x in row]


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))
