"""The import rules of docs/internals/structure.md: the packages that each package may import, read
from the sources.

Every import statement counts, also those inside functions and `if TYPE_CHECKING`.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import jinja2
import pytest

ROOT = Path(__file__).parent.parent
SOURCES = {
    "mlcc": ROOT / "runtime" / "mlcc",
    "mlcc_compiler": ROOT / "compiler" / "mlcc_compiler",
    "mlcc_targets": ROOT / "targets" / "mlcc_targets",
}
TVM = {"tvm", "tvm_ffi"}
TVM_IN_RUNTIME = "device/tvm/runtime.py"
OUTSIDE_WORLD = {"asyncio", "multiprocessing", "os", "random", "secrets", "select", "signal"}
OUTSIDE_WORLD |= {"socket", "subprocess", "threading", "time"}


def files(package: str, under: str = "") -> list[Path]:
    return sorted((SOURCES[package] / under).rglob("*.py"))


@cache
def statements(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """The import statements of a file."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


def imports(path: Path, package: str) -> Iterator[str]:
    """Full names of all modules that a file imports; relative ones resolved."""
    parents = [package, *path.relative_to(SOURCES[package]).parts[:-1]]
    for node in statements(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            base = parents[: len(parents) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            # `from mlcc import engine` imports a module, `from mlcc import __version__` does not.
            yield from (f"{module}.{a.name}" if module in SOURCES else module for a in node.names)


def import_graph(package: str) -> dict[str, set[str]]:
    """Module -> modules of its package that it imports, `if TYPE_CHECKING` and functions too."""
    named = {}
    for path in files(package):
        parts = [package, *path.relative_to(SOURCES[package]).with_suffix("").parts]
        named[".".join(parts).removesuffix(".__init__")] = path

    def targets(path: Path) -> Iterator[str]:
        for node in statements(path):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            else:
                assert not node.level, f"{path}: a relative import, which this does not resolve"
                whole = [f"{node.module}.{alias.name}" for alias in node.names]
                yield from (name if name in named else str(node.module) for name in whole)

    return {name: set(targets(path)) & named.keys() - {name} for name, path in named.items()}


def circles(graph: dict[str, set[str]]) -> list[str]:
    """Modules in import cycles: those that remain after modules without imports are removed
    repeatedly."""
    left = {name: set(targets) for name, targets in graph.items()}
    while leaves := [n for n, t in left.items() if not t & left.keys()]:
        for name in leaves:
            del left[name]
    while roots := [n for n in left if not any(n in t for t in left.values())]:
        for name in roots:
            del left[name]
    return sorted(left)


def offenders(package: str, under: str, bad: Callable[[str], bool]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in files(package, under)
        for name in imports(path, package)
        if bad(name)
    ]


def within(name: str, *modules: str) -> bool:
    return any(name == module or name.startswith(module + ".") for module in modules)


def top(name: str) -> str:
    return name.partition(".")[0]


def is_standard(name: str) -> bool:
    return top(name) in sys.stdlib_module_names


@pytest.mark.parametrize("package", SOURCES)
def test_there_is_something_to_check(package: str) -> None:
    assert files(package), f"no sources under {SOURCES[package]}"


@pytest.mark.parametrize("package", SOURCES)
def test_no_modules_import_each_other(package: str) -> None:
    assert not circles(import_graph(package))


def test_the_finder_of_circles() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"a"}}
    assert circles(graph) == ["b", "c"]
    assert not circles({"a": {"b", "c"}, "b": {"c"}, "c": set()})


def folder_pairs(graph: dict[str, set[str]], packages: set[str]) -> set[tuple[str, str]]:
    """Folders of modules that import each other, neither of them inside the other."""

    def folder(name: str) -> str:
        return name if name in packages else name.rpartition(".")[0]

    arrows = {(folder(name), folder(to)) for name, targets in graph.items() for to in targets}
    return {
        (a, b)
        for a, b in arrows
        if a < b and (b, a) in arrows and not within(b, a) and not within(a, b)
    }


LAZY = {("mlcc_compiler.kernels.host", "mlcc_compiler.quantization")}
"""The codec imports the kernels that search for it when it first needs them: they take TVM."""


@pytest.mark.parametrize("package", SOURCES)
def test_no_two_folders_import_each_other(package: str) -> None:
    inits = [path.parent for path in files(package) if path.name == "__init__.py"]
    packages = {".".join([package, *p.relative_to(SOURCES[package]).parts]) for p in inits}
    assert folder_pairs(import_graph(package), packages) - LAZY == set()


