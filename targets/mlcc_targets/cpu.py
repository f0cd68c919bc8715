"""Target `cpu`: this machine, a named level of x86-64 or Arm, or all levels that matter of either.

All libraries of a folder have the same layout of weights, so they share one set of weights: those
of all levels (`--cpu any`), for several systems, and for both architectures (`--os linux,macos`).
The runtime loads the best that the CPU and the system support.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mlcc.util.machine import allow_tiles, cpu_features, cpu_vendor, machine, missing_features
from mlcc_targets.linking.native_library import system_for, this_system
from mlcc_targets.linking.static import header_name
from mlcc_targets.target import Choices, Target, TargetError


@dataclass(frozen=True)
class Level:
    """A set of CPUs that one library serves. `cpu`: LLVM's base; `features`: additional ones.

    `slow_on`: a vendor whose CPUs have these instructions, but are faster with the next level's.
    """

    name: str
    arch: str
    cpu: str
    features: tuple[str, ...]
    vector_bits: int
    slow_on: str = ""


_AVX2 = ("avx2", "fma", "f16c")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")

_AVX512_VBMI = (*_AVX512, "avx512vnni", "avx512vbmi")
_AVX512_BF16 = (*_AVX512_VBMI, "avx512bf16")
_AMX = (*_AVX512_BF16, "amx-tile", "amx-bf16", "amx-int8")

LEVELS = (  # best first: the host gets the first level whose features it has
    Level("avx512-amx", "x86_64", "x86-64-v4", _AMX, 512),
    # two cycles for a VDPBF16PS, against four float32 multiply-adds (Emerald Rapids)
    Level("avx512-bf16", "x86_64", "x86-64-v4", _AVX512_BF16, 512, slow_on="GenuineIntel"),
    Level("avx512-vbmi", "x86_64", "x86-64-v4", _AVX512_VBMI, 512),
    Level("avx512-vnni", "x86_64", "x86-64-v4", (*_AVX512, "avx512vnni"), 512),
    Level("avx512", "x86_64", "x86-64-v4", _AVX512, 512),
    Level("avx2-vnni", "x86_64", "x86-64-v3", (*_AVX2, "avxvnni"), 256),
    Level("avx2", "x86_64", "x86-64-v3", _AVX2, 256),
    Level("x86-64", "x86_64", "x86-64", (), 128),
    Level("arm-i8mm", "aarch64", "generic", ("neon", "dotprod", "i8mm"), 128),
    Level("arm-dotprod", "aarch64", "generic", ("neon", "dotprod"), 128),
    Level("arm", "aarch64", "generic", ("neon",), 128),
)

STORED = {"x86_64": (32, False), "aarch64": (8, True)}
"""Architecture -> columns of a tile of weights, and whether 8-bit codes are stored signed: two
vectors of the best level, and its signedness. Other levels read such a tile in strips."""
STORED_FOR_BOTH = STORED["x86_64"]
"""The same for a folder of both architectures. Arm loses least by the other's: it has a strip of
the wide tile in registers, and changes the sign of 8-bit codes alone."""

ANY = {  # levels of `any` by architecture, best first; the last one runs on all of its CPUs.
    # avx512 is left out, because it multiplies bytes like avx2, avx512-bf16, which differs from
    # avx512-vnni only for bf16 weights, and avx512-vbmi, which gains a tenth to a third of decode
    # for some schemes
    "x86_64": ("avx512-amx", "avx512-vnni", "avx2-vnni", "avx2", "x86-64"),
    "aarch64": ("arm-i8mm", "arm-dotprod", "arm"),
}
WITHOUT = {
    "windows": ("avx512-amx",),  # mlcc does not ask Windows for tiles
    "macos": ("avx512-amx", "avx2-vnni", "arm"),  # no Mac has the first two; all have dotprod
    # apps link all levels; i8mm's are as fast as dotprod's
    **dict.fromkeys(("ios", "ios-simulator"), ("arm-i8mm",)),
}
"""Levels that `any` leaves out for a system."""
_ANY_OF = {"any-x86-64": ("x86_64",), "any-arm": ("aarch64",)}
_ANY_ON = {
    "windows": ("x86_64",),
    "macos": ("aarch64", "x86_64"),
    **dict.fromkeys(("ios", "ios-simulator"), ("aarch64",)),
}
"""Architectures that `any` means for a system that is named; for others this machine's."""


