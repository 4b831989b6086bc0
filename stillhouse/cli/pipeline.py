"""`stillhouse pipeline`: compiles the Kubeflow pipelines, submits one to a cluster, or runs one on this machine."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from stillhouse.core.errors import REFUSED_CODE, InputError
from stillhouse.core.own_files import own_file
from stillhouse.core.terminal import show, warn
from stillhouse.pipeline.parser import Parser, flag, named_values, output_file, output_folder, run_action
from stillhouse.pipeline.recipe_settings import add_set_flag
from stillhouse.pipeline.step_command import add_context_flags, environment

if TYPE_CHECKING:
    from stillhouse.kubeflow.pipelines.catalog import Request
    from stillhouse.kubeflow.pipelines.placement_table import PlacementTable
    from stillhouse.kubeflow.pipelines.submit import Cluster

HELP = """\
usage: stillhouse pipeline ACTION [--help] ...

actions:
  compile    writes pipelines as files for Kubeflow
  submit     starts a run on a cluster
  upload     uploads a pipeline to a cluster, so that schedules and the watcher can start it
  run-local  runs a pipeline on this machine, each task in its own process, without Kubernetes

pipelines:
  train               turns a corpus into a distilled retriever, its index and a report
  compare-objectives  compares pre-training objectives
  zero-shot           evaluates retrievers and BM25 on many corpora
  refresh             updates the released retriever when its corpus changes

examples:
  stillhouse pipeline submit train --placements gpu --parameter source=/volume/corpora/mine --wait
  stillhouse pipeline run-local train --recipe micro --folder trial
  stillhouse pipeline submit refresh --parameter releases=https://git.example/search/releases.git --wait
  stillhouse pipeline compile train --recipe labelled --output train.yaml
