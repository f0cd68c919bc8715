"""How much of a request's JSON Schemas answers are held to.

A schema that is strict is enforced in full or refused. Of another one as much is enforced as can
be: less and less of it is tried (`relaxed`), and what is left out is named to the client. Compiles
no grammar itself: `Prompts` does.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from mlcc.api.schema.json_references import with_definitions
from mlcc.api.schema.tool_fields import Tool
from mlcc.engine.sampling.grammar import Structure
from mlcc.errors import InvalidRequestError, MlccError, UnsupportedError
from mlcc.model.model import ModelText
from mlcc.model.structured_output.schema_keywords import LEVELS, check_schema, relaxed
from mlcc.service.http.json_body import Offload
from mlcc.service.served_model import Prompts, check_built

TimeLeft = Callable[[], float | None]
Fitted = tuple[Tool, list[str]]
"""A tool with the enforceable part of its schema, and the paths of what is left out."""
_MAY_BE_LESS = ("invalid_structure", "unsupported_keyword")
"""Codes of refusals after which less of a schema is tried: none that costs much."""


async def enforceable(
    text: ModelText,
    prompts: Prompts,
    structure: Structure,
    time_left: TimeLeft,
    offload: Offload,
) -> tuple[Structure, list[str]]:
    """The constraint as far as it can be enforced, and the paths of what is left out of a schema
    that is not strict. Raises MlccError if answers cannot be constrained to it."""
    check_built(text, structure)
    refused: MlccError | None = None
    candidates = _candidates(structure)
    while found := await offload.check(lambda: next(candidates, None)):
        candidate, left_out = found
        try:
            await prompts.structure(candidate, time_left())
            return candidate, left_out
        except (InvalidRequestError, UnsupportedError) as error:
            refused = refused or error
            if error.code not in _MAY_BE_LESS:
                break
    assert refused is not None
    raise refused


def _candidates(structure: Structure) -> Iterator[tuple[Structure, list[str]]]:
    """The structure, then with less and less of its schema, each with the paths left out."""
    try:
        schema = json.loads(structure.text) if structure.kind == "json_schema" else None
    except (ValueError, RecursionError):
        schema = None
    if structure.strict or not isinstance(schema, dict):
        yield structure, []
        return
    before = None
    for level in range(LEVELS):
        kept, left_out = relaxed(schema, level)
        if kept != before:
            left_out = [structure.field + path for path in left_out]
            yield replace(structure, text=json.dumps(kept)), left_out
        before = kept


class ToolSchemas:
    """Finds what calls of a request's tools are held to."""

    def __init__(
        self,
        tools: Sequence[Tool],
        prompts: Prompts,
        time_left: TimeLeft,
        unique_names: bool,
        offload: Offload,
    ) -> None:
        """unique_names: no name of arguments comes twice."""
        self._tools, self._prompts, self._time_left = tools, prompts, time_left
        self._unique_names, self._offload = unique_names, offload

    async def candidates(self) -> AsyncIterator[tuple[tuple[Tool, ...], list[str]]]:
        """The tools with their schemas, then with less of each schema that cannot be enforced, then
        with any object as arguments, each with the paths left out. Raises MlccError for a strict
        tool that cannot be enforced."""
        strict = [await self._strict(tool) if tool.strict else None for tool in self._tools]
        pairs = [*zip(self._tools, strict, strict=True)]
        yield _joined([held or await self._relaxed(tool, 0) for tool, held in pairs])
        yield _joined([held or await self._fitted(tool) for tool, held in pairs])
        yield _joined([held or _anything(tool) for tool, held in pairs])

    async def _strict(self, tool: Tool) -> Fitted:
        """The tool, whose schema can be enforced in full."""
        work = partial(check_schema, tool.parameters, tool.field, self._unique_names)
        await self._offload.check(work)
        await self._check(tool)
        defined = await self._offload.check(partial(with_definitions, tool.parameters))
        return replace(tool, parameters=defined[0]), []

    async def _check(self, tool: Tool) -> None:
        """Raise MlccError if calls cannot be held to the tool's schema."""
        structure = await self._offload.check(partial(_structure, tool))
        await self._prompts.structure(structure, self._time_left())

    async def _fitted(self, tool: Tool) -> Fitted:
        """The tool with as much of its schema as can be enforced."""
        before = None
        for level in range(LEVELS):
            fitted = await self._relaxed(tool, level)
            if fitted[0] == before:
                continue
            before = fitted[0]
            try:
                await self._check(fitted[0])
                return fitted
            except (InvalidRequestError, UnsupportedError) as error:
                if error.code not in _MAY_BE_LESS:
                    break
        return _anything(tool)

    async def _relaxed(self, tool: Tool, level: int) -> Fitted:
        """The tool with what this level keeps of its schema, and without unknown arguments."""
        work = partial(relaxed, tool.parameters, level, self._unique_names)
        schema, left_out = await self._offload.check(work)
        if "properties" in schema:
            schema = {"additionalProperties": False, **schema}
        made = replace(tool, parameters={**schema, "type": "object"})
        return made, [tool.field + path for path in left_out]


def _joined(fitted: Sequence[Fitted]) -> tuple[tuple[Tool, ...], list[str]]:
    left_out = [path for _, paths in fitted for path in paths]
    return tuple(tool for tool, _ in fitted), left_out


def _structure(tool: Tool) -> Structure:
    return Structure("json_schema", json.dumps(tool.parameters), tool.field)


def _anything(tool: Tool) -> Fitted:
    """The tool with any object as arguments, for a schema that cannot be parsed."""
    return replace(tool, parameters={"type": "object"}), [tool.field]
