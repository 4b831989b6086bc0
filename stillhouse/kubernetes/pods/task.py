"""The body of a Kubeflow task: runs the steps of one stage of a run one after the other, in one pod.

Each step runs as it would in its own task, with its digests, run cache entry, checkpoints, figures and Prometheus
entry. Its outputs stay in the task's folder on the work volume until all steps are done, so that a restarted process
or pod continues with the first unfinished step.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from stillhouse.artifacts import digest_json, read_manifest, whole_folder, write_whole, write_whole_json
from stillhouse.config import build, field_types
from stillhouse.context import quiet, say, work_root
from stillhouse.environment import software
from stillhouse.errors import ValidationFailed, access_errors
from stillhouse.kubernetes.pods.around_step import about, free_memory, labelled
from stillhouse.kubernetes.pods.component import one_line_errors, run_step
from stillhouse.kubernetes.pods.component_views import views_of, write_view
from stillhouse.kubernetes.pods.held_folders import link_or_copy
from stillhouse.kubernetes.pods.pod_preflight import check_pod
from stillhouse.kubernetes.pods.run_parameters import SETTINGS
from stillhouse.lock import only_process
from stillhouse.markdown import as_text
from stillhouse.monitoring import activity
from stillhouse.monitoring.activity import doing
from stillhouse.monitoring.duration import in_words
from stillhouse.monitoring.watch import watch_task
from stillhouse.releases.lineage import lineage
from stillhouse.setting_kinds import from_form, plain
from stillhouse.steps.execute import code_digest, manifest_of, open_inputs, read_report, write_metrics, write_report
from stillhouse.steps.old_work import DAYS, remove_old_work
from stillhouse.steps.spec import Report
from stillhouse.workflow.graph import CORPUS, START, find_uses
from stillhouse.workflow.key_names import keys_in_errors
from stillhouse.workflow.run_progress import made_of
from stillhouse.workflow.tasks import PREPARE, VERDICT
from stillhouse.workflow.uses import Use, used

METRICS, PAGE, RUN, STEPS = "metrics", "page", "run_id", "steps"
"""The arguments of every task: two outputs, the run's id, and its uses in order as JSON."""
FOLDER = "tasks"
RECIPE = "recipe"
"""What errors call the recipe, whose file is not in the pod."""
FIGURES = 6
"""How many figures of a step its task's page shows."""


def port_name(source: str) -> str:
    """The name of the artifact `use/output` among a task's inputs and outputs."""
    return source.replace("/", "__")


def setting_name(use: str, name: str) -> str:
    """The name of a setting in one item of a comparison."""
    return f"{use}__{name}"


def describe_use(use: Use, section: Mapping[str, Any], config: Any) -> dict[str, Any]:
    """What a task receives for one of its uses: the recipe's section verbatim and the settings that differ from it.

    A use outside the papers' run also has its step and inputs. All other settings are the step's defaults. The object
    of the run holds this text ten times, so it is short.
    """
    written: Any = build(use.step.config, section, use.name)
    values = {name: plain(getattr(config, name)) for name in field_types(use.step.config)}
    described: dict[str, Any] = {}
    if find_uses().get(use.name) != use:
        # Not sorted: the command of a DVC stage has the use's inputs in this order.
        described = {key: value for key, value in asdict(use).items() if value and key != "name"}
    if section:
        described["section"] = dict(section)
    other = {name: value for name, value in values.items() if value != plain(getattr(written, name))}
    return described | ({"other": other} if other else {})


