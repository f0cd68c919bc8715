"""A day on a GPU: everything that is measured there, prepared on a machine without one.

    python -m benchmarks.gpu pack FOLDER     here: needs the compiler, no GPU
    python -m benchmarks.gpu run FOLDER      there, inside FOLDER: needs Python and numpy alone

README.md beside this file says how to build the folder, what to expect, and how each stage fails.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    pack_options(commands.add_parser("pack", help="compile and collect what a GPU day needs"))
    run_options(commands.add_parser("run", help="run the stages of a packed folder"))
    given = parser.parse_args()
    if given.command == "run":
        from benchmarks.gpu.stages import run

        return run(given)
    from benchmarks.gpu.pack import pack

    return pack(given)


def pack_options(parser: argparse.ArgumentParser) -> None:
    """Options of `pack`."""
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--targets", nargs="+", default=["cuda", "vulkan"], choices=("cuda", "vulkan", "cpu")
    )
    parser.add_argument("--arch", default="sm_90a", help="of the card, for cuda: default sm_90a")
    parser.add_argument("--shapes", nargs="+", default=["1b", "8b"])
    parser.add_argument("--quants", nargs="+", default=["q4", "bf16"])
    parser.add_argument("--no-kernels", action="store_true", help="record no kernel calls")
    parser.add_argument(
        "--packages-from",
        type=Path,
        metavar="DIR",
        help="site-packages of the Python there, if it is another version than this one",
    )
    parser.add_argument("--numpy", action="store_true", help="numpy too: 40 MB")


def run_options(parser: argparse.ArgumentParser) -> None:
    """Options of `run`."""
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, help="folder of day.json; default FOLDER/out")
    parser.add_argument("--only", default="", help="stages by name or beginning: kernels,figures")
    parser.add_argument("--limit", type=float, default=555, help="seconds for all; default 555")
    parser.add_argument("--device", type=int, help="number of the GPU; default the best")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")


if __name__ == "__main__":
    sys.exit(main())
