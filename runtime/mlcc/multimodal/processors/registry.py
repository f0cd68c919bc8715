"""The processor of a model, by the name in its manifest."""

from __future__ import annotations

from mlcc.artifact.schema import VisionInfo
from mlcc.errors import ArtifactError
from mlcc.multimodal.processors.gemma3 import Gemma3
from mlcc.multimodal.processors.gemma4 import Gemma4
from mlcc.multimodal.processors.idefics3 import Idefics3
from mlcc.multimodal.processors.internvl import InternVL
from mlcc.multimodal.processors.llama4 import Llama4
from mlcc.multimodal.processors.llava import Llava
from mlcc.multimodal.processors.llava_onevision import LlavaOneVision
from mlcc.multimodal.processors.pixtral import Pixtral
from mlcc.multimodal.processors.processor import Processor
from mlcc.multimodal.processors.qwen2_vl import Qwen2VL

PROCESSORS: dict[str, type[Processor]] = {
    "idefics3": Idefics3,
    "gemma3": Gemma3,
    "gemma4": Gemma4,
    "qwen2_vl": Qwen2VL,
    "llama4": Llama4,
    "llava": Llava,
    "internvl": InternVL,
    "llava_onevision": LlavaOneVision,
    "pixtral": Pixtral,
}


def processor_of(info: VisionInfo) -> Processor:
    """The processor of a model that reads images. Raises ArtifactError for an unknown one."""
    if (kind := PROCESSORS.get(info.processor)) is None:
        raise ArtifactError(
            f"the model's images need the processor {info.processor!r:.40}; this mlcc knows "
            f"{', '.join(PROCESSORS)}: type `pip install --upgrade mlcc`"
        )
    return kind(info)
