"""Chat templates: render a conversation to the text that the model was trained on.

The templates are Hugging Face's jinja templates, rendered as transformers does, but in a bounded
sandbox (`sandbox.py`): a template comes with a downloaded model and is untrusted code. Messages are
untrusted too: a control token in a message is plain text (`control_tokens.py`). Not a tokenizer:
`ChatText` says how the text is to be encoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from mlcc.api.chat_template.budget import OverBudget
from mlcc.api.chat_template.control_tokens import ControlTokenGuard
from mlcc.api.chat_template.history import (
    CallStyle,
    ReasoningStyle,
    adapt_history,
    detect_call_style,
    detect_reasoning_style,
    refuses_ids,
    with_short_ids,
)
from mlcc.api.chat_template.media import AUDIO, IMAGE, MediaTexts
from mlcc.api.chat_template.tools import functions_text, plain_tools
from mlcc.api.chat_template.turns import TurnRules
from mlcc.api.parsers.tools.plain_text import plain_text
from mlcc.api.parsers.tools.prompted import takes_functions
from mlcc.api.parsers.tools.registry import pick
from mlcc.errors import ArtifactError, InvalidRequestError
from mlcc.multimodal.audio.encoded import is_sound
from mlcc.util.fast_dataclass import fast_dataclass

if TYPE_CHECKING:
    from jinja2.environment import Template

MAX_TEMPLATE_CHARS = 128 * 1024
MAX_OUTPUT_CHARS = 8_000_000

PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] | capitalize }}: {{ message['content'] }}\n"
    "{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)
"""For models without a template. They were not trained on it: a base model may ramble."""


CONTINUATION_MARK = "\ue0b7 goes on here \ue0b8"
"""Marks the end of a message that the answer continues: everything the template writes after it is
cut off. It stands at the end of a text, so that a template that trims the text keeps it."""

_TOOLS_AS = ("tools", "xml_tools")
_TOOL = {
    "type": "function",
    "function": {
        "name": "zq_name",
        "description": "Does it.",
        "parameters": {"type": "object", "properties": {"zq_key": {"type": "string"}}},
    },
}
"""A tool of the conversations that find out what a template can render."""
_WORDS = "zq words"
"""A text that no template writes itself."""


@fast_dataclass(frozen=True)
class ChatText:
    """A rendered conversation, and whether the tokenizer adds its start token."""

    text: str
    add_special_tokens: bool
    pieces: tuple[str, ...]
    """The text, cut inside every control token that is not the template's own. Encoded one by one,
    the pieces contain the template's control tokens and no others."""
    media: tuple[int, ...] = ()
    """Images and sounds in their order, by number."""