def host_level() -> Level:
    """The best level this machine has. Raises TargetError on an unknown instruction set."""
    have, arch, vendor = cpu_features(), machine(), cpu_vendor()
    for level in LEVELS:
        wanted = level.arch == arch and not (vendor and level.slow_on == vendor)
        if not wanted or missing_features(level.features, have):
            continue
        if "amx-tile" in level.features and allow_tiles():
            continue  # the system does not save tiles: Linux before 5.16, some sandboxes
        return level
    raise TargetError(f"no CPU level for '{arch}'; name one with --cpu: {_names()}")


def level(name: str) -> Level:
    """A level by name; 'host': this machine's. Raises TargetError."""
    if name == "host":
        return host_level()
    for row in LEVELS:
        if row.name == name:
            return row
    raise TargetError(f"unknown CPU level '{name}'; use --cpu with some of: any, host, {_names()}")


def target(choices: Choices) -> Target:
    """The row of a CPU level, or of the best of several with the others as alternatives.

    Another architecture than this machine's is compiled for Linux, unless systems are given; phones
    are Arm. Raises TargetError.
    """
    names = tuple(dict.fromkeys(choices.cpu.split(",")))
    systems = tuple(dict.fromkeys(choices.systems)) or (_default_system(names),)
    named = bool(choices.systems)
    found = [(each, system) for system in systems for each in _levels_on(system, names, named)]
    if len(found) == 1:
        return _row(*found[0])
    both = len({each.arch for each, _ in found}) > 1
    first, *others = (
        _beside_others(each, system, len(systems) > 1, both) for each, system in found
    )
    return replace(first, alternatives=tuple(others))


def _default_system(names: Sequence[str]) -> str:
    here = any(each.arch == machine() for name in names for each in _levels(name, "", False))
    return this_system() if here else "linux"


def _levels_on(system: str, names: Sequence[str], named: bool) -> list[Level]:
    """The levels of these choices that a system has, best first of each architecture. named:
    whether the user named it. Raises TargetError if it has none."""
    chosen = [each for name in names for each in _levels(name, system, named)]
    found, refusals = list[Level](), list[TargetError]()
    for each in dict.fromkeys(chosen):
        try:
            system_for(system, each.arch)
            found.append(each)
        except TargetError as error:
            refusals.append(error)
    if not found:
        raise refusals[0]
    return found


def _levels(choice: str, system: str, named: bool) -> list[Level]:
    """The levels of a choice for a system, which the user may have named, best first. Raises
    TargetError."""
    phone = system.startswith("ios")
    if choice not in ("any", *_ANY_OF) and not (phone and choice == "host"):
        return [level(choice)]
    archs = _ANY_OF.get(choice) or (named and _ANY_ON.get(system)) or (machine(),)
    if unknown := set(archs) - set(ANY):
        raise TargetError(
            f"no CPU levels for '{unknown.pop()}'; use --cpu with some of: {_names()}"
        )
    names = (name for arch in archs for name in ANY[arch])
    return [level(name) for name in names if name not in WITHOUT.get(system, ())]


def _beside_others(level: Level, system: str, several: bool, both: bool) -> Target:
    """The row of one of several libraries. several: of several systems; both: architectures."""
    row = _row(level, system)
    if both:
        columns, signed = STORED_FOR_BOTH
        row = replace(row, tile_columns=columns, signed_codes=signed)
    variant = f"{system}-{level.name}" if several else level.name
    library = f"model.{variant}{Path(row.library).suffix}"
    row = replace(row, variant=variant, library=library)
    if not row.symbol_prefix:
        return row
    # an app may link several levels
    prefix = f"{row.symbol_prefix}{level.name.replace('-', '_')}_"
    return replace(row, symbol_prefix=prefix, extra_files=(header_name(library),))


def _row(row: Level, system: str) -> Target:
    foreign = row.arch != machine() or system != this_system()
    columns, signed = STORED[row.arch]
    how = system_for(system, row.arch)
    library = f"model{how.suffix}"
    return Target(
        name="cpu",
        device="cpu",
        kernels="cpu",
        page_form="key-columns-byte-quads",
        arch=row.arch,
        triple=how.triple if foreign else "",
        cpu=row.cpu,
        systems=(system,),
        features=row.features,
        vector_bits=row.vector_bits,
        tile_columns=columns,
        signed_codes=signed,
        f16=True,
        library=library,
        extra_files=(header_name(library),) if how.static else (),
        symbol_prefix="mlcc_" if how.static else "",
        link=how.link,
        archive=how.archive,
        opened_by=how.opened_by,
        run_missing=f"runs on a {how.name} machine with {row.arch}" if foreign else "",
    )


def _names() -> str:
    return ", ".join([*_ANY_OF, *(row.name for row in LEVELS)])
