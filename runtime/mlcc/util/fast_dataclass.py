"""`fast_dataclass`: `dataclasses.dataclass` for frozen records, created in a quarter of the time.

The standard decorator compiles six methods for each class (0.5 to 1 ms), and the engine starts with
130 classes: half of its import time, on a phone, in a browser tab and in each process of a server.
This one compiles only `__init__`; the other methods are closures over the field names that behave
the same (tests/runtime/util/test_fast_dataclass.py). It delegates to the standard decorator for
classes that are not `frozen=True` (with or without `kw_only=True`) and for fields that have more
than a default or a default factory. Type checkers see `dataclasses.dataclass`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["fast_dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass as fast_dataclass
else:
    import sys
    from dataclasses import MISSING, Field, FrozenInstanceError, fields
    from dataclasses import dataclass as standard_dataclass
    from operator import attrgetter
    from reprlib import recursive_repr

    def fast_dataclass(cls=None, /, **how):
        """Same arguments and result as `dataclasses.dataclass`."""
        if cls is None:
            return lambda cls: fast_dataclass(cls, **how)
        if how.keys() - {"frozen", "kw_only"} or not how.get("frozen") or _needs_standard(cls):
            return standard_dataclass(cls, **how)
        kw_only = how.get("kw_only", False)
        # collects the fields, adds no methods
        standard_dataclass(cls, init=False, repr=False, eq=False, kw_only=kw_only)
        own = cls.__dict__
        for name, method in _methods(cls).items():
            if own.get(name) is None:  # Python puts a None where __eq__ comes without __hash__
                method.__qualname__ = f"{cls.__qualname__}.{name}"
                setattr(cls, name, method)
        return cls

    def _needs_standard(cls):
        """Whether a field has more than a default, or a base is a standard frozen dataclass."""
        base = getattr(cls, "__dataclass_params__", None)
        own = [value for value in vars(cls).values() if isinstance(value, Field)]
        plain = all(f.init and f.repr and f.compare and f.hash is None for f in own)
        types = map(str, vars(cls).get("__annotations__", {}).values())
        return not plain or any("InitVar" in t for t in types) or (base and base.frozen)

    def _methods(cls):
        names = tuple(field.name for field in fields(cls))
        values = _values(names)

        def __eq__(self, other):
            if other.__class__ is self.__class__:
                return values(self) == values(other)
            return NotImplemented

        def __hash__(self):
            return hash(values(self))

        @recursive_repr()
        def __repr__(self):
            pairs = (f"{name}={getattr(self, name)!r}" for name in names)
            return f"{self.__class__.__qualname__}({', '.join(pairs)})"

        def __setattr__(self, name, value):
            if type(self) is cls or name in names:
                raise FrozenInstanceError(f"cannot assign to field {name!r}")
            super(cls, self).__setattr__(name, value)

        def __delattr__(self, name):
            if type(self) is cls or name in names:
                raise FrozenInstanceError(f"cannot delete field {name!r}")
            super(cls, self).__delattr__(name)

        made = (_init(cls), __eq__, __hash__, __repr__, __setattr__, __delattr__)
        return {method.__name__: method for method in made}

    def _values(names):
        """A function from an instance to the tuple of its fields' values."""
        if len(names) > 1:
            return attrgetter(*names)
        return lambda self: tuple(getattr(self, name) for name in names)

    def _init(cls):
        """`__init__`, compiled: a closure would sort out its arguments at every call."""
        known = {"_put": object.__setattr__, "_absent": MISSING}
        positional, keywords, lines = ["self"], [], []
        for field in fields(cls):
            name, parameter, value = field.name, field.name, field.name
            if field.default is not MISSING:
                known[f"_of_{name}"] = field.default
                parameter += f"=_of_{name}"
            elif field.default_factory is not MISSING:
                known[f"_of_{name}"] = field.default_factory
                parameter += "=_absent"
                value = f"_of_{name}() if {name} is _absent else {name}"
            (keywords if field.kw_only else positional).append(parameter)
            lines.append(f"  _put(self, {name!r}, {value})\n")
        if hasattr(cls, "__post_init__"):
            lines.append("  self.__post_init__()\n")
        parameters = ", ".join([*positional, *(["*", *keywords] if keywords else [])])
        body = "".join(lines) or "  pass\n"
        text = f" def __init__({parameters}):\n{body} return __init__"
        text = f"def make({', '.join(known)}):\n{text}"
        found = {}
        exec(text, vars(sys.modules[cls.__module__]), found)
        init = found["make"](**known)
        init.__annotations__ = {field.name: field.type for field in fields(cls)} | {"return": None}
        return init
