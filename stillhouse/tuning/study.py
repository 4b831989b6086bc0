"""A search on disk: Optuna's journal, one line of JSON per event, and a description of the search.

A killed search resumes from the journal and repeats its unfinished trial from the checkpoint. Reading these files never
executes code.
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
"""The attributes of a trial: its number among the tried ones, the settings that differ from the recipe's, the time it
took, and the file with its figures."""
STARTUP_TRIALS = 4
"""Random trials before the sampler learns from earlier ones."""


def claim(folder: Path, about: Mapping[str, Any]) -> None:
    """Start a search described by `about` in `folder`, or resume it.

    Raises `InputError` for a folder with other content, or with a different search.
    """
    path = folder / ABOUT
    if path.is_file():
        try:
            before = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            raise InputError(f"{path} is damaged; choose another --folder") from None
        changed = [key for key in about if key in before and before[key] != about[key]]
        if changed:
            raise InputError(
                f"{folder} holds a search with another {' and '.join(changed)}; choose another --folder, or remove this"
            )
        if about.keys() - before.keys():
            write_whole_json(path, before | dict(about))
        return
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(f"{folder} holds files that no search made; choose another --folder")
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / ".gitignore", "*\n")
    write_whole_json(path, dict(about))


def open_study(folder: Path, seed: int) -> optuna.Study:
    """The study in a folder. Raises `InputError` if Optuna is missing or the journal is damaged."""
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
        raise InputError(f"{folder / JOURNAL} is damaged ({error}); choose another --folder") from None


def sampler(seed: int, number: int) -> optuna.samplers.BaseSampler:
    """The sampler for trial `number`, seeded by both arguments, so that a restart does not change proposals."""
    return _optuna().samplers.TPESampler(seed=seed * 100_003 + number, n_startup_trials=STARTUP_TRIALS)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise InputError("`stillhouse tune` needs Optuna: pip install 'stillhouse[tune]'") from None
    return optuna


def distributions(space: Space) -> dict[str, Any]:
    """The space as Optuna distributions."""
    return {parameter.key: _distribution(parameter.domain) for parameter in space.parameters}


def _distribution(domain: Range | Choices) -> Any:
    found = _optuna().distributions
    if isinstance(domain, Choices):
        return found.CategoricalDistribution([stored(value) for value in domain.values])
    if domain.whole:
        return found.IntDistribution(int(domain.low), int(domain.high), log=domain.log)
    return found.FloatDistribution(domain.low, domain.high, log=domain.log)


def stored(value: Value) -> bool | int | float | str | None:
    """A value as stored by Optuna, which does not support lists."""
    return as_text(value) if isinstance(value, (list, dict)) else value


def nearest_within(parameter: Parameter, value: Value) -> Value:
    """The value of the space that represents the recipe's own, which may lie outside it."""
    domain = parameter.domain
    if isinstance(domain, Choices):
        return value if value in domain.values else domain.values[0]
    if value is None:
        return domain.rounded(domain.low)
    assert isinstance(value, (int, float))
    return type(value)(min(max(value, domain.low), domain.high))


def proposed(space: Space, params: Mapping[str, Any]) -> Settings:
    """The settings of a trial from Optuna's proposal."""
    found: Settings = {}
    for parameter in space.parameters:
        value = params[parameter.key]
        if isinstance(parameter.domain, Range):
            found[parameter.key] = parameter.domain.rounded(value)
        else:
            [found[parameter.key]] = [own for own in parameter.domain.values if stored(own) == value]
    return found
