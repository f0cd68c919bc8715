"""`mlcc compile --os`: libraries for other systems beside this one's, over one set of weights."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import pytest
from click.testing import CliRunner

from mlcc.artifact.checks import host_check
from mlcc.artifact.folder import Artifact
from mlcc.commands.inspect import inspect_command
from mlcc.errors import ArtifactError
from mlcc.util.machine import machine
from mlcc_compiler.cli import compile_command
from mlcc_targets import Choices, TargetError, get_target
from mlcc_targets.cpu import ANY, STORED, STORED_FOR_BOTH, WITHOUT
from mlcc_targets.linking import native_library
from mlcc_targets.linking.linker import zig
from mlcc_targets.linking.native_library import this_system
from tests.runtime.commands.tiny_checkpoint import write_checkpoint
from tests.targets.metal.test_library import code_hashes
from tests.targets.small_library import inspect

DESKTOPS = ("linux", "windows", "macos")
WINDOWS = "model.windows-x86-64.dll"
TVM_CALLS = {"_TVMFFIErrorSetRaisedFromCStrParts"}
X86 = Choices(cpu="any-x86-64", systems=DESKTOPS)


def test_rows_of_several_systems() -> None:
    row = get_target("cpu", X86)
    rows = (row, *row.alternatives)
    suffixes = {"linux": "so", "windows": "dll", "macos": "dylib"}
    assert [each.library for each in rows] == [
        f"model.{system}-{level}.{suffixes[system]}"
        for system in DESKTOPS
        for level in ANY["x86_64"]
        if level not in WITHOUT.get(system, ())
    ]
    assert len(rows) == 5 + 4 + 3
    assert len({each.page_form for each in rows} | {each.tile_columns for each in rows}) == 2


def libraries(choices: Choices) -> list[str]:
    row = get_target("cpu", choices)
    return [each.library for each in (row, *row.alternatives)]


@pytest.mark.skipif(machine() != "x86_64", reason="`any` means this machine's kind on Linux")
def test_any_means_all_desktops_of_a_system() -> None:
    found = libraries(Choices(cpu="any", systems=DESKTOPS))
    arm = [f"model.macos-{level}.dylib" for level in ("arm-i8mm", "arm-dotprod")]
    x86 = libraries(X86)
    assert found == [*x86[:9], *arm, *x86[9:]]


def test_several_choices_make_a_library_each_where_a_system_has_such_machines() -> None:
    found = libraries(Choices(cpu="avx2,arm", systems=DESKTOPS))
    assert found == [
        "model.linux-avx2.so",
        "model.linux-arm.so",
        WINDOWS.replace("x86-64", "avx2"),
        "model.macos-avx2.dylib",
        "model.macos-arm.dylib",
    ]
    assert libraries(Choices(cpu="avx2,avx2", systems=("linux",))) == ["model.so"]
    both = libraries(Choices(cpu="any-x86-64,any-arm", systems=("linux",)))
    assert both == [f"model.{level}.so" for arch in ANY for level in ANY[arch]]


def test_both_architectures_read_one_layout_and_each_alone_its_own() -> None:
    def layouts(cpu: str) -> set[tuple[int, bool | None]]:
        row = get_target("cpu", Choices(cpu=cpu, systems=("linux",)))
        return {(each.tile_columns, each.signed_codes) for each in (row, *row.alternatives)}

    assert layouts("any-x86-64,any-arm") == {STORED_FOR_BOTH} == layouts("any-x86-64")
    assert layouts("any-arm") == layouts("arm") == {STORED["aarch64"]} != {STORED_FOR_BOTH}


@pytest.mark.parametrize(
    "target, choices, message",
    [
        ("cpu", Choices(systems=("beos",)), "unknown system 'beos'; use --os"),
        ("cpu", Choices(cpu="arm", systems=("windows",)), "no Windows libraries for aarch64 yet"),
        ("cpu", Choices(cpu="avx2", systems=("ios",)), "no libraries of ios for x86_64; use --cpu"),
        ("cuda", Choices(systems=("linux",)), "is for one system; leave out --os linux"),
        ("vulkan", Choices(systems=("ios",)), "makes no libraries for iOS|no libraries of ios for"),
    ],
)
def test_what_is_refused(target: str, choices: Choices, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        get_target(target, choices)


def test_rows_of_a_gpu_differ_in_their_host_code() -> None:
    row = get_target("vulkan", Choices(systems=(this_system(), "windows", "macos")))
    own, windows, mac, intel = (row, *row.alternatives)
    assert [each.library for each in (own, windows, mac, intel)] == [
        f"model.{this_system()}.so",
        "model.windows.dll",
        "model.macos.dylib",
        "model.macos-intel.dylib",
    ]
    assert own.run_missing == "" and mac.run_missing == "runs on a macOS machine with aarch64"
    assert (windows.triple, mac.triple) == ("x86_64-pc-windows-gnu", "arm64-apple-macos13.0")
    assert intel.triple == "x86_64-apple-macos13.0"
    assert own.limits == windows.limits == mac.limits == intel.limits
    alone = get_target("vulkan", Choices(systems=("windows",)))
    assert (alone.library, alone.variant) == ("model.dll", "") and not alone.alternatives
    macs = get_target("vulkan", Choices(systems=("macos",)))
    found = [(each.library, each.variant) for each in (macs, *macs.alternatives)]
    assert found == [("model.dylib", ""), ("model.intel.dylib", "intel")]


def test_a_system_named_twice_is_one() -> None:
    twice = get_target("cpu", Choices(cpu="avx2", systems=("windows", "windows")))
    assert twice.library == "model.dll" and not twice.alternatives


def test_other_rows_are_listed_on_a_system_without_libraries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(native_library.platform, "system", lambda: "Plan9")
    row = get_target("vulkan")
    with pytest.raises(TargetError, match=r"linking model.so is not built yet on plan9; use Linux"):
        row.link([], Path("model.so"))
    with pytest.raises(TargetError, match="unknown system 'plan9'; use --os"):
        get_target("cpu", Choices(cpu="any-x86-64" if machine() == "x86_64" else "any-arm"))


def exports_and_imports(library: Path) -> tuple[set[str], set[str]]:
    """Names of a PE library's functions, and of the libraries that it needs (Microsoft's PE format,
    "The .edata Section" and "The .idata Section")."""
    data = library.read_bytes()

    def read(form: str, at: int) -> tuple[int, ...]:
        return struct.unpack_from(f"<{form}", data, at)

    start = read("I", 0x3C)[0]
    machine, count, _, _, _, size = read("HHIIIH", start + 4)
    assert data[start : start + 4] == b"PE\0\0" and machine == 0x8664
    assert read("H", start + 24)[0] == 0x20B  # 64 bit
    sections = [read("IIII", start + 24 + size + 40 * i + 8) for i in range(count)]

    def at(address: int) -> int:
        found = next(s for s in sections if s[1] <= address < s[1] + max(s[0], s[2]))
        return address - found[1] + found[3]

    def text(address: int) -> str:
        begin = at(address)
        return data[begin : data.index(b"\0", begin)].decode()

    exports, _, imports, _ = read("IIII", start + 24 + 112)
    _, names = read("II", at(exports) + 24)[0], read("I", at(exports) + 32)[0]
    known = read("I", at(exports) + 24)[0]
    found = {text(read("I", at(names) + 4 * i)[0]) for i in range(known)}
    needed, place = set(), at(imports)
    while name := read("IIIII", place)[3]:
        needed.add(text(name))
        place += 20
    return found, needed


@pytest.fixture(scope="module")
def all_systems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for x86-64 and Arm on this system, Windows and macOS, by the command."""
    folder = tmp_path_factory.mktemp("systems")
    checkpoint, out = write_checkpoint(folder / "model"), folder / "out"
    systems = ",".join(dict.fromkeys((this_system(), "windows", "macos")))
    words = [str(checkpoint), "--target", "cpu", "--cpu", "x86-64,arm", "--os", systems]
    done = CliRunner().invoke(compile_command, [*words, "--context", "64", "--output", str(out)])
    assert done.exit_code == 0, done.output
    return out


