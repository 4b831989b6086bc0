"""Sets environment variables for a while, for code that reads them here and in processes that it starts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def environment_variables(values: Mapping[str, str | None]) -> Iterator[None]:
    """Sets variables of this process while the block runs, and unsets those that are None.

    Afterwards each has its former value again or is unset as before, even if the block changed it or failed.
    """
    before = {name: os.environ.get(name) for name in values}
    try:
        _set(values)
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
