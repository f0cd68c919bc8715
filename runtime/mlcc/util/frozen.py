"""`dataclass` for frozen records: the standard library's in a quarter of the time.

That one compiles six methods for each class, 0.5 to 1 ms, and an engine starts with 130 classes:
half of its import, on a phone, in a tab and in each process of a server. Here `__init__` alone is
compiled, as there, and the others are closures over the fields' names that behave alike. What is
neither `frozen=True` nor that with `kw_only=True`, or has other fields than those with a default or
a factory, is left to the standard library. To a type checker this is its `dataclass`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    import sys
    from dataclasses import MISSING, Field, FrozenInstanceError, fields
    from dataclasses import dataclass as standard
    from operator import attrgetter
    from reprlib import recursive_repr

    def dataclass(cls=None, /, **how):
        """As `dataclasses.dataclass`."""
        if cls is None:
            return lambda cls: dataclass(cls, **how)
        if how.keys() - {"frozen", "kw_only"} or not how.get("frozen") or _is_special(cls):
            return standard(cls, **how)
        kw_only = how.get("kw_only", False)
        standard(cls, init=False, repr=False, eq=False, kw_only=kw_only)  # says what fields it has
        own = cls.__dict__
        for name, method in _methods(cls).items():
            if own.get(name) is None:  # Python puts a None where __eq__ comes without __hash__
                method.__qualname__ = f"{cls.__qualname__}.{name}"
                setattr(cls, name, method)
        return cls

    def _is_special(cls):
        """Whether a field is more than its value, or the base is the standard library's."""
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
        """A function to a tuple of the fields' values."""
        if len(names) > 1:
            return attrgetter(*names)
        return lambda self: tuple(getattr(self, name) for name in names)

    def _init(cls):
        """Compiled, since each call of a closure would sort its arguments anew."""
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
