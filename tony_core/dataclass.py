"""Data classes as the standard library's, made without compiling anything.

Theory of operation
===================

``dataclasses`` writes six functions for each class as text and compiles them, and brings along
``inspect``, ``ast`` and ``dis``. Every job's client and master make some 150 such classes before
they do anything: a third of their start. Here the functions are closures over the fields' names,
which costs a tenth of that; an instance costs about twice as much to make, and nothing here makes
many.

What is there: ``dataclass`` with ``frozen`` and ``eq``, ``field`` with a default or a factory,
``init``, ``repr`` and ``compare``, ``replace``, ``fields``, ``asdict`` (which copies no leaves) and
``__post_init__``. For type checkers it is the library's own, and the library's functions take our
classes for its own: what they look for is made when they do.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
else:
    _NOTHING = object()
    _OWN = "_own_fields"
    _set = object.__setattr__

    class _Field:
        """One field; ``field()`` makes it, the class gives it a name."""

        __slots__ = ("annotation", "compare", "default", "default_factory", "init", "name", "repr")

        def __init__(self, default, default_factory, init, in_repr, compare):
            self.name = self.annotation = ""
            self.default = default
            self.default_factory = default_factory
            self.init = init
            self.repr = in_repr
            self.compare = compare

    def field(*, default=_NOTHING, default_factory=_NOTHING, init=True, repr=True, compare=True):
        """A field with more to say than its default."""
        return _Field(default, default_factory, init, repr, compare)

    def dataclass(cls=None, *, frozen=False, eq=True):
        """Make a class's annotated names its fields."""
        if cls is None:
            return lambda cls: _make(cls, frozen, eq)
        return _make(cls, frozen, eq)

    def is_dataclass(thing):
        """Whether it is such a class or an instance of one."""
        return hasattr(thing, _OWN) or hasattr(thing, "__dataclass_fields__")

    def fields(thing):
        """Its fields in their order; each has a ``name``."""
        if not hasattr(thing, _OWN):
            from dataclasses import fields

            return fields(thing)
        return tuple(getattr(thing, _OWN).values())

    def asdict(thing):
        """Its fields as a dictionary, those of what it holds too."""
        return {one.name: _plain(getattr(thing, one.name)) for one in fields(thing)}

    def _plain(value):
        if is_dataclass(value) and not isinstance(value, type):
            return asdict(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(_plain, value))
        if isinstance(value, (list, tuple)):
            return type(value)(map(_plain, value))
        if isinstance(value, dict):
            return type(value)((_plain(k), _plain(v)) for k, v in value.items())
        return value

    def replace(thing, **changes):
        """A new one with other values in some fields."""
        for one in fields(thing):
            if one.init and one.name not in changes:
                changes[one.name] = getattr(thing, one.name)
        return type(thing)(**changes)

    def _make(cls, frozen, eq):
        found = {}
        for base in reversed(cls.__mro__[1:]):
            found.update(vars(base).get(_OWN, ()))
        for name, annotation in vars(cls).get("__annotations__", {}).items():
            if str(annotation).startswith(("ClassVar", "typing.ClassVar")):
                continue
            found[name] = _own_field(cls, name, annotation)
        _check_order(cls, found)
        taken = tuple(name for name, one in found.items() if one.init)
        space = {_OWN: found, "__match_args__": taken, "__init__": _init(cls, found, taken)}
        if "__repr__" not in vars(cls):
            space["__repr__"] = _repr(found)
        if eq:
            key = _key([f.name for f in found.values() if f.compare])
            if "__eq__" not in vars(cls):
                space["__eq__"] = _eq(key)
            if vars(cls).get("__hash__") is None:
                space["__hash__"] = (lambda self: hash(key(self))) if frozen else None
        if frozen:
            space["__setattr__"], space["__delattr__"] = _frozen_set, _frozen_delete
        for name in ("__dataclass_fields__", "__dataclass_params__", "__signature__"):
            space[name] = _Library(name, found, frozen, eq)
        for name, value in space.items():
            setattr(cls, name, value)
        return cls

    def _own_field(cls, name, annotation):
        told = vars(cls).get(name, _NOTHING)
        one = told if isinstance(told, _Field) else _Field(told, _NOTHING, True, True, True)
        one.name, one.annotation = name, annotation
        if one.default is not _NOTHING:
            if type(one.default).__hash__ is None:
                raise ValueError(f"mutable default of {cls.__name__}.{name}: use default_factory")
            setattr(cls, name, one.default)
        elif told is not _NOTHING:
            delattr(cls, name)
        return one

    def _check_order(cls, found):
        optional = False
        for one in found.values():
            if not one.init:
                continue
            given = one.default is not _NOTHING or one.default_factory is not _NOTHING
            if optional and not given:
                raise TypeError(
                    f"{cls.__name__}.{one.name} has no default and follows one that has"
                )
            optional = optional or given

    def _init(cls, found, names):
        defaults = {n: f.default for n, f in found.items() if f.default is not _NOTHING}
        factories = {
            n: f.default_factory for n, f in found.items() if f.default_factory is not _NOTHING
        }
        own = {name: factories.get(name) for name, one in found.items() if not one.init}
        then = getattr(cls, "__post_init__", None)

        def rest(self, given, named):
            values, missing = [], []
            for name in names[given:]:
                if name in named:
                    values.append(named.pop(name))
                elif name in defaults:
                    values.append(defaults[name])
                elif name in factories:
                    values.append(factories[name]())
                else:
                    missing.append(repr(name))
            if named or given > len(names):
                what = ", ".join(map(repr, named)) or f"{given} values"
                raise TypeError(f"{type(self).__name__}() has no place for {what}")
            if missing:
                raise TypeError(f"{type(self).__name__}() is missing {', '.join(missing)}")
            return values

        def __init__(self, /, *values, **named):
            if named or len(values) != len(names):
                values = (*values, *rest(self, len(values), named))
            for name, value in zip(names, values):  # noqa: B905 (Python 3.9)
                _set(self, name, value)
            for name, factory in own.items():
                _set(self, name, factory() if factory is not None else defaults[name])
            if then is not None:
                self.__post_init__()

        return __init__

    def _repr(found):
        shown = tuple(f.name for f in found.values() if f.repr)

        def __repr__(self):
            words = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
            return f"{type(self).__qualname__}({words})"

        return __repr__

    def _key(names):
        return attrgetter(*names) if names else lambda _: ()

    def _eq(key):
        def __eq__(self, other):
            if other.__class__ is not self.__class__:
                return NotImplemented
            return key(self) == key(other)

        return __eq__

    def _frozen_set(self, name, value):
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def _frozen_delete(self, name):
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot delete field {name!r}")

    class _Library:
        """What the library looks for in its own classes, made when it is looked for."""

        def __init__(self, what, found, frozen, eq):
            self._what, self._found, self._params = what, found, {"frozen": frozen, "eq": eq}

        def __get__(self, thing, kind=None):
            import dataclasses
            import inspect

            listed = []
            for one in self._found.values():
                words = {"init": one.init, "repr": one.repr, "compare": one.compare}
                if one.default is not _NOTHING:
                    words["default"] = one.default
                elif one.default_factory is not _NOTHING:
                    words["default_factory"] = one.default_factory
                listed.append((one.name, one.annotation, dataclasses.field(**words)))
            name = (kind or type(thing)).__name__
            made = dataclasses.make_dataclass(name, listed, **self._params)
            if self._what == "__signature__":
                return inspect.signature(made)
            return getattr(made, self._what)


__all__ = ["asdict", "dataclass", "field", "fields", "is_dataclass", "replace"]
