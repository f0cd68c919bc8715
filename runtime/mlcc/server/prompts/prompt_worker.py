"""A process that renders templates, encodes texts and reads grammars, with a bound on its memory.
Whoever started it ends it when it takes too long: a template is a stranger's program.
"""

from __future__ import annotations

import os
import signal
import traceback
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeAlias

from mlcc.api.errors import internal_error
from mlcc.engine.sampling.grammar import Structure
from mlcc.errors import CapacityError, InvalidRequestError, MlccError
from mlcc.model.model import ModelText

OpenText = Callable[[], ModelText]
"""Opens the text side of the model in the process; must survive pickling."""


@dataclass(frozen=True)
class PromptJob:
    """A raw prompt, or the messages of a conversation, and the longest prompt in tokens; or what
    an answer must be, whose answer is no ids."""

    what: str | Sequence[Mapping[str, Any]] | Structure
    context: int = 0
    variables: Mapping[str, Any] = field(default_factory=dict)
    """Of a conversation's template."""
    add_special: bool = True
    """Whether a raw prompt gets the start token that the model wants."""
    written: bool = False
    """Whether the answer is the conversation's text, a code point each, instead of its ids."""


Reply: TypeAlias = "array[int] | MlccError"


def prompt_main(connection: Connection, open_text: OpenText, memory_bytes: int) -> None:
    """The whole life of the process. Answers the opening, and then each PromptJob."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who started it
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # each thread would reserve memory of its own
    with suppress(EOFError, OSError):  # nobody is there to hear
        try:
            text = open_text()
        except MlccError as error:
            return connection.send(error)
        _bound_memory(memory_bytes)
        connection.send(array("i"))
        while True:
            connection.send(_ids(text, connection.recv(), memory_bytes))


def _ids(text: ModelText, job: PromptJob, memory_bytes: int) -> Reply:
    try:
        if isinstance(job.what, str):
            return text.encode_prompt(job.what, job.context, job.add_special)
        if isinstance(job.what, Structure):
            assert text.grammars is not None, "asked for what is not built"
            text.grammars.check(job.what)
            return array("i")
        if job.written:
            return array("i", map(ord, text.render(job.what, job.variables)[0].text))
        return text.encode_chat(job.what, job.context, job.variables)
    except MlccError as error:
        return error
    except MemoryError:
        return too_costly_error(job, f"more than {memory_bytes >> 20} MiB of memory")
    except Exception:
        traceback.print_exc()
        return internal_error()


def too_costly_error(job: PromptJob, what: str) -> MlccError:
    """The prompt, or the model's template, or a schema wants what it may not have."""
    if isinstance(job.what, Structure):
        return InvalidRequestError(
            f"reading '{job.what.field}' took {what}; simplify it",
            param=job.what.field,
            code="structure_too_costly",
        )
    return CapacityError(
        f"reading the prompt took {what}, by its length or by the model's chat template; shorten "
        "it, or do not trust this template",
        code="prompt_too_costly",
    )


def _bound_memory(more: int) -> None:
    """From now on the process may take so many bytes more. Not everywhere can this be said."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except (ImportError, OSError):
        return
    most = pages * resource.getpagesize() + more
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or most < hard:
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
