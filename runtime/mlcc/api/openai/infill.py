"""Fill-in-the-middle (FIM): prompts for models that were trained to complete a gap between two
texts. Model families are recognized by their control tokens, which are read from the tokenizer. Not
a tokenizer: the result is a text.

Method: Bavarian et al., "Efficient Training of Language Models to Fill in the Middle" (2022).
"""

from __future__ import annotations

from collections.abc import Callable

from mlcc.errors import UnsupportedError
from mlcc.util.fast_dataclass import fast_dataclass


@fast_dataclass(frozen=True)
class Infill:
    """The control tokens of one model family."""

    prefix: str
    suffix: str
    middle: str = ""
    suffix_first: bool = False
    """Whether the text after the gap is written before the text in front of it."""
    ends: tuple[str, ...] = ()
    """Tokens that end such an answer, in addition to the model's own."""
    file: str = ""
    """Token before each further file of the same repository, if the model has one."""

    @property
    def tokens(self) -> tuple[str, ...]:
        """Tokens that the tokenizer must have."""
        return tuple(token for token in (self.prefix, self.suffix, self.middle) if token)

    def text(self, before: str, after: str) -> str:
        """The prompt for the text between the two."""
        if self.suffix_first:
            return f"{self.suffix}{after}{self.prefix}{before}{self.middle}"
        return f"{self.prefix}{before}{self.suffix}{after}{self.middle}"


FAMILIES = (
    # Qwen2.5-Coder, CodeGemma, Granite 4
    Infill(
        "<|fim_prefix|>",
        "<|fim_suffix|>",
        "<|fim_middle|>",
        ends=("<|fim_pad|>", "<|file_sep|>", "<|repo_name|>", "<|file_separator|>"),
        file="<|file_sep|>",
    ),
    # StarCoder and StarCoder2, Granite Code, SmolLM
    Infill(
        "<fim_prefix>", "<fim_suffix>", "<fim_middle>", ends=("<file_sep>",), file="<file_sep>"
    ),
    # SantaCoder
    Infill("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    # DeepSeek-Coder: the gap is a "hole", and the token for the middle is the last one
    Infill(
        "<\uff5cfim\u2581begin\uff5c>", "<\uff5cfim\u2581hole\uff5c>", "<\uff5cfim\u2581end\uff5c>"
    ),
    # CodeLlama: its tokens begin with SentencePiece's space
    Infill("\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>", ends=("\u2581<EOT>",)),
    # Codestral
    Infill("[PREFIX]", "[SUFFIX]", suffix_first=True),
)  # fmt: skip


def family_of(token_of: Callable[[str], int | None]) -> Infill | None:
    """The family of a tokenizer; None = its model was not trained for infill. `token_of` returns
    the id of a text that is one token, None for others."""
    for family in FAMILIES:
        ids = [token_of(token) for token in family.tokens]
        if None not in ids and len(set(ids)) == len(ids):  # equal ids are the unknown token's
            return family
    return None


def no_infill(model: str, field: str) -> UnsupportedError:
    """The error for a model that was not trained for infill."""
    return UnsupportedError(
        f"'{field}' needs a model that fills in the middle, and the tokenizer of '{model}' has "
        "none of the control tokens for it that are known (Qwen-Coder, StarCoder, CodeLlama, "
        "DeepSeek-Coder, Granite, CodeGemma, Codestral); leave it out or load such a model",
        param=field,
        code="no_infill",
    )
