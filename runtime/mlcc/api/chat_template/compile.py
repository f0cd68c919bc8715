"""Chat templates compiled and run: the half of `template.py` that needs jinja2.

It is imported with the first conversation, since jinja2 takes a sixth of the engine's whole import,
and an encoder or a model that completes text never needs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from jinja2.environment import Template
from jinja2.exceptions import TemplateError, TemplateSyntaxError

from mlcc.api.chat_template.budget import BUDGET, Budget, OverBudget
from mlcc.api.chat_template.control_tokens import GUARD, ControlTokenGuard
from mlcc.api.chat_template.operations import text_of
from mlcc.api.chat_template.sandbox import BoundedEnvironment
from mlcc.errors import ArtifactError, InvalidRequestError


class TemplateRefused(TemplateError):
    """Raised by a template on purpose, by `raise_exception`."""


def compiled(source: str) -> Template:
    """Inside `bounded`, as all that a template does."""
    return BoundedEnvironment(_FUNCTIONS).build(source)


@contextmanager
def bounded(guard: ControlTokenGuard) -> Iterator[None]:
    """A fresh budget, and every failure as a typed error."""
    token = BUDGET.set(Budget())
    marks = GUARD.set(guard)
    try:
        yield
    except TemplateRefused as error:
        raise InvalidRequestError(
            f"the model's chat template refuses these messages: {error.message}",
            param="messages",
            code="chat_template",
        ) from None
    except OverBudget as error:
        raise ArtifactError(
            f"the model's chat template does too much: {error}; shorten the conversation, or do "
            "not trust this model's template",
            code="chat_template",
        ) from None
    except TemplateSyntaxError as error:
        raise ArtifactError(
            f"the model's chat template cannot be used (line {error.lineno}: {error.message}); "
            "mend its chat_template.jinja and compile the model again",
            code="chat_template",
        ) from None
    except (ArtifactError, InvalidRequestError):
        raise
    except Exception as error:  # whatever a stranger's program can raise
        raise ArtifactError(
            f"the model's chat template fails on these messages: {_words(error)}",
            code="chat_template",
        ) from error
    finally:
        GUARD.reset(marks)
        BUDGET.reset(token)


def _words(error: Exception) -> str:
    text = " ".join(str(error)[:1000].split()) or "no message"
    return f"{type(error).__name__}: {GUARD.get().plain(text)[:300]}"


def _raise_exception(message: Any) -> NoReturn:
    raise TemplateRefused(GUARD.get().plain(text_of(message))[:500])


def _strftime_now(format: str) -> str:
    from datetime import datetime  # few templates ask

    return datetime.now().strftime(format[:100])


_FUNCTIONS = {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
