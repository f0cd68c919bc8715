"""What only an encoder answers: embeddings, scores of pairs, an order of documents. No such model
can be compiled yet, so that the addresses for it say so, in the shape of their protocol.
"""

from __future__ import annotations

from mlcc.api.schema import Object, honoured
from mlcc.api.types import ANYTHING, Text
from mlcc.errors import UnsupportedError

ENCODED = Object(
    "EncoderRequest",
    (
        honoured("model", Text(), "The model's name."),
        *(
            honoured(name, ANYTHING)
            for name in (
                "input", "text_1", "text_2", "query", "documents", "top_n", "encoding_format",
                "dimensions", "user", "return_documents", "truncate_prompt_tokens",
            )
        ),
    ),
)  # fmt: skip
"""Of /v1/embeddings, /v1/score and /v1/rerank: read for the model's name."""


def no_encoder(model: str, what: str) -> UnsupportedError:
    """`what` is wanted of a model that writes."""
    return UnsupportedError(
        f"'{model}' makes no {what}: no encoder model is loaded, and none can be compiled yet; ask "
        "another server for them",
        param="model",
        code="no_encoder",
    )
