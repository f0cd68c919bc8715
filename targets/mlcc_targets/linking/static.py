"""Static libraries of models: the prefix of their symbols, and the C header beside them.

A program may link several. Each registers its functions when the program starts. Nothing calls them
by name, so the header has a function that makes the linker take the library's members.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from mlcc_targets.linking.linker import run_zig
from mlcc_targets.target import TargetError

HEADER = "mlcc_model.h"
"""Written beside the static library `model.a`."""

LINKED_PARTS = Path(__file__).with_name("linked_parts.c")
"""A member of static libraries for libmlcc_executor: what their code calls."""
_USE = """\
Link {library} and libmlcc_executor; what {prefix}link() says is then the name of its library for
   executor.h. mlcc.h finds it itself where its folder's manifest is opened.
"""
_OBJECT_FLAGS = (
    "-O2",
    "-g0",
    "-fPIC",
    "-ffreestanding",
    "-fno-stack-protector",
    "-fno-sanitize=all",
)

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


def header_name(library: str) -> str:
    """The name of a static library's header: HEADER, or mlcc_model.VARIANT.h of model.VARIANT.a."""
    return f"mlcc_{library.removesuffix('.a')}.h"


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


def compile_part(source: Path, made: Path, target: str) -> list[str]:
    """The words for zig that compile a C file of this folder for a target, by zig's name."""
    return ["cc", "-target", target, *_OBJECT_FLAGS, "-c", str(source), "-o", str(made)]


def archive(objects: Sequence[Path], library: Path, form: str) -> None:
    """Collect objects in a static library for libmlcc_executor, and write its header. form: zig's
    name of the archive's format. Raises TargetError."""
    prefix = symbol_prefix(objects)
    collect(objects, library, form)
    text = header(prefix, library.name, _USE, f"linked:{prefix}")
    library.with_name(header_name(library.name)).write_text(text, encoding="utf-8")


def collect(objects: Sequence[Path], library: Path, form: str) -> None:
    """Write an archive with an index of symbols, without times and users: its bytes depend on the
    objects alone. Raises TargetError."""
    library.unlink(missing_ok=True)  # else old members stay
    run_zig(["ar", f"--format={form}", "rcsD", str(library), *map(str, objects)], library)
