"""`webgpu` libraries: inspected as files and started in Node, as a browser would load them.

Results of kernels are tested where they run (tests/e2e/web, tests/targets/native); here: the
runtime is built once, linking is reproducible, and a page can inspect a library.
"""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

from mlcc.artifact.manifest import abi_hash
from mlcc.commands.cache import cache_command
from mlcc_compiler.artifact.describe import library_abi
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, TargetError, get_target
from mlcc_targets.wasm import build as wasm
from mlcc_targets.wasm.link import EXPORTS, mark_abi
from tests.helpers.web_package import node
from tests.targets.small_library import build

ROW = get_target("webgpu", Choices(f16=False))
DEMO = Path(__file__).parents[2] / "examples" / "demo" / "model"
MOST = 600_000
"""Bytes of a library as it is sent, compressed (the aim was 1.2 MB): a page waits for it."""
PROVIDED = {
    *("clock_time_get", "environ_get", "environ_sizes_get", "fd_close", "fd_read", "fd_seek"),
    *("fd_write", "proc_exit"),
}
"""The functions of createPolyfillWASI in npm's @mlc-ai/web-runtime; a library that imports more
would not load."""

PAGE = """
const fs = require('fs');
const page = new WebAssembly.Module(fs.readFileSync(process.argv[1]));
const imports = {env: {}, wasi_snapshot_preview1: {}};
for (const {module, name} of WebAssembly.Module.imports(page)) imports[module][name] = () => 0;
const {exports} = new WebAssembly.Instance(page, imports);
exports._initialize();

const memory = () => new DataView(exports.memory.buffer);
function text(at) {
  const bytes = new Uint8Array(exports.memory.buffer, at);
  return new TextDecoder().decode(bytes.slice(0, bytes.indexOf(0)));
}
function space(bytes) {
  const at = exports.TVMWasmAllocSpace(bytes);
  new Uint8Array(exports.memory.buffer, at, bytes).fill(0);
  return at;
}
function global(name) {
  const bytes = new TextEncoder().encode(name), at = space(bytes.length), out = space(8);
  new Uint8Array(exports.memory.buffer, at, bytes.length).set(bytes);
  const array = space(8);
  memory().setUint32(array, at, true);
  memory().setUint32(array + 4, bytes.length, true);
  exports.TVMFFIFunctionGetGlobal(array, out);
  return memory().getUint32(out, true);
}
function call(name) {
  const failed = exports.TVMFFIFunctionCall(global(name), space(16), 0, space(16));
  return failed ? text(exports.TVMFFIWasmGetLastError()) : '';
}
console.log(JSON.stringify({
  abi: WebAssembly.Module.customSections(page, 'mlcc.abi').map((s) => new TextDecoder().decode(s)),
  exports: Object.keys(exports),
  imports: WebAssembly.Module.imports(page).map(({module, name}) => `${module}.${name}`),
  library: global('ffi.SystemLib') !== 0,
  absent: global('nothing.of.this.name'),
  error: call('vm.builtin.tensor_cache.get'),
}));
"""


