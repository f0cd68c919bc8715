"""Request tables and responses of encoders: OpenAI's embeddings, vLLM's scores, and reranking as
Jina and Cohere define it. Nothing is computed here.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from mlcc.api.schema.chat_fields import (
    TOKEN,
)
from mlcc.api.schema.schema import (
    NOT_EMPTY,
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
"""Most texts of one request, OpenAI's limit."""
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
    "RerankDocument", (honoured("text", Text(), "The document's text.", required=True),)
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
        "Cut longer texts to this many tokens, -1 = the most that the model takes. Otherwise a "
        "longer text is an error.",
    ),
    honoured("timeout", TIMEOUT, "Time limit of the whole request in seconds."),
    honoured("priority", Integer(-100, 100), "Lower is served first."),
    metadata("user"),
)
EMBEDDING = Object(
    "EmbeddingRequest",
    (
        honoured("input", INPUT, "One text or several; each becomes an embedding.", required=True),
        honoured("encoding_format", Text(("float", "base64")), "Format of the numbers."),
        honoured(
            "dimensions",
            Integer(1, 2**31 - 1),
            "Keep the first numbers of each embedding, normalized to length 1 again; useful for "
            "models that were trained for it (Matryoshka).",
        ),
        honoured(
            "prompt_name",
            Text(),
            "Name of the model's prompt that is put before each text.",
        ),
        *_SHARED,
    ),
)
SCORE = Object(
    "ScoreRequest",
    (
        honoured(
            "text_1", Either(Text(), Many(Text(), 1, MOST_TEXTS)), "First texts of the pairs."
        ),
        honoured(
            "text_2", Either(Text(), Many(Text(), 1, MOST_TEXTS)), "Second texts of the pairs."
        ),
        *_SHARED,
    ),
)
RERANK = Object(
    "RerankRequest",
    (
        honoured("query", NOT_EMPTY, "The query that documents are ranked by.", required=True),
        honoured("documents", Many(DOCUMENT, 1, MOST_TEXTS), "The documents.", required=True),
        honoured("top_n", Integer(1, 2**31 - 1), "Return the best ones only; all by default."),
        honoured("return_documents", Flag(), "Repeat the documents; true by default."),
        *_SHARED,
    ),
)
CLASSIFY = Object(
    "ClassifyRequest",
    (
        honoured("input", INPUT, "One text or several; each gets a class.", required=True),
        honoured("use_activation", Flag(), "false: logits, not probabilities; true by default."),
        honoured("activation", Flag(), "vLLM's older name of `use_activation`."),
        *_SHARED,
    ),
)
MAKERS = {
    "embeddings": "an embedding model",
    "scores": "a reranker",
    "ranking": "a reranker",
    "classes": "a classifier",
}
"""What makes it."""
TASKS = {
    "embeddings": ("embed",),
    "scores": ("embed", "score"),
    "ranking": ("embed", "score"),
    "classes": ("classify", "score"),
}
"""Tasks of the encoders that make it."""


def no_encoder(model: str, what: str) -> UnsupportedError:
    """The error if a model that generates text is asked for `what`."""
    return UnsupportedError(
        f"'{model}' makes no {what}: it writes, and is no encoder model; compile {MAKERS[what]} "
        "with `mlcc compile` and serve that (docs/embeddings.md lists them)",
        param="model",
        code="no_encoder",
    )


def no_embeddings(model: str) -> UnsupportedError:
    """The error if a reranker is asked for embeddings."""
    return UnsupportedError(
        f"'{model}' scores pairs of texts and makes no embeddings; ask it at /v1/rerank or "
        "/v1/score, or serve an embedding model",
        param="model",
        code="no_embeddings",
    )


def other_task(model: str, task: str, what: str) -> UnsupportedError:
    """The error if an encoder is asked for `what`, which its task does not make."""
    if task == "score" and what == "embeddings":
        return no_embeddings(model)
    does = {
        "embed": "makes embeddings",
        "classify": "puts texts into classes",
        "score": "scores pairs of texts by a template",
    }
    place = {"embed": "/v1/embeddings", "classify": "/classify", "score": "/v1/rerank"}
    return UnsupportedError(
        f"'{model}' {does.get(task, 'reads images')} and makes no {what}; ask it at "
        f"{place.get(task, '/v1/chat/completions')}, or serve {MAKERS[what]}",
        param="model",
        code=f"no_{what}",
    )


def writes_nothing(model: str) -> UnsupportedError:
    """The error if an encoder is asked to generate."""
    return UnsupportedError(
        f"'{model}' is an encoder and writes nothing; ask it at /v1/embeddings or /v1/rerank, or "
        "serve a chat model",
        param="model",
        code="encoder_model",
    )


def embeddings(
    model: str, rows: Sequence[Sequence[float]], tokens: int, written: str
) -> dict[str, Any]:
    """OpenAI's response, with numbers or base64 of little-endian float32."""
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
    """vLLM's response of /v1/score."""
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
    with_documents: bool,
) -> dict[str, Any]:
    """The response of vLLM, Jina and Cohere: best document first, ties in the order of the
    request."""
    order = sorted(range(len(found)), key=lambda i: -found[i])[:top]
    return {
        "id": name,
        "model": model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        "results": [
            {
                "index": i,
                **({"document": {"text": documents[i]}} if with_documents else {}),
                "relevance_score": found[i],
            }
            for i in order
        ],
    }


def classes(
    name: str,
    created: int,
    model: str,
    labels: Sequence[str],
    rows: Sequence[Sequence[float]],
    tokens: int,
) -> dict[str, Any]:
    """vLLM's response of /classify: the likeliest class, the first of equal ones, and all
    probabilities in the order of the classes."""
    return {
        "id": name,
        "object": "list",
        "created": created,
        "model": model,
        "data": [
            {
                "index": i,
                "label": labels[max(range(len(row)), key=row.__getitem__)],
                "probs": list(row),
                "num_classes": len(row),
            }
            for i, row in enumerate(rows)
        ],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def _written(row: Sequence[float], how: str) -> Any:
    if how != "base64":
        return list(row)
    from struct import pack

    return base64.b64encode(pack(f"<{len(row)}f", *row)).decode("ascii")
