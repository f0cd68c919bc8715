"""Static libraries of models: the prefix of their symbols, and the C header beside them.

A program may link several. Each registers its functions when the program starts. Nothing calls them
by name, so the header has a function that makes the linker take the library's members.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from mlcc_targets.target import TargetError

HEADER = "mlcc_model.h"
"""Written beside a static library."""

_HEADER = """\
/* Written by mlcc beside {library}: the prefix under which the model registers itself.

   {use}
   Calling {prefix}link() is also what makes the linker take the members of {library}. */
#ifndef {guard}
#define {guard}

#ifdef __cplusplus
extern "C" {{
#endif

extern const char {prefix}__tvm_ffi__library_bin[];
extern void *{prefix}__tvm_ffi__library_ctx;

static inline const char *{prefix}link(void) {{
  const void *volatile members[2] = {{{prefix}__tvm_ffi__library_bin,
                                     &{prefix}__tvm_ffi__library_ctx}};
  return members[0] && members[1] ? "{name}" : 0;
}}

#ifdef __cplusplus
}}
#endif

#endif
"""


def header(prefix: str, library: str, use: str, name: str = "") -> str:
    """The header for apps. use: instructions. name: the result of `link`, if not the prefix."""
    use = use.format(library=library, prefix=prefix)
    guard = f"{prefix.upper()}H"
    return _HEADER.format(library=library, prefix=prefix, use=use, guard=guard, name=name or prefix)


def symbol_prefix(objects: Sequence[Path]) -> str:
    """The prefix of a static library's symbols: TVM names the object of the device code by it.

    Raises TargetError if there is none, or if it cannot start a C identifier.
    """
    for path in objects:
        prefix = path.stem.removesuffix("devc")
        if prefix != path.stem and re.fullmatch(r"[A-Za-z_]\w*", prefix, re.ASCII):
            return prefix
    raise TargetError("the objects of a static library carry no symbol prefix; this is a bug")
