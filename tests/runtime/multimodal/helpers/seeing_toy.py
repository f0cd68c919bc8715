"""The toy model that sees: the real way from a request's bytes to the engine's, and a tower whose
rows are hashes of a tile's pixels, so that an answer depends on each image of its prompt.

Imports nothing that the library for C programs lacks."""

from __future__ import annotations

import re
import sys
from array import array
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING

from mlcc.api.chat_template.template import ChatTemplate
from mlcc.api.openai.models import ModelInfo
from mlcc.artifact.schema import VisionInfo
from mlcc.device.toy.executor import ToyExecutor
from mlcc.engine.batch.batch import Capacity
from mlcc.engine.batch.executor import Executor
from mlcc.engine.batch.tables import CacheGroup
from mlcc.engine.request import ImageTile, Request
from mlcc.model.model import Model, ModelText
from mlcc.multimodal.processors.registry import processor_of
from mlcc.service.engine_client import Job
from tests.runtime.multimodal.helpers.pictures import encoded, idefics3, noise

if TYPE_CHECKING:
    from tests.helpers.service_calls import Calls

SPECIAL = (
    *("<image>", "<fake_token_around_image>", "<global-img>"),
    *("<|image_pad|>", "<start_of_image>", "<image_soft_token>", "<end_of_image>"),
    *(f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)),
)
FIRST = 96
VOCAB = FIRST + len(SPECIAL)
CAPACITY = replace(
    Capacity.of(
        [CacheGroup("paged", 16)],
        [512],
        vocab_size=VOCAB,
        context=2048,
        max_batch=4,
        max_step_tokens=256,
    ),
    embedding_slots=256,
)
PARTS_TEMPLATE = (
    "{% for m in messages %}({{ m.role }})"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}"
    "{% if part.type == 'image' %}<image>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}{% endfor %}(assistant)"
)
"""Knows images in every message."""


class Letters:
    """One token per printable ASCII character, and the special ones."""

    longest = 8
    _pattern = re.compile("(" + "|".join(map(re.escape, SPECIAL)) + ")")

    def encode(self, text: str, /, *, add_special_tokens: bool) -> array[int]:
        ids = array("i")
        for part in self._pattern.split(text):
            if part in SPECIAL:
                ids.append(FIRST + SPECIAL.index(part))
            else:
                ids.extend(ord(c) - 31 if " " <= c < "\x7f" else 1 for c in part)
        return ids

    def decode(self, ids: Sequence[int], /) -> str:
        return "".join(chr(i + 31) if i < FIRST else SPECIAL[i - FIRST] for i in ids if i)

    def special_tokens(self) -> tuple[str, ...]:
        return SPECIAL


class ToyTower:
    """A row is a hash of its tile's key and of its number."""

    def encode(self, tile: ImageTile) -> bytes:
        rows = (blake2b(tile.key + bytes([row]), digest_size=8) for row in range(tile.rows))
        return b"".join(row.digest() for row in rows)

    def close(self) -> None:
        """Nothing to free."""


def seeing_model(text: ModelText, executor: Executor) -> Model:
    """A model of these parts with the tower."""
    return Model(text, executor, tower=ToyTower())  # type: ignore[arg-type]


def with_id(info: VisionInfo) -> VisionInfo:
    """The record with the toy's id of its image token."""
    return replace(info, image_token_id=FIRST + SPECIAL.index(info.image_token))


def text_of(info: VisionInfo | None, template: str = PARTS_TEMPLATE) -> ModelText:
    """The text side of a toy that sees; None = one that reads text only."""
    marks = () if info is None else processor_of(info).marks
    return ModelText(
        "toy",
        Letters(),
        ChatTemplate(template, {}, SPECIAL, marks),
        frozenset([0]),
        info=ModelInfo(image_size=info and processor_of(info).useful_size),
        vision=None if info is None else with_id(info),
    )


@contextmanager
def seeing(
    info: VisionInfo | None, template: str = PARTS_TEMPLATE
) -> Iterator[tuple[Calls, list[Request]]]:
    """The service of a toy, and the requests that reach its engine."""
    from tests.helpers.service_calls import calls_to

    reached: list[Request] = []
    with calls_to(seeing_model(text_of(info, template), ToyExecutor(CAPACITY))) as calls:
        client = calls._caller._client
        submit = client.submit

        def recorded(requests: Sequence[Request], seconds: float | None) -> Job:
            reached.extend(requests)
            return submit(requests, seconds)

        client.submit = recorded  # type: ignore[method-assign]
        yield calls, reached


def picture(width: int = 40, height: int = 30, seed: int = 0) -> bytes:
    """A file of random pixels."""
    return encoded(noise(width, height, seed))


def base64_of(data: bytes) -> str:
    return b64encode(data).decode()


def data_url(data: bytes) -> str:
    return f"data:image/png;base64,{base64_of(data)}"


def open_toy() -> Model:
    """A toy that sees, for a C program."""
    return seeing_model(text_of(idefics3()), ToyExecutor(CAPACITY))


def open_toy_without_pillow() -> Model:
    """The same in a process that then decodes no images, as on a phone."""
    model = open_toy()
    sys.modules["PIL"] = None  # type: ignore[assignment]
    return model
