"""The fields of /v1/chat/completions and /v1/completions as tables, and which are supported:
reasoning, prediction, sampling. Messages are in `message_fields.py`, tools in `tool_fields.py`,
constraints on the answer in `structured_output.py`, samplers beyond OpenAI's in
`sampling_fields.py`.

To add a field, add a row here; if it is a sampling parameter, `SamplingParams` has an attribute of
the name that the row `sets`. Rules between fields are in `mlcc.api.openai.requests`.

`prediction` (OpenAI's Predicted Outputs) never changes an answer: with a speculator
(`mlcc serve --speculate lookup`) draft tokens are taken from it, so that a correct prediction makes
the answer faster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from mlcc.api.schema.message_fields import MESSAGE, TEXT_CONTENT
from mlcc.api.schema.sampling_fields import FILTERS, LAST_TOKENS
from mlcc.api.schema.schema import (
    ANYTHING,
    NOT_EMPTY,
    ByToken,
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
    not_built,
    refuse,
    sampling,
)
from mlcc.api.schema.structured_output import STRUCTURE
from mlcc.api.schema.tool_fields import TOOLS
from mlcc.engine.batch.tables import MOST_TOP_LOGPROBS
from mlcc.engine.request import MOST_TOKENS
from mlcc.errors import InvalidRequestError
from mlcc.util.fast_dataclass import fast_dataclass

MOST_BUDGET = 2**31 - 1
OURS = frozenset({"messages", "tools", "documents", "add_generation_prompt", "self"})
"""Template variables that a request cannot set here; self is jinja's."""
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_KNOWN_EFFORTS = {"minimal": "low", "xhigh": "high", "max": "high"}
"""Templates support low, medium and high."""


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
            "Whether the model reasons; adaptive = the model decides.",
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
        "Reasoning effort, if the chat template supports it; none = no reasoning.",
    ),
    honoured("enable_thinking", Flag(), "Whether the model reasons, if its template supports it."),
    honoured(
        "thinking_budget",
        BUDGET,
        "Most tokens of reasoning; the answer begins after them.",
    ),
    honoured("thinking", THINKING_SWITCH, "Switch and budget in the form of Anthropic and others."),
    honoured("chat_template_kwargs", VARIABLES, "Variables of the model's chat template."),
)
"""Rows of a chat request."""


@fast_dataclass(frozen=True)
class ReasoningOptions:
    """The reasoning options of a request."""

    variables: dict[str, Any] = field(default_factory=dict)
    """Variables of the chat template."""
    budget: int | None = None
    """Most tokens of reasoning; None = no limit."""


def reasoning_options(fields: Mapping[str, Any]) -> ReasoningOptions:
    """The options of checked fields. Raises InvalidRequestError for conflicting values."""
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
    """The value of two fields that mean the same."""
    if value is not None and same is not None and value != same:
        raise InvalidRequestError(
            f"'{name}' and '{other}' mean the same and differ; send one of them",
            param="thinking",
            code="invalid_value",
        )
    return same if value is None else value


DEFAULT_REASONING = ReasoningOptions()


PREDICTION_CONTENT = Object(
    "Prediction",
    (
        honoured("type", Text(("content",)), "Always `content`.", required=True),
        honoured("content", TEXT_CONTENT, "The text, or texts that are joined.", required=True),
    ),
)


def _prediction(value: Json, where: str) -> dict[str, object]:
    if not isinstance(value, Mapping):
        raise refuse(CHECKED, value, where)
    return PREDICTION_CONTENT.check(value, where)


CHECKED = Custom("an object with a type and a content", _prediction, (PREDICTION_CONTENT,))
PREDICTION = honoured(
    "prediction",
    CHECKED,
    "Predicted text of the answer, such as the file being edited: faster, with the same answer.",
)


def prediction_of(fields: dict[str, object]) -> str:
    """The text of a checked prediction; "" = there is none."""
    found = fields.get("prediction")
    if not isinstance(found, dict):
        return ""
    content = found["content"]
    return content if isinstance(content, str) else "".join(content)


MAX_STOP = 16
MAX_PROMPTS = 64
MOST_ANSWERS = 128
"""Most answers to one prompt, OpenAI's limit."""

LEAST_TOP_P = 1e-6
"""OpenAI allows top_p 0, which keeps only the likeliest token; the engine needs more than 0."""
SEED = Integer(-(2**63), 2**63 - 1)
COUNT = Integer(1, 2**31 - 1)


def _longest(least: int) -> Custom:
    """A number of tokens from `least` on, or -1, which clients of llama.cpp send."""
    count = Integer(least, 2**31 - 1)

    def check(value: Json, where: str) -> int:
        if value == -1 and isinstance(value, int):
            return -1
        try:
            return count.check(value, where)
        except InvalidRequestError:
            raise refuse(rule, value, where) from None

    rule = Custom(f"{count.wants}, or -1 for no limit", check, (Integer(-1, 2**31 - 1),))
    return rule


