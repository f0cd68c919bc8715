"""LoRA slots of the TVM executor: numpy arrays on the host, copied to tensors on the device.

Writing one slot copies the whole tensor, since adapters are loaded rarely.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlcc.artifact.schema import AdaptersInfo
from mlcc.device.reference.lora import slot_arrays
from mlcc.device.tvm.runtime import runtime
from mlcc.device.tvm.tensors import Tensors
from mlcc.engine.lora import AdapterMatrix


class AdapterTensors:
    """Adapter slots; `tensors` are the arguments of `forward_adapters`."""

    def __init__(self, room: AdaptersInfo, tensors: Tensors) -> None:
        self._room = room
        self._arrays = [np.zeros(shape, np.float32) for shape in room.shapes]
        self._each = [tensors.weight(array.copy()) for array in self._arrays]
        self.tensors = runtime().runtime.convert(self._each)

    def write(self, slot: int, matrices: Sequence[AdapterMatrix]) -> None:
        """Fill a slot."""
        for place, made in enumerate(slot_arrays(self._room, matrices)):
            self._arrays[place][slot] = made
            self._each[place].copyfrom(self._arrays[place])
