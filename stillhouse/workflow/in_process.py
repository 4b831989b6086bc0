"""Runs the whole graph in one process, for tests and notebooks: the same steps and folders, without DVC."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from stillhouse.artifacts import refuse_foreign
from stillhouse.monitoring.activity import doing
from stillhouse.steps.execute import execute, open_inputs
from stillhouse.steps.spec import Report
from stillhouse.workflow.first_run_times import Seen
from stillhouse.workflow.graph import ARTIFACTS, USES, Use
from stillhouse.workflow.recipes import location_fields
from stillhouse.workflow.run_progress import made_of, position, still_to_do
from stillhouse.workflow.run_times import note_seconds


def run_graph(
    configs: Mapping[str, Any], folder: Path, log: Callable[[str], None] = lambda line: None, uses: Iterable[Use] = USES
) -> dict[str, Report | None]:
    """Runs the uses of a graph, by default the papers' run, in `folder`/artifacts, as `run_uses` does."""
    return run_uses(uses, configs, folder / ARTIFACTS, log)


def run_uses(
    uses: Iterable[Use],
    configs: Mapping[str, Any],
    root: Path,
    log: Callable[[str], None] = lambda line: None,
    first_look: Callable[[], Seen | str] = lambda: "",
    around: Callable[[Use], AbstractContextManager[None]] = lambda use: nullcontext(),
) -> dict[str, Report | None]:
    """Runs uses in order below `root` and returns each one's report, or None if it was skipped.

    `log` gets a line before each use with its position in the run and the estimated time left, which `first_look` helps
    to estimate before corpus and starting model exist. Each use is executed within the context that `around` gives.

    `configs` maps every use to its settings. A use is skipped if its outputs are complete and record the same settings
    and inputs. They do not record the code, so remove the folder after a change of code.
    """
    uses, reports = list(uses), dict[str, Report | None]()
    for number, use in enumerate(uses, start=1):
        config = configs[use.name]
        with doing(f"checking whether {use.name} is up to date"):
            skipped = up_to_date(use, config, root)
        if skipped:
            log(f"[{use.name}] skipped: its outputs are up to date")
            reports[use.name] = None
            continue
        if len(uses) > 1:
            left = [use, *(other for other in expected(uses, configs, root) if other not in uses[:number])]
            log(position(number, len(uses), left, configs, root, first_look))
        note = partial(note_seconds, use, config, root)
        with around(use):
            reports[use.name] = execute(use.step, config, use.input_paths(root), use.output_paths(root), note)
    return reports


def expected(uses: Sequence[Use], configs: Mapping[str, Any], root: Path) -> list[Use]:
    """The uses that `run_uses` will execute: those still to do, and those that it never skips."""
    left = still_to_do(uses, configs, root)
    return [use for use in uses if use in left or location_fields(use.step)]


def refuse_foreign_outputs(uses: Iterable[Use], root: Path) -> None:
    """Raises `InputError` if uses would overwrite something below `root` that no step wrote, before hours of work."""
    for use in uses:
        for path in use.output_paths(root).values():
            refuse_foreign(path, use.name)


def up_to_date(use: Use, config: Any, root: Path) -> bool:
    """Whether the outputs of a use are complete and were made from the current inputs and settings.

    Never true for a use that reads something outside the graph, since its settings do not say what lies there.
    """
    if location_fields(use.step):
        return False
    return made_of(use, config, root, open_inputs(use.step, use.input_paths(root)))
