"""Every command that writes to a path from the user, found from the parsers and run in the cheapest way that writes."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import subprocess
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from beir_source import write_beir

from stillhouse import cli
from stillhouse.cli import compare as compare_command
from stillhouse.core.artifacts import whole_folder, write_manifest
from stillhouse.core.errors import InputError
from stillhouse.experiments.comparison import results as comparison_results
from stillhouse.pipeline.parser import Parser, output_file, output_folder
from stillhouse.pipeline.step_command import step_parser
from stillhouse.pipeline.steps import execute, registry
from stillhouse.pipeline.steps.spec import Report

WRITES = (output_file, output_folder)
Argument = tuple[str, str]
"""A command, with its action if it has any, and the destination of one of its arguments."""


class Parsed(Exception):
    """A command began to parse its words."""

    def __init__(self, parser: Parser) -> None:
        self.parser = parser


def parsers(patch: pytest.MonkeyPatch) -> dict[str, Parser]:
    """Map the words of each command to its parser. Each command starts and stops as soon as it parses."""

    def stop(parser: Parser, argv: object) -> None:
        raise Parsed(parser)

    patch.setattr(Parser, "parse", stop)
    found = {name: step_parser(step) for name, step in registry.steps().items()}
    for name, (_, place) in cli.COMMANDS.items():
        module = import_module(place)
        actions = getattr(module, "ACTIONS", {"": module.main})
        for action, main in actions.items():
            with pytest.raises(Parsed) as stopped:
                main([])
            found[f"{name} {action}".strip()] = stopped.value.parser
    return found


def named_places(found: Mapping[str, Parser]) -> dict[Argument, argparse.Action]:
    """The arguments that name a file or folder."""
    return {
        (command, action.dest): action
        for command, parser in found.items()
        for action in parser._actions
        if action.type in (*WRITES, Path) or any(word in str(action.metavar) for word in ("FOLDER", "FILE"))
    }


@dataclasses.dataclass(frozen=True)
class Case:
    """A command line that writes below a folder, and the arguments that name where. `prepare` makes it cheap.

    `again` is the exit code of a second run.
    """

    covers: tuple[Argument, ...]
    words: Callable[[Path, Path], list[object]]
    prepare: Callable[[pytest.MonkeyPatch, Path], None] = lambda patch, inputs: None
    again: int = 0

    def run(self, there: Path, inputs: Path) -> int:
        return cli.main([str(word) for word in self.words(there, inputs)])


def stand_ins(patch: pytest.MonkeyPatch, inputs: Path) -> None:
    """Replaces every step by one that writes a page and a digest of its settings and inputs."""

    def run(config: Any, read: Any, outputs: Any, context: Any) -> Report:
        (context.work / "half.txt").write_text("half")
        texts = [(folder / "data.txt").read_text() for _, folder in sorted(read.items())]
        for folder in outputs.values():
            (folder / "part").mkdir()
            (folder / "part" / "page.html").write_text("a page")
            (folder / "data.txt").write_text(hashlib.sha256(repr((config, texts)).encode()).hexdigest())
        return Report("done", metrics={"figure": 1.0}, facts={"passed": True})

    known_code(patch)
    for name, step in list(registry.steps().items()):
        patch.setitem(registry.steps(), name, dataclasses.replace(step, run=run))


def known_code(patch: pytest.MonkeyPatch) -> None:
    """Keeps steps from looking up all libraries to name their work."""
    patch.setattr(execute, "software", dict)


def artifact(folder: Path) -> Path:
    with whole_folder(folder) as staging:
        (staging / "data.txt").write_text("read")
        write_manifest(staging, "step", {}, {}, {"passed": True})
    return folder


def step_case(name: str) -> Case:
    step = registry.steps()[name]
    writes = [port.name for port in step.outputs]

    def words(there: Path, inputs: Path) -> list[object]:
        found: list[object] = [name]
        for port in step.inputs:
            found += [port.flag, f"one={inputs / port.name}" if port.many else inputs / port.name]
        for port in step.outputs:
            found += [port.flag, there / port.name]
        return [*found, "--report", there / "report.json", "--work", there / "w"]

    def prepare(patch: pytest.MonkeyPatch, inputs: Path) -> None:
        stand_ins(patch, inputs)
        for port in step.inputs:
            artifact(inputs / port.name)

    return Case(tuple((name, dest) for dest in (*writes, "metrics", "report", "work")), words, prepare)


def compare_quickly(patch: pytest.MonkeyPatch, inputs: Path) -> None:
    def write(plan: object, failures: object, folder: Path, target: Path) -> Path:
        for name in compare_command.results():
            (target / name).write_text("a table")
        return target / "comparison.html"

    stand_ins(patch, inputs)
    patch.setattr(comparison_results, "write_comparison", write)


def beir(patch: pytest.MonkeyPatch, inputs: Path) -> None:
    """A corpus in which one query is a passage, so that `zero-shot` writes runs too."""
    known_code(patch)
    texts = ["red bird", "red fish", "green fish"]
    write_beir(inputs / "colours", texts, {"p0": "red bird"}, test=[("p0", "p1")])


class Compiled:
    """A pipeline that takes no time to compile."""

    version, name = "v1", "train"

    def as_ir(self) -> str:
        return "a pipeline\n"

    as_resources = as_ir


def compile_quickly(patch: pytest.MonkeyPatch, inputs: Path) -> None:
    from stillhouse.kubeflow.pipelines import compare, ir, manifests
    from stillhouse.kubeflow.pipelines.catalog import Request

    patch.setattr(Request, "build", lambda self, table: self.pipeline)
    patch.setattr(ir, "compile_small", lambda pipeline: Compiled())
    patch.setattr(compare, "build_comparison", lambda plan, table: "compare-objectives")
    patch.setattr(compare, "compile_small", lambda pipeline: Compiled())
    patch.setattr(manifests, "compiled_files", lambda: {"cpu/train.yaml": manifests.FIRST_LINE + "kind: Pipeline\n"})


def run_pipelines_quickly(patch: pytest.MonkeyPatch, inputs: Path) -> None:
    from stillhouse.core.artifacts import write_manifest
    from stillhouse.kubeflow.pipelines import local
    from stillhouse.kubeflow.pipelines.catalog import RESULTS, Request
    from stillhouse.kubeflow.pods.stage import FOLDER

    def run(pipeline: str, values: object, workspace: Path) -> None:
        result = RESULTS[pipeline]
        folder = workspace / "outputs" / "run" / result.components[0] / result.folder
        folder.mkdir(parents=True)
        (folder / result.page).write_text("a page")
        for source in Request(pipeline).kept():
            folder = workspace / "outputs" / "run" / "task" / FOLDER / source
            folder.mkdir(parents=True)
            write_manifest(folder, "stand-in", {}, {}, {})

    patch.setattr(local, "run_pipeline", run)
    patch.setattr(Request, "build", lambda self, table: self.pipeline)


def clone_alone(patch: pytest.MonkeyPatch, inputs: Path) -> None:
    """A refresh that ends once it has its clone and its artifacts."""
    from stillhouse.releases.refresh import run
    from stillhouse.releases.refresh.plan import Level, Plan
    from stillhouse.releases.refresh.workspace import open_clone

    def begin(request: run.Request, log: object) -> run.Refreshed:
        open_clone(request.repo, request.branch, request.folder)
        return run.Refreshed(Plan(Level.NOTHING, "nothing changed"))

    own = inputs / "own"
    for name, value in {"AUTHOR": "me", "COMMITTER": "me"}.items():
        patch.setenv(f"GIT_{name}_NAME", value)
        patch.setenv(f"GIT_{name}_EMAIL", "me@example.org")
    subprocess.run(["git", "init", "--quiet", "--initial-branch", "main", own], check=True)
    (own / "params.yaml").write_text("ingest: {}\n")
    subprocess.run(["git", "-C", own, "add", "--all"], check=True)
    subprocess.run(["git", "-C", own, "commit", "--quiet", "--message", "Begin"], check=True)
    patch.setattr(run, "_refresh", begin)


def release_at_hand(patch: pytest.MonkeyPatch, inputs: Path) -> None:
    """A release with its artifacts in a local folder and in no remote."""
    import contextlib
    import shutil

    from stillhouse.core.remote import dvc_source
    from stillhouse.releases import data, git
    from stillhouse.releases import tags as releases

    class Repo:
        config: Mapping[str, Any] = {"core": {}, "remote": {}}
        cache = argparse.Namespace(local_cache_dir="")

    def fetch(repo: str, revision: str, path: str, target: Path, config: object) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_name(f".{target.name}.partial")
        shutil.copytree(inputs / "retriever", unfinished)
        dvc_source._replace(target, unfinished)

    class Repository:
        folder, prefix = inputs, ""

        def __call__(self, *words: str) -> str:
            return str(self.folder)

    release = releases.Release((1, 0, 0), "c0ffee", {"artifacts": {"retriever": {"path": "a/retriever"}}})
    history = releases.History([release], {1: release})
    artifact(inputs / "retriever")
    patch.setattr(git.Git, "of", lambda folder: Repository())
    patch.setattr(releases, "read_history", lambda git: history)
    patch.setattr(data, "_workspace", lambda folder: contextlib.nullcontext(Repo))
    patch.setattr(data, "fetch", fetch)


def winner_at_hand(patch: pytest.MonkeyPatch, inputs: Path) -> None:
    from stillhouse.releases import model_card

    (inputs / "artifacts" / "best").mkdir(parents=True)
    artifact(inputs / "artifacts" / "best" / "retriever")
    patch.setattr(model_card, "render_card", lambda *given: "a card")


def never_served(patch: pytest.MonkeyPatch, inputs: Path) -> None:
    from stillhouse.cli import label

    known_code(patch)
    patch.setattr(label, "serve", lambda server: server.server_close())


def tune_quickly(patch: pytest.MonkeyPatch, inputs: Path) -> None:

    from stillhouse.experiments.tuning import search
    from stillhouse.pipeline.recipes import find_recipe

    stand_ins(patch, inputs)
    patch.setattr(search, "measure_dev", lambda *given: [1.0])
    (inputs / "params.yaml").write_text(find_recipe("labelled").read_text())


def tune_words(inputs: Path) -> list[object]:
    return ["tune", "--params", inputs / "params.yaml", "--quiet"]


RUN = ["--recipe", "micro", "--until", "bm25", "--quiet"]
COMPARED = ["--recipe", "micro", "--objectives", "mlm", "--seeds", "1", "--quiet"]
FEW = ["--measures", "RR@2", "--depth", 2, "--bootstrap-samples", 100, "--randomisation-samples", 100, "--quiet"]


CASES: dict[str, Case] = {name: step_case(name) for name in registry.steps()} | {
    "new": Case(
        (("new", "folder"),),
        lambda there, inputs: ["new", there / "f", "--source", "sample", "--recipe", "micro"],
        again=InputError.exit_code,
    ),
    "label": Case(
        (("label", "folder"),), lambda there, inputs: ["label", "sample", there / "f", "--port", 0], never_served
    ),
    "run": Case((("run", "folder"),), lambda there, inputs: ["run", *RUN, "--folder", there / "f"], stand_ins),
    "compare": Case(
        (("compare", "folder"),), lambda there, inputs: ["compare", *COMPARED, "--folder", there / "f"], compare_quickly
    ),
    "compare --kubeflow": Case(
        (("compare", "kubeflow"),),
        lambda there, inputs: ["compare", *COMPARED, "--kubeflow", there / "f" / "pipeline.yaml"],
        compile_quickly,
    ),
    "zero-shot": Case(
        (("zero-shot", "folder"),),
        lambda there, inputs: ["zero-shot", inputs / "colours", *FEW, "--folder", there / "f"],
        beir,
    ),
    "tune": Case(
        (("tune", "folder"),),
        lambda there, inputs: [*tune_words(inputs), "--trials", 1, "--folder", there / "f"],
        tune_quickly,
    ),
    "refresh": Case(
        (("refresh", "folder"),),
        lambda there, inputs: ["refresh", inputs / "own", "--folder", there / "f"],
        clone_alone,
    ),
    "release fetch": Case(
        (("release fetch", "target"),),
        lambda there, inputs: ["release", "fetch", "--folder", inputs, "--target", there / "f"],
        release_at_hand,
    ),
    "release card": Case(
        (("release card", "target"),),
        lambda there, inputs: ["release", "card", "--folder", inputs, "--target", there / "f"],
        winner_at_hand,
        again=InputError.exit_code,
    ),
    "pipeline compile": Case(
        (("pipeline compile", "output"),),
        lambda there, inputs: ["pipeline", "compile", "train", "--output", there / "f" / "train.yaml"],
        compile_quickly,
    ),
    "pipeline compile --folder": Case(
        (("pipeline compile", "folder"),),
        lambda there, inputs: ["pipeline", "compile", "--folder", there / "f"],
        compile_quickly,
    ),
    "pipeline run-local": Case(
        (("pipeline run-local", "folder"),),
        lambda there, inputs: ["pipeline", "run-local", "train", "--folder", there / "f"],
        run_pipelines_quickly,
    ),
}

READS: set[Argument] = {
    *((name, port.name) for name, step in registry.steps().items() for port in step.inputs),
    *((name, "params") for name in (*registry.steps(), "run")),
    *((name, "recipe") for name in ("new", "run", "compare")),
    *(
        (f"pipeline {action}", name)
        for action in ("compile", "submit", "upload", "run-local")
        for name in ("recipe", "sweep")
    ),
    *((f"pipeline {action}", "placements") for action in ("compile", "submit", "upload")),
    *((f"pipeline {action}", "ca_file") for action in ("submit", "upload")),
    *((f"schedule {action}", "file") for action in ("apply", "watch")),
    *(("search", name) for name in ("corpus", "retriever", "index", "hybrid")),
    ("compare", "sweep"),
    ("models", "table"),
    ("new", "questions"),
    ("refresh", "train_queries"),
    ("serve", "place"),
    ("publish", "release"),
    ("queries", "log"),
    # These write, but change nothing that exists: `export` refuses a folder that exists, and a query log deletes only
    # files of its own (tests/serving/test_query_log.py).
    ("queries", "folder"),
    ("serve", "log_queries"),
    ("serve", "fetch_into"),  # removes only what it fetched (tests/serving/test_fetched_releases.py)
    ("tune", "params"),
    ("tune", "space"),
    ("zero-shot", "corpora"),
    ("zero-shot", "hybrid"),
    # The workspace; tests/releases/test_promotion.py covers what a promotion writes there.
    *((f"release {action}", "folder") for action in ("list", "promote", "rollback", "fetch", "card", "register")),
}
"""Arguments that name a place to read, or one where the command changes nothing that exists."""