def started(library: Path) -> dict[str, object]:
    """The JSON that PAGE prints after it has started a library in Node."""
    command = [node(), "-e", PAGE, str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = build(ROW, tmp_path_factory.mktemp("webgpu") / "model.wasm")
    mark_abi(path, library_abi())
    return path


def test_a_page_can_start_it_and_errors_have_text(library: Path) -> None:
    page = started(library)
    assert page["library"] and page["absent"] == 0
    assert page["error"] == "'vm.builtin.tensor_cache.get' is left out of mlcc's wasm runtime"


def test_it_imports_what_the_npm_package_provides_and_exports_what_that_calls(
    library: Path,
) -> None:
    page = started(library)
    exports, imports = page["exports"], page["imports"]
    assert isinstance(exports, list) and isinstance(imports, list)
    assert {*EXPORTS, "memory", "_initialize"} <= set(exports)
    assert len(exports) < 2 * len(EXPORTS)  # not TVM's whole C API
    ours = {name for name in imports if not name.startswith("wasi_snapshot_preview1.")}
    assert ours == {"env.TVMFFIWasmSafeCall", "env.TVMFFIWasmFunctionDeleter"}
    assert {name.partition(".")[2] for name in imports} - {
        name.partition(".")[2] for name in ours
    } <= PROVIDED


def test_another_abi_is_detected(library: Path, tmp_path: Path) -> None:
    assert started(library)["abi"] == [library_abi()]
    other = build(ROW, tmp_path / "model.wasm")
    assert started(other)["abi"] == []
    mark_abi(other, abi_hash("0.26.0", "0.1.13"))
    assert started(other)["abi"] != [library_abi()]


def test_two_links_are_equal_to_the_byte_and_name_no_folder(library: Path, tmp_path: Path) -> None:
    other = build(ROW, tmp_path / "other" / "name.wasm")
    mark_abi(other, library_abi())
    data = library.read_bytes()
    assert other.read_bytes() == data
    for folder in (tmp_path, wasm.FOLDER, wasm.cache_folder(), Path.home() / ""):
        assert f"{folder}/".encode() not in data
    assert b"site-packages" not in data


def test_the_demos_libraries_are_small(tmp_path: Path) -> None:
    row = get_target("webgpu")
    out = compile_model(Checkpoint.open(DEMO), row, tmp_path / "out", Options(), Progress())
    libraries = sorted(out.glob("*.wasm"))
    assert [path.name for path in libraries] == ["model.f32.wasm", "model.wasm"]
    for path in libraries:
        assert len(gzip.compress(path.read_bytes())) < MOST


@pytest.fixture
def small_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, for a runtime of one small unit and no C library."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(wasm, "UNITS", ("host",))
    monkeypatch.setattr(wasm, "CXX", ("libunwind/src/Unwind-wasm.c",))
    monkeypatch.setattr(wasm, "ARCHIVES", ())
    monkeypatch.setattr(wasm, "_c_library", lambda folder, cache: None)
    return tmp_path / "mlcc" / "wasm"


def test_two_compiles_at_once_build_the_runtime_once(small_runtime: Path) -> None:
    messages: list[str] = []
    with ThreadPoolExecutor(4) as pool:
        built = set(pool.map(lambda _: wasm.runtime(messages.append), range(4)))
    assert len(built) == len(messages) == 1
    (files,) = built
    assert [path.name for path in files] == ["host.o", "libcxx.a"]
    assert not list(small_runtime.glob("*.partial"))


def test_what_is_kept_is_listed_and_cleaned(small_runtime: Path) -> None:
    built, _ = wasm.runtime()
    (small_runtime / "0123.partial").mkdir()  # being compiled
    assert wasm.kept() == [built.parent]
    listed = CliRunner().invoke(cache_command, ["list"], catch_exceptions=False)
    assert str(built.parent) in listed.output
    CliRunner().invoke(cache_command, ["clean"], catch_exceptions=False)
    assert wasm.kept() == [] and (small_runtime / "0123.partial").exists()


def test_what_a_killed_build_left_is_built_again(small_runtime: Path) -> None:
    partial = small_runtime / f"{wasm._key()}.partial"
    partial.mkdir(parents=True)
    (partial / "host.o").write_bytes(b"half")
    built, _ = wasm.runtime()
    assert built.read_bytes()[:4] == b"\0asm" and not partial.exists()


def test_sources_that_changed_are_another_runtime(
    small_runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = wasm._key()
    sources = Path(shutil.copytree(wasm.FOLDER, tmp_path / "wasm"))
    monkeypatch.setattr(wasm, "FOLDER", sources)
    assert wasm._key() == before
    with (sources / "src" / "host.cc").open("a") as file:
        file.write("int of_no_use;\n")
    assert wasm._key() != before


def test_sources_that_do_not_compile_are_one_line(
    small_runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = Path(shutil.copytree(wasm.FOLDER, tmp_path / "wasm"))
    (sources / "src" / "host.cc").write_text("int broken( {\n")
    monkeypatch.setattr(wasm, "FOLDER", sources)
    with pytest.raises(TargetError, match=r"^making host\.o failed: .*host\.cc:1:.* error: ") as at:
        wasm.runtime()
    assert "\n" not in str(at.value)


def test_a_cache_that_cannot_be_written_is_one_line(
    small_runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(TargetError, match="set XDG_CACHE_HOME to a folder"):
        wasm.runtime()


def test_subgroup_matrices_come_before_the_other_libraries() -> None:
    row = get_target("webgpu", Choices(subgroup_matrices=16))
    assert row.matrix_unit == "subgroup_matrix16x16" and row.limits["subgroup_matrix"] == 16
    libraries = [each.library for each in (row, *row.alternatives)]
    assert libraries == ["model.wasm", "model.f16.wasm", "model.f32.wasm"]
    assert not any(each.matrix_unit for each in row.alternatives)
    with pytest.raises(TargetError, match="of float16; leave out --no-f16"):
        get_target("webgpu", Choices(subgroup_matrices=16, f16=False))
    with pytest.raises(TargetError, match="has no subgroup matrices; leave out"):
        get_target("vulkan", Choices(subgroup_matrices=8))
