"""A request: a prompt in token ids, and sampling parameters.

Not the OpenAI schema (that is `mlcc.api`) and not the engine's state of a request (`sequence.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from mlcc.engine.batch.tables import MOST_TOP_LOGPROBS
from mlcc.engine.sampling.dry import DryParams
from mlcc.engine.sampling.grammar import Structure
from mlcc.engine.sampling.reasoning_grammar import Reasoning
from mlcc.engine.text.stop_checker import ParserSpec
from mlcc.errors import InvalidRequestError

FinishReason = Literal["stop", "length", "cancelled", "error"]
"""stop = end token or stop string; length = max_tokens or context; error = the device failed."""

MOST_TOKENS = 1024
"""Most tokens in `logit_bias`, `bad_words` and `stop_token_ids`."""


LEAST = 1e-6
"""Lower bound of parameters that must be above 0, also once they are float32."""
MOST = 1e20
"""Largest value of parameters that no other bound limits: sums and products of them are float32."""
_RANGES = {
    "temperature": (0, 1e30),
    "top_p": (LEAST, 1),
    "presence_penalty": (-MOST, MOST),
    "frequency_penalty": (-MOST, MOST),
    "repetition_penalty": (1 / MOST, MOST),
    "top_n_sigma": (0, 1e6),
    "typical_p": (LEAST, 1),
    "epsilon_cutoff": (0, 1),
    "eta_cutoff": (0, 1),
    "xtc_probability": (0, 1),
    "xtc_threshold": (LEAST, 1),
    "dynatemp_range": (0, 1e6),
    "dynatemp_exponent": (0, 100),
    "mirostat_tau": (0, 100),
    "mirostat_eta": (0, 1),
    "dry_multiplier": (0, 1e6),
    "dry_base": (1, 1e6),
}


MOST_FLOAT = 3.4028234663852886e38
"""The largest float32."""


def _require(ok: bool, param: str, value: object, wanted: str) -> None:
    if not ok:
        raise InvalidRequestError(
            f"{param} is {value!r}, but must be {wanted}", param=param, code="invalid_value"
        )


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    """Whether it is a number that float32 holds."""
    return (_is_int(value) or isinstance(value, float)) and abs(value) <= MOST_FLOAT  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are sampled and when to stop. The defaults sample the model's own distribution.

    Raises InvalidRequestError, which names the field in `param`.
    """

    temperature: float = 1.0
    """Divides the logits; 0 = greedy."""
    top_k: int = 0
    """Keep the k most likely tokens; 0 = all."""
    top_p: float = 1.0
    """Keep the smallest most likely set of at least this mass (Holtzman et al., 2020)."""
    min_p: float = 0.0
    """Drop tokens less likely than min_p times the most likely (Nguyen et al., 2024)."""
    seed: int | None = None
    """Same seed, same prompt: same text. None = the engine derives one per request."""
    max_tokens: int | None = None
    """Most output tokens; None = as far as context and pages reach, 0 = compute the prompt only."""
    stop: tuple[str, ...] = ()
    """The output ends before the first of these strings."""
    include_stop: bool = False
    """The output ends behind that string instead."""
    ignore_eos: bool = False
    """Treat the end tokens as ordinary tokens, for benchmarks."""
    stop_token_ids: tuple[int, ...] = ()
    """Further end tokens, which `ignore_eos` does not affect."""
    min_tokens: int = 0
    """No end token before the output has this many tokens. Stop strings still end it."""
    presence_penalty: float = 0.0
    """Subtracted from the logit of each token in the output (OpenAI's API reference)."""
    frequency_penalty: float = 0.0
    """Subtracted once per occurrence in the output (OpenAI's API reference)."""
    repetition_penalty: float = 1.0
    """Divides the logit of tokens in prompt or output; multiplies it if negative (Keskar et al.,
    2019)."""
    repeat_last_n: int = -1
    """Window of the three penalties, in tokens of prompt and output; -1 = all."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(token, value added to its logit), each token once."""
    bad_words: tuple[tuple[int, ...], ...] = ()
    """Token sequences that must not occur in the output: their last token is banned."""
    bad_words_ids: tuple[tuple[int, ...], ...] = ()
    """Such sequences of the model; they may begin in the prompt, as in transformers."""
    suppress_tokens: tuple[int, ...] = ()
    """Tokens that are never sampled."""
    begin_suppress_tokens: tuple[int, ...] = ()
    """Tokens that are not sampled first."""
    no_repeat_ngram_size: int = 0
    """No run of this many tokens occurs twice in prompt and output; 0 = off."""
    dry_multiplier: float = 0.0
    """0 = off. This and the next three are DRY's (`dry.py`)."""
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    """No repetition extends over a token with one of these strings."""
    logprobs: int | None = None
    """Number of top log-probabilities reported with each output token; None = no
    log-probabilities."""
    prompt_logprobs: bool = False
    """Report them for prompt tokens too. The prompt then bypasses the prefix cache."""
    top_n_sigma: float = 0.0
    """Keep logits within this many standard deviations of the largest; 0 = all. `filters.py`
    defines this and the following filters, and the order of all filters."""
    typical_p: float = 1.0
    """Keep this mass of the tokens whose surprise is nearest to the entropy; 1 = all."""
    epsilon_cutoff: float = 0.0
    """Drop tokens less likely than this."""
    eta_cutoff: float = 0.0
    """Drop tokens less likely than a bound that depends on the entropy."""
    xtc_probability: float = 0.0
    """How often the likeliest tokens are excluded (XTC)."""
    xtc_threshold: float = 0.1
    """Tokens at least this likely are excluded, except the least likely of them."""
    dynatemp_range: float = 0.0
    """The temperature varies by this much, with the entropy."""
    dynatemp_exponent: float = 1.0
    mirostat: int = 0
    """0 or 2, its version: keeps the surprise of the output near mirostat_tau (in bits)."""
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    """Learning rate of mirostat."""

    def __post_init__(self) -> None:
        k, m = self.top_k, self.min_p
        _require(_is_int(k) and 0 <= k < 2**31, "top_k", k, "an integer >= 0 (0 keeps all)")
        _require(_is_number(m) and 0 <= m <= 1, "min_p", m, "in [0, 1]")
        _require(self.seed is None or _is_int(self.seed), "seed", self.seed, "an integer or None")
        n = self.max_tokens
        _require(n is None or (_is_int(n) and n >= 0), "max_tokens", n, "an integer >= 0 or None")
        logprobs, most = self.logprobs, MOST_TOP_LOGPROBS
        good = logprobs is None or (_is_int(logprobs) and 0 <= logprobs <= most)
        _require(good, "logprobs", logprobs, f"an integer of 0 .. {most}, or None")
        also = self.prompt_logprobs
        _require(
            not also or logprobs is not None, "prompt_logprobs", also, "False without logprobs"
        )
        self._check_adjustments()
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            good = _is_number(value) and low <= value <= high
            _require(good, name, value, f"a finite number in [{low:g}, {high:g}]")
        _require(self.mirostat in (0, 2), "mirostat", self.mirostat, "0 or 2")
        good = isinstance(self.stop, tuple) and all(isinstance(s, str) and s for s in self.stop)
        _require(good, "stop", self.stop, "a tuple of non-empty strings")

    @property
    def adjusts(self) -> bool:
        """Whether logits are adjusted before sampling."""
        penalties = self.presence_penalty, self.frequency_penalty, self.repetition_penalty
        some = self.logit_bias or self.min_tokens or self.bad_words or self.dry_multiplier
        model = self.bad_words_ids or self.suppress_tokens or self.begin_suppress_tokens
        return bool(some or model or self.no_repeat_ngram_size) or penalties != (0, 0, 1)

    @property
    def dry(self) -> DryParams:
        """Parameters of `dry.Dry`."""
        return DryParams(
            self.dry_multiplier, self.dry_base, self.dry_allowed_length, self.dry_penalty_last_n
        )

    @property
    def token_ids(self) -> tuple[int, ...]:
        """All token ids in these parameters."""
        words = (token for word in self.bad_words + self.bad_words_ids for token in word)
        suppressed = self.suppress_tokens + self.begin_suppress_tokens
        biased = (token for token, _ in self.logit_bias)
        return (*self.stop_token_ids, *biased, *words, *suppressed)

    def _check_adjustments(self) -> None:
        n, b = self.min_tokens, self.logit_bias
        most = math.inf if self.max_tokens is None else self.max_tokens
        _require(_is_int(n) and n >= 0, "min_tokens", n, "an integer >= 0")
        _require(n <= most, "min_tokens", n, f"at most max_tokens, which is {most}")
        good = all(_is_int(token) and _is_number(bias) and abs(bias) <= MOST for token, bias in b)
        good = good and len({token for token, _ in b}) == len(b) <= MOST_TOKENS
        _require(
            good,
            "logit_bias",
            b,
            f"pairs of a token, each once, and a number in [-{MOST:g}, {MOST:g}];"
            f" {MOST_TOKENS} at most",
        )
        for name in ("repeat_last_n", "dry_penalty_last_n", "dry_allowed_length"):
            value, least = getattr(self, name), -1 if name.endswith("_n") else 0
            _require(_is_int(value) and value >= least, name, value, f"an integer >= {least}")
        for name in ("bad_words", "bad_words_ids"):
            words = getattr(self, name)
            good = all(word and all(map(_is_int, word)) for word in words)
            good = good and sum(map(len, words)) <= MOST_TOKENS
            _require(good, name, words, f"{MOST_TOKENS} tokens at most, none empty")
        for name in ("stop_token_ids", "suppress_tokens", "begin_suppress_tokens"):
            ids = getattr(self, name)
            good = all(map(_is_int, ids)) and len(ids) <= MOST_TOKENS
            _require(good, name, ids, f"a tuple of at most {MOST_TOKENS} integers")
        size = self.no_repeat_ngram_size
        _require(_is_int(size) and size >= 0, "no_repeat_ngram_size", size, "an integer >= 0")