def as_json(value: Any) -> str:
    """Compact JSON text for a Kubeflow parameter; outside of text, Kubeflow turns integers into floats."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True)
class Work:
    """One use, its section, and its settings in this run."""

    use: Use
    section: Mapping[str, Any]
    config: Any


def works_of(described: Mapping[str, Mapping[str, Any]], values: Mapping[str, Any]) -> list[Work]:
    """The uses `described` for a task, in order, with the settings chosen in `values`.

    The run's field `settings` overrides all others, as if it were part of the recipe.
    """
    of_run = json.loads(values.get(SETTINGS) or "{}")
    found = []
    for name, use_of in described.items():
        shape = {
            key: use_of[key] for key in ("step_name", "inputs", "settings_of", "stands_in", "needs") if key in use_of
        }
        use = Use(name, **shape) if shape else find_uses()[name]
        kinds = field_types(use.step.config)
        chosen = {
            field: from_form(values[parameter], kinds[field], parameter)
            for field, parameter in use_of.get("chosen", {}).items()
        }
        chosen |= {
            field: values[setting_name(name, field)]
            for field in field_types(use.step.config)
            if setting_name(name, field) in values
        }
        own = of_run.get(use.section, {})
        section = {**use_of.get("section", {}), **own}
        config: Any = build(use.step.config, {**section, **use_of.get("other", {}), **chosen, **own}, f"task {name}")
        found.append(Work(use, section, config))
    return found


def sources_of(works: Iterable[Work]) -> set[str]:
    """The `use/output` names that these uses read from other tasks."""
    works = list(works)
    own = {work.use.name for work in works}
    return {source for work in works for source in work.use.inputs.values() if used(source) not in own}


@dataclass
class Done:
    """The report of a finished step, how long it took, and whether an earlier try of the task did it."""

    work: Work
    report: Report
    seconds: float
    earlier: bool = False


@dataclass
class Stage:
    """The steps of one task. `given` maps `use/output` to the folders of its input artifacts."""

    name: str
    root: Path
    works: list[Work]
    given: Mapping[str, Path]
    values: Mapping[str, Any]
    done: list[Done] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether the corpus failed its validation."""
        return bool(self.done) and self.done[-1].report.facts.get("passed") is False

    def folder_of(self, source: str) -> Path:
        return self.given.get(source) or self.root / source

    def run(self) -> None:
        """Runs the steps that are not yet in `done`; stops after a failed validation.

        Errors of a step name its section of the recipe and the keys there. The log is never silent for ten seconds,
        before and after the work of a step either.
        """
        for number, work in enumerate(self.works[len(self.done) :], start=len(self.done) + 1):
            use = work.use
            with (
                labelled(use.name),
                activity.watched(use.name, quiet()),
                watch_task(use.step_name, say) as watched,
                keys_in_errors(use.step, RECIPE, use.section, (), use.name),
                access_errors(),
            ):
                models = (self.folder_of(START), *self.given.values())
                time_of_it = about(use.step, work.config, self.folder_of(CORPUS["corpus"]), models)
                say(f"[{self.name}] step {number} of {len(self.works)}: {use.name} ({use.step_name}){time_of_it}")
                inputs = {key: self.folder_of(source) for key, source in use.inputs.items()}
                outputs = use.output_paths(self.root)
                with doing("checking whether an earlier try did it"):
                    done = self._earlier(work, inputs)
                if done is None:
                    started = time.monotonic()
                    cached = use, work.section
                    report = run_step(use.step, work.config, inputs, outputs, watched, cached, use.name)
                    done = Done(work, report, time.monotonic() - started)
                    self._note(done)
                else:
                    watched.report = done.report
                    say(f"[{use.name}] done by an earlier try of this task; {done.report.summary}")
                self.done.append(done)
                with doing("handing over what it wrote"):
                    self._hand_over(done, outputs)
            if watched.computed:
                free_memory()
            if self.failed:
                say(f"[{self.name}] skipping the remaining steps: the corpus did not pass")
                return

    def finish(self) -> None:
        """Writes the task's figures and its page."""
        figures = {
            f"{done.work.use.name}/{name}": value for done in self.done for name, value in done.report.metrics.items()
        }
        for name, value in figures.items():
            self.values[METRICS].log_metric(name, value)
        # Kubeflow keeps logged figures as metadata only; its local cache treats an artifact without a file as missing.
        write_metrics(Path(self.values[METRICS].path), figures)
        write_whole(Path(self.values[PAGE].path), page(self.name, self.works, self.done))

    def _report(self, use: Use) -> Path:
        return self.root / "reports" / f"{use.name}.json"

    def _seconds(self, use: Use) -> Path:
        return self.root / "reports" / f"{use.name}.seconds.json"

    def _note(self, done: Done) -> None:
        use = done.work.use
        self._report(use).parent.mkdir(parents=True, exist_ok=True)
        write_report(self._report(use), done.report)
        write_whole_json(self._seconds(use), {"seconds": done.seconds})

    def _earlier(self, work: Work, inputs: Mapping[str, Path]) -> Done | None:
        """A step that an earlier try of this task completed with the same settings and inputs, or None."""
        use = work.use
        if not self._report(use).is_file() or not self._seconds(use).is_file():
            return None
        if not made_of(use, work.config, self.root, open_inputs(use.step, inputs)):
            return None
        outputs = use.output_paths(self.root)
        facts = read_manifest(next(iter(outputs.values())), verify=False).facts
        seconds = float(json.loads(self._seconds(use).read_text(encoding="utf-8"))["seconds"])
        return Done(work, read_report(self._report(use), facts), seconds, earlier=True)

    def _hand_over(self, done: Done, outputs: Mapping[str, Path]) -> None:
        """Puts a step's outputs where Kubeflow collects them, with their lineage, and writes its views."""
        use = done.work.use
        for port in use.step.outputs:
            artifact = self.values.get(port_name(f"{use.name}/{port.name}"))
            if artifact is not None:
                with whole_folder(Path(artifact.path)) as staging:
                    shutil.copytree(outputs[port.name], staging, dirs_exist_ok=True, copy_function=link_or_copy)
                artifact.metadata |= lineage(outputs[port.name])
        for view in views_of(use.step_name):
            artifact = self.values.get(port_name(f"{use.name}/{view.name}"))
            if artifact is not None:
                write_view(view, outputs, done.report, artifact)


