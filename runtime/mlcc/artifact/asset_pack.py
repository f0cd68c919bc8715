"""Writes a compiled model as an asset pack: an Android app module that contains only files.

    OUT/build.gradle.kts                        the build file for Gradle
    OUT/src/main/assets/models/NAME/mlcc.json   the manifest, with a hash of every 8 MiB
    OUT/src/main/assets/models/NAME/...         the model's files; a large one as FILE.000, FILE.001

Kotlin's `PackedModel` joins the parts on the phone.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from mlcc.artifact.folder import Artifact
from mlcc.artifact.output_errors import check_space, write_error
from mlcc.artifact.schema import CHUNK_BYTES, MANIFEST_NAME, FileEntry
from mlcc.errors import ArtifactError, MlccError, UnsupportedError

PART_CHUNKS = 150_000_000 // CHUNK_BYTES
"""Chunks per part. Parts end at chunk boundaries, so that each can be checked by itself; at most
150 MB."""
TARGET = "android"
GRADLE = """plugins {{
    id("com.android.asset-pack")
}}

assetPack {{
    packName.set("{name}")
    dynamicDelivery {{ deliveryType.set("install-time") }}
}}
"""
Progress = Callable[[int, int], None]
"""(bytes done, total bytes)"""


def write_asset_pack(
    artifact: Artifact, out: Path, progress: Progress = lambda done, total: None
) -> Path:
    """Write the pack to `out` atomically; returns the model's folder in it.

    Raises UnsupportedError (not for Android), ArtifactError (damaged), CapacityError (disk full),
    and MlccError if `out` exists or cannot be written.
    """
    manifest = artifact.manifest
    if manifest.target.name != TARGET:
        raise UnsupportedError(
            f"{artifact.folder}: compiled for target '{manifest.target.name}', which no Android "
            f"app loads; compile it with `mlcc compile MODEL --target {TARGET}`"
        )
    if os.path.lexists(out):
        raise MlccError(f"{out}: is there already; remove it or choose another folder")
    name = pack_name(manifest.model.name)
    partial = out.with_name(f".{out.name}.mlcc-tmp-{os.getpid()}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        check_space(out, sum(entry.bytes for entry in manifest.files), "folder")
        assets = partial / "src" / "main" / "assets" / "models" / name
        assets.mkdir(parents=True)
        (partial / "build.gradle.kts").write_text(GRADLE.format(name=name), encoding="utf-8")
        _copy(artifact, assets, progress)
        partial.rename(out)
    except OSError as error:
        raise write_error(error, out, "folder") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return out / assets.relative_to(partial)


def pack_name(model: str) -> str:
    """A name that Gradle and Play accept: letters, digits and _, starting with a letter."""
    name = re.sub(r"[^a-z0-9]+", "_", model.rpartition("/")[2].lower()).strip("_")
    return name if name[:1].isalpha() else f"model_{name}".rstrip("_")


def parts_of(entry: FileEntry) -> Iterator[tuple[str, range]]:
    """Path and chunks of each part; a small file is one part under its own name."""
    count = len(entry.chunks)
    if count <= PART_CHUNKS:
        yield entry.path, range(count)
        return
    for number, first in enumerate(range(0, count, PART_CHUNKS)):
        yield f"{entry.path}.{number:03d}", range(first, min(first + PART_CHUNKS, count))


def _copy(artifact: Artifact, assets: Path, progress: Progress) -> None:
    entries = artifact.manifest.files
    total, done = sum(entry.bytes for entry in entries), 0
    shutil.copyfile(artifact.folder / MANIFEST_NAME, assets / MANIFEST_NAME)
    for entry in entries:
        with (artifact.folder / entry.path).open("rb") as source:
            for path, chunks in parts_of(entry):
                (assets / path).parent.mkdir(parents=True, exist_ok=True)
                with (assets / path).open("wb") as part:
                    for chunk in chunks:
                        data = source.read(CHUNK_BYTES)
                        if hashlib.sha256(data).hexdigest() != entry.chunks[chunk]:
                            raise ArtifactError(
                                f"{artifact.folder}: {entry.path} is damaged in its chunk {chunk}; "
                                "copy the folder again or compile the model again"
                            )
                        part.write(data)
                        done += len(data)
                        progress(done, total)
