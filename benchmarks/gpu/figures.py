"""A stage of `run`: speeds of one library, as JSON lines.

    python -m benchmarks.gpu.figures FOLDER NAME [--device N] [--quick]

FOLDER is of one target, NAME a shape with its quantization (8b-q4), or `demo`: then the demo
model's answers are compared with the reference's.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.gpu import measure
from mlcc.device.select import list_devices
from mlcc.errors import MlccError


def main() -> None:
    given = measure.stage_arguments(__doc__)
    try:
        if given.name == "demo":
            say(demo=measure.demo(given.folder, given.device))
        else:
            figures(given.folder, given.name, given.device, quick=given.quick)
    except MlccError as error:
        sys.exit(str(error))


def figures(folder: Path, name: str, index: int | None, *, quick: bool) -> None:
    """Print the device, its copy bandwidth and the speeds."""
    row = json.loads((folder / f"{name}.json").read_text())
    sizes = measure.QUICK if quick else measure.Sizes()
    handle = measure.handle_of(row, index)
    found, _ = list_devices(handle.kind) if handle.kind != "cpu" else ([], "")
    say(device=found[handle.index] if found else handle.kind)
    model = measure.open_shape(folder, row, handle, sizes)
    say(copy_bytes_s=measure.copy_bandwidth(handle, model.executor, sizes))
    say(name=name, **measure.speeds(model, sizes))
    model.executor.close()


def say(**row: object) -> None:
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
