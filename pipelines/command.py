"""`stillhouse pipeline`: compiles the Kubeflow pipeline, or runs it on this machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from stillhouse.config import nearest
from stillhouse.errors import InputError
from stillhouse.surfaces.parser import Parser
from stillhouse.surfaces.recipes import find_recipe, load_recipe
from stillhouse.surfaces.step_command import add_context_flags, environment

HELP = """\
usage: stillhouse pipeline ACTION [--help] ...

actions:
  compile    writes the pipeline of a recipe as a file that Kubeflow takes
  run-local  runs it on this machine, each task in a process of its own, without Kubernetes

examples:
  stillhouse pipeline compile --recipe sample --output retriever.yaml
  stillhouse pipeline run-local --recipe micro --folder trial
"""


def main(argv: Sequence[str]) -> int:
    actions = {"compile": compile_action, "run-local": run_local_action}
    if not argv or argv[0] in ("-h", "--help"):
        print(HELP, end="")
        return 0
    if argv[0] not in actions:
        raise InputError(f"stillhouse pipeline has no action {argv[0]!r}; {nearest(argv[0], actions)}")
    return actions[argv[0]](argv[1:])


def _parser(action: str, description: str) -> Parser:
    parser = Parser(f"pipeline {action}", description)
    parser.add_argument(
        "--recipe", metavar="NAME|FILE", default="sample", help="a shipped recipe, or a file (default: sample)"
    )
    return parser


def compile_action(argv: Sequence[str]) -> int:
    parser = _parser("compile", "Writes the pipeline of a recipe as IR YAML, to upload to Kubeflow.")
    parser.add_argument(
        "--output", metavar="FILE", type=Path, default=Path("retriever.yaml"), help="default: retriever.yaml"
    )
    arguments = parser.parse(argv)
    _platform()
    from pipelines.compile import compile_pipeline

    compile_pipeline(arguments.recipe, arguments.output)
    print(f"wrote {arguments.output}; upload it in the Kubeflow user interface, or with `kfp pipeline create`")
    return 0


def run_local_action(argv: Sequence[str]) -> int:
    parser = _parser("run-local", "Runs the pipeline on this machine and keeps its evaluation.")
    parser.add_argument(
        "--folder", metavar="FOLDER", type=Path, default=Path(), help="write evaluation/ there (default: here)"
    )
    add_context_flags(parser.add_argument_group("how it runs"))
    arguments = parser.parse(argv)
    _platform()
    from pipelines.local import PipelineFailed, run_local

    path = find_recipe(arguments.recipe)
    try:
        with environment(arguments):
            result = run_local(load_recipe(path), str(path), arguments.folder)
    except PipelineFailed as error:
        print(f"stillhouse: {error}; the task's own lines above say why", file=sys.stderr)
        return 1
    print(f"the evaluation is in {result}; open {result / 'report.html'}")
    return 0


def _platform() -> None:
    """Raises `InputError` with the remedy when kfp is not installed."""
    try:
        import kfp  # noqa: F401
    except ImportError:
        raise InputError("`stillhouse pipeline` needs kfp: pip install 'stillhouse[platform]'") from None
