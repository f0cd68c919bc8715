"""The fields that load and unload LoRA adapters (vLLM's) and models (llama.cpp's)."""

from __future__ import annotations

from mlcc.api.schema.schema import NOT_EMPTY, Flag, Object, honoured

LOAD_LORA = Object(
    "LoadLora",
    (
        honoured(
            "lora_name",
            NOT_EMPTY,
            "The adapter's name, which requests use as their model.",
            required=True,
        ),
        honoured("lora_path", NOT_EMPTY, "A PEFT folder inside --lora-dir.", required=True),
        honoured("load_inplace", Flag(), "Replace a loaded adapter of this name."),
    ),
)
UNLOAD_LORA = Object(
    "UnloadLora",
    (honoured("lora_name", NOT_EMPTY, "A loaded adapter.", required=True),),
)


NAMED_MODEL = Object(
    "NamedModel", (honoured("model", NOT_EMPTY, "One of the model's names.", required=True),)
)
"""The body of /models/load and /models/unload."""
