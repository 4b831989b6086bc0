"""The plan of a zero-shot run: corpora, systems, and the steps that read, index and search (CDMAE Table 3)."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillhouse.core.config import build, refuse_unknown
from stillhouse.core.errors import InputError, is_full_disk
from stillhouse.core.own_files import refuse_foreign_files
from stillhouse.experiments.comparison.run import Failure
from stillhouse.experiments.comparison.sweep import NAME
from stillhouse.models.encoder_settings import SETTINGS
from stillhouse.pipeline.graph import ARTIFACTS, GraphStep
from stillhouse.pipeline.in_process import refuse_foreign_outputs, run_steps

BM25 = "bm25"
MODELS = "models"
HYBRID = "_hybrid"
PAGE = "zero_shot.html"
CALLED_BY_KIND = ("retriever", "encoder")
"""Output folders that are named after their kind, so the parent folder identifies the model."""


@dataclass(frozen=True)
class Plan:
    """The steps with their settings, and the path of each system's run on each corpus, relative to the root.

    `models` fetch the models that all corpora share; `steps` are the ordered steps of each corpus.
    """

    models: Sequence[GraphStep]
    steps: Mapping[str, Sequence[GraphStep]]
    configs: Mapping[str, Any]
    runs: Mapping[str, Mapping[str, str]]

    @property
    def systems(self) -> list[str]:
        return list(next(iter(self.runs.values())))


def checked_plan(arguments: argparse.Namespace) -> tuple[Plan, str]:
    """The plan of a command line and the baseline system.

    Raises `InputError` for an unknown folder, name or measure.
    """
    plan = make_plan(arguments)
    baseline = arguments.baseline or plan.systems[0]
    refuse_unknown(baseline, plan.systems, "--baseline: there is no system")
    from stillhouse.evaluation.measures import cutoff, parse_measures

    for measure in parse_measures(arguments.measures):  # before hours of work
        if cutoff(measure) > arguments.depth:
            raise InputError(
                f"--measures {measure} needs {cutoff(measure):,} passages but runs have {arguments.depth:,}; "
                f"give --depth {cutoff(measure)}"
            )
    read_groups(arguments.together, list(plan.runs))
    return plan, baseline


def results() -> list[str]:
    """The files that the command writes besides the artifacts, as names for `own_files`."""
    from stillhouse.experiments.zero_shot.figures import FILES

    return [*FILES, PAGE]


def refuse_foreign_results(plan: Plan, folder: Path) -> None:
    """Raises `InputError`, before hours of work, if the results would replace files that Stillhouse did not write."""
    refuse_foreign_files(folder, results())
    for steps in (plan.models, *plan.steps.values()):
        refuse_foreign_outputs(steps, folder / ARTIFACTS)


def make_plan(arguments: argparse.Namespace) -> Plan:
    """The plan of a command line. Raises `InputError` for a missing folder, and for invalid or duplicate names."""
    for path in arguments.corpora:
        if not path.exists():
            raise InputError(f"{path} does not exist; name folders that `stillhouse ingest` can read")
    corpora = _named({path.resolve(): path.resolve().name for path in arguments.corpora}, "corpus", [MODELS])
    retrievers = [_split(text) for text in arguments.retriever]
    hybrids = _hybrids(arguments.hybrid, [name for name, _ in retrievers])
    called = [*(name for name, _ in retrievers), *(f"{name}{HYBRID}" for name in hybrids)]
    _named(dict(enumerate(called)), "retriever", [BM25, "ingest"])
    if arguments.no_bm25 and not retrievers:
        raise InputError("there is nothing to evaluate; give --retriever, or leave out --no-bm25")
    models: list[GraphStep] = []
    steps: dict[str, list[GraphStep]] = {}
    values: dict[str, dict[str, Any]] = {}
    source: dict[str, str] = {}

    def add(to: list[GraphStep], step: GraphStep, **settings: Any) -> None:
        to.append(step)
        values[step.name] = settings

    for name, model in retrievers:
        folder = Path(model).expanduser()
        if (folder / SETTINGS).is_file():
            source[name] = str(folder.resolve())
        else:
            lengths = {"query_length": arguments.query_length, "passage_length": arguments.passage_length}
            add(models, GraphStep(f"{MODELS}/{name}", "fetch-model"), model=model, **lengths)
            source[name] = f"{MODELS}/{name}/encoder"
    runs: dict[str, dict[str, str]] = {}
    depth = arguments.depth + 1  # leaves enough without the query's own passage
    for path, corpus in corpora.items():
        read, own = {"corpus": f"{corpus}/ingest/corpus"}, steps.setdefault(corpus, [])
        # Only test queries matter here; one train and one dev query are the minimum for `ingest`.
        few = {"max_train_queries": 1, "max_dev_queries": 1, "max_test_queries": arguments.max_queries or None}
        few |= {"seed": arguments.seed, "dev_fraction": 0.0}
        add(own, GraphStep(f"{corpus}/ingest", "ingest"), source=str(path), queries="source", **few)
        runs[corpus] = {}
        if hybrids or not arguments.no_bm25:
            add(own, GraphStep(f"{corpus}/{BM25}", "bm25", read), depth=depth, negatives_depth=1)
        if not arguments.no_bm25:
            runs[corpus][BM25] = f"{corpus}/{BM25}/run"
        for name, _ in retrievers:
            index = f"{corpus}/{name}_index"
            add(own, GraphStep(index, "index", read | {"retriever": source[name]}))
            inputs = read | {"retriever": source[name], "index": f"{index}/index"}
            add(own, GraphStep(f"{corpus}/{name}", "retrieve", inputs), depth=depth, system=name)
            runs[corpus][name] = f"{corpus}/{name}/run"
            if name in hybrids:
                both, weights = f"{name}{HYBRID}", str(hybrids[name].resolve())
                fused = inputs | {"bm25": f"{corpus}/{BM25}/bm25", "weights": weights}
                add(own, GraphStep(f"{corpus}/{both}_index", "hybrid", fused))
                searched = inputs | {"hybrid": f"{corpus}/{both}_index/hybrid"}
                add(own, GraphStep(f"{corpus}/{both}", "retrieve", searched), depth=depth, system=both)
                runs[corpus][both] = f"{corpus}/{both}/run"
    configs: dict[str, Any] = {
        step.name: build(step.spec.config, values[step.name], f"zero-shot: {step.name}")
        for step in [*models, *(step for own in steps.values() for step in own)]
    }
    return Plan(models, steps, configs, runs)


def run_plan(plan: Plan, root: Path, max_rejected: float, log: Callable[[str], None]) -> dict[str, Failure]:
    """Run everything and return the failed corpora with the reasons; the others continue.

    A corpus also fails if more than `max_rejected` of its passages or test qrels are rejected. Errors in fetching a
    model, which all corpora share, and errors from a full disk are raised.
    """
    from stillhouse.corpus.checks import refuse_remains
    from stillhouse.corpus.store import Corpus

    run_steps(plan.models, plan.configs, root, log)
    failures: dict[str, Failure] = {}
    for corpus, steps in plan.steps.items():
        for step in steps:
            try:
                run_steps([step], plan.configs, root, log)
                if step.kind == "ingest":
                    refuse_remains(Corpus.open(root / step.name / "corpus"), "test", max_rejected)
            except Exception as error:
                if is_full_disk(error):
                    raise
                failures[corpus] = Failure.of(step, error)
                log(f"{corpus} failed at {step.name}: {failures[corpus].reason}")
                break
    return failures


def write_results(
    plan: Plan, arguments: argparse.Namespace, baseline: str, failures: dict[str, Failure], folder: Path
) -> Path | None:
    """Measure the runs below `arguments.folder` and write the files and the page to the empty `folder`.

    Returns the page's path, or None without any figures. Adds corpora that cannot be measured to `failures`.
    """
    from stillhouse.corpus.store import Corpus
    from stillhouse.evaluation.measures import parse_measures
    from stillhouse.experiments.zero_shot.figures import Settings, measure_corpus, write_files
    from stillhouse.experiments.zero_shot.page import render

    root: Path = arguments.folder / ARTIFACTS
    samples = (arguments.bootstrap_samples, arguments.randomisation_samples, arguments.seed)
    groups = read_groups(arguments.together, list(plan.runs))
    settings = Settings(*samples, depth=arguments.depth, baseline=baseline, groups=groups)
    measures = parse_measures(arguments.measures)
    corpora = []
    for name, runs in plan.runs.items():
        if name in failures:
            continue
        paths = {system: root / run for system, run in runs.items()}
        try:
            corpus = Corpus.open(root / name / "ingest" / "corpus")
            corpora.append(measure_corpus(name, corpus, paths, measures, settings))
        except InputError as error:
            failures[name] = Failure("evaluate", str(error), bad_input=True)
    if not corpora:
        return None
    failed = {name: f"{failure.step}: {failure.reason}" for name, failure in failures.items()}
    write_files(corpora, failed, settings, folder)
    page = folder / PAGE
    page.write_text(render(corpora, failed, settings, arguments.title), encoding="utf-8")
    return page


def read_groups(texts: Sequence[str], corpora: Sequence[str]) -> dict[str, str]:
    """The group of each corpus that has one. Raises `InputError` for an unknown or duplicate corpus."""
    groups: dict[str, str] = {}
    for text in texts:
        name, _, members = text.partition("=")
        if not NAME.fullmatch(name) or name in corpora or name in groups.values():
            raise InputError(f"--together {text}: write NAME=CORPUS,CORPUS with a name that is not in use")
        for corpus in members.split(","):
            if corpus not in corpora or corpus in groups:
                why = "is already in a group" if corpus in groups else f"is not one of {', '.join(corpora)}"
                raise InputError(f"--together {text}: {corpus!r} {why}")
            groups[corpus] = name
    return groups


def _split(text: str) -> tuple[str, str]:
    """The name and the model of `name=model`; a model without a name is named after the last part of its path."""
    name, equals, model = text.partition("=")
    if equals:
        return name, model
    parts = [part for part in Path(text.removeprefix("package:")).parts if part not in CALLED_BY_KIND]
    return parts[-1] if parts else text, text


def _hybrids(texts: Sequence[str], retrievers: Sequence[str]) -> dict[str, Path]:
    """The folder with the weights of each retriever that has some: `best=artifacts/best/hybrid`.

    Raises `InputError` for an unknown or duplicate retriever, and for a folder without weights.
    """
    from stillhouse.search.hybrid import read_fusion

    found: dict[str, Path] = {}
    for text in texts:
        name, _, folder = text.partition("=")
        if name not in retrievers or name in found:
            why = "it already has weights" if name in found else f"write NAME=FOLDER with a NAME of {retrievers}"
            raise InputError(f"--hybrid {text}: {why}")
        found[name] = Path(folder).expanduser()
        read_fusion(found[name])
    return found


def _named(names: Mapping[Any, str], what: str, reserved: Sequence[str]) -> Mapping[Any, str]:
    """The checked names; they become folders below one root."""
    seen = set(reserved)
    for name in names.values():
        if not NAME.fullmatch(name):
            raise InputError(f"a {what} cannot be called {name!r}; use letters, digits and . _ + -")
        if name in seen or f"{name}_index" in seen or name.removesuffix("_index") in seen:
            remedy = "write NAME=MODEL" if what == "retriever" else "rename one of the folders"
            raise InputError(f"{what} {name!r}: this name is already in use or reserved; {remedy}")
        seen.add(name)
    return names