@fast_dataclass
class ChatTemplate:
    """A template of one model, compiled at the first use. Thread-safe.

    `source` None: the model has no template, and the plain one is used (`is_plain`).
    """

    source: str | None
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    """`bos_token`, `eos_token` ... as the template spells them."""
    control_tokens: tuple[str, ...] = ()
    """Tokens that count only where the template writes them. If empty, all written tokens count."""
    image_marks: tuple[str, ...] = ()
    """Tokens of images, which never count in messages; the first is what the template writes for
    an image. Empty = the model sees nothing."""
    audio_marks: tuple[str, ...] = ()
    """As image_marks, of sound."""
    around_audio: tuple[str, str] = ("", "")
    """Texts before and after a sound, for a template that has none."""

    def __post_init__(self) -> None:
        self._template: Template | None = None
        self._known_parts: dict[tuple[str, bool], bool] = {}
        named, marks = self._named_tokens(), (*self.image_marks, *self.audio_marks)
        self._guard = ControlTokenGuard((*self.control_tokens, *named, *marks))

    @property
    def is_plain(self) -> bool:
        """Whether the model has no template of its own."""
        return self.source is None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        media: MediaTexts | None = None,
        /,
        *,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> ChatText:
        """The text of a conversation; with `prefix` in its last message, up to the end of that
        message. media: of a model that sees or hears, the texts of what it gets in messages.

        Raises InvalidRequestError with the template's own words if it refuses the messages, and
        ArtifactError if the template is broken or does too much.
        """
        if media is not None and not self._writes_parts("tool", media):
            messages = media.after_tools(messages)
        messages = self._turns[bool(variables.get("tools"))].apply(messages)
        adapted = self._adapted(messages)
        continues = bool(adapted) and bool(adapted[-1].pop("prefix", False))
        if continues:
            adapted[-1]["content"] += CONTINUATION_MARK
        numbers = media.numbers(adapted) if media is not None else []
        if media is not None:
            adapted = self._with_media(adapted, media)
        given: dict[str, Any] = {"messages": adapted}
        given |= {"tools": None, "documents": None, **variables}
        given["tools"] = given["tools"] or self._no_tools
        if given["tools"] and "xml_tools" in (self.source or ""):  # SmolLM3's name of them
            given.setdefault("xml_tools", given["tools"])
        generates = add_generation_prompt and not continues
        try:
            text = self._text(self._guard.mark(given), generates)
        except ArtifactError:
            if not given["tools"]:
                raise
            own = [name for name in _TOOLS_AS if given.get(name) == given["tools"]]
            given |= dict.fromkeys(own, plain_tools(given["tools"]))
            text = self._text(self._guard.mark(given), generates)
        text = _until_continuation(text) if continues else text
        if media is not None:
            text = media.place(text, self._marks, numbers)
        pieces = tuple(self._guard.pieces(text))
        return ChatText("".join(pieces), self.is_plain, pieces, tuple(numbers))

    def _with_media(
        self, messages: Sequence[dict[str, Any]], media: MediaTexts
    ) -> list[dict[str, Any]]:
        """The messages with their images and sounds as parts, or as marks within the text."""
        if self._writes_parts("user", media):
            return [media.as_parts(message) for message in messages]
        (seen, heard), (begin, end), guarded = self._marks, self.around_audio, self._guard.mark
        marks = seen, begin + heard + end
        return [media.as_text(message, marks, guarded) for message in messages]

    @property
    def _marks(self) -> tuple[str, str]:
        """Of an image, and of a sound; "" = the model has none."""
        return (*self.image_marks, "")[0], (*self.audio_marks, "")[0]

    def _writes_parts(self, role: str, media: MediaTexts) -> bool:
        """Whether the template writes the marks of images, or of sounds, where there are some,
        among the parts of such a message."""
        kinds = {is_sound(given) for given in media.media.items}
        for kind in kinds:
            if (role, kind) not in self._known_parts:
                self._known_parts[role, kind] = self._tries_part(role, kind)
        return all(self._known_parts[role, kind] for kind in kinds)

    def _tries_part(self, role: str, sound: bool) -> bool:
        parts = [AUDIO if sound else IMAGE, {"type": "text", "text": _WORDS}]
        messages: list[dict[str, Any]] = [{"role": "user", "content": parts}]
        if role == "tool":
            result = {"role": "tool", "tool_call_id": "zqcall123", "name": "zq_name"}
            function = {"name": "zq_name", "arguments": {}}
            call = {"id": "zqcall123", "type": "function", "function": function}
            asked: list[dict[str, Any]] = [
                {"role": "user", "content": "zq"},
                {"role": "assistant", "content": "", "tool_calls": [call]},
            ]
            messages = [*self._adapted(asked), {**result, "content": parts}]
        text = self._tried(messages)
        return text.count(self._marks[sound]) == 1 and _WORDS in text

    @cached_property
    def _wants_parts(self) -> bool:
        """Whether a text must be given as a part: of a string the template writes nothing."""
        if "type" not in (self.source or ""):
            return False
        if _WORDS in self._tried([{"role": "user", "content": _WORDS}]):
            return False
        parts = [{"type": "text", "text": _WORDS}]
        return _WORDS in self._tried([{"role": "user", "content": parts}])

    def _tried(self, messages: list[dict[str, Any]]) -> str:
        """What the template writes for these messages as they are; "" if it refuses them."""
        try:
            return self._written({"messages": messages, "tools": None})
        except (ArtifactError, InvalidRequestError):
            return ""

    def _adapted(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Earlier calls and reasoning in the template's style."""
        if any(message.get("tool_calls") or "tool_call_id" in message for message in messages):
            messages = adapt_history(messages, self.source or "")
            messages = with_short_ids(messages) if self._refuses_ids else messages
        if any(message.get("reasoning_content") for message in messages):
            messages = self._reasoning_style.apply(messages)
        if any(message.get("tool_calls") for message in messages):
            messages = self._call_style.apply(messages)
        return [dict(message) for message in messages]

    @cached_property
    def _takes_functions(self) -> bool:
        return takes_functions(self.source or "")

    @cached_property
    def _no_tools(self) -> list[Any] | None:
        """None as in transformers, or an empty list for templates that always loop over tools."""
        talk = [{"role": "user", "content": "hi"}]
        ways: tuple[list[Any] | None, ...] = (None, [])
        for tools in ways if "tools" in (self.source or "") else ():
            try:
                self._text({"messages": talk, "tools": tools})
            except (ArtifactError, InvalidRequestError):
                continue
            return tools
        return None

    @cached_property
    def _turns(self) -> tuple[TurnRules, TurnRules]:
        """Without tools and with them: some templates write them into the first user message."""

        def render(tools: list[Any] | None, messages: list[dict[str, Any]]) -> str:
            shown = tools or self._no_tools
            given = {"messages": self._adapted(messages), "tools": shown, "xml_tools": shown}
            return self._text(given, add_generation_prompt=True)

        return TurnRules(partial(render, None)), TurnRules(partial(render, [_TOOL]))

    @cached_property
    def _reasoning_style(self) -> ReasoningStyle:
        def render(messages: list[dict[str, Any]]) -> str:
            given = {"messages": self._call_style.apply(messages), "tools": self._no_tools}
            return self._text(given)

        return detect_reasoning_style(render)

    @cached_property
    def _call_style(self) -> CallStyle:
        write = partial(plain_text, pick(self.source or ""))
        return detect_call_style(
            lambda messages: self._text({"messages": messages, "tools": self._no_tools}), write
        )

    @cached_property
    def _refuses_ids(self) -> bool:
        def render(messages: list[dict[str, Any]]) -> str:
            return self._text(
                {"messages": self._call_style.apply(messages), "tools": self._no_tools}
            )

        return refuses_ids(render)

    def _text(self, given: dict[str, Any], add_generation_prompt: bool = False) -> str:
        """The template's output, unchanged."""
        if self._wants_parts:
            given = {**given, "messages": [*map(_in_parts, given["messages"])]}
        return self._written(given, add_generation_prompt)

    def _written(self, given: dict[str, Any], add_generation_prompt: bool = False) -> str:
        if self._takes_functions:
            given = {**_functions(given.get("tools")), **given}
        with self._bounded():
            pieces = self._compiled().generate(
                **given, add_generation_prompt=add_generation_prompt, **self.special_tokens
            )
            return self._collect(pieces)

    def check(self) -> None:
        """Compile now. Raises ArtifactError if the template is no valid jinja or too long."""
        with self._bounded():
            self._compiled()

    def _compiled(self) -> Template:
        if self._template is None:
            source = PLAIN_TEMPLATE if self.source is None else self.source
            if len(source) > MAX_TEMPLATE_CHARS:
                raise ArtifactError(
                    f"the chat template has {len(source)} characters, more than "
                    f"{MAX_TEMPLATE_CHARS}; put a real one into chat_template.jinja"
                )
            from mlcc.api.chat_template.sandbox import compiled

            self._template = compiled(source)
        return self._template

    def _bounded(self) -> AbstractContextManager[None]:
        from mlcc.api.chat_template.sandbox import bounded

        return bounded(self._guard)

    def _named_tokens(self) -> tuple[str, ...]:
        return tuple(self.special_tokens.values()) if self.control_tokens else ()

    def _collect(self, pieces: Iterable[str]) -> str:
        kept, length = [], 0
        for piece in pieces:
            length += len(piece)
            if length > MAX_OUTPUT_CHARS:
                raise OverBudget(f"it writes more than {MAX_OUTPUT_CHARS} characters")
            kept.append(piece)
        return "".join(kept)


def _functions(tools: Sequence[Mapping[str, Any]] | None) -> dict[str, str]:
    """The variables of a template that has its tools as a text. The day alone: a prompt that is
    another one each second is never found in the prefix cache."""
    from mlcc.api.chat_template.sandbox import strftime_now

    return {"functions": functions_text(tools or []), "datetime": strftime_now("%Y-%m-%d")}


def _in_parts(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message with a text as the only part of its content."""
    content = message.get("content")
    if not isinstance(content, str):
        return dict(message)
    return {**message, "content": [{"type": "text", "text": content}]}


def _until_continuation(text: str) -> str:
    end = text.rfind(CONTINUATION_MARK)
    if end < 0:
        raise InvalidRequestError(
            "the model's chat template does not write out the last message, so no answer can go on "
            "from its end; leave 'prefix' out",
            param="messages",
            code="chat_template",
        )
    return text[:end]


def without_double_bos(text: str, bos_token: str | None, adds_bos: bool) -> str:
    """A raw prompt without the start token that the tokenizer will add again."""
    if adds_bos and bos_token and text.startswith(bos_token):
        return text[len(bos_token) :]
    return text
