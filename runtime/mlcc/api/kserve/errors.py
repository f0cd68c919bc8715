"""Errors in the shape of the Open Inference Protocol."""

from __future__ import annotations

from mlcc.errors import MlccError


def kserve_error(error: MlccError) -> dict[str, str]:
    """The shape that Triton and its clients have."""
    return {"error": error.message}
