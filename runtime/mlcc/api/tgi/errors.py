"""Errors in the shape of Hugging Face's TGI."""

from __future__ import annotations

from mlcc.errors import CapacityError, InvalidRequestError, MlccError, UnsupportedError


def tgi_error(error: MlccError) -> dict[str, str]:
    """TGI's shape of an error; the type is what its clients distinguish."""
    if isinstance(error, CapacityError):
        kind = "overloaded"
    elif isinstance(error, (InvalidRequestError, UnsupportedError)):
        kind = "validation"
    else:
        kind = "generation"
    return {"error": error.message, "error_type": kind}