LONGEST = _longest(1)
MOST_WORDS = 64
LIKELIEST = Integer(0, MOST_TOP_LOGPROBS)
TOKEN = Integer(0, 2**31 - 1)
LEAST_REPETITION = 0.01
MOST_PRIORITY = 100
"""Both ways. One level has much weight (`mlcc.engine.scheduler.waiting_queue`); larger values have
no use."""
LEAST_TIMEOUT, MOST_TIMEOUT = 0.001, 1e6

STREAM_OPTIONS = Object(
    "StreamOptions",
    (
        honoured("include_usage", Flag(), "End the stream with a chunk of token counts."),
        not_built("include_obfuscation", False),
    ),
)

SAMPLING = (
    sampling(
        "temperature",
        Number(0, 2),
        "Divides the logits; 0 always samples the likeliest token.",
        recommended=True,
    ),
    sampling(
        "top_p",
        Number(0, 1),
        "Keep the smallest set of the likeliest tokens with at least this mass; 1 keeps all.",
        made=lambda mass: max(mass, LEAST_TOP_P),
        recommended=True,
    ),
    sampling(
        "top_k",
        Integer(-1, 2**31 - 1),
        "Keep this many of the likeliest tokens; 0 and -1 keep all.",
        made=lambda count: max(count, 0),
        recommended=True,
    ),
    sampling(
        "min_p",
        Number(0, 1),
        "Drop tokens less likely than this share of the likeliest one's.",
        recommended=True,
    ),
    sampling("seed", SEED, "The same seed and prompt give the same answer."),
    sampling(
        "stop",
        Either(NOT_EMPTY, Many(NOT_EMPTY, 0, MAX_STOP)),
        "The answer ends before the first of these in its text; reasoning and calls may hold them.",
        made=lambda stop: (stop,) if isinstance(stop, str) else tuple(stop),
    ),
    sampling(
        "include_stop_str_in_output",
        Flag(),
        "The answer ends behind the string of `stop` instead.",
        sets="include_stop",
    ),
    sampling(
        "max_tokens",
        LONGEST,
        "Longest answer in tokens; -1 = as long as the context allows.",
        made=lambda count: None if count < 0 else count,
    ),
    sampling("ignore_eos", Flag(), "Ignore end-of-sequence tokens, for benchmarks."),
    sampling(
        "min_tokens",
        Integer(0, 2**31 - 1),
        "Suppress end-of-sequence tokens before this many tokens.",
    ),
    sampling(
        "stop_token_ids",
        Many(TOKEN, 0, MOST_TOKENS),
        "Tokens that end the answer, in addition to the model's own.",
        made=tuple,
    ),
    sampling(
        "frequency_penalty",
        Number(-2, 2),
        "Lowers a token's logit for each time it is in the answer; below 0, raises it.",
    ),
    sampling(
        "presence_penalty",
        Number(-2, 2),
        "Lowers the logits of tokens in the answer; below 0, raises them.",
    ),
    sampling(
        "repetition_penalty",
        Number(LEAST_REPETITION, 10),
        "Above 1, makes tokens of prompt and answer less likely.",
        recommended=True,
    ),
    sampling(
        "repeat_penalty",
        Number(LEAST_REPETITION, 10),
        "llama.cpp's name of `repetition_penalty`.",
        sets="repetition_penalty",
    ),
    sampling(
        "repeat_last_n",
        LAST_TOKENS,
        "Window of these three penalties in tokens; -1 = all.",
    ),
    sampling(
        "logit_bias",
        ByToken(Number(-100, 100), MOST_TOKENS),
        "Added to the logits of tokens, by id.",
        made=lambda bias: tuple(bias.items()),
    ),
    sampling(
        "bad_words",
        Many(NOT_EMPTY, 0, MOST_WORDS),
        "Words that the answer must not contain, as token sequences, with and without a space.",
        made=tuple,
    ),
    *FILTERS,
)

