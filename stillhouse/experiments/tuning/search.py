"""The search: one Optuna study. Each trial runs the part of a workspace's graph that its settings change.

The recipe's own settings are measured first; what the workspace has of them is linked, and trials link what they share
with them. A killed search resumes from Optuna's journal, and its unfinished trial from the checkpoint.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stillhouse.core.artifacts import digest_json, read_manifest, write_whole
from stillhouse.core.config import nearest
from stillhouse.core.context import WORK_ROOT, Context, device, work_root
from stillhouse.core.curves import DEV, CurveRow
from stillhouse.core.environment import environment_variables
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.monitor import Monitor
from stillhouse.core.monitoring.watch import reason
from stillhouse.corpus.store import Corpus
from stillhouse.experiments.comparison.graph import below
from stillhouse.experiments.comparison.plan import merged
from stillhouse.experiments.tuning.space import Settings, Space
from stillhouse.pipeline.graph import CORPUS, GraphStep, graph_of, needed
from stillhouse.pipeline.in_process import made_of
from stillhouse.pipeline.recipes import Recipe, configs
from stillhouse.pipeline.steps.execute import execute, open_inputs
from stillhouse.pipeline.steps.places import location_fields
from stillhouse.pipeline.steps.spec import Paths, Report, Step

if TYPE_CHECKING:
    import optuna

JOURNAL = "journal.log"
SETTINGS, RANKS, ABOUT, WHY = "settings", "reciprocal_ranks", "about", "why"
"""The attributes of a trial: its settings and RR@10 of each dev question. That of the study: what it searches."""
OF_SETTINGS = ("bad_input", "not_finite", "out_of_memory")
"""Failures of a trial that other settings may avoid."""
PARTS, WARM_UP = 10, 3
"""Trials are compared after each tenth of their last training, and not in the first three."""
DEPTH = 100
"""Passages to retrieve: more than 10, because passages that are neither right nor wrong are skipped."""

Listen = Callable[[Sequence[CurveRow], int], None]
"""Gets the curve of a training so far, and its number of steps."""


class Search:
    """Trials over the rows of `space`, in `folder`; nothing in `artifacts`, the workspace's, is changed."""

    def __init__(self, recipe: Recipe, where: str, space: Space, artifacts: Path, folder: Path, seed: int = 42) -> None:
        """Open or resume a search. Raises `InputError` for a folder with something else, or without Optuna."""
        self.recipe, self.where, self.space, self.folder, self.seed = recipe, where, space, folder, seed
        self.steps, self.shared = trial_steps(recipe, where, space), folder / "shared" / "artifacts"
        journal = folder / JOURNAL
        own = journal.is_file() and journal.read_bytes().startswith(b'{"op_code"')
        if folder.is_dir() and any(folder.iterdir()) and not own:
            raise InputError(f"{folder} holds files that are not from a search; choose another --folder")
        (folder / "trials").mkdir(parents=True, exist_ok=True)
        self.study = _study(journal)
        if not (folder / ".gitignore").exists():
            write_whole(folder / ".gitignore", "*\n")
        self.default = self._measured({}, self.shared, artifacts)
        made = read_manifest(self.shared / self.steps[-1].name / "index", verify=False).digest
        about = digest_json([made, repr(space)])
        if self.study.user_attrs.get(ABOUT, about) != about:
            raise InputError(f"{folder} has a search with another space, recipe or corpus; choose another --folder")
        self.study.set_user_attr(ABOUT, about)

    def run(self, trials: int, seconds: float | None = None, log: Callable[[str], None] = lambda line: None) -> None:
        """Try settings until there are `trials` in all. After `seconds` no further trial begins."""
        from optuna.samplers import TPESampler

        for last in self.study.trials[-1:]:
            if last.state.name in ("RUNNING", "FAIL"):  # it was killed
                self.study.enqueue_trial(last.params)

        def tell(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
            best = max([float(np.mean(self.default)), *(one.value for one in self.finished())])
            named = ", ".join(f"{key} {value}" for key, value in trial.user_attrs[SETTINGS].items())
            whole, why = trial.state.name == "COMPLETE", trial.user_attrs.get(WHY, "stopped early")
            said = f"dev {trial.value:.4f}" if whole else why
            log(f"trial {len(self.tried())} of {trials}: {named}: {said}; best so far {best:.4f}")
            kept = [self.place(one.user_attrs[SETTINGS]) for one in self.finished()[:1]]
            shutil.rmtree(self.work(trial.user_attrs[SETTINGS]), ignore_errors=True)
            for other in (self.folder / "trials").iterdir():  # retrievers of all but the best
                if other not in kept:
                    shutil.rmtree(other)

        self.study.sampler = TPESampler(seed=self.seed + len(self.tried()))
        self.study.optimize(self._try, max(0, trials - len(self.tried())), seconds, callbacks=[tell])

    def tried(self) -> list[Any]:
        """The trials that finished or were stopped early."""
        return [one for one in self.study.trials if one.state.name in ("COMPLETE", "PRUNED")]

    def finished(self) -> list[Any]:
        """The trials that finished, the best first."""
        found = [one for one in self.study.trials if one.state.name == "COMPLETE"]
        return sorted(found, key=lambda one: (-one.value, one.number))

    def place(self, settings: Settings) -> Path:
        """The folder of a trial, which depends only on its settings."""
        return self.folder / "trials" / digest_json(settings)[:16]

    def work(self, settings: Settings) -> Path:
        """The folder of a trial's unfinished work; another search that shares the root has others."""
        return work_root() / f"tune-{digest_json([str(self.place(settings).resolve())])[:20]}"

    def _try(self, trial: optuna.Trial) -> float:
        from optuna import TrialPruned

        settings = {key: row.suggested(trial, key) for key, row in self.space.rows.items()}
        trial.set_user_attr(SETTINGS, settings)
        reported: set[int] = set()

        def listen(rows: Sequence[CurveRow], steps: int) -> None:
            """Report the gain since the training's start: its dev candidates depend on what was mined."""
            part = PARTS * rows[-1].step // steps
            signal = next((name for name in rows[0].signals if name.startswith(DEV)), "")
            if signal and part > 0 and part not in reported:
                reported.add(part)
                trial.report(rows[-1].signals[signal] - rows[0].signals[signal], part)
                if trial.should_prune():
                    raise TrialPruned

        same = [one.user_attrs[RANKS] for one in self.finished() if one.user_attrs[SETTINGS] == settings]
        try:
            ranks = same[0] if same else self._trained(settings, listen)
        except Exception as error:
            if reason(error) in OF_SETTINGS:
                trial.set_user_attr(WHY, str(error))
                raise TrialPruned from error
            raise
        trial.set_user_attr(RANKS, ranks)
        return float(np.mean(ranks))

    def _trained(self, settings: Settings, listen: Listen) -> list[float]:
        folder = self.place(settings)
        with environment_variables({WORK_ROOT: str(self.work(settings))}):  # so that checkpoints go with the trial
            return self._measured(self.space.always | settings, folder / "artifacts", self.shared, listen)

    def _measured(self, settings: Settings, root: Path, source: Path, listen: Listen | None = None) -> list[float]:
        """Make what is missing below `root`, link what `source` has, and return RR@10 of each dev question."""
        found = configs(merged(self.recipe, settings), self.where)
        *_, training = (step for step in self.steps if any(port.name == "curves" for port in step.spec.outputs))
        for step in self.steps:
            config = found[step.name]
            if not _linked(step, config, source, root) and not _made(step, config, root, root):
                spec = _heard(step.spec, listen) if listen and step == training else step.spec
                execute(spec, config, step.input_paths(root), step.output_paths(root))
        index = self.steps[-1]
        retriever, context = root / index.inputs["retriever"], Context(root.parent, device(), quiet=True)
        return measure_dev(root / CORPUS["corpus"], retriever, root / index.name / "index", context)


def trial_steps(recipe: Recipe, where: str, space: Space) -> list[GraphStep]:
    """The steps up to the index of the space's retriever, in running order.

    Raises `InputError` if it has no index or does not depend on the searched settings, or if these are of a source.
    """
    graph = graph_of(recipe, where)
    indexes = {step.inputs["retriever"].partition("/")[0]: step for step in graph if step.kind == "index"}
    if space.retriever not in indexes:
        known = nearest(space.retriever, indexes)
        raise InputError(f"{where} has no retriever {space.retriever!r} with an index to measure it; {known}")
    steps = needed(graph, [indexes[space.retriever].name])
    sections = {key.partition(".")[0] for key in (*space.rows, *space.always)}
    if unused := sorted(sections - {step.section for step in steps}):
        raise InputError(f"{space.retriever} does not depend on {', '.join(unused)}; leave their settings out")
    varying = below({step.name for step in steps if step.section in sections}, steps)
    if outside := [step.name for step in steps if step.name in varying and location_fields(step.spec)]:
        raise InputError(f"{', '.join(outside)} reads a source, so its settings cannot be tuned; leave them out")
    return steps


def measure_dev(corpus: Path, retriever: Path, index: Path, context: Context) -> list[float]:
    """RR@10 of each judged dev question, over all passages. Raises `InputError` if there are none."""
    from stillhouse.evaluation.relevance import JudgedQueries
    from stillhouse.models.encoder import BiEncoder
    from stillhouse.models.settings import InferenceConfig
    from stillhouse.search.searcher import open_index, query_vectors, searches_on_gpu

    opened, encoder = Corpus.open(corpus), BiEncoder.load(retriever)
    vectors = open_index(index, opened)
    judged = JudgedQueries(opened, "dev")
    if not len(judged):
        raise InputError(f"{corpus} has no judged dev questions for the search; ingest with a dev_fraction above 0")
    vectors_QD = query_vectors(encoder, vectors, judged.texts, context, InferenceConfig())
    rows_QK, _ = vectors.search(vectors_QD, DEPTH, gpu=searches_on_gpu(vectors, DEPTH, context))
    return [float(rank) for rank in judged.reciprocal_ranks(rows_QK)]


def _made(step: GraphStep, config: Any, outputs: Path, inputs: Path) -> bool:
    """Whether `outputs` has what a step makes from `inputs`. Of a source, what was read counts as current."""
    try:
        given = open_inputs(step.spec, step.input_paths(inputs))
        for path in step.output_paths(outputs).values():
            read_manifest(path)
    except InputError:
        return False
    return made_of(step, config, outputs, given, verify=False)


def _linked(step: GraphStep, config: Any, source: Path, root: Path) -> bool:
    """Link the outputs of a step from `source` if they match; a link to other outputs is removed."""
    link = root / step.name
    if link.is_symlink():
        link.unlink()
    if link.exists() or not _made(step, config, source, root):
        return False
    root.mkdir(parents=True, exist_ok=True)
    link.symlink_to(os.path.relpath(source / step.name, root), target_is_directory=True)
    return True


def _heard(step: Step, listen: Listen) -> Step:
    """The step of a training with a monitor that passes on its curve."""

    def run(config: Any, inputs: Paths, outputs: Paths, context: Context) -> Report:
        return step.run(config, inputs, outputs, dataclasses.replace(context, monitor=_Heard(context.monitor, listen)))

    return dataclasses.replace(step, run=run)


class _Heard(Monitor):
    """A step's own monitor, which also passes on the curve."""

    def __init__(self, own: Monitor, listen: Listen) -> None:
        self._own, self._listen = own, listen
        for name in ("began", "advanced", "ended", "trained", "measured"):
            setattr(self, name, getattr(own, name))

    def curve(self, rows: Sequence[CurveRow], steps: int) -> None:
        self._own.curve(rows, steps)
        self._listen(rows, steps)


def _study(journal: Path) -> optuna.Study:
    try:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend
    except ImportError:
        raise InputError("`stillhouse tune` needs Optuna: pip install 'stillhouse[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    pruner = optuna.pruners.MedianPruner(n_startup_trials=2, n_warmup_steps=WARM_UP)
    try:
        storage = JournalStorage(JournalFileBackend(str(journal)))
        return optuna.create_study(
            storage=storage, study_name="stillhouse", direction="maximize", load_if_exists=True, pruner=pruner
        )
    except (ValueError, KeyError) as error:
        raise InputError(f"{journal} is damaged ({error}); choose another --folder") from None
