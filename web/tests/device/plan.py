"""The plan of the model in the folder `MLCC_DEMO_WEBGPU`, for a GPU that holds it: JSON on
standard output, as `entry.plan` makes it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from mlcc.embedded.entry import plan

ADAPTER = {
    "f16": False,
    "packed_dot": True,
    "subgroup_matrices": [],
    "tensor_bytes": 1 << 30,
    "memory_bytes": None,
}

if __name__ == "__main__":
    manifest = Path(os.environ["MLCC_DEMO_WEBGPU"], "mlcc.json").read_bytes()
    print(plan(manifest, json.dumps(ADAPTER), "{}"))
