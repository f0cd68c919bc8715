"""The fields of reasoning: whether and how long a model thinks before it answers, and what its chat
template is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from mlcc.api.schema.schema import Object, honoured, metadata
from mlcc.api.schema.types import ANYTHING, Custom, Flag, Integer, Json, Text, refuse
from mlcc.errors import InvalidRequestError
from mlcc.util.fast_dataclass import fast_dataclass

MOST_BUDGET = 2**31 - 1
OURS = frozenset({"messages", "tools", "documents", "add_generation_prompt", "self"})
"""Variables of a template that a request says elsewhere, or not at all; self is jinja's."""
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_KNOWN_EFFORTS = {"minimal": "low", "xhigh": "high", "max": "high"}
"""Templates know low, medium and high."""


def _variables(value: Json, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise refuse(VARIABLES, value, where)
    for name in value:
        if name in OURS or str(name).endswith("_token"):
            raise InvalidRequestError(
                f"'{where}' sets '{str(name)[:40]}', which is not a request's to set; leave it out",
                param=where,
                code="invalid_value",
            )
    return dict(value)


VARIABLES = Custom("an object", _variables, (ANYTHING,))
BUDGET = Integer(0, MOST_BUDGET)
SWITCHES = Text(("enabled", "disabled", "adaptive"))
THINKING_SWITCH = Object(
    "ThinkingSwitch",
    (
        honoured(
            "type",
            Custom(SWITCHES.wants, SWITCHES.check, (Text(),)),
            "Whether the model thinks; adaptive = as it likes.",
            required=True,
        ),
        honoured("budget_tokens", BUDGET, "Another name of `thinking_budget`."),
        metadata("display"),
    ),
)
THINKING = (
    honoured(
        "reasoning_effort",
        Text(EFFORTS),
        "How much the model thinks, where its template knows that; none = not at all.",
    ),
    honoured("enable_thinking", Flag(), "Whether it thinks, where its template knows that."),
    honoured(
        "thinking_budget",
        BUDGET,
        "Tokens after which its reasoning is ended, and the answer begins.",
    ),
    honoured("thinking", THINKING_SWITCH, "Both of these as Anthropic and others say it."),
    honoured("chat_template_kwargs", VARIABLES, "Variables of the model's chat template."),
)
"""Rows of a chat's request."""


@fast_dataclass(frozen=True)
class ReasoningOptions:
    """What a request says of reasoning."""

    variables: dict[str, Any] = field(default_factory=dict)
    """Of the chat template."""
    budget: int | None = None
    """Tokens of reasoning, at most; None = as many as the model likes."""


def reasoning_options(fields: Mapping[str, Any]) -> ReasoningOptions:
    """What checked fields say. Raises InvalidRequestError if two say different things."""
    switch = fields.get("thinking") or {}
    budget = _one("thinking_budget", fields.get("thinking_budget"),
                  "thinking.budget_tokens", switch.get("budget_tokens"))  # fmt: skip
    on = {"enabled": True, "disabled": False}.get(switch.get("type", ""))
    on = _one("enable_thinking", fields.get("enable_thinking"), "thinking.type", on)
    variables: dict[str, Any] = {}
    if effort := fields.get("reasoning_effort"):
        if effort == "none":
            on = False if on is None else on
        else:
            variables["reasoning_effort"] = _KNOWN_EFFORTS.get(effort, effort)
    if budget == 0 and on is None:
        on = False
    if on is not None:
        variables |= {"enable_thinking": on, "thinking": on}
    return ReasoningOptions({**variables, **fields.get("chat_template_kwargs", {})}, budget)


def _one(name: str, value: Any, other: str, same: Any) -> Any:
    """Of two fields that mean the same, what one says."""
    if value is not None and same is not None and value != same:
        raise InvalidRequestError(
            f"'{name}' and '{other}' mean the same and differ; send one of them",
            param="thinking",
            code="invalid_value",
        )
    return same if value is None else value


DEFAULT_REASONING = ReasoningOptions()
