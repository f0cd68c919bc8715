"""Images and sounds of a prompt: decoded and cut into tiles or clips, and their places among the
token ids.

A rendered conversation has the text of each image, with one image token for each tile, or for each
line of a tile's tokens. `with_rows` repeats that token in the ids, once for each row of the tile or
the line, which gives what transformers gets from repeating it in the text: a control token is
encoded by itself.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Sequence
from io import BytesIO
from itertools import islice
from typing import TYPE_CHECKING

from mlcc.engine.request import AudioClip, ImageTile
from mlcc.errors import ArtifactError, InvalidRequestError
from mlcc.limits import default
from mlcc.multimodal.audio.clips import AudioProcessor, Clip
from mlcc.multimodal.audio.encoded import EncodedAudio
from mlcc.multimodal.audio.frames import SoundKernels
from mlcc.multimodal.audio.sound import decode as decode_sound
from mlcc.multimodal.header import EncodedImage, read_header
from mlcc.multimodal.image import decode
from mlcc.multimodal.processors.processor import ImagePlan, Processor, Tile
from mlcc.util.fast_dataclass import fast_dataclass

if TYPE_CHECKING:
    from mlcc.multimodal.processors.processor import Picture


Decode = Callable[[EncodedImage], "Picture"]
"""Decodes a file to RGB; raises InvalidRequestError for a damaged one."""


@fast_dataclass(frozen=True)
class Prompt:
    """Token ids, and the tiles of images and clips of sound among them."""

    ids: array[int]
    media: tuple[ImageTile | AudioClip, ...] = ()


@fast_dataclass(frozen=True)
class PreparedImage:
    """An image that was cut into tiles."""

    plan: ImagePlan
    tiles: Sequence[Tile]

    @property
    def text(self) -> str:
        """Replaces the template's mark of the image."""
        return self.plan.text


@fast_dataclass(frozen=True)
class PreparedSound:
    """A sound that was cut into clips."""

    text: str
    """Replaces the template's mark of the sound: the audio token once for each clip."""
    tiles: Sequence[Clip]


def least_tokens(processor: Processor, images: Sequence[EncodedImage]) -> int:
    """The tokens that these images take at least, by their headers: EXIF data may turn them."""
    return sum(_least_tokens(processor, image) for image in detailed(processor, images))


def detailed(processor: Processor, images: Sequence[EncodedImage]) -> list[EncodedImage]:
    """The images of a conversation in the detail in which the model reads them."""
    if not processor.alone or len(images) < 2:
        return list(images)
    return [EncodedImage(image.data, image.field, low_detail=True) for image in images]


def _least_tokens(processor: Processor, image: EncodedImage) -> int:
    header = read_header(image)
    sizes = ((header.width, header.height), (header.height, header.width))
    return min(processor.tokens(planned(processor, image, size)) for size in sizes)


def prepare(processor: Processor, image: EncodedImage, decode: Decode = decode) -> PreparedImage:
    """The tiles of an image. Raises InvalidRequestError for one that cannot be read."""
    decoded = decode(image)
    plan = planned(processor, image, decoded.size)
    return PreparedImage(plan, processor.tiles(decoded, plan))


def prepare_sound(
    processor: AudioProcessor, sound: EncodedAudio, kernels: SoundKernels | None = None
) -> PreparedSound:
    """The clips of a sound. kernels: None = those of libmlcc_executor. Raises InvalidRequestError
    for one that cannot be read."""
    try:
        samples = decode_sound(BytesIO(sound.data), kernels, default("max_audio_seconds"))
    except InvalidRequestError as error:
        raise InvalidRequestError(
            f"'{sound.field}': {error.message}", param=sound.field, code=error.code
        ) from error
    clips = processor.clips(samples, sound.field, kernels)
    return PreparedSound(processor.text(clips), clips)


def planned(processor: Processor, image: EncodedImage, size: tuple[int, int]) -> ImagePlan:
    """The plan of an image of this size. Errors name the field that has it."""
    try:
        return processor.plan(*size, low_detail=image.low_detail)
    except InvalidRequestError as error:
        error.param = image.field
        raise


def with_rows(
    ids: Sequence[int], tokens: Collection[int], tiles: Sequence[Tile | Clip]
) -> tuple[array[int], tuple[ImageTile | AudioClip, ...]]:
    """The ids with each image or audio token repeated for the rows of its tile, line or clip, and
    these with their places; tokens: those two. Raises InvalidRequestError if there are not as many
    of them as lines, and ArtifactError if other than one token is between two of them."""
    places = [at for at, token in enumerate(ids) if token in tokens]
    if len(places) != (lines := sum(tile.lines for tile in tiles)):
        wanted = f"{len(tiles)} tiles" if lines == len(tiles) else f"{lines} lines"
        raise InvalidRequestError(
            f"the prompt has {len(places)} image tokens for {wanted} of images; leave "
            "image tokens out of the text"
            if not any(isinstance(tile, Clip) for tile in tiles)
            else f"the prompt has {len(places)} audio tokens for {len(tiles)} clips of sound; "
            "leave audio tokens out of the text",
            param="prompt",
            code="image_count",
        )
    made, placed, at, following = array("i"), list[ImageTile | AudioClip](), 0, iter(places)
    for tile in tiles:
        for line, place in enumerate(islice(following, tile.lines)):
            made.extend(ids[at:place])
            start = placed[-1].start if line else len(made)
            if not line:
                placed.append(_placed(tile, start))
            made.extend(array("i", [ids[place]]) * (tile.rows // tile.lines))
            at = place + 1
        if len(made) - placed[-1].start != placed[-1].tokens:
            raise ArtifactError(
                "the tokenizer has no single token for the end of an image's line; fetch the "
                "checkpoint's tokenizer.json again, or compile with --no-vision"
            )
    made.extend(ids[at:])
    return made, tuple(placed)


def _placed(tile: Tile | Clip, start: int) -> ImageTile | AudioClip:
    if isinstance(tile, Clip):
        return AudioClip(start, tile.rows, tile.key, tile.features, tile.encoder_rows)
    return ImageTile(
        start,
        tile.rows,
        tile.key,
        tile.pixels,
        tile.height,
        tile.width,
        tile.lines,
        tile.packing,
    )
