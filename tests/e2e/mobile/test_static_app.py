"""An app with everything inside, as on iOS, built for this Linux: the chat of examples/c with
libmlcc, the executor and a model linked statically. Only Python is a shared library.

So the parts of mobile/swift/package.py run: the executor as a built-in module, and a model that no
file holds.
"""

from __future__ import annotations

import platform
import subprocess
import sysconfig
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Target, get_target
from mlcc_targets.linking.static import HEADER
from tests.helpers.demo_model import DEMO
from tests.helpers.mobile import ios_package
from tests.helpers.mobile.c_library import ROOT

PREFIX = "mlcc_demo_"


def static_row() -> Target:
    """This machine's CPU, with an archive in place of the library."""
    row = get_target("cpu")
    assert row.archive is not None
    library = {"library": "model.a", "extra_files": (HEADER,), "symbol_prefix": "mlcc_"}
    return replace(row, link=row.archive, **library)


def linked(folder: Path, model: Path) -> Path:
    """The program."""
    package: Any = ios_package.load()
    build = package.build_executor
    command, libraries = build.toolchain(platform.machine())
    python = package.desktop.Embedded.running()
    parts, app = folder / "parts", folder / "chat"
    parts.mkdir()
    words = [*command, *build.FLAGS, *build.STATIC]
    objects = build.compile_all(parts, words)
    objects += package.compile_host([*words, *(f"-I{path}" for path in python.headers)], parts)
    main = (folder / "main.c").write_text(
        f'#include "{HEADER}"\n#include "{ROOT}/examples/c/chat.c"\n'
        f"__attribute__((constructor)) static void linked(void) {{ {PREFIX}link(); }}\n"
    )
    assert main
    include = [f"-I{model}", f"-I{ROOT / 'mobile' / 'c' / 'include'}"]
    package.desktop.run(
        [*command, *include, "-x", "c", "-c", str(folder / "main.c"), "-o", str(parts / "main.o")],
        build.zig_cache(),
    )
    linking = [str(parts / "main.o"), *map(str, objects), str(model / "model.a"), *libraries]
    linking += [f"-L{python.library.parent}", f"-lpython{python.version}", "-o", str(app)]
    linking += [f"-Wl,-rpath,{python.library.parent}", "-Wl,--allow-shlib-undefined"]
    package.desktop.run([*command, *linking], build.zig_cache())
    package.desktop.bundle(folder / package.desktop.ZIP)
    return app


@pytest.mark.long
@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_ENABLE_SHARED"), reason="no shared library of Python"
)
def test_it_answers_without_another_file_of_code(tmp_path: Path) -> None:
    model = tmp_path / "model"
    source = Checkpoint.open(DEMO / "model")
    compile_model(source, static_row(), model, Options(quant="q4", context=512), Progress())
    app = linked(tmp_path, model)
    assert not [path for path in tmp_path.rglob("*.so*") if path.is_file()]
    done = subprocess.run([app, model], input="What is 17 + 25?\n", capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("you> 17 + 25 = 42\nyou> ", ""), done
