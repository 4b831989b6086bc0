"""The local search: runs trials one after another within a time budget and stops hopeless ones early.

A trial stops when its gain is below the median gain of the finished trials at the same part. Optuna's median rule
compares trials at equal steps. Trainings of different lengths are measured at different parts, and a short one often
only at its end, so curves are interpolated linearly between measurements. A training gains most at its beginning, so
interpolation underestimates the finished trials, and few good trials are pruned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from stillhouse.monitoring.duration import in_words
from stillhouse.monitoring.watch import reason
from stillhouse.tuning.clock import Clock
from stillhouse.tuning.space import Settings
from stillhouse.tuning.study import (
    FIGURE,
    NUMBER,
    SECONDS,
    SETTINGS,
    distributions,
    nearest_within,
    proposed,
    sampler,
    stored,
)
from stillhouse.tuning.trial import Place, read_figure, run_trial
from stillhouse.tuning.trial_graph import TrialGraph, differing, remove_trial

if TYPE_CHECKING:
    import optuna

    from stillhouse.tuning.dev_figure import DevFigure

DRAWS = 100
"""After this many consecutive proposals that were tried before, the space counts as exhausted."""
OF_SETTINGS = ("bad_input", "not_finite", "out_of_memory")
"""Why a trial may fail that other settings would not."""
WARM_UP = 30
"""Percentage of a trial before which it is not pruned: the learning rate has only just warmed up."""
Curve = Mapping[int, float]
"""Percentage of a trial's training that is done -> the gain in its dev figure since its start."""
Log = Callable[[str], None]


class _GivenUp(Exception):
    """The trial is behind the others."""


class _OutOfTime(Exception):
    """The search's time is up."""


@dataclass(frozen=True)
class Finished:
    """A finished trial: its number (0 = the recipe's own settings), its changed settings and its figure."""

    number: int
    settings: Settings
    figure: DevFigure