@dataclass(frozen=True, slots=True)
class RowPacking:
    """How the rows of several tiles become those of one image (`mlcc.multimodal.packing`). The
    first tile is the whole image; a learned row follows each line of the others."""

    grid: tuple[int, int] = (0, 0)
    """Columns and rows of the other tiles; none: a learned row follows the whole image."""
    box: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Left, upper, right and lower edge of what is kept of the grid, in rows of the tower."""
    size: tuple[int, int] = (0, 1)
    """Columns and lines to which that is scaled."""

    @property
    def tiles(self) -> int:
        """Tiles that the tower computes."""
        return 1 + self.grid[0] * self.grid[1]

    @property
    def rows(self) -> int:
        """Rows of the prompt, beside those of the whole image."""
        return (self.size[0] + 1) * self.size[1]


@dataclass(frozen=True, slots=True)
class ImageTile:
    """An image, or a tile of one, that the vision tower reads: its rows stand for tokens of the
    prompt."""

    start: int
    """Index in the prompt of the first of these tokens."""
    rows: int
    """Number of these tokens."""
    key: bytes
    """sha256 of the pixels, their size and the processor's version."""
    pixels: bytes
    """uint8 RGB [height, width, 3], resized; the tower normalises them."""
    height: int
    width: int
    lines: int = 1
    """Runs of these tokens, of one length; a token of text is between two of them (Pixtral)."""
    packing: RowPacking | None = None
    """With it, `pixels` has several tiles, one after another; height and width are each one's."""

    @property
    def tokens(self) -> int:
        """Tokens of the prompt from its first to its last."""
        return self.rows + self.lines - 1