def test_the_finder_of_folders_that_import_each_other() -> None:
    graph = {"a.b.x": {"a.c.y"}, "a.c.y": set(), "a.c.z": {"a.b", "a.c.d.w"}, "a.c.d.w": {"a.c.y"}}
    assert folder_pairs(graph, {"a", "a.b", "a.c", "a.c.d"}) == {("a.b", "a.c")}


@pytest.mark.parametrize("folder", ["kernels", "ir"])
def test_kernels_and_ir_know_no_passes_and_no_models(folder: str) -> None:
    above = ("mlcc_compiler.passes", "mlcc_compiler.models", "mlcc_compiler.pipeline")
    assert not offenders("mlcc_compiler", folder, lambda name: within(name, *above))


def test_engine_imports_the_standard_library_only() -> None:
    def bad(name: str) -> bool:
        return not (
            is_standard(name)
            or within(name, "mlcc.engine", "mlcc.errors", "mlcc.util.fast_dataclass")
        )

    assert not offenders("mlcc", "engine", bad)


def test_engine_touches_no_clock_device_or_socket() -> None:
    assert not offenders("mlcc", "engine", lambda name: top(name) in OUTSIDE_WORLD)


def test_api_imports_the_standard_library_and_jinja2_only() -> None:
    ours = (
        "mlcc.engine",
        "mlcc.api",
        "mlcc.errors",
        "mlcc.util.fast_dataclass",
        "mlcc.version",
        "mlcc.limits",
        "mlcc.multimodal.audio.encoded",
        "mlcc.multimodal.header",
        "mlcc.multimodal.placeholders",
        "jinja2",
    )
    assert not offenders("mlcc", "api", lambda n: not (is_standard(n) or within(n, *ours)))


_OF_MODEL = (
    "audio_tower", "memory.planner", "model", "reasoning", "speculation",
    "structured_output.grammars", "structured_output.schema_keywords", "text",
    "tokenizer.special_tokens", "tokenizer.tokenizer", "vision_tower",
)  # fmt: skip


def test_the_browser_needs_the_standard_library_and_jinja2_only() -> None:
    """`service` and `embedded`, and the modules that they import; Pyodide only in one function."""
    ours = ("mlcc.engine", "mlcc.api", "mlcc.service", "mlcc.errors", "mlcc.util.sizes")
    ours += ("mlcc.lora", "mlcc.limits", "mlcc.util.fast_dataclass", "mlcc.version")
    ours += ("mlcc.util.memory", "mlcc.multimodal")
    of_artifact = ("manifest", "schema", "records", "text_files", "generation_config")
    ours += tuple(f"mlcc.artifact.{name}" for name in of_artifact)
    ours += tuple(f"mlcc.model.{name}" for name in _OF_MODEL)

    def bad(name: str) -> bool:
        return not (is_standard(name) or within(name, *ours))

    assert not offenders("mlcc", "service", bad)
    seeing = offenders("mlcc", "multimodal", lambda n: bad(n) and n != "mlcc.util.extras")
    assert set(seeing) == {  # in functions: without pictures, nothing needs Pillow
        f"runtime/mlcc/multimodal/{path} imports {name}"
        for path, names in {
            "audio/flac.py": ("mlcc.util",),
            "audio/frames.py": ("mlcc.util",),
            "audio/sound.py": ("av", "soundfile"),
            "packing.py": ("mlcc.util",),
            "image.py": ("PIL", "PIL.Image", "PIL.ImageOps"),
            "processors/processor.py": ("PIL.Image",),
            "rgb.py": ("mlcc.util",),
        }.items()
        for name in names
    }
    found = offenders("mlcc", "embedded", lambda n: bad(n) and not within(n, "mlcc.embedded"))
    assert not [line for line in found if "/embedded/c/" not in line and "bridge.py" not in line]
    assert "runtime/mlcc/embedded/bridge.py imports pyodide.ffi" in found
    # behind mlcc.h, models are opened as on a desktop: what that may import is held below
    opening = ("mlcc.embedded", "mlcc.engine_args", "mlcc.loader", "mlcc.model.driver")
    opening += (
        "mlcc.device",
        "_mlcc",
        "mlcc.model.tokenizer.vocabulary",
        "mlcc.model.encoder_driver",
        "mlcc.util.executor_library",
        "mlcc.util.extras",
    )
    assert not offenders("mlcc", "embedded/c", lambda n: bad(n) and not within(n, *opening))


