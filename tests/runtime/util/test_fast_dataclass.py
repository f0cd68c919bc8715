"""Fast dataclasses behave like the standard library's: each test class is made by both."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, InitVar, asdict, field, fields, is_dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, get_type_hints

import pytest

from mlcc.util.fast_dataclass import fast_dataclass

Maker = Callable[..., Any]


def records(make: Maker) -> dict[str, Any]:
    """Classes by name, made by one or the other."""

    @make(frozen=True)
    class Empty:
        """A class without fields."""

    @make(frozen=True)
    class One:
        """A class with one field."""

        value: int

    @make(frozen=True)
    class Several:
        """Defaults, factories and class variables."""

        name: str
        sizes: tuple[int, ...] = (1, 2)
        options: dict[str, int] = field(default_factory=dict)
        kind: ClassVar[str] = "k"

        @cached_property
        def half(self) -> str:
            return self.name[: len(self.name) // 2]

    @make(frozen=True, kw_only=True)
    class ByName:
        """By keywords, with a default before a field without."""

        first: int = 1
        second: str

    @make(frozen=True)
    class Checked(One):
        """Fields of a base, and a check of its own."""

        other: str | None = None

        def __post_init__(self) -> None:
            if self.value < 0:
                raise ValueError("below zero")

    @make(frozen=True)
    class OwnWay:
        """Methods of its own are kept."""

        value: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, OwnWay)

        def __repr__(self) -> str:
            return "mine"

    found = (Empty, One, Several, ByName, Checked, OwnWay)
    return {kind.__name__: kind for kind in found}


OURS, TWINS = records(fast_dataclass), records(dataclasses.dataclass)
MADE: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("Empty", (), {}),
    ("One", (3,), {}),
    ("One", (), {"value": 4}),
    ("Several", ("abcd",), {}),
    ("Several", ("abcd", (3,)), {"options": {"a": 1}}),
    ("ByName", (), {"second": "s"}),
    ("ByName", (), {"second": "s", "first": 2}),
    ("Checked", (1, "o"), {}),
    ("OwnWay", (5,), {}),
]
BAD: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("Empty", (1,), {}),
    ("One", (), {}),
    ("One", (1, 2), {}),
    ("One", (1,), {"value": 2}),
    ("Several", (), {"sizes": ()}),
    ("ByName", (1,), {"second": "s"}),
    ("ByName", (), {"first": 1}),
    ("Checked", (-1,), {}),
]


@pytest.mark.parametrize(("name", "arguments", "keywords"), MADE)
def test_instances(name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    kind, twin = OURS[name], TWINS[name]
    made, other = kind(*arguments, **keywords), twin(*arguments, **keywords)
    assert vars(made) == vars(other) and repr(made) == repr(other)
    assert asdict(made) == asdict(other) and is_dataclass(made)
    assert made == kind(*arguments, **keywords) and made != other
    assert copy.deepcopy(made) == made
    assert _hash_of(made) == _hash_of(other)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        made.x = 1
    for each in fields(made):
        with pytest.raises(FrozenInstanceError):
            setattr(made, each.name, 1)
        with pytest.raises(FrozenInstanceError):
            delattr(made, each.name)
        assert replace(made, **{each.name: 7}) == kind(**{**_values(made), each.name: 7})


def _values(made: Any) -> dict[str, Any]:
    return {each.name: getattr(made, each.name) for each in fields(made)}


def _hash_of(made: Any) -> Any:
    try:
        return hash(made)
    except TypeError:
        return "unhashable"


@pytest.mark.parametrize(("name", "arguments", "keywords"), BAD)
def test_wrong_arguments(name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    errors = []
    for kind in (OURS[name], TWINS[name]):
        with pytest.raises((TypeError, ValueError)) as caught:
            kind(*arguments, **keywords)
        errors.append((caught.type, str(caught.value)))
    assert errors[0] == errors[1]


@pytest.mark.parametrize("name", OURS)
def test_classes(name: str) -> None:
    kind, twin = OURS[name], TWINS[name]
    ours, theirs = (inspect.signature(each).parameters.values() for each in (kind, twin))
    assert [(p.name, p.kind) for p in ours] == [(p.name, p.kind) for p in theirs]
    assert get_type_hints(kind.__init__) == get_type_hints(twin.__init__)
    assert kind.__match_args__ == twin.__match_args__
    assert [f.name for f in fields(kind)] == [f.name for f in fields(twin)]
    assert kind.__init__.__qualname__ == twin.__init__.__qualname__


def test_a_factory_makes_a_new_one_each_time() -> None:
    kind = OURS["Several"]
    assert kind("a").options is not kind("b").options
    assert kind("abcd").half == "ab"


def test_equal_to_its_own_class_alone() -> None:
    assert OURS["One"](1) != OURS["Checked"](1) and OURS["One"](1) != 1
    assert len({OURS["One"](1), OURS["One"](1), OURS["One"](2)}) == 2


def test_one_that_holds_itself_is_shown() -> None:
    made = OURS["One"]([])
    made.value.append(made)
    assert repr(made) == repr(made).replace("\n", "") and "..." in repr(made)


@fast_dataclass(frozen=True)
class Sent:
    """A class that is pickled."""

    value: int
    options: dict[str, int] = field(default_factory=dict)


def test_pickled() -> None:
    assert pickle.loads(pickle.dumps(Sent(1, {"a": 2}))) == Sent(1, {"a": 2})


def test_what_is_left_to_the_standard_library() -> None:
    @fast_dataclass(slots=True)
    class Slots:
        value: int

    @fast_dataclass(frozen=True)
    class Uncompared:
        value: int
        note: str = field(default="", compare=False)

    @fast_dataclass(frozen=True)
    class Derived(Uncompared):
        more: int = 0

    @fast_dataclass(frozen=True)
    class Given:
        value: int
        once: InitVar[int] = 0

        def __post_init__(self, once: int) -> None:
            object.__setattr__(self, "value", self.value + once)

    assert not hasattr(Slots(1), "__dict__")
    assert Uncompared(1, "a") == Uncompared(1, "b")
    assert Derived(1, "a", 2) == Derived(1, "b", 2) != Derived(1, "b", 3)
    assert Given(1, 2).value == 3


def test_the_engine_has_no_other_frozen_records() -> None:
    """Modules that a program imports: each standard dataclass there would cost it a millisecond."""
    script = (
        "import dataclasses\n"
        "compiled = []\n"
        "made = dataclasses._process_class\n"
        "def watched(cls, init, repr, eq, order, hash, frozen, *rest, **more):\n"
        "    if frozen and repr: compiled.append(f'{cls.__module__}.{cls.__qualname__}')\n"
        "    return made(cls, init, repr, eq, order, hash, frozen, *rest, **more)\n"
        "dataclasses._process_class = watched\n"
        "import mlcc.embedded.c.process\n"
        "print(*compiled)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    slotted = {name for name in done.stdout.split() if not _has_slots(name)}
    assert not slotted, f"use mlcc.util.fast_dataclass for {slotted}"


def _has_slots(name: str) -> bool:
    module, _, kind = name.rpartition(".")
    found = getattr(sys.modules.get(module) or __import__(module, fromlist=[kind]), kind)
    special = any(not (f.init and f.repr and f.compare) for f in fields(found))
    return "__slots__" in vars(found) or special or not found.__dataclass_params__.eq
