"""`--dump-ir`: the module after each phase of a compile, as files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from mlcc.errors import MlccError
from mlcc_compiler.ir._tvm import ir


@dataclass
class IrDump:
    """Writes the module after each phase to `folder`, numbered; does nothing without one."""

    folder: Path | None
    count: int = field(default=0)

    def __post_init__(self) -> None:
        """Raises MlccError if other files are there: phases of two compiles must not mix. A vision
        tower and the levels of a CPU have folders of their own in it."""
        if self.folder is None or not self.folder.exists():
            return
        if not self.folder.is_dir() or any(not path.is_dir() for path in self.folder.iterdir()):
            raise MlccError(
                f"{self.folder}: is there already and not an empty folder; "
                "give --dump-ir another one or remove it"
            )

    def __call__(self, phase: str, module: ir.IRModule) -> None:
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            name = f"{self.count:02d}_{phase}.py"
            (self.folder / name).write_text(module.script(), encoding="utf-8")
            self.count += 1
