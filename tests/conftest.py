"""Shared by all tests: threads fixed before anything imports tvm, which stays in compiler mode."""

from __future__ import annotations

import os

os.environ.setdefault("TVM_NUM_THREADS", str(len(os.sched_getaffinity(0))))
os.environ["TVM_USE_RUNTIME_LIB"] = "0"  # one process holds both the compiler and the executor
