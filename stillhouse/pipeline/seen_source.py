"""What a run sees of its source in a moment, to estimate its time before there is a corpus.

The stages of `dvc repro` are separate processes. The first one keeps what it saw in the work area, beside the times of
steps, and the others read it there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import digest_json
from stillhouse.core.context import work_root
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing
from stillhouse.core.own_files import own_file
from stillhouse.pipeline.first_run_times import Scale, Seen
from stillhouse.pipeline.run_forecast import scale_of_look, why_none
from stillhouse.pipeline.start_model import counted

AT_ONCE = 1.0
"""For how many seconds a run looks at its source before it starts."""
LATELY = 600.0
"""For how many seconds a look is kept. The source may have changed since."""


@doing("looking at the source")
def seen_at_once(settings: Mapping[str, Any]) -> Seen | str:
    """What a look of `AT_ONCE` seconds at a run's source shows, or why it shows nothing.

    It shows nothing of a source that is not on this machine or cannot be read, and if the base model is not here.
    """
    from stillhouse.corpus.first_look import look_at

    if why := why_none(settings):
        return why
    try:
        look = counted(look_at(settings["ingest"].source, AT_ONCE), settings["fetch_model"].model)
    except (InputError, OSError) as error:
        return str(error)
    return why_none(settings, look) or (scale_of_look(settings, look), look.whole)


def seen_lately(settings: Mapping[str, Any]) -> Seen | str:
    """What `seen_at_once` returned in this process, or less than `LATELY` seconds ago in another one."""
    path = work_root() / "times" / "first-look.json"
    ingest, start = settings["ingest"], settings["fetch_model"]
    of = digest_json([asdict(ingest), asdict(start), str(Path(ingest.source).absolute())])
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["of"] == of and 0 <= time.time() - kept["at"] < LATELY:
            passages, queries, tokens, weights = kept["scale"]
            queries = {str(split): int(count) for split, count in queries.items()}
            return Scale(int(passages), queries, float(tokens), int(weights)), bool(kept["whole"])
    seen = seen_at_once(settings)
    if not isinstance(seen, str):
        scale = [seen[0].passages, dict(seen[0].queries), seen[0].tokens, seen[0].weights]
        content = {"of": of, "at": time.time(), "scale": scale, "whole": seen[1]}
        with suppress(OSError, InputError), own_file(path) as file:
            file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return seen
