"""Embeddings, scores, reranking and classes by OpenAI's, vLLM's, Jina's and Cohere's routes."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from mlcc.api.openai.embeddings import (
    CLASSIFY,
    EMBEDDING,
    RERANK,
    SCORE,
    classes,
    embeddings,
    ranking,
    scores,
)
from mlcc.api.schema.schema import Object
from mlcc.errors import InvalidRequestError
from mlcc.service.embeddings import Encoding, encoder_of
from mlcc.service.http.json_pieces import response_by_pieces
from mlcc.service.http.router import Handlers
from mlcc.service.http.routes import (
    CLASSES,
    EMBEDDINGS,
    RERANK_PLAIN,
    RERANK_V1,
    RERANK_V2,
    SCORE_PLAIN,
    SCORE_V1,
)
from mlcc.service.http.types import ApiRequest, ApiResponse, json_response
from mlcc.service.served_model import ServedModel


async def embed(served: ServedModel, request: ApiRequest) -> ApiResponse:
    """POST /v1/embeddings."""
    fields, ignored = await _fields(served, request, EMBEDDING, "embeddings")
    given = fields["input"]
    texts = given if isinstance(given, list) else [given]
    generation = Encoding(served, request, fields, "embeddings")
    wanted = fields.get("dimensions")
    rows = await generation.embed(
        texts, fields.get("prompt_name"), wanted, generation.encoder.normalize
    )
    written = fields.get("encoding_format", "float")
    name = fields.get("model") or served.text.name
    make = partial(embeddings, name, rows.values, rows.tokens, written)
    return await response_by_pieces(make, ignored)  # up to 2048 long rows


async def score(served: ServedModel, request: ApiRequest) -> ApiResponse:
    """POST /v1/score: one text against one or several, or texts in pairs."""
    fields, ignored = await _fields(served, request, SCORE, "scores")
    one, other = (_list(fields, name) for name in ("text_1", "text_2"))
    if len(one) not in (1, len(other)):
        raise InvalidRequestError(
            f"'text_1' has {len(one)} texts and 'text_2' {len(other)}; send one of the first, or "
            "as many as of the second",
            param="text_1",
            code="invalid_value",
        )
    pairs = list(zip(one * (len(other) // len(one)), other, strict=True))
    generation = Encoding(served, request, fields, "scores", "text_2")
    found, tokens = await generation.score(pairs)
    name = f"score-{os.urandom(16).hex()}"
    model = fields.get("model") or served.text.name
    made = scores(name, int(time.time()), model, found, tokens)
    return json_response(made, headers=ignored)


async def rerank(served: ServedModel, request: ApiRequest) -> ApiResponse:
    """POST /v1/rerank, /v2/rerank, /rerank."""
    fields, ignored = await _fields(served, request, RERANK, "ranking")
    texts = [d if isinstance(d, str) else d["text"] for d in fields["documents"]]
    generation = Encoding(served, request, fields, "ranking", "documents")
    found, tokens = await generation.score([(fields["query"], text) for text in texts])
    made = ranking(
        f"rerank-{os.urandom(16).hex()}",
        fields.get("model") or served.text.name,
        texts,
        found,
        tokens,
        fields.get("top_n"),
        fields.get("return_documents", True),
    )
    return json_response(made, headers=ignored)


async def classify(served: ServedModel, request: ApiRequest) -> ApiResponse:
    """POST /classify."""
    fields, ignored = await _fields(served, request, CLASSIFY, "classes")
    given = fields["input"]
    generation = Encoding(served, request, fields, "classes")
    activate = fields.get("use_activation", fields.get("activation", True))
    rows = await generation.classify(given if isinstance(given, list) else [given], activate)
    make = partial(
        classes,
        f"classify-{os.urandom(16).hex()}",
        int(time.time()),
        fields.get("model") or served.text.name,
        generation.encoder.labels or ("LABEL_0",),  # a reranker of an older artifact
        rows.values,
        rows.tokens,
    )
    return await response_by_pieces(make, ignored)


async def _fields(
    served: ServedModel, request: ApiRequest, table: Object, what: str
) -> tuple[dict[str, Any], dict[str, str]]:
    """The checked fields, and the header that names unknown ones, after checking that the model can
    produce `what`."""
    body = await served.body(request)
    named = body.get("model") if isinstance(body, Mapping) else None
    served.check_model(named if isinstance(named, str) else None)
    encoder_of(served, what)
    return await served.checked(request, body, table.fields_of, table)


def _list(fields: Mapping[str, Any], name: str) -> list[str]:
    if name not in fields:
        raise InvalidRequestError(
            f"'{name}' is missing; it must be a text or an array of texts",
            param=name,
            code="missing_required_parameter",
        )
    return fields[name] if isinstance(fields[name], list) else [fields[name]]


HANDLERS: Handlers = {
    CLASSES: classify,
    EMBEDDINGS: embed,
    SCORE_V1: score,
    SCORE_PLAIN: score,
    RERANK_V1: rerank,
    RERANK_V2: rerank,
    RERANK_PLAIN: rerank,
}