def test_one_folder_serves_all_systems(all_systems: Path) -> None:
    names = sorted(path.name for path in all_systems.glob("model.*"))
    own = [f"model.{this_system()}-{level}.so" for level in ("arm", "x86-64")]
    mac = [f"model.macos-{level}.dylib" for level in ("arm", "x86-64")]
    assert names == sorted([*own, *mac, WINDOWS])
    opened = Artifact.open(all_systems)
    assert opened.library_path.name in own and opened.manifest.target.arch == machine()
    whole = Artifact.open(all_systems, host=False)
    found = (whole.manifest, *whole.alternatives)
    for each in found:
        arch = "x86_64" if "x86-64" in each.library.path else "aarch64"
        assert each.target.arch == arch and each.target.triple.startswith((arch, "arm64-"))
    assert all(each.weights == opened.manifest.weights for each in found)
    assert len(list(all_systems.glob("*.safetensors"))) == 1


@pytest.mark.parametrize(
    ("system", "arch", "library"),
    [
        ("Linux", "x86_64", "model.linux-x86-64.so"),
        ("Linux", "aarch64", "model.linux-arm.so"),
        ("Windows", "x86_64", WINDOWS),
        ("Darwin", "x86_64", "model.macos-x86-64.dylib"),
        ("Darwin", "aarch64", "model.macos-arm.dylib"),
    ],
)
def test_each_desktop_takes_its_own(
    all_systems: Path, monkeypatch: pytest.MonkeyPatch, system: str, arch: str, library: str
) -> None:
    monkeypatch.setattr(host_check, "system", lambda: system)
    monkeypatch.setattr(host_check, "machine", lambda: arch)
    monkeypatch.setattr(host_check, "cpu_features", lambda: frozenset({"sse2", "asimd"}))
    assert Artifact.open(all_systems).library_path.name == library
    if arch == "aarch64":
        monkeypatch.setattr(host_check, "cpu_features", lambda: frozenset({"fp"}))
        with pytest.raises(ArtifactError, match="needs a CPU with neon, which this one lacks"):
            Artifact.open(all_systems)  # not that it cannot run another system's library
    monkeypatch.setattr(host_check, "machine", lambda: "riscv64")
    with pytest.raises(ArtifactError, match=f"which this riscv64 {system} machine cannot run"):
        Artifact.open(all_systems)


