"""One list of arguments for two methods: `Client` takes what `AsyncClient` takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


def same_arguments(
    other: Callable[Concatenate[Any, _P], object],
) -> Callable[[Callable[..., _R]], Callable[Concatenate[Any, _P], _R]]:
    """For a method that hands on all its arguments to `other`: type checkers, editors and `help` show those of it.

    Example:
        @same_arguments(AsyncClient.publish)
        def publish(self, *args: Any, **options: Any) -> Receipt:
            return self._thread.run(self._client.publish(*args, **options))
    """

    def decorate(method: Callable[..., _R]) -> Callable[Concatenate[Any, _P], _R]:
        returned = inspect.signature(method).return_annotation
        shown: Any = method
        shown.__signature__ = inspect.signature(other).replace(return_annotation=returned)
        return method

    return decorate
