"""Hatch's build hook: `pip install` compiles the executor and bundles the chat page along with the
Python packages.

Without a C++ compiler everything else is installed all the same; the reason is noted beside where
the library would be, and `mlcc targets` shows it. So it is with the page, without npm's registry.
What models in a browser's tab need is in a wheel of its own (web/wheel).
"""

from __future__ import annotations

import os
import platform
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent / "targets"))
sys.path.insert(0, str(Path(__file__).resolve().parent / "runtime" / "native"))
sys.path.insert(0, str(Path(__file__).resolve().parent / "web" / "tools"))
sys.path.insert(0, str(Path(__file__).resolve().parent / "runtime"))  # mlcc.util.machine

import build_executor
import build_nccl
import server_page

from mlcc_targets.native import manylinux

BUILT = "runtime/mlcc/device/lib/*"
PAGE = "runtime/mlcc/server/page"
MACHINE = os.environ.get("MLCC_WHEEL_MACHINE") or platform.machine()
"""Whose instruction set the wheel is for: `dev.py release` makes those of two."""
SYSTEM = os.environ.get("MLCC_WHEEL_SYSTEM", "")
"""Which other system the wheel is for, made on any: windows (x86-64), macos (arm64) or
macos-intel (x86-64)."""
_MACS = {"macos": "arm64", "macos-intel": "x86_64"}
_TAGS = {"windows": "win_amd64"} | {name: f"macosx_13_0_{arch}" for name, arch in _MACS.items()}


class PluginHook(BuildHookInterface[Any]):
    """Puts what is compiled into the wheel and names the platform in its tag."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatch before it packs; `version` is "standard" or "editable"."""
        if self.target_name != "wheel":
            return
        if os.environ.get("MLCC_NO_NATIVE"):  # `dev.py` builds later what a command needs of it
            return
        if reason := server_page.build_or_explain(Path(self.root) / PAGE):
            self.app.display_warning(f"mlcc: there will be no chat page: {reason}")
        build_data["artifacts"].append(f"{PAGE}/**")
        where = SYSTEM or f"{platform.system()} on {MACHINE}"
        self.app.display_info(
            f"mlcc: compiling the executor for {where}, of C++ by zig: two to five minutes, once; "
            "its cache is the user's"
        )
        if SYSTEM == "windows":
            reason = build_executor.build_for_windows_or_explain()
        elif SYSTEM in _MACS:
            reason = build_executor.build_for_macos_or_explain(_MACS[SYSTEM])
        else:
            reason = build_executor.build_or_explain(MACHINE)
            # `mlcc.device.parallel.experimental.nccl` says why there is none
            build_nccl.build_or_explain(MACHINE)
        # The folder is ignored by git, and hatch leaves out what git ignores.
        build_data["artifacts"].append(BUILT)
        if reason:
            self.app.display_warning(
                f"mlcc: models need all of TVM, and none run on Vulkan: {reason}"
            )
        else:
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{self.system(version)}"

    def system(self, version: str) -> str:
        """Platform tag: on Linux the systems that the library runs on, not which built it."""
        if SYSTEM:
            return _TAGS[SYSTEM]
        if version == "standard" and sys.platform == "linux":
            try:
                needed = manylinux.needed_versions(build_executor.LIBRARY)
                return manylinux.tag(needed, MACHINE)
            except ValueError as error:
                self.app.display_warning(f"mlcc: a wheel for this system alone: {error}")
        return sysconfig.get_platform().replace("-", "_").replace(".", "_")