def test_only_the_server_knows_sockets_and_processes() -> None:
    known = {"starlette", "uvicorn", "multiprocessing", "threading", "socket"}
    assert not offenders("mlcc", "service", lambda name: top(name) in known)


BARE = """
import json, sys
from importlib.abc import MetaPathFinder

class OnlyThese(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        standard = top in sys.stdlib_module_names and top not in {lacking!r}
        if not standard and top not in {allowed!r}:
            raise ModuleNotFoundError(f"no {{name}} in a tab", name=name)

sys.meta_path.insert(0, OnlyThese())
sys.path[:0] = {path!r}
before = set(sys.modules)
import mlcc.embedded.entry
plan = set(sys.modules) - before
mlcc.embedded.entry.EmbeddedModel
tab = set(sys.modules) - before
import mlcc.api.chat_template.sandbox  # as the first conversation does
print(json.dumps([sorted(plan), sorted(tab), sorted(set(sys.modules) - before)]))
"""


def test_a_bare_interpreter_opens_a_tab_with_nothing_superfluous() -> None:
    """Each module costs start-up time in a tab: this list is deliberate. `lacking`: modules of the
    standard library that Pyodide lacks."""
    allowed = {"mlcc", "jinja2", "markupsafe"}
    path = [str(ROOT / "runtime"), str(Path(jinja2.__file__).parents[1])]
    lacking = {"decimal", "_decimal", "_pydecimal", "ssl", "_ssl", "sqlite3", "lzma", "_lzma"}
    source = BARE.format(allowed=allowed, lacking=lacking, path=path)
    run = subprocess.run([sys.executable, "-ISc", source], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    plan, tab, chat = json.loads(run.stdout)
    slow = {"uuid", "datetime", "difflib", "secrets", "multiprocessing", "http", "email"}
    assert {top(name) for name in tab if not is_standard(name)} == {"mlcc"}
    assert {top(name) for name in chat if not is_standard(name)} == allowed
    assert not slow & {top(name) for name in chat}
    for_a_plan = ("mlcc.embedded", "mlcc.engine", "mlcc.errors", "mlcc.artifact", "mlcc.util.sizes")
    for_a_plan += ("mlcc.model.memory.planner", "mlcc.limits", "mlcc.util.fast_dataclass")
    for_a_plan += ("mlcc.util.memory",)
    rooms = {"mlcc", "mlcc.version", "mlcc.model", "mlcc.model.memory", "mlcc.util"}
    ours = {name for name in plan if top(name) == "mlcc"} - rooms
    assert not [name for name in ours if not within(name, *for_a_plan)]
    assert "asyncio" not in plan


DOORS = ("local.engine", "embedded.entry", "service.service", "worker.process", "model.session")
DOORS += ("loader", "model_cache.cache", "eval.evaluation", "server.serve", "server.web", "cli")
DOORS += tuple(
    f"commands.{name}" for name in ("cache", "chat", "evaluate", "inspect", "run", "serve.command")
)
HEAVY = TVM | {
    "ray",
    "numpy",
    "torch",
    "wgpu",
    "filelock",
    "huggingface_hub",
    "ziglang",
    "transformers",
}


def test_what_a_bare_install_lacks_is_imported_by_no_door() -> None:
    """`pip install mlcc` installs none of these: they are imported by the functions that use
    them. One process imports all doors, as what none of them imports, no single one does."""
    source = f"""if True:
        import sys
        from importlib import import_module

        for door in {DOORS!r}:
            import_module("mlcc." + door)
            if found := {HEAVY!r} & sys.modules.keys():
                sys.exit(f"mlcc.{{door}} imports {{sorted(found)}}")
    """
    run = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_runtime_never_imports_the_compiler() -> None:
    assert not offenders("mlcc", "", lambda name: top(name) == "mlcc_compiler")


def test_tvm_enters_the_runtime_through_one_file() -> None:
    def bad(name: str) -> bool:
        return top(name) in TVM

    found = [line for line in offenders("mlcc", "", bad) if f"{TVM_IN_RUNTIME} " not in line]
    assert not found


def test_tvm_enters_the_compiler_through_one_module() -> None:
    found = offenders("mlcc_compiler", "", lambda name: top(name) in TVM)
    assert found and all("_tvm.py " in line for line in found), found


def test_the_compiler_takes_formats_and_errors_from_the_runtime() -> None:
    shared = (
        "mlcc.errors",
        "mlcc.artifact",
        "mlcc.cli",
        "mlcc.commands.grouped_help",
        "mlcc.util.file_cache",
        "mlcc.util.files",
        "mlcc.util.panics",
        "mlcc.util.progress",
        "mlcc.util.sizes",
    )
    shared += (
        "mlcc.lora",
        "mlcc.util.extras",
        "mlcc.util.machine",
        "mlcc.model_argument",
        "mlcc.model.tokenizer.tokenizer",
        "mlcc.engine.batch.tables",
        "mlcc.engine.batch.adjust_tables",
        "mlcc.engine.batch.filters",
    )

    def bad(name: str) -> bool:
        return top(name) == "mlcc" and not within(name, *shared, "mlcc.version")

    # `mlcc targets` also lists the devices of this machine, which only the runtime knows
    allowed = (" mlcc", "cli.py imports mlcc.device.select")
    found = [line for line in offenders("mlcc_compiler", "", bad) if not line.endswith(allowed)]
    # calibration runs a model before it is compiled, by the reference's twins
    twins = "calibration/forward.py imports mlcc."
    assert not [line for line in found if twins not in line]


def test_targets_import_neither_tvm_nor_the_other_packages() -> None:
    """Except `mlcc.util.machine`, the CPU detection, which targets and the runtime share."""
    wrong = TVM | {"mlcc", "mlcc_compiler"}
    found = offenders("mlcc_targets", "", lambda name: top(name) in wrong)
    assert found and not [line for line in found if not line.endswith(" mlcc.util.machine")]


_ON_RAY = (
    "__init__",
    "application",
    "ray_handle",
    "cluster",
    "deployments",
    "ray_router",
    "serving",
)


def test_ray_is_known_in_one_room_and_there_not_by_what_decides() -> None:
    found = offenders("mlcc", "", lambda name: top(name) == "ray")
    places = tuple(f"runtime/mlcc/scale/{name}.py " for name in _ON_RAY)
    assert found and not [line for line in found if not line.startswith(places)]


def test_models_and_devices_do_not_import_each_other() -> None:
    """A model knows the executor's protocol, which is the engine's; `mlcc.loader` joins the two."""
    assert not offenders("mlcc", "model", lambda name: within(name, "mlcc.device"))
    assert not offenders("mlcc", "device", lambda name: within(name, "mlcc.model"))


@pytest.mark.parametrize(
    "door",
    ["import mlcc_compiler.ir._tvm", "from mlcc.device.tvm.runtime import runtime; runtime()"],
)
def test_tvm_comes_without_torch_which_can_still_be_imported(door: str) -> None:
    find = "from importlib.util import find_spec; assert find_spec('torch')"
    source = f"{door}; import sys; assert 'torch' not in sys.modules; {find}"
    run = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_tvm_is_imported_without_a_failed_lookup_and_without_collections() -> None:
    """A failed look-up of a type has a backtrace, which takes a quarter of a second."""
    source = """if True:
        import gc
        from mlcc_targets.tvm_import import importing_tvm
        with importing_tvm():  # without torch, which takes seconds
            from tvm_ffi import core

        find, missed = core._object_type_key_to_index, []

        def counted(key):
            index = find(key)
            if index is None:
                missed.append(key)
            return index

        core._object_type_key_to_index = counted
        with importing_tvm():
            gc.callbacks.append(lambda phase, info: missed.append(info))
            import tvm

            assert not missed, missed
        assert gc.isenabled()
    """
    run = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import tvm.runtime", {"tvm.runtime"}),
        ("def f():\n    from tvm import relax", {"tvm"}),
        ("from ..device import native", {"mlcc.device"}),
        ("from . import batch", {"mlcc.engine"}),
        ("from mlcc import device, __version__", {"mlcc.device", "mlcc.__version__"}),
    ],
)
def test_the_reader_of_imports(
    source: str, expected: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "mlcc"
    (package / "engine").mkdir(parents=True)
    path = package / "engine" / "x.py"
    path.write_text(source, encoding="utf-8")
    monkeypatch.setitem(SOURCES, "mlcc", package)
    assert set(imports(path, "mlcc")) == expected


def test_each_public_name_of_the_engine_is_imported_when_asked_for() -> None:
    from mlcc import engine

    found = [getattr(engine, name) for name in engine.__all__]
    assert len({*map(id, found)}) == len(found)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        engine.Nothing  # noqa: B018
