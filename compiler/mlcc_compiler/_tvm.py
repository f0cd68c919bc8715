"""The one door to TVM's compiler side: TVM renames things every few months, so only this moves."""

import tvm
from tvm import ir, relax, tirx
from tvm.relax.frontend import nn
from tvm.script import tirx as T

__all__ = ["T", "ir", "nn", "relax", "tirx", "tvm"]
