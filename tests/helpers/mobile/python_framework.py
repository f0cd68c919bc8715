"""A stand-in for CPython's Python.xcframework, which only a Mac can build.

It has the layout that CPython's "Using Python on iOS" describes, with the headers of a Python of
this machine and no code: enough to compile what embeds it, not to link an app.
"""

from __future__ import annotations

import plistlib
import shutil
import sysconfig
from pathlib import Path

SLICES = {"ios-arm64": "", "ios-arm64_x86_64-simulator": "simulator"}


def write_framework(folder: Path, headers: Path) -> Path:
    """Python.xcframework in `folder`, with the headers of a folder."""
    framework, listed = folder / "Python.xcframework", []
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    own = headers.parent / multiarch / headers.name / "pyconfig.h"  # Debian's, of one architecture
    for name, variant in SLICES.items():
        copied = framework / name / "Python.framework" / "Headers"
        shutil.copytree(headers, copied)
        if own.exists():
            shutil.copy(own, copied)
        archs = ["arm64", "x86_64"] if variant else ["arm64"]
        row = {"LibraryIdentifier": name, "LibraryPath": "Python.framework"}
        row |= {"SupportedPlatform": "ios", "SupportedArchitectures": archs}
        listed.append(row | ({"SupportedPlatformVariant": variant} if variant else {}))
    info = {"AvailableLibraries": listed, "CFBundlePackageType": "XFWK"}
    info |= {"XCFrameworkFormatVersion": "1.0"}
    (framework / "Info.plist").write_bytes(plistlib.dumps(info))
    return framework
