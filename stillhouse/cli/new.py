"""`stillhouse new`: creates a workspace."""

import argparse
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from stillhouse.core.terminal import show
from stillhouse.pipeline.new_workspace import make
from stillhouse.pipeline.parser import Parser, flag, output_folder, source_text
from stillhouse.pipeline.workspace import with_dvc


def new_parser() -> Parser:
    parser = Parser(
        "new",
        "Creates a workspace: params.yaml (a recipe for your source), dvc.yaml and, with DVC, its repository.",
        "examples:\n"
        "  stillhouse new trial --source sample\n"
        "  stillhouse new manuals --source ~/manuals\n"
        "  stillhouse new msmarco --source ~/msmarco --recipe simlm-msmarco\n"
        "  stillhouse new manuals --source ~/manuals --model ~/models/bert\n"
        "  stillhouse new manuals --source ~/manuals --model auto\n"
        "  stillhouse new manuals --source ~/manuals --hours 2\n"
        "  cd manuals && stillhouse run\n\n"
        "Without --recipe, the base model and the source decide: `language-model` for a bare language model, which is\n"
        "pre-trained first; for a retriever `labelled` if the source has training questions; if not, `generated`\n"
        "if a language model that writes some is installed, else `unlabelled`.\n"
        "The command says how long the run will take, stage by stage, or why this is unknown: the base model is not\n"
        "on this machine yet, the source cannot be inspected, or the run will use a GPU. Times are predicted only for\n"
        "runs on a CPU.",
    )
    parser.add_argument("folder", metavar="FOLDER", type=output_folder, help="the folder to create")
    flag(parser, "--source SOURCE", "the corpus to read; `sample` is built in (default: the recipe's)", source_text)
    flag(
        parser,
        "--model MODEL",
        "the model to start from: a folder, package:NAME of an installed package, or a hub name (default: the "
        "recipe's). Several, separated by commas, a table FILE.csv, or `auto`, the models of `stillhouse models` on "
        "this machine: takes the best of them on the source's dev questions, alone or with BM25",
        model_text,
    )
    flag(parser, "--recipe NAME|FILE", "a shipped recipe or a recipe file (default: one that fits source and model)")
    flag(
        parser,
        "--hours H",
        "train on as many questions and in as many steps as fit into a run of H hours on this machine's CPU, up "
        "to twice the recipe's epochs over all labelled questions, or three times as many generated questions as the "
        "recipe's (default: the recipe's own, and more labelled questions if they fit into an hour); not possible on "
        "a GPU, where run times cannot be predicted",
        positive,
    )
    flag(
        parser,
        "--questions FOLDER",
        "questions with answers from `stillhouse label`, which can correct the choice of a winner (ingest.dev_queries)",
        Path,
    )
    return parser


def model_text(text: str) -> str:
    """The `type` of an argument that names a model."""
    if not text.strip():
        raise argparse.ArgumentTypeError("the model is empty; give one, such as bert-base-uncased, or leave it out")
    return text


def positive(text: str) -> float:
    """A number above 0. Raises `ArgumentTypeError` for any other text."""
    with suppress(ValueError):
        if 0 < (number := float(text)) < float("inf"):
            return number
    raise argparse.ArgumentTypeError(f"must be a number above 0, such as 0.5 or 3, not {text!r}")


def main(argv: Sequence[str]) -> int:
    arguments = new_parser().parse(argv)
    time = make(
        arguments.folder, arguments.source, arguments.recipe, arguments.model, arguments.hours, arguments.questions
    )
    folder = shlex.quote(str(arguments.folder))
    show(f"created {folder}; its settings are in params.yaml", *time, "Next:")
    show(f"    cd {folder} && {'dvc repro' if with_dvc() else 'stillhouse run'}")
    return 0
