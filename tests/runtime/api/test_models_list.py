"""Entries of /v1/models have the fields that lists of models in clients read."""

from __future__ import annotations

from typing import get_args

from mlcc.api.openai.models import model
from mlcc.api.openai.shapes import ModelState


def test_each_state_has_what_clients_read() -> None:
    """openai requires the first four; open-webui takes `id` where `name` is absent, and drops an
    entry without both; LiteLLM takes `id`; vLLM's clients read the rest."""
    for state in get_args(ModelState):
        entry = model("org/name", 5, state=state, context=4096)
        assert (entry["id"], entry["object"], entry["owned_by"]) == ("org/name", "model", "mlcc")
        assert entry["created"] == 5 and "name" not in entry
        assert entry["max_model_len"] == entry["context_length"] == 4096
        assert entry["root"] == "org/name" and entry["parent"] is None
        (permission,) = entry["permission"]
        assert permission["object"] == "model_permission" and permission["allow_sampling"] is True


def test_an_adapter_names_its_base_model() -> None:
    entry = model("adapter", 5, state="loaded", context=4096, parent="org/name")
    assert (entry["root"], entry["parent"]) == ("org/name", "org/name")
