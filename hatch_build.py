"""Hatch's build hook: `pip install` compiles the WebGPU plugin along with the Python packages.

Without a C++ compiler everything else is installed all the same; the reason is noted beside where
the library would be, and `mlcc targets` shows it. The chat page goes in where it was built before
(`python3 dev.py web`); `mlcc serve` says so where it was not.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent / "targets"))

from mlcc_targets.native import build

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
        build_data["artifacts"].append("targets/mlcc_targets/native/lib/*")
        if version == "standard" and (PAGE / "index.html").is_file():
            build_data["force_include"][str(PAGE)] = "mlcc/server/page"
        if not reason:
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform}"