COMMON = (
    honoured("model", NOT_EMPTY, "The model's name; optional if there is only one."),
    honoured("stream", Flag(), "Send the answer as it is made, as server-sent events."),
    honoured("stream_options", STREAM_OPTIONS, "Only with `stream`."),
    honoured(
        "n",
        Integer(1, MOST_ANSWERS),
        "Answers to each prompt, which is computed once; each gets a seed derived from `seed`.",
    ),
    honoured(
        "cache_salt",
        NOT_EMPTY,
        "Requests share the prefix cache only with requests of the same salt.",
    ),
    honoured(
        "priority",
        Integer(-MOST_PRIORITY, MOST_PRIORITY),
        "Lower is answered first among the requests of an API key; waiting requests gain "
        "priority with time.",
    ),
    honoured(
        "timeout",
        Number(LEAST_TIMEOUT, MOST_TIMEOUT),
        "Time limit of the answer in seconds, within the server's own.",
    ),
    metadata("user"),
    metadata("metadata"),
    metadata("store", False),
    *STRUCTURE,
)
PROMPT_END = (
    honoured(
        "continue_final_message",
        Flag(),
        "The answer continues the last message, an assistant's, as with its `prefix`.",
    ),
    honoured(
        "add_generation_prompt",
        Flag(),
        "false: the prompt ends with the last message, and the model may go on with any role.",
    ),
)
"""Rows of a chat request, with vLLM's names."""
OF_VLLM = (
    not_built("use_beam_search", False),
    not_built("allowed_token_ids", advice="send 'logit_bias', or a grammar"),
    not_built("truncate_prompt_tokens", advice="send a shorter prompt"),
    not_built("skip_special_tokens", True),
)
"""Fields of vLLM's that change an answer, of chats and completions."""

CHAT = Object(
    "ChatCompletionRequest",
    (
        honoured("messages", Many(MESSAGE, 1), "The conversation so far.", required=True),
        *COMMON,
        *SAMPLING,
        sampling(
            "max_completion_tokens",
            LONGEST,
            "The newer name of `max_tokens`.",
            sets="max_tokens",
            made=lambda count: None if count < 0 else count,
        ),
        sampling(
            "logprobs",
            Flag(),
            "Report the log-probability of each token of the answer.",
            made=lambda wanted: 0 if wanted else None,
        ),
        honoured(
            "top_logprobs",
            LIKELIEST,
            "With `logprobs`: report this many of the likeliest tokens at each position, too.",
        ),
        *TOOLS,
        *THINKING,
        *PROMPT_END,
        *OF_VLLM,
        not_built("add_special_tokens", False, advice="the chat template writes them"),
        not_built("chat_template", advice="the model's own is used"),
        not_built("documents", [], advice="put their text into a message"),
        not_built("verbosity", "medium"),
        not_built("echo", False, advice="the request has the messages"),
        not_built("prompt_logprobs", advice="/v1/completions has them, by 'echo' with 'logprobs'"),
        not_built("modalities", ["text"]),
        not_built("audio"),
        not_built("web_search_options"),
        not_built("moderation"),
        PREDICTION,
        metadata("prompt_cache_key"),
        metadata("prompt_cache_options"),
        metadata("prompt_cache_retention"),
        metadata("safety_identifier"),
        metadata("service_tier"),
    ),
)

TOKEN_IDS = Many(TOKEN, 1)


def _prompt_array(value: Json, where: str) -> list[Any]:
    """`["a", "b"]`, `[1, 2]` or `[[1, 2], [3]]`, as a list of prompts."""
    if value and isinstance(value[0], str):
        return Many(NOT_EMPTY, 1, MAX_PROMPTS).check(value, where)
    if value and isinstance(value[0], list):
        return Many(TOKEN_IDS, 1, MAX_PROMPTS).check(value, where)
    if value and isinstance(value[0], int) and not isinstance(value[0], bool):
        return [TOKEN_IDS.check(value, where)]
    raise refuse(PROMPT, value, where)


PROMPT = Either(
    NOT_EMPTY,
    Custom(f"an array of token ids, or of up to {MAX_PROMPTS} texts or token id arrays",
           _prompt_array, (Many(NOT_EMPTY), TOKEN_IDS, Many(TOKEN_IDS))),
)  # fmt: skip

COMPLETION = Object(
    "CompletionRequest",
    (
        honoured("prompt", PROMPT, "One prompt or several; each gets an answer.", required=True),
        *COMMON,
        *(row for row in SAMPLING if row.name != "max_tokens"),
        sampling(
            "max_tokens",
            _longest(0),
            "Longest answer in tokens; -1 = as long as the context allows, 0 = none: the prompt "
            "alone is computed.",
            made=lambda count: None if count < 0 else count,
        ),
        honoured("echo", Flag(), "Send the prompt before the answer, and its `logprobs`."),
        not_built("prompt_logprobs", advice="send 'echo' with 'logprobs'"),
        *OF_VLLM,
        not_built("add_special_tokens", True, advice="send token ids, of /tokenize without them"),
        honoured(
            "best_of",
            Integer(1, MOST_ANSWERS),
            "Generate this many answers and send the `n` likeliest, by mean log-probability; with "
            "`stream` it must equal `n`.",
        ),
        honoured(
            "suffix",
            Text(),
            "Text after the gap to fill; for models that were trained for it.",
        ),
        sampling(
            "logprobs",
            LIKELIEST,
            "Report the log-probability of each token of the answer, and of this many of the "
            "likeliest at its position.",
        ),
    ),
)