def test_inspect_lists_what_each_library_is_for(all_systems: Path) -> None:
    text = CliRunner().invoke(inspect_command, [str(all_systems)]).output
    assert "model.macos-arm.dylib: arm64-apple-macos13.0, needs neon" in text
    assert f"{WINDOWS}: x86_64-pc-windows-gnu, needs nothing beyond the base" in text


def test_a_further_library_costs_its_bytes_and_a_manifest(all_systems: Path) -> None:
    sizes = {path.name: path.stat().st_size for path in all_systems.iterdir()}
    x86, arm = (sizes.pop(f"model.{this_system()}-{level}.so") for level in ("x86-64", "arm"))
    assert sizes.pop("model.macos-x86-64.dylib") < 1.25 * x86
    assert sizes.pop(WINDOWS) < 1.1 * x86 + (64 << 10)  # MinGW's part of the C library
    assert sizes.pop("model.macos-arm.dylib") < 1.2 * arm + (16 << 10)  # a page of its segments
    manifest, once = sizes.pop("mlcc.json"), {"chat_template.jinja", "tokenizer.json"}
    for name in ("macos-x86-64", "macos-arm", "windows-x86-64", f"{this_system()}-arm"):
        assert sizes.pop(f"mlcc.{name}.json") < 1.1 * manifest
    assert {*sizes} - once == {"weights-00001-of-00001.safetensors"}


