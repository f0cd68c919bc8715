"""Hatch's build hook: `pip install` compiles the WebGPU plugin along with the Python packages.

Without a C++ compiler everything else is installed all the same; the reason is noted beside where
the library would be, and `mlcc targets` shows it. The chat page and the wasm runtime go in where
they were built before, as `python3 dev.py wheel` does.
"""

from __future__ import annotations

import platform
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent / "targets"))
sys.path.insert(0, str(Path(__file__).resolve().parent / "runtime"))  # mlcc.machine

from mlcc_targets.native import build, manylinux

PAGE = Path(__file__).resolve().parent / "web" / "dist" / "page"


class PluginHook(BuildHookInterface[Any]):
    """Puts `targets/mlcc_targets/native/lib` into the wheel and names the platform in its tag."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatch before it packs; `version` is "standard" or "editable"."""
        if self.target_name != "wheel":
            return
        reason = build.build_or_explain()
        if reason:
            self.app.display_warning(f"mlcc: built without Vulkan: {reason}")
        # The folder is ignored by git, and hatch leaves out what git ignores.
        build_data["artifacts"] += [
            f"targets/mlcc_targets/{name}/lib/*" for name in ("native", "wasm")
        ]
        if version == "standard" and (PAGE / "index.html").is_file():
            build_data["force_include"][str(PAGE)] = "mlcc/server/page"
        if not reason:
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{self.system(version)}"

    def system(self, version: str) -> str:
        """Platform tag: on Linux the systems that the plugin runs on, not the one that built it."""
        if version == "standard" and sys.platform == "linux":
            try:
                needed = manylinux.needed_versions(build.LIBRARY)
                return manylinux.tag(needed, platform.machine())
            except ValueError as error:
                self.app.display_warning(f"mlcc: a wheel for this system alone: {error}")
        return sysconfig.get_platform().replace("-", "_").replace(".", "_")
