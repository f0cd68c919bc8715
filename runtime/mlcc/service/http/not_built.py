"""Addresses of OpenAI's API that are not built, with what to use instead: a client that asks for
one gets a sentence, not "no such address"."""

from __future__ import annotations

from collections.abc import Mapping

from mlcc.api.errors import NotBuiltError

_ASSISTANTS = (
    "the Assistants API is not built, and OpenAI has ended it; use /v1/responses, which keeps "
    "conversations (previous_response_id)"
)
_SPEECH = "no model here speaks; use a speech server. Those that hear are asked at "
_SPEECH += "/v1/audio/transcriptions"
_IMAGES = (
    "no model here draws; use an image server such as stable-diffusion.cpp's. Models that see take "
    "images in /v1/chat/completions"
)
_TUNING = "nothing is trained here; train an adapter with PEFT and load it with --lora"
_SEARCH = "documents are not kept here; use /v1/embeddings and /v1/rerank over your own"
NOT_BUILT: Mapping[str, str] = {
    "/v1/moderations": "no model here moderates; ask one by /v1/chat/completions with a JSON "
    "Schema as response_format",
    "/v1/audio": _SPEECH,
    "/v1/realtime": "the Realtime API is not built; stream /v1/chat/completions",
    "/v1/images": _IMAGES,
    "/v1/videos": "no model here makes videos",
    "/v1/assistants": _ASSISTANTS,
    "/v1/threads": _ASSISTANTS,
    "/v1/conversations": "the Conversations API is not built; continue an answer of /v1/responses "
    "by its previous_response_id",
    "/v1/fine_tuning": _TUNING,
    "/v1/fine-tunes": _TUNING,
    "/v1/vector_stores": _SEARCH,
    "/v1/uploads": "uploads in parts are not built; send a file in one to /v1/files",
    "/v1/evals": "the Evals API is not built; type `mlcc eval MODEL`, or send a batch",
    "/v1/graders": "the Graders API is not built; send a batch to /v1/batches",
    "/v1/containers": "no code runs here; run it yourself, as a tool that the model calls",
    "/v1/live": "the Live API is not built; stream /v1/chat/completions",
    "/v1/safety": "no model here moderates; ask one by /v1/chat/completions with a JSON Schema as "
    "response_format",
    "/v1/decisions": "the Decisions API is not built; ask a model by /v1/chat/completions with a "
    "JSON Schema as response_format",
    "/v1/content_provenance_checks": "no model here draws or speaks, and nothing is marked",
    "/v1/chatkit": "ChatKit is not built; the chat page is at /",
    "/v1/edits": "the Edits API is not built, and OpenAI has ended it; use /v1/chat/completions",
    "/v1/engines": "the Engines API is not built, and OpenAI has ended it; use /v1/models",
    "/v1/organization": "there are no organizations; keys are kept in a file (--api-keys of "
    "`mlcc serve`)",
    "/v1/skills": "the Skills API is not built; give the model tools in 'tools'",
}
"""By the beginning of the path: the reason, and what to use instead."""


def not_built(path: str) -> NotBuiltError | None:
    """The error for a path that OpenAI's API has and this does not; None = it has neither."""
    parts = path.split("/")
    reason = NOT_BUILT.get("/".join(parts[:3]))
    if reason is None:
        return None
    return NotBuiltError(f"{path[:80]}: {reason}", code="not_built")
