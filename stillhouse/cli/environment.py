"""`stillhouse environment`: records what affects outputs besides settings and data; a stage of dvc.yaml runs it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stillhouse.artifacts import write_json
from stillhouse.context import quiet, say
from stillhouse.monitoring.activity import watched
from stillhouse.own_files import own_file
from stillhouse.workflow.parser import Parser, output_file
from stillhouse.workflow.run_progress import FIRST, outlook_in_dvc


def main(argv: Sequence[str]) -> int:
    from stillhouse.environment import describe_environment

    parser = Parser(
        FIRST,
        "Writes a digest of Stillhouse's code and the versions of its libraries to FILE.\nEvery stage of dvc.yaml "
        "depends on this file, so that DVC notices when a library changes. As DVC's first stage, the command also "
        "says how long the run will take.",
    )
    parser.add_argument("output", metavar="FILE", type=output_file, help="the file to write")
    arguments = parser.parse(argv)
    with watched(FIRST, quiet()):
        with own_file(arguments.output) as path:
            write_json(path, describe_environment())
        if not quiet() and (said := outlook_in_dvc(Path("params.yaml"))):
            say(said)
    return 0
