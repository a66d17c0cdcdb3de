"""`lazy`: a property that is computed once, when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class lazy(Generic[T]):
    """As `functools.cached_property`, without the lock that Python 3.11 takes, which all objects share.

    Two threads that ask at once may both compute it; what they compute must be the same.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> Self | T:
        if instance is None:
            return self
        found = self.compute(instance)
        instance.__dict__[self.name] = found  # where it is found from now on, before the property itself
        return found
