"""Gives a class its own copies of inherited methods, so that Python's errors name the class."""

from __future__ import annotations

from types import FunctionType
from typing import TypeVar

T = TypeVar("T")


def with_own_names(cls: type[T]) -> type[T]:
    """Returns the class with its base's public methods under its own name.

    Python names a function, not the object, in "Client.search() got an unexpected keyword
    argument", which a caller of an Engine has never heard of.
    """
    base = cls.__mro__[1]
    for name, method in vars(base).items():
        if isinstance(method, FunctionType) and not name.startswith("_") and name not in vars(cls):
            setattr(cls, name, _renamed(method, f"{cls.__name__}.{name}"))
    return cls


def _renamed(method: FunctionType, qualified_name: str) -> FunctionType:
    copy = FunctionType(
        method.__code__,
        method.__globals__,
        method.__name__,
        method.__defaults__,
        method.__closure__,
    )
    copy.__kwdefaults__ = method.__kwdefaults__
    copy.__annotations__ = method.__annotations__
    copy.__doc__ = method.__doc__
    copy.__dict__.update(method.__dict__)
    copy.__qualname__ = qualified_name
    return copy