@pytest.mark.feature("llama", "macos", "compiles")
@pytest.mark.needs("llvm")
@pytest.mark.parametrize("level, kind", [("x86-64", "X86_64"), ("arm", "ARM64")])
def test_a_library_for_macos_needs_the_system_alone(
    all_systems: Path, level: str, kind: str
) -> None:
    library = all_systems / f"model.macos-{level}.dylib"
    headers = inspect("llvm-objdump", "-m", "--private-headers", library)
    assert re.search(rf"MH_MAGIC_64\s+{kind}\s+ALL\s+\S+\s+DYLIB", headers), headers
    assert re.search(r"platform macos\s+sdk 13.0\s+minos 13.0", headers)
    stub = Path(zig()).parent / "lib" / "libc" / "darwin" / "libSystem.tbd"
    system = set(re.findall(r"[\w$]+", stub.read_text(encoding="utf-8")))
    listed = inspect("llvm-nm", "-g", "--undefined-only", "--format=just-symbols", library)
    # the runtime that loads it defines the others
    assert {name for name in listed.split() if name not in system} <= TVM_CALLS
    if kind == "ARM64":  # where libraries without a signature are refused
        hashes = code_hashes(library.read_bytes())
        assert hashes and all(signed == found for signed, found in hashes)


@pytest.mark.feature("desktop-gpu", "macos", "compiles")
def test_libraries_of_a_gpu_share_kernels_and_weights(tmp_path: Path) -> None:
    """The kernels are WGSL, the same text in each library, which the driver there compiles."""
    checkpoint, out = write_checkpoint(tmp_path / "model"), tmp_path / "out"
    systems = ",".join(dict.fromkeys((this_system(), "macos")))
    words = [str(checkpoint), "--target", "vulkan", "--os", systems, "--context", "64"]
    done = CliRunner().invoke(compile_command, [*words, "--output", str(out)])
    assert done.exit_code == 0, done.output
    names = (f"{this_system()}.so", "macos.dylib", "macos-intel.dylib")
    own, mac, intel = (out / f"model.{name}" for name in names)
    assert Artifact.open(out).library_path == own
    assert len(list(out.glob("*.safetensors"))) == 1
    kernels = {path: path.read_bytes().count(b"@compute") for path in (own, mac, intel)}
    assert kernels[own] == kernels[mac] == kernels[intel] > 5
    assert mac.read_bytes()[:8] == b"\xcf\xfa\xed\xfe\x0c\x00\x00\x01"  # 64 bits, arm64
    assert intel.read_bytes()[:8] == b"\xcf\xfa\xed\xfe\x07\x00\x00\x01"  # x86-64


@pytest.mark.feature("llama", "windows", "compiles")
def test_a_library_for_windows_needs_the_system_alone(all_systems: Path) -> None:
    exports, imports = exports_and_imports(all_systems / WINDOWS)
    assert {"__TVMFFIErrorSetRaisedFromCStr", "__tvm_ffi__library_bin"} <= exports
    others = {n for n in map(str.lower, imports) if not n.startswith("api-ms-win-crt-")}
    assert others == {"kernel32.dll"}
    data = (all_systems / WINDOWS).read_bytes()
    start = struct.unpack_from("<I", data, 0x3C)[0]
    assert struct.unpack_from("<I", data, start + 8)[0] == 0  # no time: equal inputs, equal bytes


def test_windows_alone_does_not_open_here(all_systems: Path) -> None:
    """The error of the last library says which system it is for."""
    manifest = json.loads((all_systems / "mlcc.json").read_text(encoding="utf-8"))
    other = next(name for name in manifest["alternatives"] if "windows" in name)
    (all_systems / "mlcc.json").write_bytes((all_systems / other).read_bytes())
    with pytest.raises(ArtifactError, match=r"compiled for x86_64-pc-windows-gnu .*cannot run"):
        Artifact.open(all_systems)
