"""Request tables and responses of encoders: OpenAI's embeddings, vLLM's scores, and reranking as
Jina and Cohere define it. Nothing is computed here.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from mlcc.api.schema.chat_fields import NOT_EMPTY, TOKEN
from mlcc.api.schema.schema import (
    Custom,
    Either,
    Flag,
    Integer,
    Json,
    Many,
    Number,
    Object,
    Text,
    honoured,
    metadata,
    refuse,
)
from mlcc.errors import UnsupportedError

MOST_TEXTS = 2048
"""Of one request, as OpenAI has it."""
TIMEOUT = Number(0.001, 1e6)
TOKEN_IDS = Many(TOKEN, 1)
CUT = Integer(-1, 2**31 - 1)


def _texts(value: Json, where: str) -> list[Any]:
    """`["a", "b"]`, `[1, 2]` or `[[1, 2], [3]]`, as a list of texts."""
    if value and isinstance(value[0], str):
        return Many(NOT_EMPTY, 1, MOST_TEXTS).check(value, where)
    if value and isinstance(value[0], list):
        return Many(TOKEN_IDS, 1, MOST_TEXTS).check(value, where)
    if value and isinstance(value[0], int) and not isinstance(value[0], bool):
        return [TOKEN_IDS.check(value, where)]
    raise refuse(INPUT, value, where)


INPUT = Either(
    NOT_EMPTY,
    Custom(
        f"an array of token ids, or of up to {MOST_TEXTS} texts or token id arrays",
        _texts,
        (Many(NOT_EMPTY), TOKEN_IDS, Many(TOKEN_IDS)),
    ),
)
RERANK_DOCUMENT = Object(
    "RerankDocument", (honoured("text", Text(), "What is ranked.", required=True),)
)
DOCUMENT = Custom(
    "a text, or an object with a 'text'",
    lambda value, where: (RERANK_DOCUMENT if isinstance(value, Mapping) else Text()).check(
        value, where
    ),
    (Text(), RERANK_DOCUMENT),
)
_SHARED = (
    honoured("model", Text(), "The model's name."),
    honoured(
        "truncate_prompt_tokens",
        CUT,
        "Cut longer texts at so many tokens, -1 = at the most that the model takes. Without it a "
        "longer text is an error.",
    ),
    honoured("timeout", TIMEOUT, "Seconds that the whole request may take."),
    honoured("priority", Integer(-100, 100), "Lower is served first."),
    metadata("user"),
)
EMBEDDING = Object(
    "EmbeddingRequest",
    (
        honoured("input", INPUT, "One text or several; each becomes a row.", required=True),
        honoured("encoding_format", Text(("float", "base64")), "How numbers are written."),
        honoured(
            "dimensions",
            Integer(1, 2**31 - 1),
            "Keep so many numbers of each row, from the first, and make it of length 1 again: of "
            "use with models that were trained for it (Matryoshka).",
        ),
        honoured(
            "prompt_name",
            Text(),
            "Which of the model's prompts goes before each text; the names are the model's own.",
        ),
        *_SHARED,
    ),
)
SCORE = Object(
    "ScoreRequest",
    (
        honoured("text_1", Either(Text(), Many(Text(), 1, MOST_TEXTS)), "The first of each pair."),
        honoured("text_2", Either(Text(), Many(Text(), 1, MOST_TEXTS)), "The second."),
        *_SHARED,
    ),
)
RERANK = Object(
    "RerankRequest",
    (
        honoured("query", NOT_EMPTY, "What the documents are ranked by.", required=True),
        honoured("documents", Many(DOCUMENT, 1, MOST_TEXTS), "What is ranked.", required=True),
        honoured("top_n", Integer(1, 2**31 - 1), "Answer so many, the best; all unless said."),
        honoured("return_documents", Flag(), "Say the documents again; true unless said."),
        *_SHARED,
    ),
)
OF_TASK = {"embeddings": "embed", "scores": "score", "ranking": "score"}


def no_encoder(model: str, what: str) -> UnsupportedError:
    """`what` is wanted of a model that writes."""
    kind = "a reranker" if OF_TASK.get(what) == "score" else "an embedding model"
    return UnsupportedError(
        f"'{model}' makes no {what}: it writes, and is no encoder model; compile {kind} with "
        "`mlcc compile` and serve that (docs/embeddings.md lists them)",
        param="model",
        code="no_encoder",
    )


def no_embeddings(model: str) -> UnsupportedError:
    """Embeddings are wanted of a reranker."""
    return UnsupportedError(
        f"'{model}' scores pairs of texts and makes no embeddings; ask it at /v1/rerank or "
        "/v1/score, or serve an embedding model",
        param="model",
        code="no_embeddings",
    )


def writes_nothing(model: str) -> UnsupportedError:
    """An answer is wanted of an encoder."""
    return UnsupportedError(
        f"'{model}' is an encoder and writes nothing; ask it at /v1/embeddings or /v1/rerank, or "
        "serve a chat model",
        param="model",
        code="encoder_model",
    )


def embeddings(
    model: str, rows: Sequence[Sequence[float]], tokens: int, written: str
) -> dict[str, Any]:
    """As OpenAI answers, rows as numbers or as base64 of little-endian float32."""
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": i, "embedding": _written(row, written)}
            for i, row in enumerate(rows)
        ],
        "model": model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def scores(name: str, created: int, model: str, found: Sequence[float], tokens: int) -> Any:
    """As vLLM answers /v1/score."""
    return {
        "id": name,
        "object": "list",
        "created": created,
        "model": model,
        "data": [{"index": i, "object": "score", "score": x} for i, x in enumerate(found)],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def ranking(
    name: str,
    model: str,
    documents: Sequence[str],
    found: Sequence[float],
    tokens: int,
    top: int | None,
    said: bool,
) -> dict[str, Any]:
    """As vLLM, Jina and Cohere answer: the best first, of equals the first."""
    order = sorted(range(len(found)), key=lambda i: -found[i])[:top]
    return {
        "id": name,
        "model": model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        "results": [
            {
                "index": i,
                **({"document": {"text": documents[i]}} if said else {}),
                "relevance_score": found[i],
            }
            for i in order
        ],
    }


def _written(row: Sequence[float], how: str) -> Any:
    if how != "base64":
        return list(row)
    from struct import pack

    return base64.b64encode(pack(f"<{len(row)}f", *row)).decode("ascii")
