"""A rank behind 0 on an emulated device of its own: what `mlcc.device.follower` is on a GPU."""

from __future__ import annotations

import os
import sys

from cuda import emulation
from mlcc.device import follower
from mlcc_targets import cuda_files

if __name__ == "__main__":
    emulation.device()
    cuda_files.nccl = lambda: os.environ["MLCC_STAND_IN_NCCL"]
    sys.exit(follower.main())
