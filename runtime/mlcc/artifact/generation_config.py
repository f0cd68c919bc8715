"""The fields of a checkpoint's generation_config.json: which of them mlcc follows.

`tokens_never_sampled` reads those that forbid tokens; the recommended sampling parameters are read
by `api/openai/requests.py`. A compile names the fields that `unused` finds. Names and neutral
values are those of transformers' GenerationConfig.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

SAMPLING = frozenset(
    {"temperature", "top_k", "top_p", "min_p", "repetition_penalty", "typical_p"}
    | {"epsilon_cutoff", "eta_cutoff"}
)
"""Recommended sampling parameters that are followed unless a request has its own."""
FORBIDS = ("suppress_tokens", "begin_suppress_tokens", "bad_words_ids", "no_repeat_ngram_size")
"""Fields that forbid tokens in every answer."""
MOST_TOKENS = 1024
"""Most tokens in one of the lists that forbid tokens."""
_IDS = frozenset({"do_sample", "eos_token_id", "bos_token_id", "pad_token_id"})
_NO_EFFECT = frozenset(
    {"assistant_confidence_threshold", "assistant_early_exit", "assistant_ensemble_weight"}
    | {"assistant_lookbehind", "cache_config", "cache_implementation", "compile_config"}
    | {"continuous_batching_config", "decoder_start_token_id", "disable_compile"}
    | {"diversity_penalty", "early_stopping", "is_assistant", "length_penalty", "low_memory"}
    | {"max_cache_len", "max_matching_ngram_size", "num_assistant_tokens", "num_beam_groups"}
    | {"num_assistant_tokens_schedule", "num_return_sequences", "output_attentions"}
    | {"output_hidden_states", "output_logits", "output_scores", "prefill_chunk_size"}
    | {"prompt_lookup_num_tokens", "remove_invalid_values", "renormalize_logits"}
    | {"return_dict_in_generate", "speculation_type", "target_lookbehind", "transformers_version"}
    | {"trust_remote_code", "use_cache", "use_mtp"}
)
"""Fields that change no token of an answer, or only those of a beam search, which is named."""
_ONE = frozenset({"num_beams", "guidance_scale", "encoder_repetition_penalty", "top_h"})
"""Fields whose neutral value is 1."""
_ADVICE = {
    "max_new_tokens": "send 'max_tokens' with each request",
    "max_length": "send 'max_tokens' with each request",
    "min_new_tokens": "send 'min_tokens' with each request",
    "min_length": "send 'min_tokens' with each request",
    "stop_strings": "send 'stop' with each request",
    "sequence_bias": "send 'logit_bias' with each request",
    "num_beams": "answers are sampled or greedy",
}


def unused(config: Mapping[str, Any]) -> Iterator[str]:
    """A line on each field that would change answers and is not followed."""
    for name, value in sorted(config.items()):
        if name in FORBIDS:
            if value is not None and forbidden_by(name, value) is None:
                yield f"generation_config.json's '{name}' is not valid, and is not used"
        elif name not in SAMPLING | _IDS | _NO_EFFECT and not _is_neutral(name, value):
            advice = f": {_ADVICE[name]}" if name in _ADVICE else ""
            yield f"generation_config.json's '{name}' ({value!r:.40}) is not used{advice}"


def _is_neutral(name: str, value: Any) -> bool:
    return name.startswith("_") or not value or (name in _ONE and value == 1)


def tokens_never_sampled(
    config: Mapping[str, Any], vocab_size: int, ends: Container[int]
) -> dict[str, Any]:
    """The fields that forbid tokens, as parameters of the engine; {} if there are none.

    Tokens beyond the vocabulary are never sampled anyway. As in transformers, an end token alone
    is no bad word.
    """
    found = {name: forbidden_by(name, config.get(name)) for name in FORBIDS}
    for name in FORBIDS[:2]:
        found[name] = tuple(token for token in found[name] or () if token < vocab_size)
    found["bad_words_ids"] = tuple(
        word
        for word in found["bad_words_ids"] or ()
        if all(token < vocab_size for token in word) and not (len(word) == 1 and word[0] in ends)
    )
    return {name: value for name, value in found.items() if value}


def forbidden_by(name: str, value: Any) -> Any:
    """The checked value of a field that forbids tokens; None if it is not valid."""
    if name == "no_repeat_ngram_size":
        return value if _is_count(value) else None
    if not isinstance(value, list):
        return None
    if name != "bad_words_ids":
        good = all(map(_is_count, value)) and len(value) <= MOST_TOKENS
        return tuple(dict.fromkeys(value)) if good else None
    words = [word for word in value if isinstance(word, list) and word]
    good = len(words) == len(value) and all(_is_count(token) for word in words for token in word)
    return tuple(map(tuple, words)) if good and sum(map(len, words)) <= MOST_TOKENS else None


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 31
