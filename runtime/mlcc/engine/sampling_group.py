"""Requests for several answers to one prompt (`n`, `best_of`): one of them computes it.

The others wait until its last token is in a planned step, and then find it in the prefix cache: the
last page, which each will write, is copied (as vLLM forks: Kwon et al., 2023). Of a model with
states, or with pages of several sizes, they compute what follows the last whole block again.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable
from dataclasses import dataclass, field

from mlcc.engine.request import Request
from mlcc.errors import InvalidRequestError


@dataclass(eq=False, slots=True)
class SamplingGroup:
    """The live requests of a family."""

    prompt: array[int]
    members: list[str] = field(default_factory=list)
    """Their ids, in the order in which they came: the first computes the prompt."""
    computed: bool = False
    """Whether the whole prompt is in a planned step."""

    def may_start(self, request_id: str) -> bool:
        """Whether this one need not wait for another."""
        return self.computed or self.members[0] == request_id


class SamplingGroups:
    """All of them, by scope and name."""

    def __init__(self) -> None:
        self._sampling_groups: dict[Hashable, SamplingGroup] = {}

    def join(self, request: Request, prompt: array[int]) -> SamplingGroup | None:
        """The family of a new request. Raises InvalidRequestError if its prompt is another."""
        if not request.sampling_group:
            return None
        key = request.scope, request.sampling_group
        sampling_group = self._sampling_groups.setdefault(key, SamplingGroup(prompt[:]))
        if sampling_group.prompt != prompt:
            raise InvalidRequestError(
                f"sampling group {request.sampling_group!r} has another prompt; choose another",
                param="sampling_group",
            )
        sampling_group.members.append(request.id)
        return sampling_group

    def leave(self, request: Request) -> None:
        """A request has ended: if the prompt is not computed yet, the next one does it."""
        if sampling_group := self._sampling_groups.get((request.scope, request.sampling_group)):
            sampling_group.members.remove(request.id)
            if not sampling_group.members:
                del self._sampling_groups[request.scope, request.sampling_group]
