"""No module of web/src or web/page is in an import cycle, and no two folders of web/src import each
other.

Imports of types count too: read from the sources, without Node.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

WEB = Path(__file__).parents[3] / "web"
IMPORT = re.compile(r"^(?:import|export)\b[^;'\"]*['\"](\.{1,2}/[^'\"]+)\.js['\"]", re.MULTILINE)
"""`import ... from './x.js'` and `export ... from`; names over several lines, too."""


def imports(path: Path) -> set[Path]:
    """The sources that one imports by relative paths."""
    named = IMPORT.findall(path.read_text(encoding="utf-8"))
    return {(path.parent / f"{name}.ts").resolve() for name in named}


def graph(*folders: str) -> dict[str, set[str]]:
    """Module -> modules that it imports, as paths below web/."""
    paths = [path for folder in folders for path in (WEB / folder).rglob("*.ts")]
    return {
        path.relative_to(WEB).as_posix(): {
            target.relative_to(WEB).as_posix() for target in imports(path.resolve())
        }
        for path in paths
    }


def cycle(modules: Mapping[str, set[str]]) -> list[str]:
    """A cycle of the graph; [] = there is none."""
    try:
        TopologicalSorter(modules).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_imports_itself_through_others() -> None:
    modules = graph("src", "page")
    assert {"src/index.ts", "page/main.ts"} <= modules.keys()
    missing = set().union(*modules.values()) - modules.keys()
    assert not missing, f"imports that name no module: {missing}"
    assert not cycle(modules)


def test_folders_below_src_import_each_other_one_way() -> None:
    """Files beside folders of the same name (`engine.ts`, `model/chunks.ts`) are not part of
    them."""
    folders: dict[str, set[str]] = {}
    for module, targets in graph("src").items():
        own = Path(module).parent.as_posix()
        others = {Path(target).parent.as_posix() for target in targets} - {own, "src", "src/model"}
        folders.setdefault(own, set()).update(others if own not in ("src", "src/model") else ())
    assert len(folders) > 5
    assert not cycle(folders)


@pytest.mark.parametrize(
    ("modules", "found"),
    [({"a": {"b"}, "b": {"c"}, "c": {"a"}}, True), ({"a": {"b", "c"}, "b": {"c"}}, False)],
)
def test_a_cycle_is_found(modules: Mapping[str, set[str]], found: bool) -> None:
    assert bool(cycle(modules)) is found


def test_imports_of_several_lines_and_of_types_are_read(tmp_path: Path) -> None:
    source = tmp_path / "a.ts"
    source.write_text("import type {\n  B,\n} from './b.js';\nexport * from '../c.js';\n")
    assert imports(source) == {tmp_path / "b.ts", tmp_path.parent / "c.ts"}
