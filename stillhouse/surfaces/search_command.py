"""`stillhouse search`: a person types a question and sees ranked passages."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stillhouse import context
from stillhouse.errors import InputError
from stillhouse.graph import ARTIFACTS, find_uses
from stillhouse.surfaces.parser import Parser
from stillhouse.surfaces.step_command import add_context_flags, environment

if TYPE_CHECKING:
    from stillhouse.retrieval.search import Hit, Searcher

INPUTS = find_uses()["distilled_run"].input_paths(ARTIFACTS)
WIDEST = 100


def search_parser() -> Parser:
    parser = Parser(
        "search",
        "Answers a question with the passages that the retriever ranks first. Without a question it asks for them.",
        "examples:\n  stillhouse search how do bats find their prey\n  stillhouse search",
    )
    parser.add_argument("question", nargs="*", metavar="QUESTION", help="the question; quotes are not needed")
    for name, text in (("corpus", "the corpus"), ("retriever", "the bi-encoder"), ("index", "its index")):
        default = INPUTS[name]
        parser.add_argument(
            f"--{name}", metavar="FOLDER", type=Path, default=default, help=f"{text} (default: {default.as_posix()})"
        )
    parser.add_argument("--top", metavar="N", type=int, default=5, help="how many passages to show (default: 5)")
    add_context_flags(parser.add_argument_group("how it runs"))
    return parser


def main(argv: Sequence[str]) -> int:
    arguments = search_parser().parse(argv)
    if arguments.top < 1:
        raise InputError(f"--top must be at least 1, not {arguments.top}")
    folders = {name: getattr(arguments, name) for name in INPUTS}
    for name, folder in folders.items():
        if not folder.is_dir():
            raise InputError(f"--{name} {folder} does not exist; `dvc repro` makes it, in a folder of `stillhouse new`")
    with environment(arguments):
        searcher = open_searcher(folders)
        if arguments.question:
            answer(searcher, " ".join(arguments.question), arguments.top)
        else:
            converse(searcher, arguments.top)
    return 0


def open_searcher(folders: dict[str, Path]) -> Searcher:
    context.hush_libraries()
    from stillhouse.retrieval.search import Searcher

    surroundings = context.Context(work=context.work_root(), device=context.device(), quiet=True)
    return Searcher(folders["corpus"], folders["retriever"], folders["index"], surroundings)


def converse(searcher: Searcher, top: int) -> None:
    """Asks for questions and answers them until an empty line or the end of the input."""
    print("Type a question; an empty line ends.")
    while True:
        try:
            question = input("question> ").strip()
        except EOFError:
            print()
            return
        if not question:
            return
        answer(searcher, question, top)


def answer(searcher: Searcher, question: str, top: int) -> None:
    width = min(shutil.get_terminal_size().columns, WIDEST)
    hits = searcher.search(question, top)
    print("\n\n".join(layout(hit, width) for hit in hits) or "no passage found")


def layout(hit: Hit, width: int) -> str:
    """One hit for a person: a line of rank, title, score and id, and the text wrapped below it."""
    text = textwrap.fill(hit.text, width=width, initial_indent="    ", subsequent_indent="    ")
    return f"{hit.rank:2}. {hit.title or '(no title)'}  [{hit.score:.4f}]  {hit.passage_id}\n{text}"
