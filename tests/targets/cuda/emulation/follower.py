"""A rank above 0 on its own emulated device: `mlcc.device.parallel.rank_main` for a GPU."""

from __future__ import annotations

import os
import sys

from mlcc.device.parallel import rank_main
from mlcc_targets import cuda_files
from tests.targets.cuda import emulation

if __name__ == "__main__":
    emulation.device()
    cuda_files.nccl = lambda: os.environ["MLCC_STAND_IN_NCCL"]
    sys.exit(rank_main.main())
