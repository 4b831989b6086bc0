"""A search on disk: Optuna's journal, one line of JSON an event, and a note of what is searched.

A search that was killed goes on from the journal. What it was then trying is tried again, from its checkpoint. Nothing
that is read executes anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillhouse.artifacts import write_whole, write_whole_json
from stillhouse.errors import InputError
from stillhouse.setting_kinds import as_text
from stillhouse.tuning.space import Choices, Parameter, Range, Settings, Space, Value

if TYPE_CHECKING:
    import optuna

JOURNAL = "journal.log"
ABOUT = "search.json"
NAME = "stillhouse"
NUMBER, SETTINGS, SECONDS, FIGURE = "number", "settings", "seconds", "figure"
"""What is noted of a trial: its number among those that were tried, its settings that differ from the recipe's, what it
has cost, where its figures are."""
STARTUP_TRIALS = 4
"""Trials that are drawn at random before those that earlier ones suggest."""


def claim(folder: Path, about: Mapping[str, Any]) -> None:
    """Makes `folder` that of a search of `about`, or goes on in it.

    Raises `InputError` for a folder that holds something else, or a search of something else.
    """
    path = folder / ABOUT
    if path.is_file():
        try:
            before = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            raise InputError(f"{path} is damaged; name another --folder") from None
        changed = [key for key in about if key in before and before[key] != about[key]]
        if changed:
            raise InputError(
                f"{folder} holds a search of another {' and '.join(changed)}; name another --folder, or remove this one"
            )
        if about.keys() - before.keys():
            write_whole_json(path, before | dict(about))
        return
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(f"{folder} holds what no search made; name another --folder")
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / ".gitignore", "*\n")
    write_whole_json(path, dict(about))


def open_study(folder: Path, seed: int) -> optuna.Study:
    """The study in a folder. Raises `InputError` where Optuna is absent or the journal is damaged."""
    optuna_module = _optuna()
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna_module.logging.set_verbosity(optuna_module.logging.WARNING)
    try:
        storage = JournalStorage(JournalFileBackend(str(folder / JOURNAL)))
        return optuna_module.create_study(
            storage=storage,
            study_name=NAME,
            direction="maximize",
            load_if_exists=True,
            sampler=sampler(seed, 0),
            pruner=optuna_module.pruners.NopPruner(),  # `pruning.is_behind` decides
        )
    except (ValueError, KeyError) as error:
        raise InputError(f"{folder / JOURNAL} is damaged ({error}); name another --folder") from None


def sampler(seed: int, number: int) -> optuna.samplers.BaseSampler:
    """What proposes trial `number`, drawn from the seed and that number, so that a kill changes no proposal."""
    return _optuna().samplers.TPESampler(seed=seed * 100_003 + number, n_startup_trials=STARTUP_TRIALS)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise InputError("`stillhouse tune` needs Optuna: pip install 'stillhouse[tune]'") from None
    return optuna


def distributions(space: Space) -> dict[str, Any]:
    """The space as Optuna has it."""
    return {parameter.key: _distribution(parameter.domain) for parameter in space.parameters}


def _distribution(domain: Range | Choices) -> Any:
    found = _optuna().distributions
    if isinstance(domain, Choices):
        return found.CategoricalDistribution([_stored(value) for value in domain.values])
    if domain.whole:
        return found.IntDistribution(int(domain.low), int(domain.high), log=domain.log)
    return found.FloatDistribution(domain.low, domain.high, log=domain.log)


def _stored(value: Value) -> bool | int | float | str | None:
    """A value as Optuna keeps it, which knows no lists."""
    return as_text(value) if isinstance(value, (list, dict)) else value


def nearest_within(parameter: Parameter, value: Value) -> Value:
    """The value of the space that stands for the recipe's own, which may lie outside it."""
    domain = parameter.domain
    if isinstance(domain, Choices):
        return value if value in domain.values else domain.values[0]
    assert isinstance(value, (int, float))
    return type(value)(min(max(value, domain.low), domain.high))


def proposed(space: Space, params: Mapping[str, Any]) -> Settings:
    """The settings of a trial from what Optuna proposes."""
    found: Settings = {}
    for parameter in space.parameters:
        value = params[parameter.key]
        if isinstance(parameter.domain, Range):
            found[parameter.key] = parameter.domain.rounded(value)
        else:
            [found[parameter.key]] = [own for own in parameter.domain.values if _stored(own) == value]
    return found
