"""Puts pictures into the text and the token ids of a prompt.

A rendered conversation has a mark for each picture. `with_images` replaces each by the text of the
picture, with one image token for each tile; `with_rows` then repeats that token in the ids, once
for each row of the tile. Repeating it in the ids gives what transformers gets from repeating it in
the text: a control token is encoded by itself.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from mlcc.engine.request import ImageTile
from mlcc.errors import InvalidRequestError
from mlcc.multimodal.processors.processor import ImagePlan, Tile


def with_images(text: str, mark: str, plans: Sequence[ImagePlan]) -> str:
    """The text with each mark replaced by the text of its picture. Raises InvalidRequestError if
    there are not as many marks as pictures."""
    parts = text.split(mark)
    if len(parts) - 1 != len(plans):
        raise InvalidRequestError(
            f"the model's chat template writes {len(parts) - 1} of {len(plans)} pictures; put "
            "pictures into messages of the role 'user', or give the model a template that has "
            "them (chat_template.jinja)",
            param="messages",
            code="image_count",
        )
    texts = (
        part for plan, rest in zip(plans, parts[1:], strict=True) for part in (plan.text, rest)
    )
    return parts[0] + "".join(texts)


def with_rows(
    ids: Sequence[int], image_token_id: int, tiles: Sequence[Tile]
) -> tuple[array[int], tuple[ImageTile, ...]]:
    """The ids with each image token repeated for the rows of its tile, and the tiles with their
    places. Raises InvalidRequestError if there are not as many image tokens as tiles."""
    places = [at for at, token in enumerate(ids) if token == image_token_id]
    if len(places) != len(tiles):
        raise InvalidRequestError(
            f"the prompt has {len(places)} image tokens for {len(tiles)} tiles of pictures; leave "
            "image tokens out of the text of messages",
            param="messages",
            code="image_count",
        )
    made, placed, at = array("i"), list[ImageTile](), 0
    for place, tile in zip(places, tiles, strict=True):
        made.extend(ids[at:place])
        placed.append(
            ImageTile(len(made), tile.rows, tile.key, tile.pixels, tile.height, tile.width)
        )
        made.extend(array("i", [image_token_id]) * tile.rows)
        at = place + 1
    made.extend(ids[at:])
    return made, tuple(placed)
