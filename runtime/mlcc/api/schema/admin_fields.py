"""What is said to load and unload adapters (LoRA), in vLLM's words.

What is said to load and unload models: a name.
"""

from __future__ import annotations

from mlcc.api.schema.chat_fields import NOT_EMPTY
from mlcc.api.schema.schema import Flag, Object, honoured

LOAD_LORA = Object(
    "LoadLora",
    (
        honoured("lora_name", NOT_EMPTY, "What requests say as their model.", required=True),
        honoured("lora_path", NOT_EMPTY, "A folder of PEFT in that of --lora-dir.", required=True),
        honoured("load_inplace", Flag(), "Take the name of one that is loaded."),
    ),
)
UNLOAD_LORA = Object(
    "UnloadLora",
    (honoured("lora_name", NOT_EMPTY, "An adapter that is loaded.", required=True),),
)


NAMED_MODEL = Object(
    "NamedModel", (honoured("model", NOT_EMPTY, "One of its names.", required=True),)
)
"""The body of /models/load and /models/unload."""
