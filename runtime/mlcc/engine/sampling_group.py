"""Sampling groups: several outputs to one prompt (`n`, `best_of`), which is computed once.

The first request computes the prompt. The others wait until its last prompt token is in a planned
step, and then find the prompt in the prefix cache. The last page, which each of them writes, is
copied (as vLLM forks: Kwon et al., 2023). Models with states, or with pages of several sizes,
recompute what follows the last whole block.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable
from dataclasses import dataclass, field

from mlcc.engine.request import Request
from mlcc.errors import InvalidRequestError


@dataclass(eq=False, slots=True)
class SamplingGroup:
    """The unfinished requests of one group."""

    prompt: array[int]
    members: list[str] = field(default_factory=list)
    """Request ids in order of arrival: the first computes the prompt."""
    computed: bool = False
    """Whether the whole prompt is in a planned step."""

    def may_start(self, request_id: str) -> bool:
        """Whether this request need not wait for another."""
        return self.computed or self.members[0] == request_id


class SamplingGroups:
    """All groups, by scope and name."""

    def __init__(self) -> None:
        self._sampling_groups: dict[Hashable, SamplingGroup] = {}

    def join(self, request: Request, prompt: array[int]) -> SamplingGroup:
        """The group of a new request. Raises InvalidRequestError if its prompt differs from the
        group's."""
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
        """A request has ended. If the prompt is not computed yet, the next member computes it."""
        if sampling_group := self._sampling_groups.get((request.scope, request.sampling_group)):
            sampling_group.members.remove(request.id)
            if not sampling_group.members:
                del self._sampling_groups[request.scope, request.sampling_group]