def run_task(name: str, values: Mapping[str, Any]) -> None:
    """Runs the steps of a task with its arguments: input and output artifacts, its uses as text, chosen settings.

    A corpus that does not pass does not fail the task, as Kubeflow would discard the page that says why. The task
    skips the steps after it, and every task that receives the verdict stops.
    """
    with one_line_errors():
        works = works_of(json.loads(values[STEPS]), values)
        verdict = values.get(port_name(VERDICT))
        if verdict is not None and used(VERDICT) not in {work.use.name for work in works}:
            refuse_failed_corpus(Path(verdict.path))
        check_pod(any(work.use.step.parallel for work in works))
        with open_stage(name, works, values) as stage:
            stage.run()


@contextmanager
def open_stage(name: str, works: list[Work], values: Mapping[str, Any]) -> Iterator[Stage]:
    """Yields the stage of a task in its folder, and ends it if the block does not fail: writes its figures and page,
    and removes the folder afterwards.
    """
    given = {source: Path(values[port_name(source)].path) for source in sources_of(works)}
    root = folder_of(name, works, given, str(values[RUN]))
    with only_process(root, wait=say):
        root.mkdir(parents=True, exist_ok=True)
        for gone in remove_old_work(root.parent, name, root.name):
            say(f"[{name}] removed {gone}, left by a task more than {DAYS} days ago")
        stage = Stage(name, root, works, given, values)
        yield stage
        stage.finish()
        shutil.rmtree(root, ignore_errors=True)


def refuse_failed_corpus(validation: Path) -> None:
    """Raises `ValidationFailed` unless the verdict in this folder is good."""
    facts = read_manifest(validation).facts
    if facts.get("passed") is not True:
        failed = ", ".join(facts.get("failed", [])) or "no verdict"
        raise ValidationFailed(
            f"the corpus did not pass validation ({failed}); open the page `validate__html` of the task `{PREPARE}`, "
            "fix the corpus or raise the threshold in the recipe, and start the run again. Nothing was trained"
        )


def folder_of(name: str, works: list[Work], given: Mapping[str, Path], run: str) -> Path:
    """The folder for a task's step outputs: the same for every try in this run with this code."""
    kinds = {source: work.use.step.port_of(key).kind for work in works for key, source in work.use.inputs.items()}
    digests = {source: manifest_of(folder, kinds[source]).digest for source, folder in given.items()}
    uses = [(work.use.name, work.use.step_name, dict(work.use.inputs), asdict(work.config)) for work in works]
    return work_root() / FOLDER / f"{name}-{digest_json([run, uses, digests, code_digest(), software()])[:20]}"


def page(name: str, works: list[Work], done: list[Done]) -> str:
    """The steps of a task as Markdown: what each one made, how long it took, and its first figures."""
    lines = [f"## {as_text(name)}", "", "| step | what it made | took | figures |", "|---|---|---|---|"]
    for one in done:
        figures = list(one.report.metrics.items())
        shown = ", ".join(f"{as_text(key)} {value:.4g}" for key, value in figures[:FIGURES])
        more = f", and {len(figures) - FIGURES} more" if len(figures) > FIGURES else ""
        earlier = " (an earlier try)" if one.earlier else ""
        lines.append(
            f"| {as_text(one.work.use.name)} | {as_text(one.report.summary)} | {in_words(one.seconds)}{earlier} "
            f"| {shown}{more} |"
        )
    lines += [f"| {as_text(work.use.name)} | not done: the corpus did not pass | | |" for work in works[len(done) :]]
    return "\n".join(lines) + "\n"
