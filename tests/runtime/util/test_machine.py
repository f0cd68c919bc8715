"""CPU features under every name that operating systems use."""

from __future__ import annotations

import subprocess

import pytest

from mlcc.util import machine


@pytest.mark.parametrize(
    ("needed", "flags", "missing"),
    [
        ("avx512vnni avx512bf16 amx-int8", "avx512_vnni avx512_bf16 amx_int8", ()),
        ("sse3 sse4.2 lzcnt bmi pclmul rdrnd sahf 64bit", "pni sse4_2 abm bmi1 lm", None),
        ("neon dotprod fullfp16 i8mm", "asimd asimddp asimdhp i8mm", ()),
        ("neon dotprod", "asimd", ("dotprod",)),
        ("avx512f", "avx2", ("avx512f",)),
    ],
)
def test_feature_names(needed: str, flags: str, missing: tuple[str, ...] | None) -> None:
    present = frozenset(machine._plain(flag) for flag in flags.split())
    expected = ("pclmul", "rdrnd", "sahf") if missing is None else missing
    assert machine.missing_features(tuple(needed.split()), present) == expected


MACOS = """hw.optional.neon: 1
hw.optional.arm.FEAT_DotProd: 1
hw.optional.arm.FEAT_FP16: 1
hw.optional.arm.FEAT_I8MM: 0
machdep.cpu.features: FPU SSE4.2 AVX1.0
machdep.cpu.leaf7_features: AVX2 BMI1
"""


def test_macos_features(monkeypatch: pytest.MonkeyPatch) -> None:
    class Done:
        stdout = MACOS

    monkeypatch.setattr(machine.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(subprocess, "run", lambda *args, **options: Done)
    present = machine.cpu_features.__wrapped__()
    needed = ("neon", "dotprod", "fullfp16", "avx2", "sse4.2", "i8mm")
    assert machine.missing_features(needed, present) == ("i8mm",)


def test_this_linux_machine_has_features() -> None:
    if machine.platform.system() == "Linux":
        assert machine.cpu_features()


@pytest.mark.parametrize(
    ("text", "vendor"),
    [
        ("processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: x\n", "GenuineIntel"),
        ("processor\t: 0\nFeatures\t: asimd\n", ""),
    ],
)
def test_vendors(monkeypatch: pytest.MonkeyPatch, text: str, vendor: str) -> None:
    monkeypatch.setattr(machine.Path, "read_text", lambda *args, **options: text)
    assert machine.cpu_vendor.__wrapped__() == vendor
