"""Short names of well-known models: `qwen3:0.6b` stands for a repository of the Hugging Face Hub.

The table is data: short_names.json of this package, or the user's own of the same format, which
`mlcc names update` stores. A name is FAMILY:TAG; FAMILY alone, or FAMILY:latest, is its default.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from mlcc.errors import InvalidRequestError
from mlcc.util import user_folders
from mlcc.util.files import FileError, read_regular, write_whole

MOST_BYTES = 1 << 20
"""Largest table that is read."""
MOST_FAMILIES = 4096
_FORMAT = 1
_BUILT_IN = Path(__file__).with_suffix(".json")
_WORD = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(:[A-Za-z0-9][\w.-]*)?(@[^@\s]+)?")
_LATEST = "latest"


@dataclass(frozen=True)
class Family:
    """The models of one family, by tag."""

    model_type: str
    """Architecture, as in a checkpoint's config.json."""
    default: str
    """The tag of the name without a tag."""
    tags: Mapping[str, str]
    """Tag -> org/name of the hub, with :QUANT of a GGUF file or @revision if it needs them."""


def user_table() -> Path:
    """The file of the user's own table."""
    return user_folders.data() / "short_names.json"


def families() -> Mapping[str, Family]:
    """The table in force: the user's own, else the built-in one. Raises InvalidRequestError for a
    user's table that is damaged."""
    path = user_table()
    try:
        data = read_regular(path, MOST_BYTES)
    except FileNotFoundError:
        return _built_in()
    except (OSError, FileError) as error:
        raise InvalidRequestError(
            f"{path} cannot be read ({error}); `mlcc names reset` deletes it"
        ) from error
    return parse(data, str(path))


def find(name: str) -> str | None:
    """The repository of a short name, without regard to case; None if the table has none."""
    family, tag = _parts(name)
    found = families().get(family)
    if found is None:
        return None
    return found.tags.get(found.default if tag in ("", _LATEST) else tag)


def near(name: str) -> list[str]:
    """Short names that may be meant by a name which the table does not have."""
    family, tag = _parts(name)
    table = families()
    if family in table:
        return [f"{family}:{tag}" for tag in table[family].tags]
    close = get_close_matches(family, table, n=3, cutoff=0.7)
    with_tag = [f"{each}:{tag}" for each in close if tag in table[each].tags]
    return with_tag or close


def store(data: bytes, source: str) -> Mapping[str, Family]:
    """Keep a table as the user's own. Raises InvalidRequestError for one that is malformed, and
    keeps the old one then."""
    table = parse(data, source)
    path = user_table()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, data)
    return table


def parse(data: bytes, source: str) -> dict[str, Family]:
    """The families of a table. Raises InvalidRequestError, which names the entry at fault."""
    try:
        given = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _refusal(source, f"it is not JSON ({error})") from error
    if not isinstance(given, dict) or given.get("format") != _FORMAT:
        raise _refusal(source, f'it has no "format": {_FORMAT}')
    rows = given.get("families")
    if not isinstance(rows, dict) or len(rows) > MOST_FAMILIES:
        raise _refusal(source, f'"families" must be an object of at most {MOST_FAMILIES}')
    return {name: _family(name, row, source) for name, row in rows.items()}


def _family(name: str, row: Any, source: str) -> Family:
    tags = row.get("tags") if isinstance(row, dict) else None
    if not _WORD.fullmatch(name) or not isinstance(tags, dict) or not tags:
        raise _refusal(source, f"family {name[:64]!r} must be lower case and have tags")
    for tag, repository in tags.items():
        if not _WORD.fullmatch(tag) or not isinstance(repository, str) or ".." in repository:
            raise _refusal(source, f"tag {tag[:64]!r} of {name!r} names no repository")
        if len(repository) > 255 or not _REPOSITORY.fullmatch(repository):
            raise _refusal(source, f"{repository[:64]!r} of {name!r} is not org/name of the hub")
    default, model_type = row.get("default"), row.get("model_type", "")
    if default not in tags or not isinstance(model_type, str):
        raise _refusal(source, f"the default of {name!r} is none of its tags")
    return Family(model_type, default, tags)


def _refusal(source: str, reason: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{source}: is no table of short names: {reason}; `mlcc names --json` prints a sound one"
    )


def _parts(name: str) -> tuple[str, str]:
    family, _, tag = name.lower().partition(":")
    return family, tag


@cache
def _built_in() -> Mapping[str, Family]:
    return parse(_BUILT_IN.read_bytes(), _BUILT_IN.name)
