"""`mlcc compile --os`: libraries for other systems beside this one's, over one set of weights."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import pytest
from click.testing import CliRunner

from mlcc.artifact.folder import Artifact
from mlcc.errors import ArtifactError
from mlcc.util.machine import machine
from mlcc_compiler.cli import compile_command
from mlcc_targets import Choices, TargetError, get_target
from mlcc_targets.cpu import ANY, WITHOUT
from mlcc_targets.linking import native_library
from mlcc_targets.linking.linker import zig
from mlcc_targets.linking.native_library import this_system
from tests.runtime.commands.tiny_checkpoint import write_checkpoint
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
    own, windows, mac = (row, *row.alternatives)
    assert [each.library for each in (own, windows, mac)] == [
        f"model.{this_system()}.so",
        "model.windows.dll",
        "model.macos.dylib",
    ]
    assert own.run_missing == "" and mac.run_missing == "runs on a macOS machine with aarch64"
    assert (windows.triple, mac.triple) == ("x86_64-pc-windows-gnu", "arm64-apple-macos13.0")
    assert own.limits == windows.limits == mac.limits
    alone = get_target("vulkan", Choices(systems=("windows",)))
    assert (alone.library, alone.variant) == ("model.dll", "") and not alone.alternatives


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
    """A folder for this system, Windows and macOS, by the command."""
    folder = tmp_path_factory.mktemp("systems")
    checkpoint, out = write_checkpoint(folder / "model"), folder / "out"
    systems = ",".join(dict.fromkeys((this_system(), "windows", "macos")))
    words = [str(checkpoint), "--target", "cpu", "--cpu", "x86-64", "--os", systems]
    done = CliRunner().invoke(compile_command, [*words, "--context", "64", "--output", str(out)])
    assert done.exit_code == 0, done.output
    return out


def test_one_folder_serves_all_systems(all_systems: Path) -> None:
    names = sorted(path.name for path in all_systems.glob("model.*"))
    own, mac, windows = f"model.{this_system()}-x86-64.so", "model.macos-x86-64.dylib", WINDOWS
    assert names == [own, mac, windows]
    assert Artifact.open(all_systems).library_path.name == own
    others = Artifact.open(all_systems, host=False).alternatives
    assert {other.target.triple: other.library.path for other in others} == {
        "x86_64-pc-windows-gnu": windows,
        "x86_64-apple-macos13.0": mac,
    }
    assert len(list(all_systems.glob("*.safetensors"))) == 1


def test_a_further_system_costs_a_library_and_a_manifest(all_systems: Path) -> None:
    sizes = {path.name: path.stat().st_size for path in all_systems.iterdir()}
    own = sizes.pop(f"model.{this_system()}-x86-64.so")
    for library in ("model.macos-x86-64.dylib", WINDOWS):
        assert sizes.pop(library) < 1.25 * own
    manifest, once = sizes.pop("mlcc.json"), {"chat_template.jinja", "tokenizer.json"}
    for system in ("macos", "windows"):
        assert sizes.pop(f"mlcc.{system}-x86-64.json") < 1.1 * manifest
    assert {*sizes} - once == {"weights-00001-of-00001.safetensors"}


@pytest.mark.feature("llama", "macos", "compiles")
@pytest.mark.needs("llvm")
def test_a_library_for_macos_needs_the_system_alone(all_systems: Path) -> None:
    library = all_systems / "model.macos-x86-64.dylib"
    headers = inspect("llvm-objdump", "-m", "--private-headers", library)
    assert re.search(r"platform macos\s+sdk 13.0\s+minos 13.0", headers)
    stub = Path(zig()).parent / "lib" / "libc" / "darwin" / "libSystem.tbd"
    system = set(re.findall(r"[\w$]+", stub.read_text(encoding="utf-8")))
    listed = inspect("llvm-nm", "-g", "--undefined-only", "--format=just-symbols", library)
    # the runtime that loads it defines the others
    assert {name for name in listed.split() if name not in system} <= TVM_CALLS


@pytest.mark.feature("desktop-gpu", "macos", "compiles")
def test_libraries_of_a_gpu_share_kernels_and_weights(tmp_path: Path) -> None:
    """The kernels are WGSL, the same text in each library, which the driver there compiles."""
    checkpoint, out = write_checkpoint(tmp_path / "model"), tmp_path / "out"
    systems = ",".join(dict.fromkeys((this_system(), "macos")))
    words = [str(checkpoint), "--target", "vulkan", "--os", systems, "--context", "64"]
    done = CliRunner().invoke(compile_command, [*words, "--output", str(out)])
    assert done.exit_code == 0, done.output
    own, mac = (out / f"model.{name}" for name in (f"{this_system()}.so", "macos.dylib"))
    assert Artifact.open(out).library_path == own
    assert len(list(out.glob("*.safetensors"))) == 1
    kernels = {path: path.read_bytes().count(b"@compute") for path in (own, mac)}
    assert kernels[own] == kernels[mac] > 5
    assert mac.read_bytes()[:8] == b"\xcf\xfa\xed\xfe\x0c\x00\x00\x01"  # 64 bits, arm64


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