@dataclass
class Search:
    """Runs trials of `graph` in `place` and records them in `study`.

    All trials together may take `seconds` of `clock`, including those from earlier runs of the search.
    """

    graph: TrialGraph
    place: Place
    study: optuna.Study
    clock: Clock
    seconds: float
    seed: int = 42
    log: Log = lambda line: None
    default: Settings = field(init=False)

    def __post_init__(self) -> None:
        self.default = self.graph.default()

    def run(self, most: int = 0) -> None:
        """Try the recipe's own settings, then at most `most` others, until the time is up or all are tried."""
        self._take_up()
        while not most or self.tried() <= most:
            if self.tried() and self.left() <= self._least():
                return
            trial = self._next()
            if trial is None:
                self.log("every setting of the space has been tried")
                return
            if not self._try(trial):
                return

    def tried(self) -> int:
        """The number of finished and pruned trials."""
        return len(self._in_states("COMPLETE", "PRUNED"))

    def given_up(self) -> int:
        return len(self._in_states("PRUNED"))

    def left(self) -> float:
        """The remaining seconds."""
        return self.seconds - sum(trial.user_attrs.get(SECONDS, 0.0) for trial in self.study.trials)

    def finished(self) -> list[Finished]:
        """The finished trials, with the recipe's own settings first."""
        return [
            Finished(attrs[NUMBER], attrs[SETTINGS], read_figure(self.place.folder / attrs[FIGURE]))
            for attrs in (trial.user_attrs for trial in self._in_states("COMPLETE"))
        ]

    def best(self) -> Finished | None:
        """The finished trial with the highest figure, the first of equal ones."""
        return max(self.finished(), key=lambda one: (one.figure.mean, -one.number), default=None)

    def _take_up(self) -> None:
        """Queue the trial that a killed run was working on to run first."""
        states = _states()
        for trial in self._in_states("RUNNING"):
            self.study.tell(trial.number, state=states.FAIL)
            self.study.enqueue_trial(trial.params, user_attrs={SETTINGS: trial.user_attrs.get(SETTINGS)})
        if not self.study.trials:
            own = {one.key: stored(nearest_within(one, self.default[one.key])) for one in self.graph.space.parameters}
            self.study.enqueue_trial(own, user_attrs={SETTINGS: {}})

    def _next(self) -> optuna.Trial | None:
        """The next trial with new settings, or None if there is none."""
        known = [trial.user_attrs.get(SETTINGS) for trial in self._in_states("COMPLETE", "PRUNED")]
        for draw in range(DRAWS):
            number = self.tried()
            self.study.sampler = _random(self.seed, number, draw) if draw else sampler(self.seed, number)
            trial = self.study.ask(distributions(self.graph.space))
            settings = trial.user_attrs.get(SETTINGS)
            if settings is None:
                settings = differing(proposed(self.graph.space, trial.params), self.default)
                settings |= self.graph.space.always
                trial.set_user_attr(SETTINGS, settings)
            trial.set_user_attr(NUMBER, number)
            if settings not in known:
                return trial
            self.study.tell(trial, state=_states().FAIL)
        return None

    def _try(self, trial: optuna.Trial) -> bool:
        """Run a trial. Returns False once the time is up."""
        settings: Settings = trial.user_attrs[SETTINGS]
        curve: dict[int, float] = {}
        others = [one.intermediate_values for one in self._in_states("COMPLETE") if one.intermediate_values]
        begun = self.clock()

        def note() -> None:
            nonlocal begun
            now = self.clock()
            trial.set_user_attr(SECONDS, trial.user_attrs.get(SECONDS, 0.0) + now - begun)
            begun = now

        def report(part: float, gain: float) -> None:
            note()
            curve[round(100 * part)] = gain
            trial.report(gain, round(100 * part))
            if settings and is_behind(curve, others):
                raise _GivenUp
            if settings and self.left() <= 0:
                raise _OutOfTime

        states = _states()
        before = self.best()
        try:
            figure = run_trial(self.graph, self.place, settings, report)
        except _GivenUp:
            self.study.tell(trial, state=states.PRUNED)
            remove_trial(self.place.trial(settings))
            self._say(trial, settings, f"stopped early, after {max(curve)} % of its training")
        except _OutOfTime:
            note()
            self.study.tell(trial, state=states.FAIL)
            self.study.enqueue_trial(trial.params, user_attrs={SETTINGS: settings})
            self._say(trial, settings, "stopped because the time is up; raise --minutes to continue it")
            return False
        except Exception as error:
            if not settings or reason(error) not in OF_SETTINGS:
                raise
            note()
            self.study.tell(trial, state=states.PRUNED)
            remove_trial(self.place.trial(settings))
            self._say(trial, settings, f"failed: {error}")
        else:
            note()
            trial.set_user_attr(FIGURE, self.place.figure(settings).relative_to(self.place.folder).as_posix())
            self.study.tell(trial, figure.mean)
            best = self.best()
            assert best is not None
            if before is not None:
                remove_trial(self.place.trial(settings if best.number == before.number else before.settings))
            self._say(trial, settings, f"dev {figure.mean:.4f}")
        return True

    def _say(self, trial: optuna.Trial, settings: Settings, what: str) -> None:
        named = ", ".join(f"{key} {value}" for key, value in settings.items()) or "the default"
        best = self.best()
        so_far = f"best so far {best.figure.mean:.4f} (trial {best.number})" if best else "none has finished yet"
        self.log(f"trial {trial.user_attrs[NUMBER]}: {named}: {what}; {so_far}, {in_words(max(0.0, self.left()))} left")

    def _least(self) -> float:
        """The least remaining time for a new trial: a third of a finished trial's average time, in seconds."""
        took = [trial.user_attrs.get(SECONDS, 0.0) for trial in self._in_states("COMPLETE")]
        return sum(took) / len(took) / 3 if took else 0.0

    def _in_states(self, *names: str) -> list[Any]:
        return [trial for trial in self.study.trials if trial.state.name in names]


def is_behind(curve: Curve, finished: Sequence[Curve]) -> bool:
    """Whether the best gain so far is below the median of the finished trials' gains at this part."""
    if not curve or not finished or max(curve) < WARM_UP:
        return False
    return max(curve.values()) < median(gain_at(other, max(curve)) for other in finished)


def gain_at(curve: Curve, part: int) -> float:
    """A curve's gain at a part, interpolated between the neighbouring points; it begins at 0."""
    points = sorted({0: 0.0, **curve}.items())
    for (before, low), (after, high) in pairwise(points):
        if before <= part <= after:
            return low + (high - low) * (part - before) / (after - before)
    return points[-1][1]


def _states() -> Any:
    from optuna.trial import TrialState

    return TrialState


def _random(seed: int, number: int, draw: int) -> optuna.samplers.BaseSampler:
    from optuna.samplers import RandomSampler

    return RandomSampler(seed=seed * 100_003 + number * DRAWS + draw)
