"""CPU features under every name that operating systems use."""

from __future__ import annotations

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
