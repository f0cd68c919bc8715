"""Prompt worker process: renders chat templates, tokenizes text and compiles grammars, within a
memory limit. The parent kills it when it takes too long: a chat template is untrusted code."""

from __future__ import annotations

import os
import sys
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
from mlcc.limits import default
from mlcc.model.model import ModelText
from mlcc.multimodal.image import BYTES_PER_PIXEL
from mlcc.multimodal.placeholders import PromptMedia
from mlcc.multimodal.prompt import Prompt
from mlcc.server.prompts import chunked_pickle
from mlcc.util.freed_memory import LARGE_BYTES, give_back_freed_memory

CODES = f"utf-32-{sys.byteorder[0]}e"
"""The encoding of a text as an array of code points. A call of C holds the interpreter's lock, and
this one takes a tenth of the time of `map(chr, ...)`."""
OpenText = Callable[[], ModelText]
"""Opens the text side of the model in the process; must be picklable."""


IMAGE_MEMORY_BYTES = BYTES_PER_PIXEL * default("max_image_pixels") + 4 * default("max_image_bytes")
"""Further memory for decoding the largest image of a request, with all images as they were
sent, twice, and the tiles."""


AUDIO_MEMORY_BYTES = (512 << 20) + 4 * default("max_audio_bytes")
"""The same for sound: a block that is resampled, and the longest sound twice."""


@dataclass(frozen=True)
class PromptJob:
    """A raw prompt, the messages of a conversation, or a structure to check. `context` is the
    longest prompt in tokens."""

    what: str | Sequence[Mapping[str, Any]] | Structure
    context: int = 0
    variables: Mapping[str, Any] = field(default_factory=dict)
    """Variables of the chat template."""
    add_special: bool = True
    """Whether a raw prompt gets the model's start token."""
    written: bool = False
    """Return the conversation's text, as code points, instead of token ids."""
    media: PromptMedia | None = None
    """Images, for which the text has placeholders. The reply is then a Prompt."""


Reply: TypeAlias = "array[int] | Prompt | MlccError"


def prompt_main(connection: Connection, open_text: OpenText, memory_bytes: int) -> None:
    """Main function of the process. Replies once after opening, and then to each PromptJob."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # each thread would reserve memory
    with suppress(EOFError, OSError):  # the parent is gone
        try:
            text = open_text()
            _ = text.tokenizer.longest  # all of the tokenizer is read before memory is bounded
        except MlccError as error:
            return connection.send(error)
        memory_bytes += 0 if text.vision is None else IMAGE_MEMORY_BYTES
        memory_bytes += AUDIO_MEMORY_BYTES if text.hears else 0
        bound_memory(memory_bytes)
        connection.send(array("i"))
        while True:
            data = connection.recv_bytes()
            size, job = len(data), chunked_pickle.loads(data)
            del data
            connection.send(_reply(text, job, memory_bytes))
            del job
            if size > LARGE_BYTES:
                give_back_freed_memory()


def _reply(text: ModelText, job: PromptJob, memory_bytes: int) -> Reply:
    try:
        if isinstance(job.what, str):
            if job.media is not None:
                return text.encode_prompt_with_media(job.what, job.media, job.context)
            return text.encode_prompt(job.what, job.context, job.add_special)
        if isinstance(job.what, Structure):
            assert text.grammars is not None, "asked for what is not built"
            text.grammars.check(job.what)
            return array("i")
        if job.written:
            written = text.written(job.what, job.variables, job.media)
            return array("i", written.encode(CODES, "surrogatepass"))
        if job.media is not None:
            return text.encode_chat_with_media(job.what, job.media, job.context, job.variables)
        return text.encode_chat(job.what, job.context, job.variables)
    except MlccError as error:
        return error
    except MemoryError:
        return too_costly_error(job, f"more than {memory_bytes >> 20} MiB of memory")
    except Exception:
        traceback.print_exc()
        return internal_error()


def too_costly_error(job: PromptJob, what: str) -> MlccError:
    """Return the error for a prompt, chat template or schema that exceeds its limits."""
    if isinstance(job.what, Structure):
        return InvalidRequestError(
            f"reading '{job.what.field}' took {what}; simplify it",
            param=job.what.field,
            code="structure_too_costly",
        )
    if job.media is not None:
        return CapacityError(
            f"reading the prompt took {what}, by its images, its length or the model's chat "
            "template; send smaller images, or less sound",
            code="prompt_too_costly",
        )
    return CapacityError(
        f"reading the prompt took {what}, by its length or by the model's chat template; shorten "
        "it, or do not trust this template",
        code="prompt_too_costly",
    )


def bound_memory(more: int) -> None:
    """Limit further memory of this process. Does nothing where the platform cannot."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except (ImportError, OSError):
        return
    most = pages * resource.getpagesize() + more
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or most < hard:
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