"""


def main(argv: Sequence[str]) -> int:
    return run_action("pipeline", HELP, ACTIONS, argv)


def _parser(action: str, description: str) -> Parser:
    parser = Parser(f"pipeline {action}", description)
    several = action == "compile"
    default = "all" if several else "train"
    parser.add_argument(
        "pipeline",
        nargs="?",
        default="" if several else "train",
        help=f"the pipeline; `stillhouse pipeline --help` lists them (default: {default})",
    )
    flag(
        parser,
        "--recipe NAME|FILE",
        "a shipped recipe or a recipe file (default: simlm for compare-objectives, labelled for the others)",
        default="",
    )
    flag(parser, "--sweep NAME|FILE", "the sweep for compare-objectives", default="all-objectives")
    add_set_flag(parser)
    return parser


def _add_placements(parser: Parser) -> None:
    flag(
        parser,
        "--placements NAME|FILE",
        "where tasks run: cpu (default), gpu, or a file like pipelines/placements/gpu.yaml",
        default="cpu",
    )
    flag(
        parser,
        "--nodes N",
        "pre-train and train retrievers on N nodes each, with Kubeflow Trainer (default: as in --placements)",
        int,
        0,
    )


def _placements(arguments: argparse.Namespace) -> PlacementTable:
    """The placement table that a command line names. Raises `InputError` for an invalid one."""
    from stillhouse.kubeflow.pipelines.placement_table import find_table

    table = find_table(arguments.placements)
    return table.on_nodes(arguments.nodes) if arguments.nodes else table


def _request(arguments: argparse.Namespace) -> Request:
    from stillhouse.kubeflow.pipelines.catalog import Request

    return Request(arguments.pipeline, arguments.recipe, arguments.sweep, settings=tuple(arguments.settings))


def _add_parameters(parser: Parser) -> None:
    flag(parser, "--parameter NAME=VALUE", "a parameter of the pipeline; can be repeated", many=True)


def _add_cluster(parser: Parser) -> None:
    where = parser.add_argument_group("cluster (default: this pod's, or the kubeconfig's)")
    flag(where, "--host URL", "URL of the API, for example a port-forward", default="")
    flag(where, "--namespace NAME", "namespace of the run, on multi-user Kubeflow", default="")
    flag(where, "--kubeflow NAME", "namespace of Kubeflow Pipelines", default="kubeflow")
    flag(where, "--context NAME", "context of the kubeconfig", default="")
    flag(where, "--ca-file FILE", "CA certificate of the API", default="")


def _cluster(arguments: argparse.Namespace) -> Cluster:
    from stillhouse.kubeflow.pipelines.submit import Cluster

    names = ("host", "kubeflow", "namespace", "context", "ca_file")
    return Cluster(**{name: getattr(arguments, name) for name in names})


def compile_action(argv: Sequence[str]) -> int:
    parser = _parser("compile", "Writes one pipeline as a file to upload, or all of them as Kubernetes resources.")
    _add_placements(parser)
    flag(parser, "--output FILE", "where to write one pipeline (default: PIPELINE.yaml)", output_file)
    flag(
        parser,
        "--folder FOLDER",
        "where to write all pipelines (default: %(default)s)",
        output_folder,
        Path("manifests/pipelines"),
    )
    flag(parser, "--resources", "write one pipeline as resources for `kubectl apply`")
    arguments = parser.parse(argv)
    require_kfp()
    from stillhouse.kubeflow.pipelines.ir import compile_small
    from stillhouse.kubeflow.pipelines.manifests import write_all

    if not arguments.pipeline:
        for name in ("recipe", "sweep", "settings", "placements", "nodes", "output", "resources"):
            if getattr(arguments, name) != parser.get_default(name):
                given = name.replace("settings", "set")
                raise InputError(f"--{given} is for one pipeline; name it, as in `stillhouse pipeline compile train`")
        for path in write_all(arguments.folder):
            show(f"wrote {path}")
        return 0
    request = _request(arguments)
    compiled = compile_small(request.build(_placements(arguments)))
    path = arguments.output or Path(f"{arguments.pipeline}.yaml")
    with own_file(path) as file:
        file.write_text(compiled.as_resources() if arguments.resources else compiled.as_ir(), encoding="utf-8")
    how = "`kubectl apply`" if arguments.resources else "the Kubeflow user interface, or with `kfp pipeline create`"
    show(f"wrote {path}, version {compiled.version}; upload it in {how}")
    return 0


def submit_action(argv: Sequence[str]) -> int:
    parser = _parser("submit", "Starts a run on a cluster. Invalid parameters are rejected before anything is sent.")
    _add_placements(parser)
    _add_parameters(parser)
    flag(parser, "--image IMAGE", "same as --parameter image=IMAGE (default: $STILLHOUSE_IMAGE)")
    flag(parser, "--run-name NAME", "name of the run (default: the pipeline and the time)")
    flag(parser, "--experiment NAME", "Kubeflow experiment (default: %(default)s)", default="stillhouse")
    flag(parser, "--service-account NAME", "service account of the run's pods", default="")
    _add_cluster(parser)
    flag(
        parser,
        "--wait",
        "wait for the run; show its tasks and Kubernetes' messages about its pods; exit with 1 if it fails, and with 4 "
        "if a refresh refuses its challenger",
    )
    flag(parser, "--every SECONDS", "how often --wait polls (default: %(default)g)", float, 5.0)
    arguments = parser.parse(argv)
    require_kfp()
    from stillhouse.kubeflow.pipelines.image import image
    from stillhouse.kubeflow.pipelines.ir import compile_small
    from stillhouse.kubeflow.pipelines.pods import watch_pods
    from stillhouse.kubeflow.pipelines.submit import check_pod_parameters, submit, watch

    request = _request(arguments)
    table = _placements(arguments)
    given = named_values(arguments.parameter, "--parameter")
    pod = {"image": arguments.image or given.pop("image", image())}
    pod |= {name: given.pop(name) for name in table.parameters if name in given}
    check_pod_parameters(pod)
    values = request.read(given)
    request.check(values)
    compiled = compile_small(request.build(table))
    cluster = _cluster(arguments)
    client = cluster.connect()
    name = arguments.run_name or f"{request.pipeline} {datetime.now():%Y-%m-%d %H:%M:%S}"
    run = submit(client, compiled, values | pod, name, arguments.experiment, arguments.service_account)
    show(f"run {run}, version {compiled.version}")
    if not arguments.wait:
        return 0
    try:
        pods = watch_pods(run, cluster.namespace or cluster.kubeflow, arguments.context, _show)
        if not watch(client, run, _show, arguments.every, pods):
            return 1
        outcome = pods.outcome if pods else ""
        if request.pipeline == "refresh" and not outcome:
            show("the pages of its tasks plan and promote say whether it released a retriever or refused it")
        return REFUSED_CODE if outcome.startswith("refused: ") else 0
    except KeyboardInterrupt:
        warn(f"the run continues on the cluster; `kfp run get {run}` shows its state")
        raise


def _show(line: str) -> None:
    show(*line.split("\n"))


def upload_action(argv: Sequence[str]) -> int:
    parser = _parser(
        "upload", "Uploads a pipeline unless the cluster already has the same version, named by its content."
    )
    _add_placements(parser)
    _add_cluster(parser)
    arguments = parser.parse(argv)
    require_kfp()
    from stillhouse.kubeflow.pipelines.ir import compile_small
    from stillhouse.kubeflow.pipelines.stored import upload

    request = _request(arguments)
    compiled = compile_small(request.build(_placements(arguments)))
    show(upload(_cluster(arguments).connect(), compiled, arguments.namespace))
    return 0


def run_local_action(argv: Sequence[str]) -> int:
    parser = _parser("run-local", "Runs a pipeline on this machine and keeps its result.")
    _add_parameters(parser)
    flag(parser, "--folder FOLDER", "where to write the result (default: the current folder)", output_folder, Path())
    add_context_flags(parser.add_argument_group("how it runs"))
    arguments = parser.parse(argv)
    require_kfp()
    from stillhouse.kubeflow.pipelines.catalog import RESULTS
    from stillhouse.kubeflow.pipelines.local import PipelineFailed, run_local

    request = _request(arguments)
    values = request.read(named_values(arguments.parameter, "--parameter"))
    try:
        with environment(arguments):
            result = run_local(request, values, arguments.folder)
    except PipelineFailed as error:
        warn(f"stillhouse: {error}; the task's own lines above say why")
        return 1
    show(f"the result is in {result}; open {result / RESULTS[request.pipeline].page}")
    if request.kept():
        show(f"`stillhouse search` and `serve` answer with its winner in {arguments.folder}")
    return request.exit_code(result)


def require_kfp() -> None:
    """Raises `InputError` with the remedy if kfp is not installed."""
    try:
        import kfp  # noqa: F401
    except ImportError:
        raise InputError("this command needs kfp: pip install 'stillhouse[kubeflow]'") from None


ACTIONS: Mapping[str, Callable[[Sequence[str]], int]] = {
    "compile": compile_action,
    "submit": submit_action,
    "upload": upload_action,
    "run-local": run_local_action,
}
"""The actions, by name."""
