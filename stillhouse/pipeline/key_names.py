"""What a step's errors name where its settings and inputs come from a recipe: the recipe's keys instead of flags."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from contextlib import contextmanager
from pathlib import Path

from stillhouse.core.config import field_types
from stillhouse.core.errors import InputError
from stillhouse.pipeline.graph import STAGES
from stillhouse.pipeline.steps.spec import Step

FLAG = re.compile(r"(?<![\w-])--([a-z][a-z0-9-]*)")


@contextmanager
def keys_in_errors(
    spec: Step, recipe: Path | str, section: str, typed: Container[str], step: str | None = None
) -> Iterator[None]:
    """Begins an `InputError` with the recipe and the section of a step, and shows its flags as keys.

    `--dev-fraction` becomes `ingest.dev_fraction`, unless the user `typed` this flag. If it runs as the `step` of a
    graph, an input's flag becomes its key below `stages`. A command between backquotes keeps its flags.
    """
    try:
        yield
    except InputError as error:
        keys = {name: f"{section}.{name}" for name in field_types(spec.config) if name not in typed}
        if step:
            keys |= {port.name: f"{STAGES}.{step}.{port.name}" for port in spec.inputs if not port.many}
        parts = str(error).split("`")
        parts[::2] = [FLAG.sub(lambda flag: keys.get(flag[1].replace("-", "_"), flag[0]), part) for part in parts[::2]]
        error.args = (f"{recipe}: {section}: {'`'.join(parts)}",)
        raise