@dataclass(frozen=True, slots=True)
class AudioClip:
    """Sound, or a part of it, that the audio tower of a language model reads: its rows stand for
    tokens of the prompt."""

    start: int
    """Index in the prompt of the first of these tokens."""
    rows: int
    """Number of these tokens."""
    key: bytes
    """sha256 of the features, the number of encoder rows and the processor's version."""
    features: bytes
    """float32 log-mel frames [frames, bins]: those that the encoder rows read."""
    encoder_rows: int

    @property
    def tokens(self) -> int:
        """Tokens of the prompt from its first to its last."""
        return self.rows


@dataclass(frozen=True, slots=True)
class AudioWindow:
    """A window of sound that the audio tower reads: its rows are what the decoder attends to."""

    rows: int
    key: bytes
    """sha256 of the features."""
    features: bytes
    """float32 log-mel frames [2 * rows, bins]."""


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt to answer. `id` is unique among the unfinished requests."""

    id: str
    prompt: Sequence[int]
    """[n >= 1] token ids; the engine copies them."""
    sampling: SamplingParams = field(default_factory=SamplingParams)
    tenant: str = ""
    """Owner of the request. Tenants get equal shares of the device while all have work, and share
    no cached prefixes: the latency of a hit would reveal what another tenant asked."""
    cache_salt: str = ""
    """Separates the prefix cache within a tenant: requests with another salt do not share
    prefixes."""
    structure: Structure | None = None
    """Constraint on the output; None = none."""
    sampling_group: str = ""
    """Requests with one group name have the same prompt, which is computed once; "" = no group."""
    priority: int = 0
    """Lower is served first among a tenant's requests. Waiting requests age (`waiting_queue.py`).
    If pages run short, the last of all running requests is preempted."""

    background: bool = False
    """Work of a batch: it runs only while no other request waits or runs, whatever its tenant and
    priority, and gives way to one that comes."""

    adapter: str = ""
    """Name of a loaded LoRA adapter; "" = the base model. Cached prefixes are shared only between
    requests of the same adapter."""

    shown: tuple[tuple[int, str], ...] = ()
    """Control tokens that are shown as text in this output, for its parser
    (`mlcc.api.parsers.output_format`), with their spelling. All others are hidden."""

    reasoning: Reasoning | None = None
    """The reasoning before `structure` applies, and its budget; None = no reasoning."""

    parser: ParserSpec | None = None
    """Stop strings count in the content that this parser finds; None = in the whole output."""

    media: tuple[ImageTile | AudioClip, ...] = ()
    """Tiles and clips in the order of the prompt, which holds the model's image or audio token in
    their places."""

    audio: AudioWindow | None = None
    """What a model with an audio tower listens to; its prompt is only the beginning of the
    transcript."""

    aligned_rows: int = 0
    """Rows of the window that hold sound, if its answer is to say at which of them each token
    begins (`Finished.token_rows`); 0 = it is not."""

    prediction: Sequence[int] = ()
    """Predicted output tokens, from the client. Speculation drafts from them, so the output may
    come faster; it is the same output (`ngram.py`)."""

    @property
    def scope(self) -> tuple[str, ...]:
        """Requests of one scope share cached prefixes; of other sound it is another."""
        scope = self.tenant, self.cache_salt
        return scope if self.audio is None else (*scope, self.audio.key.hex())

    def __post_init__(self) -> None:
        _require(isinstance(self.id, str) and self.id != "", "id", self.id, "a non-empty string")
        _require(_is_int(self.priority), "priority", self.priority, "an integer, lower = first")
        if len(self.prompt) == 0:
            raise InvalidRequestError(
                "the prompt has no tokens; give at least one (such as the model's start token)",
                param="prompt",
                code="invalid_value",
            )


def too_long(prompt: str, context: int, remedy: str = "a longer context") -> InvalidRequestError:
    """The error for a prompt that leaves no space for an output. prompt: says how many tokens it
    has.

    Clients that shorten a conversation and retry look for these words: "maximum context length is"
    (litellm and agents over OpenAI's API), "prompt is too long: N tokens > M maximum" (those over
    Anthropic's).
    """
    return InvalidRequestError(
        f"this model's maximum context length is {context} tokens and the prompt is too long:"
        f" {prompt} > {context - 1} maximum, for the answer needs room; shorten the prompt or load"
        f" the model with {remedy}",
        param="prompt",
        code="context_length_exceeded",
    )
