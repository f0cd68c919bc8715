"""The features of a CPU that a kernel needs, of those that its level has.

LLVM uses some instructions only where a kernel calls them by name. A kernel without such calls is
compiled without their features, so it is one object file for several levels: `avx2` and
`avx2-vnni`, all of Arm. Libraries keep their bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlcc_compiler.kernels.cpu.isa.stack import ALIGN_STACK

_IMPORTED = "pragma_import_llvm"
"""In kernels that bring functions in LLVM's text, as all with AMX do."""
_FOR_ALL = f"define linkonce_odr hidden void @{ALIGN_STACK}("
"""In such a text that needs no feature."""

_CALLED: tuple[tuple[frozenset[str], tuple[str, ...]], ...] = (
    (frozenset({"avxvnni"}), ("vpdpbusd", _IMPORTED)),
    (
        frozenset({"avx512vbmi", "avx512bf16", "amx-tile", "amx-bf16", "amx-int8"}),
        ("permvar.qi", _IMPORTED),
    ),
    (frozenset({"dotprod", "i8mm"}), ("neon.sdot", "neon.smmla", _IMPORTED)),
)
"""Features, and what the text of kernels that need one of them has."""


def needed_features(features: Sequence[str], text: str) -> list[str]:
    """`features`, as LLVM has them ("+avx2"), without those that a kernel of this text leaves
    unused."""
    if text.count(_IMPORTED) == text.count(_FOR_ALL):
        text = text.replace(_IMPORTED, "")
    unused = [have for have, calls in _CALLED if not any(call in text for call in calls)]
    return [each for each in features if not any(each.lstrip("+") in have for have in unused)]
