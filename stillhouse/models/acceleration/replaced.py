"""Gives modules of a model another `forward` for a while. All fast computations here begin and end this way."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from torch import nn

M = TypeVar("M", bound=nn.Module)


def replace_forward(modules: Iterable[M], forward: Callable[[M], Callable[..., Any]]) -> list[M]:
    """Give each module that has not been given one yet `forward(module)`, and return these modules."""
    chosen = [module for module in modules if "forward" not in module.__dict__]
    for module in chosen:
        # Set on the instance, so other code can still use, read or save the module, and a copy gets its own.
        module.__dict__["forward"] = forward(module)
    return chosen


@contextmanager
def replaced(modules: Iterable[M], forward: Callable[[M], Callable[..., Any]]) -> Iterator[None]:
    """As `replace_forward`, until the block ends."""
    chosen = replace_forward(modules, forward)
    try:
        yield
    finally:
        for module in chosen:
            del module.__dict__["forward"]
