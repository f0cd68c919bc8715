"""A chat request adapted to the model: template variables and messages, the constraint on answers,
the reasoning budget, and the parser of the output.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from mlcc.api.openai.requests import ChatRequest
from mlcc.api.openai.responses import NewParser
from mlcc.api.parsers.tools.grammar import calls_grammar
from mlcc.api.parsers.tools.prompted import with_prompted_tools
from mlcc.api.schema.tool_fields import Tool, ToolUse
from mlcc.engine.sampling.grammar import Structure
from mlcc.engine.sampling.reasoning_grammar import Reasoning
from mlcc.errors import InvalidRequestError, MlccError, UnsupportedError
from mlcc.model.model import ModelText
from mlcc.model.reasoning import reasoning_rule
from mlcc.model.structured_output.json_schema import relaxed
from mlcc.service.engine_client import with_param
from mlcc.service.prompts import Prompts, check_built
from mlcc.util.fast_dataclass import fast_dataclass

_ANY: Mapping[str, Any] = {"type": "object"}


@fast_dataclass(frozen=True)
class GenerationSpec:
    """The engine's options of a generation besides sampling."""

    structure: Structure | None = None
    reasoning: Reasoning | None = None
    shown: tuple[tuple[int, str], ...] = ()
    prediction: Sequence[int] = ()
    """Predicted tokens of the answer, given by the client."""


class ChatPlan:
    """The plan of one chat request."""

    def __init__(self, parsed: ChatRequest, text: ModelText) -> None:
        self._parsed, self._text, self._output_format = parsed, text, text.output_format
        self.variables: dict[str, Any] = dict(parsed.reasoning.variables)
        """Template variables besides the messages."""
        self.messages: Sequence[Mapping[str, Any]] = parsed.messages
        """Messages for the template; one without tools gets them as text."""
        if not self._output_format.native:
            source = text.chat_template.source or ""
            self.messages = with_prompted_tools(parsed.messages, parsed.use.shown, source)
        elif parsed.use.shown:
            self.variables["tools"] = [*parsed.use.shown]

    async def structure(
        self, prompts: Prompts, time_left: Callable[[], float | None]
    ) -> Structure | None:
        """The constraint on answers. Raises MlccError if a required one cannot be enforced."""
        use = self._parsed.use
        if not use.tools:
            return self._parsed.structure
        answer = self._answer()
        needs = use.must_hold or answer is not None
        if not needs and (self._text.grammars is None or self._text.reasoning_parser == "none"):
            return None  # calls are parsed, not constrained
        check_built(self._text, Structure("grammar", "", use.field))
        for tool in use.tools:
            if tool.strict:
                schema = Structure("json_schema", json.dumps(tool.parameters), tool.field)
                await prompts.structure(schema, time_left())
        if answer is not None and self._parsed.structure is not None:
            await prompts.structure(self._parsed.structure, time_left())
        refused: MlccError | None = None
        for known in (_relaxed, _anything):
            structure = self._calls(use, known, answer)
            try:
                await prompts.structure(structure, time_left())
                return structure
            except (InvalidRequestError, UnsupportedError) as error:
                refused = refused or error
        if needs and refused is not None:
            raise refused
        return None

    async def prediction(
        self, prompts: Prompts, context: int, time_left: Callable[[], float | None]
    ) -> Sequence[int]:
        """The tokens of the predicted answer. Raises MlccError that names the field."""
        if not (text := self._parsed.prediction):
            return ()
        try:
            return await prompts.text(text, context, time_left(), add_special=False)
        except MlccError as error:
            raise with_param("prediction", error) from None

    def reasoning(self, prompt: Sequence[int], held: bool) -> Reasoning | None:
        """The reasoning rule, if it matters: for a budget, or since the answer after it is
        constrained. Raises UnsupportedError for a budget of a model with channels."""
        budget = self._parsed.reasoning.budget
        if budget is None and not held:
            return None
        if budget and self._output_format.channels:
            raise UnsupportedError(
                "'thinking_budget' is not built for models that answer in channels; send "
                "'reasoning_effort' instead",
                param="thinking_budget",
                code="unsupported_parameter",
            )
        wanted = self.variables.get("enable_thinking") is not False
        return reasoning_rule(self._text, prompt, budget, wanted)

    def parsers(self, prompt: Sequence[int]) -> NewParser:
        """A factory of parsers for answers to this prompt."""
        opened = (
            self._output_format.opened(self._text.ending(prompt))
            if self._output_format.tags
            else False
        )
        return partial(self._output_format.parser, self._parsed.use, opened, _new_id)

    def _answer(self) -> Mapping[str, Any] | None:
        """JSON Schema of an answer that is not a tool call."""
        structure = self._parsed.structure
        if structure is None:
            return None
        if structure.kind != "json_schema":
            raise InvalidRequestError(
                f"'{structure.field}' and 'tools' cannot both be held to; send a JSON Schema as "
                "'response_format', or leave one out",
                param=structure.field,
                code="invalid_value",
            )
        try:
            schema = json.loads(structure.text)
        except (ValueError, RecursionError):
            schema = None
        return schema if isinstance(schema, dict) else _ANY

    def _calls(
        self,
        use: ToolUse,
        known: Callable[[Tool], Tool],
        answer: Mapping[str, Any] | None,
    ) -> Structure:
        control = self._text.marks
        held = replace(use, tools=tuple(tool if tool.strict else known(tool) for tool in use.tools))
        grammar = calls_grammar(self._output_format.format, held, control, answer)
        return Structure("grammar", grammar, use.field)


def _relaxed(tool: Tool) -> Tool:
    """The tool with the enforceable part of its schema, and without unknown arguments."""
    schema = relaxed(tool.parameters)
    if "properties" in schema:
        schema = {"additionalProperties": False, **schema}
    return replace(tool, parameters={**schema, "type": "object"})


def _anything(tool: Tool) -> Tool:
    """The tool with any object as arguments, for a schema that cannot be parsed."""
    return replace(tool, parameters=_ANY)


def _new_id() -> str:
    return f"call_{os.urandom(12).hex()}"
