"""A tower as a checkpoint of its own: what images (`vision.py`) or sound
(`audio.py`, `audio_input.py`) enter by."""

from __future__ import annotations

from typing import Any, TypeAlias

from mlcc.artifact.schema import AudioInfo, AudioInputInfo, VisionInfo
from mlcc_compiler.checkpoint.folder import Checkpoint

TowerInfo: TypeAlias = "VisionInfo | AudioInfo | AudioInputInfo"


class TowerCheckpoint(Checkpoint):
    """A part of `parent` with its own config and tensors, without tokenizer and templates."""

    def __init__(
        self,
        parent: Checkpoint,
        config: dict[str, Any],
        info: TowerInfo,
        tensors: Any,
    ) -> None:
        kind = {"model_type": config["model_type"]}
        super().__init__(parent.folder, config, kind, {}, {}, {})
        vars(self).update(parent=parent, info=info, tensors=tensors)  # a frozen dataclass
        vars(self).update(tokenizer=b"", special_tokens={}, eos_token_ids=())

    parent: Checkpoint
    info: TowerInfo

    @property
    def name(self) -> str:
        """The whole model's."""
        return self.parent.name

    @property
    def sense(self) -> str:
        """Name of the tower, for the user."""
        return "vision" if isinstance(self.info, VisionInfo) else "audio"
